//! Choosing a backend at run time: [`Erase`] hides the storage type, so that any backend is an [`AnyBackend`].

use std::any::Any;
use std::fmt;

use crate::backend::{Backend, Storage};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::attention::{Attention, AttentionInputs, AttentionOps};
use crate::ops::binary::{Binary, BinaryOps};
use crate::ops::compare::{Clamp, Compare, CompareOps, Where};
use crate::ops::conv::{Conv, ConvOps};
use crate::ops::copy::{Copy, CopyOps, Fill};
use crate::ops::index::{Gather, IndexOps, Nonzero, Scatter};
use crate::ops::linear::{Linear, LinearOps};
use crate::ops::matmul::{Matmul, MatmulOps};
use crate::ops::norm::{NormOps, Normalize};
use crate::ops::pool::{Pool, PoolOps};
use crate::ops::random::{Random, RandomOps};
use crate::ops::reduce::{ArgReduce, Reduce, ReduceOps};
use crate::ops::scan::{Scan, ScanOps};
use crate::ops::sort::{SearchSorted, Sort, SortOps};
use crate::ops::statistic::{Statistic, StatisticOps};
use crate::ops::unary::{Unary, UnaryOps};
use crate::ops::{AllOps, Op};

/// A backend known only at run time.
pub type AnyBackend = dyn AllOps<Storage = Erased>;

/// A backend whose storages are [`Erased`].
#[derive(Debug)]
pub struct Erase<B>(pub B);

/// A storage of a backend known only at run time.
pub struct Erased {
    // Kept beside the box: they are asked for in every call.
    dtype: DType,
    len: usize,
    storage: Box<dyn Any + Send + Sync>,
}

impl Erased {
    fn new<S: Storage>(storage: S) -> Self {
        Self { dtype: storage.dtype(), len: storage.len(), storage: Box::new(storage) }
    }
}

impl fmt::Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Erased").field("dtype", &self.dtype).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Storage for Erased {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// The storage within, if `storage` is [`Erased`]; else itself. For [`Backend::receive`].
#[must_use]
pub fn exposed(storage: &dyn Any) -> &dyn Any {
    storage.downcast_ref::<Erased>().map_or(storage, |erased| &*erased.storage)
}

impl<B: Backend> Erase<B> {
    fn inner<'s>(&self, storage: &'s Erased) -> Result<&'s B::Storage> {
        storage.storage.downcast_ref().ok_or_else(|| self.foreign())
    }

    fn inner_mut<'s>(&self, storage: &'s mut Erased) -> Result<&'s mut B::Storage> {
        storage.storage.downcast_mut().ok_or_else(|| self.foreign())
    }

    fn optional<'s>(&self, storage: Option<&'s Erased>) -> Result<Option<&'s B::Storage>> {
        storage.map(|storage| self.inner(storage)).transpose()
    }

    fn foreign(&self) -> Error {
        let message = format!("a storage of another backend was given to `{}`; move the tensor first", self.0.name());
        Error::new(ErrorKind::Argument, "storage", message)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: Backend> Backend for Erase<B> {
    type Storage = Erased;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn supports(&self, op: Op, dtype: DType) -> bool {
        self.0.supports(op, dtype)
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Erased> {
        self.0.alloc(dtype, len).map(Erased::new)
    }

    fn write(&self, bytes: &[u8], storage: &mut Erased, start: usize) -> Result<()> {
        self.0.write(bytes, self.inner_mut(storage)?, start)
    }

    fn download(&self, storage: &Erased, start: usize, bytes: &mut [u8]) -> Result<()> {
        self.0.download(self.inner(storage)?, start, bytes)
    }

    fn receive(&self, source: &dyn Any, start: usize, out: &mut Erased) -> Result<bool> {
        self.0.receive(exposed(source), start, self.inner_mut(out)?)
    }

    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: UnaryOps> UnaryOps for Erase<B> {
    fn unary(&self, plan: &Unary, x: Option<&Erased>, out: &mut Erased) -> Result<()> {
        self.0.unary(plan, self.optional(x)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: BinaryOps> BinaryOps for Erase<B> {
    fn binary(&self, plan: &Binary, a: Option<&Erased>, b: Option<&Erased>, out: &mut Erased) -> Result<()> {
        self.0.binary(plan, self.optional(a)?, self.optional(b)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: CompareOps> CompareOps for Erase<B> {
    fn compare(&self, plan: &Compare, a: Option<&Erased>, b: Option<&Erased>, out: &mut Erased) -> Result<()> {
        self.0.compare(plan, self.optional(a)?, self.optional(b)?, self.inner_mut(out)?)
    }

    fn choose(
        &self,
        plan: &Where,
        condition: Option<&Erased>,
        a: Option<&Erased>,
        b: Option<&Erased>,
        out: &mut Erased,
    ) -> Result<()> {
        let condition = self.optional(condition)?;
        self.0.choose(plan, condition, self.optional(a)?, self.optional(b)?, self.inner_mut(out)?)
    }

    fn clamp(&self, plan: &Clamp, x: Option<&Erased>, out: &mut Erased) -> Result<()> {
        self.0.clamp(plan, self.optional(x)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: CopyOps> CopyOps for Erase<B> {
    fn fill(&self, plan: &Fill, out: &mut Erased) -> Result<()> {
        self.0.fill(plan, self.inner_mut(out)?)
    }

    fn copy(&self, plan: &Copy, x: &Erased, out: &mut Erased) -> Result<()> {
        self.0.copy(plan, self.inner(x)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: ReduceOps> ReduceOps for Erase<B> {
    fn reduce(&self, plan: &Reduce, x: &Erased, out: &mut Erased) -> Result<()> {
        self.0.reduce(plan, self.inner(x)?, self.inner_mut(out)?)
    }

    fn arg_reduce(&self, plan: &ArgReduce, x: &Erased, out: &mut Erased) -> Result<()> {
        self.0.arg_reduce(plan, self.inner(x)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: StatisticOps> StatisticOps for Erase<B> {
    fn statistic(&self, plan: &Statistic, x: &Erased, out: &mut Erased) -> Result<()> {
        self.0.statistic(plan, self.inner(x)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: RandomOps> RandomOps for Erase<B> {
    fn random(&self, plan: &Random, out: &mut Erased) -> Result<()> {
        self.0.random(plan, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: ScanOps> ScanOps for Erase<B> {
    fn scan(&self, plan: &Scan, x: &Erased, out: &mut Erased) -> Result<()> {
        self.0.scan(plan, self.inner(x)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: SortOps> SortOps for Erase<B> {
    fn sort(&self, plan: &Sort, x: &Erased, out: &mut Erased) -> Result<()> {
        self.0.sort(plan, self.inner(x)?, self.inner_mut(out)?)
    }

    fn search_sorted(&self, plan: &SearchSorted, sorted: &Erased, values: &Erased, out: &mut Erased) -> Result<()> {
        self.0.search_sorted(plan, self.inner(sorted)?, self.inner(values)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: MatmulOps> MatmulOps for Erase<B> {
    fn matmul(&self, plan: &Matmul, a: &Erased, b: &Erased, out: &mut Erased) -> Result<()> {
        self.0.matmul(plan, self.inner(a)?, self.inner(b)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: LinearOps> LinearOps for Erase<B> {
    fn linear(
        &self,
        plan: &Linear,
        x: &Erased,
        weight: &Erased,
        bias: Option<&Erased>,
        out: &mut Erased,
    ) -> Result<()> {
        self.0.linear(plan, self.inner(x)?, self.inner(weight)?, self.optional(bias)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: NormOps> NormOps for Erase<B> {
    fn normalize(
        &self,
        plan: &Normalize,
        x: &Erased,
        weight: Option<&Erased>,
        bias: Option<&Erased>,
        out: &mut Erased,
    ) -> Result<()> {
        let (weight, bias) = (self.optional(weight)?, self.optional(bias)?);
        self.0.normalize(plan, self.inner(x)?, weight, bias, self.inner_mut(out)?)
    }

    fn normalize_grad(
        &self,
        plan: &Normalize,
        x: &Erased,
        grad: &Erased,
        weight: Option<&Erased>,
        out: &mut Erased,
    ) -> Result<()> {
        let weight = self.optional(weight)?;
        self.0.normalize_grad(plan, self.inner(x)?, self.inner(grad)?, weight, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: IndexOps> IndexOps for Erase<B> {
    fn gather(&self, plan: &Gather, x: &Erased, index: &Erased, out: &mut Erased) -> Result<()> {
        self.0.gather(plan, self.inner(x)?, self.inner(index)?, self.inner_mut(out)?)
    }

    fn scatter(&self, plan: &Scatter, index: &Erased, src: &Erased, out: &mut Erased) -> Result<()> {
        self.0.scatter(plan, self.inner(index)?, self.inner(src)?, self.inner_mut(out)?)
    }

    fn nonzero(&self, plan: &Nonzero, mask: &Erased, out: &mut Erased) -> Result<()> {
        self.0.nonzero(plan, self.inner(mask)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: AttentionOps> AttentionOps for Erase<B> {
    fn attention(&self, plan: &Attention, inputs: AttentionInputs<&Erased>, out: &mut Erased) -> Result<()> {
        self.0.attention(plan, inputs.try_map(|input| self.inner(input))?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: ConvOps> ConvOps for Erase<B> {
    fn conv(&self, plan: &Conv, a: &Erased, b: &Erased, bias: Option<&Erased>, out: &mut Erased) -> Result<()> {
        self.0.conv(plan, self.inner(a)?, self.inner(b)?, self.optional(bias)?, self.inner_mut(out)?)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a provided method that is not forwarded would lose its override")]
impl<B: PoolOps> PoolOps for Erase<B> {
    fn pool(&self, plan: &Pool, input: &Erased, indices: Option<&Erased>, out: &mut Erased) -> Result<()> {
        self.0.pool(plan, self.inner(input)?, self.optional(indices)?, self.inner_mut(out)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Two;

    impl Storage for Two {
        fn dtype(&self) -> DType {
            DType::F32
        }

        fn len(&self) -> usize {
            2
        }
    }

    #[test]
    fn an_erased_storage_is_seen_through() {
        let erased = Erased::new(Two);
        assert_eq!((erased.dtype(), erased.len()), (DType::F32, 2));
        for storage in [&erased as &dyn Any, &Two] {
            assert_eq!(exposed(storage).downcast_ref(), Some(&Two));
        }
    }
}
