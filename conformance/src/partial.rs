//! A backend that has only some op families, for the kit: [`Partial`] answers the others with `Unsupported`.
//!
//! ```no_run
//! # use congruent_backend_api::{BinaryOps, CopyOps, Result};
//! use congruent_conformance::partial::Partial;
//! use congruent_conformance::trials::Harness;
//!
//! # fn run<B: BinaryOps + CopyOps>(my_backend: fn() -> Result<B>) {
//! // Implements two families so far.
//! Harness::new("my-backend", move || Ok(Partial::new(my_backend()?).binary().copy())).run()
//! # }
//! ```
//!
//! The trials of the families that are not named then check that the backend says that it lacks them. Code that is
//! generic over the families it needs takes such a backend as it is; `Partial` is for code that asks for
//! [`AllOps`](congruent_backend_api::AllOps): the kit, and [`AnyBackend`](congruent_backend_api::erase::AnyBackend).

use congruent_backend_api::ops::attention::{Attention, AttentionInputs};
use congruent_backend_api::ops::binary::Binary;
use congruent_backend_api::ops::compare::{Clamp, Compare, Where};
use congruent_backend_api::ops::conv::Conv;
use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter};
use congruent_backend_api::ops::linear::Linear;
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::norm::Normalize;
use congruent_backend_api::ops::pool::Pool;
use congruent_backend_api::ops::random::Random;
use congruent_backend_api::ops::reduce::{ArgReduce, Reduce};
use congruent_backend_api::ops::scan::Scan;
use congruent_backend_api::ops::sort::{SearchSorted, Sort};
use congruent_backend_api::ops::statistic::Statistic;
use congruent_backend_api::ops::unary::Unary;
use congruent_backend_api::{
    AttentionOps, Backend, BinaryOps, CompareOps, ConvOps, CopyOps, DType, Error, IndexOps, LinearOps, MatmulOps,
    NormOps, Op, PoolOps, RandomOps, ReduceOps, Result, ScanOps, SortOps, StatisticOps, UnaryOps,
};

/// A view of a backend as one that has a family; `None` when it has not.
type Family<B, F> = Option<fn(&B) -> &F>;

/// A backend of which only the families that were named are used.
#[derive(Debug)]
pub struct Partial<B: Backend> {
    backend: B,
    unary: Family<B, dyn UnaryOps<Storage = B::Storage>>,
    binary: Family<B, dyn BinaryOps<Storage = B::Storage>>,
    compare: Family<B, dyn CompareOps<Storage = B::Storage>>,
    copy: Family<B, dyn CopyOps<Storage = B::Storage>>,
    reduce: Family<B, dyn ReduceOps<Storage = B::Storage>>,
    random: Family<B, dyn RandomOps<Storage = B::Storage>>,
    scan: Family<B, dyn ScanOps<Storage = B::Storage>>,
    statistic: Family<B, dyn StatisticOps<Storage = B::Storage>>,
    sort: Family<B, dyn SortOps<Storage = B::Storage>>,
    matmul: Family<B, dyn MatmulOps<Storage = B::Storage>>,
    linear: Family<B, dyn LinearOps<Storage = B::Storage>>,
    norm: Family<B, dyn NormOps<Storage = B::Storage>>,
    index: Family<B, dyn IndexOps<Storage = B::Storage>>,
    attention: Family<B, dyn AttentionOps<Storage = B::Storage>>,
    conv: Family<B, dyn ConvOps<Storage = B::Storage>>,
    pool: Family<B, dyn PoolOps<Storage = B::Storage>>,
}

impl<B: Backend> Partial<B> {
    /// A backend without any op; name the families that it has.
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self {
            backend,
            unary: None,
            binary: None,
            compare: None,
            copy: None,
            reduce: None,
            random: None,
            scan: None,
            statistic: None,
            sort: None,
            matmul: None,
            linear: None,
            norm: None,
            index: None,
            attention: None,
            conv: None,
            pool: None,
        }
    }

    /// It has the unary ops.
    #[must_use]
    pub fn unary(self) -> Self
    where
        B: UnaryOps,
    {
        Self { unary: Some(|backend| backend), ..self }
    }

    /// It has the binary ops.
    #[must_use]
    pub fn binary(self) -> Self
    where
        B: BinaryOps,
    {
        Self { binary: Some(|backend| backend), ..self }
    }

    /// It has the comparisons, `where` and `clamp`.
    #[must_use]
    pub fn compare(self) -> Self
    where
        B: CompareOps,
    {
        Self { compare: Some(|backend| backend), ..self }
    }

    /// It has fills and copies.
    #[must_use]
    pub fn copy(self) -> Self
    where
        B: CopyOps,
    {
        Self { copy: Some(|backend| backend), ..self }
    }

    /// It has the reductions and the positions of extremes.
    #[must_use]
    pub fn reduce(self) -> Self
    where
        B: ReduceOps,
    {
        Self { reduce: Some(|backend| backend), ..self }
    }

    /// It has the random numbers.
    #[must_use]
    pub fn random(self) -> Self
    where
        B: RandomOps,
    {
        Self { random: Some(|backend| backend), ..self }
    }

    /// It has the scans.
    #[must_use]
    pub fn scan(self) -> Self
    where
        B: ScanOps,
    {
        Self { scan: Some(|backend| backend), ..self }
    }

    /// It has the statistics.
    #[must_use]
    pub fn statistic(self) -> Self
    where
        B: StatisticOps,
    {
        Self { statistic: Some(|backend| backend), ..self }
    }

    /// It has the sorts and the searches in sorted rows.
    #[must_use]
    pub fn sort(self) -> Self
    where
        B: SortOps,
    {
        Self { sort: Some(|backend| backend), ..self }
    }

    /// It has the products.
    #[must_use]
    pub fn matmul(self) -> Self
    where
        B: MatmulOps,
    {
        Self { matmul: Some(|backend| backend), ..self }
    }

    /// It has the linear layers.
    #[must_use]
    pub fn linear(self) -> Self
    where
        B: LinearOps,
    {
        Self { linear: Some(|backend| backend), ..self }
    }

    /// It has the normalisations.
    #[must_use]
    pub fn norm(self) -> Self
    where
        B: NormOps,
    {
        Self { norm: Some(|backend| backend), ..self }
    }

    /// It has gather, scatter and nonzero.
    #[must_use]
    pub fn index(self) -> Self
    where
        B: IndexOps,
    {
        Self { index: Some(|backend| backend), ..self }
    }

    /// It has attention.
    #[must_use]
    pub fn attention(self) -> Self
    where
        B: AttentionOps,
    {
        Self { attention: Some(|backend| backend), ..self }
    }

    /// It has the convolutions and their gradients.
    #[must_use]
    pub fn conv(self) -> Self
    where
        B: ConvOps,
    {
        Self { conv: Some(|backend| backend), ..self }
    }

    /// It has the poolings and their gradients.
    #[must_use]
    pub fn pool(self) -> Self
    where
        B: PoolOps,
    {
        Self { pool: Some(|backend| backend), ..self }
    }

    fn has<F: ?Sized>(&self, family: Family<B, F>, op: Op, dtype: DType) -> Result<&F> {
        let family = family.ok_or_else(|| Error::unsupported(self.name(), op.name(), dtype))?;
        Ok(family(&self.backend))
    }
}

impl<B: Backend> Backend for Partial<B> {
    type Storage = B::Storage;

    fn name(&self) -> &str {
        self.backend.name()
    }

    fn supports(&self, op: Op, dtype: DType) -> bool {
        let has = match op {
            Op::Unary(_) => self.unary.is_some(),
            Op::Binary(_) => self.binary.is_some(),
            Op::Compare(_) | Op::Where | Op::Clamp => self.compare.is_some(),
            Op::Copy | Op::Cast(_) | Op::Fill => self.copy.is_some(),
            Op::Reduce(_) | Op::ArgReduce(_) => self.reduce.is_some(),
            Op::Random(_) => self.random.is_some(),
            Op::Scan(_) => self.scan.is_some(),
            Op::Statistic(_) => self.statistic.is_some(),
            Op::Sort(_) | Op::SearchSorted => self.sort.is_some(),
            Op::Attention(_) => self.attention.is_some(),
            Op::Matmul => self.matmul.is_some(),
            Op::Linear => self.linear.is_some(),
            Op::Normalize(_) | Op::NormalizeGrad(_) => self.norm.is_some(),
            Op::Gather | Op::Scatter(_) | Op::Nonzero => self.index.is_some(),
            Op::Conv(_) => self.conv.is_some(),
            Op::Pool(_) => self.pool.is_some(),
        };
        has && self.backend.supports(op, dtype)
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<B::Storage> {
        self.backend.alloc(dtype, len)
    }

    fn write(&self, bytes: &[u8], storage: &mut B::Storage, start: usize) -> Result<()> {
        self.backend.write(bytes, storage, start)
    }

    fn download(&self, storage: &B::Storage, start: usize, bytes: &mut [u8]) -> Result<()> {
        self.backend.download(storage, start, bytes)
    }

    fn synchronize(&self) -> Result<()> {
        self.backend.synchronize()
    }
}

impl<B: Backend> UnaryOps for Partial<B> {
    fn unary(&self, plan: &Unary, x: Option<&B::Storage>, out: &mut B::Storage) -> Result<()> {
        self.has(self.unary, Op::Unary(plan.op()), plan.dtype())?.unary(plan, x, out)
    }
}

impl<B: Backend> BinaryOps for Partial<B> {
    fn binary(
        &self,
        plan: &Binary,
        a: Option<&B::Storage>,
        b: Option<&B::Storage>,
        out: &mut B::Storage,
    ) -> Result<()> {
        self.has(self.binary, Op::Binary(plan.op()), plan.dtype())?.binary(plan, a, b, out)
    }
}

impl<B: Backend> CompareOps for Partial<B> {
    fn compare(
        &self,
        plan: &Compare,
        a: Option<&B::Storage>,
        b: Option<&B::Storage>,
        out: &mut B::Storage,
    ) -> Result<()> {
        self.has(self.compare, Op::Compare(plan.op()), plan.dtype())?.compare(plan, a, b, out)
    }

    fn choose(
        &self,
        plan: &Where,
        condition: Option<&B::Storage>,
        a: Option<&B::Storage>,
        b: Option<&B::Storage>,
        out: &mut B::Storage,
    ) -> Result<()> {
        self.has(self.compare, Op::Where, plan.dtype())?.choose(plan, condition, a, b, out)
    }

    fn clamp(&self, plan: &Clamp, x: Option<&B::Storage>, out: &mut B::Storage) -> Result<()> {
        self.has(self.compare, Op::Clamp, plan.dtype())?.clamp(plan, x, out)
    }
}

impl<B: Backend> CopyOps for Partial<B> {
    fn fill(&self, plan: &Fill, out: &mut B::Storage) -> Result<()> {
        self.has(self.copy, Op::Fill, plan.dtype())?.fill(plan, out)
    }

    fn copy(&self, plan: &Copy, x: &B::Storage, out: &mut B::Storage) -> Result<()> {
        self.has(self.copy, Op::Copy, plan.dtype())?.copy(plan, x, out)
    }
}

impl<B: Backend> ReduceOps for Partial<B> {
    fn reduce(&self, plan: &Reduce, x: &B::Storage, out: &mut B::Storage) -> Result<()> {
        self.has(self.reduce, Op::Reduce(plan.op()), plan.dtype())?.reduce(plan, x, out)
    }

    fn arg_reduce(&self, plan: &ArgReduce, x: &B::Storage, out: &mut B::Storage) -> Result<()> {
        self.has(self.reduce, Op::ArgReduce(plan.op()), plan.dtype())?.arg_reduce(plan, x, out)
    }
}

impl<B: Backend> RandomOps for Partial<B> {
    fn random(&self, plan: &Random, out: &mut B::Storage) -> Result<()> {
        self.has(self.random, Op::Random(plan.op()), plan.dtype())?.random(plan, out)
    }
}

impl<B: Backend> ScanOps for Partial<B> {
    fn scan(&self, plan: &Scan, x: &B::Storage, out: &mut B::Storage) -> Result<()> {
        self.has(self.scan, Op::Scan(plan.op()), plan.dtype())?.scan(plan, x, out)
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backend's own statistics")]
impl<B: Backend> StatisticOps for Partial<B> {
    fn statistic(&self, plan: &Statistic, x: &B::Storage, out: &mut B::Storage) -> Result<()> {
        self.has(self.statistic, Op::Statistic(plan.op()), plan.dtype())?.statistic(plan, x, out)
    }
}

impl<B: Backend> SortOps for Partial<B> {
    fn sort(&self, plan: &Sort, x: &B::Storage, out: &mut B::Storage) -> Result<()> {
        self.has(self.sort, Op::Sort(plan.op()), plan.dtype())?.sort(plan, x, out)
    }

    fn search_sorted(
        &self,
        plan: &SearchSorted,
        sorted: &B::Storage,
        values: &B::Storage,
        out: &mut B::Storage,
    ) -> Result<()> {
        self.has(self.sort, Op::SearchSorted, plan.dtype())?.search_sorted(plan, sorted, values, out)
    }
}

impl<B: Backend> MatmulOps for Partial<B> {
    fn matmul(&self, plan: &Matmul, a: &B::Storage, b: &B::Storage, out: &mut B::Storage) -> Result<()> {
        self.has(self.matmul, Op::Matmul, plan.dtype())?.matmul(plan, a, b, out)
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backend's own layers")]
impl<B: Backend> LinearOps for Partial<B> {
    fn linear(
        &self,
        plan: &Linear,
        x: &B::Storage,
        weight: &B::Storage,
        bias: Option<&B::Storage>,
        out: &mut B::Storage,
    ) -> Result<()> {
        self.has(self.linear, Op::Linear, plan.dtype())?.linear(plan, x, weight, bias, out)
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backend's own normalisations")]
impl<B: Backend> NormOps for Partial<B> {
    fn normalize(
        &self,
        plan: &Normalize,
        x: &B::Storage,
        weight: Option<&B::Storage>,
        bias: Option<&B::Storage>,
        out: &mut B::Storage,
    ) -> Result<()> {
        self.has(self.norm, plan.full_op(), plan.dtype())?.normalize(plan, x, weight, bias, out)
    }

    fn normalize_grad(
        &self,
        plan: &Normalize,
        x: &B::Storage,
        grad: &B::Storage,
        weight: Option<&B::Storage>,
        out: &mut B::Storage,
    ) -> Result<()> {
        self.has(self.norm, plan.full_op(), plan.dtype())?.normalize_grad(plan, x, grad, weight, out)
    }
}

impl<B: Backend> IndexOps for Partial<B> {
    fn gather(&self, plan: &Gather, x: &B::Storage, index: &B::Storage, out: &mut B::Storage) -> Result<()> {
        self.has(self.index, Op::Gather, plan.dtype())?.gather(plan, x, index, out)
    }

    fn scatter(&self, plan: &Scatter, index: &B::Storage, src: &B::Storage, out: &mut B::Storage) -> Result<()> {
        self.has(self.index, Op::Scatter(plan.op()), plan.dtype())?.scatter(plan, index, src, out)
    }

    fn nonzero(&self, plan: &Nonzero, mask: &B::Storage, out: &mut B::Storage) -> Result<()> {
        self.has(self.index, Op::Nonzero, DType::Bool)?.nonzero(plan, mask, out)
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backend's own attention")]
impl<B: Backend> AttentionOps for Partial<B> {
    fn attention(&self, plan: &Attention, inputs: AttentionInputs<&B::Storage>, out: &mut B::Storage) -> Result<()> {
        self.has(self.attention, Op::Attention(plan.op()), plan.dtype())?.attention(plan, inputs, out)
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backend's own convolutions")]
impl<B: Backend> ConvOps for Partial<B> {
    fn conv(
        &self,
        plan: &Conv,
        a: &B::Storage,
        b: &B::Storage,
        bias: Option<&B::Storage>,
        out: &mut B::Storage,
    ) -> Result<()> {
        self.has(self.conv, Op::Conv(plan.op()), plan.dtype())?.conv(plan, a, b, bias, out)
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backend's own pooling")]
impl<B: Backend> PoolOps for Partial<B> {
    fn pool(&self, plan: &Pool, input: &B::Storage, indices: Option<&B::Storage>, out: &mut B::Storage) -> Result<()> {
        self.has(self.pool, Op::Pool(plan.op()), plan.dtype())?.pool(plan, input, indices, out)
    }
}
