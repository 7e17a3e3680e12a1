//! The storage, the loops and the op families. Elements are kept as bits, so that every dtype goes the same way; the
//! arithmetic on single values is in `arithmetic.rs`.

use std::sync::atomic::{AtomicBool, Ordering};

use congruent_backend_api::ops::binary::Binary;
use congruent_backend_api::ops::compare::{Clamp, Compare, Where};
use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter, ScatterOp};
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::random::Random;
use congruent_backend_api::ops::reduce::{ArgReduce, ArgReduceOp, Reduce, ReduceOp};
use congruent_backend_api::ops::scan::Scan;
use congruent_backend_api::ops::sort::{SearchSorted, Sort, SortOp};
use congruent_backend_api::ops::statistic::StatisticOps;
use congruent_backend_api::ops::unary::Unary;
use congruent_backend_api::{
    AttentionOps, Backend, BinaryOps, CompareOps, ConvOps, CopyOps, DType, Elementwise, Error, ErrorKind, IndexOps,
    LinearOps, MatmulOps, Nest, NormOps, Op, Operand, PoolOps, RandomOps, ReduceOps, Result, Scalar, ScanOps, SortOps,
    Storage, UnaryOps, check_transfer,
};

use crate::arithmetic::{
    accumulate, better, binary, cast, compare, decode, encode, extreme, product, random, scan, sort_order, unary,
};

/// The backend.
#[derive(Debug)]
pub(crate) struct Minimal {
    broken: bool,
    divided_by_zero: AtomicBool,
    index_out_of_range: AtomicBool,
}

impl Minimal {
    /// Planted bugs, if wanted: `argmax` finds the last of several extremes, and f32 products ignore β.
    pub(crate) fn new(broken: bool) -> Self {
        Self { broken, divided_by_zero: AtomicBool::new(false), index_out_of_range: AtomicBool::new(false) }
    }
}

/// Elements as bits.
#[derive(Debug)]
pub(crate) struct Memory {
    dtype: DType,
    bits: Vec<u64>,
}

impl Memory {
    fn value(&self, at: usize) -> Scalar {
        decode(self.dtype, self.bits[at])
    }

    fn set(&mut self, at: usize, value: Scalar) {
        self.bits[at] = encode(self.dtype, value);
    }
}

impl Storage for Memory {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.bits.len()
    }
}

impl Backend for Minimal {
    type Storage = Memory;

    fn name(&self) -> &str {
        "minimal"
    }

    fn supports(&self, _: Op, _: DType) -> bool {
        true
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Memory> {
        let mut bits = Vec::new();
        bits.try_reserve_exact(len).map_err(|source| {
            Error::new(ErrorKind::OutOfMemory, "alloc", format!("no memory for {len} elements of {dtype}"))
                .with_source(source)
        })?;
        bits.resize(len, 0);
        Ok(Memory { dtype, bits })
    }

    fn write(&self, bytes: &[u8], storage: &mut Memory, start: usize) -> Result<()> {
        let count = check_transfer("write", storage, start, bytes.len())?;
        let size = storage.dtype.size();
        for (bits, bytes) in storage.bits[start..start + count].iter_mut().zip(bytes.chunks_exact(size)) {
            let mut word = [0; 8];
            word[..size].copy_from_slice(bytes);
            *bits = u64::from_le_bytes(word);
            if storage.dtype == DType::Bool {
                *bits = (*bits).min(1);
            }
        }
        Ok(())
    }

    fn download(&self, storage: &Memory, start: usize, bytes: &mut [u8]) -> Result<()> {
        let count = check_transfer("download", storage, start, bytes.len())?;
        self.synchronize()?;
        let size = storage.dtype.size();
        for (bits, bytes) in storage.bits[start..start + count].iter().zip(bytes.chunks_exact_mut(size)) {
            bytes.copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        if self.divided_by_zero.swap(false, Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::DivisionByZero, "synchronize", "an integer was divided by zero"));
        }
        if self.index_out_of_range.swap(false, Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::IndexOutOfRange, "synchronize", "an index was outside its axis"));
        }
        Ok(())
    }
}

/// The elements that the operands of a nest meet, visit by visit. They are collected first, so that an op may write
/// what it reads.
fn visits<const N: usize>(nest: &Nest<N>) -> impl Iterator<Item = [usize; N]> + use<N> {
    let nest = *nest;
    (0..nest.count()).map(move |visit| {
        let mut at = std::array::from_fn(|operand| nest.offset(operand));
        let mut rest = visit;
        for (axis, &size) in nest.sizes().iter().enumerate().rev() {
            for (operand, at) in at.iter_mut().enumerate() {
                *at = at.wrapping_add_signed((rest % size) as isize * nest.strides(operand)[axis]);
            }
            rest /= size;
        }
        at
    })
}

/// Writes `f` of an elementwise op's operands, given as bits; a scalar is encoded as `dtypes` say.
fn map<const N: usize>(
    plan: &Elementwise<N>,
    dtypes: [DType; N],
    inputs: &[Option<&Memory>],
    out: &mut Memory,
    mut f: impl FnMut([u64; N]) -> u64,
) {
    for at in visits(plan.nest()) {
        let operands = std::array::from_fn(|index| match (plan.operand(index), index.checked_sub(1)) {
            (Operand::Scalar(scalar), _) => encode(dtypes[index], scalar),
            (Operand::Storage { .. }, Some(input)) => inputs[input].map_or(0, |input| input.bits[at[index]]),
            _ => out.bits[at[0]],
        });
        out.bits[at[0]] = f(operands);
    }
}

impl UnaryOps for Minimal {
    fn unary(&self, plan: &Unary, x: Option<&Memory>, out: &mut Memory) -> Result<()> {
        plan.check(x, out)?;
        let (dtype, result) = (plan.dtype(), out.dtype);
        map(plan.elementwise(), [result, dtype], &[x], out, |[_, x]| {
            encode(result, unary(plan.op(), dtype, decode(dtype, x)))
        });
        Ok(())
    }
}

impl BinaryOps for Minimal {
    fn binary(&self, plan: &Binary, a: Option<&Memory>, b: Option<&Memory>, out: &mut Memory) -> Result<()> {
        plan.check(a, b, out)?;
        let dtype = plan.dtype();
        map(plan.elementwise(), [dtype; 3], &[a, b], out, |[_, a, b]| {
            let value = binary(plan.op(), dtype, decode(dtype, a), decode(dtype, b)).unwrap_or_else(|| {
                self.divided_by_zero.store(true, Ordering::Relaxed);
                Scalar::Int(0)
            });
            encode(dtype, value)
        });
        Ok(())
    }
}

impl CompareOps for Minimal {
    fn compare(&self, plan: &Compare, a: Option<&Memory>, b: Option<&Memory>, out: &mut Memory) -> Result<()> {
        plan.check(a, b, out)?;
        let dtype = plan.dtype();
        map(plan.elementwise(), [DType::Bool, dtype, dtype], &[a, b], out, |[_, a, b]| {
            compare(plan.op(), decode(dtype, a), decode(dtype, b)).into()
        });
        Ok(())
    }

    fn choose(
        &self,
        plan: &Where,
        condition: Option<&Memory>,
        a: Option<&Memory>,
        b: Option<&Memory>,
        out: &mut Memory,
    ) -> Result<()> {
        plan.check(condition, a, b, out)?;
        let dtype = plan.dtype();
        map(plan.elementwise(), [dtype, DType::Bool, dtype, dtype], &[condition, a, b], out, |[_, condition, a, b]| {
            if condition != 0 { a } else { b }
        });
        Ok(())
    }

    fn clamp(&self, plan: &Clamp, x: Option<&Memory>, out: &mut Memory) -> Result<()> {
        plan.check(x, out)?;
        let dtype = plan.dtype();
        map(plan.elementwise(), [dtype; 2], &[x], out, |[_, x]| {
            let above = plan.min().map_or(decode(dtype, x), |min| extreme(decode(dtype, x), min, true));
            encode(dtype, plan.max().map_or(above, |max| extreme(above, max, false)))
        });
        Ok(())
    }
}

impl CopyOps for Minimal {
    fn fill(&self, plan: &Fill, out: &mut Memory) -> Result<()> {
        plan.check(out)?;
        let bits = encode(plan.dtype(), plan.value());
        map(plan.elementwise(), [plan.dtype()], &[], out, |_| bits);
        Ok(())
    }

    fn copy(&self, plan: &Copy, x: &Memory, out: &mut Memory) -> Result<()> {
        plan.check(x, out)?;
        let (from, to) = (plan.dtype(), plan.out_dtype());
        map(plan.elementwise(), [to, from], &[Some(x)], out, |[_, x]| {
            if from == to { x } else { encode(to, cast(to, decode(from, x))) }
        });
        Ok(())
    }
}

impl ReduceOps for Minimal {
    fn reduce(&self, plan: &Reduce, x: &Memory, out: &mut Memory) -> Result<()> {
        plan.check(x, out)?;
        for [to, start] in visits(plan.kept()) {
            let values: Vec<_> = visits(plan.reduced()).map(|[step]| x.value(start + step)).collect();
            out.set(to, accumulate(plan.op(), plan.dtype(), &values));
        }
        Ok(())
    }

    fn arg_reduce(&self, plan: &ArgReduce, x: &Memory, out: &mut Memory) -> Result<()> {
        plan.check(x, out)?;
        let greatest = plan.op() == ArgReduceOp::Argmax;
        for [to, start] in visits(plan.kept()) {
            let value = |index: usize| x.value(start.wrapping_add_signed(index as isize * plan.stride()));
            let best = (1..plan.len()).fold(0, |best, index| {
                let wins = better(value(index), value(best), greatest);
                let ties = self.broken && greatest && !better(value(best), value(index), greatest);
                if wins || ties { index } else { best }
            });
            out.set(to, Scalar::Int(best as i64));
        }
        Ok(())
    }
}

impl RandomOps for Minimal {
    fn random(&self, plan: &Random, out: &mut Memory) -> Result<()> {
        plan.check(out)?;
        for [to, index] in visits(&plan.nest()) {
            out.set(to, random(plan, index as u64));
        }
        Ok(())
    }
}

impl ScanOps for Minimal {
    fn scan(&self, plan: &Scan, x: &Memory, out: &mut Memory) -> Result<()> {
        plan.check(x, out)?;
        let [out_stride, x_stride] = plan.strides();
        for [to, from] in visits(plan.rows()) {
            let mut values = Vec::new();
            for position in 0..plan.len() as isize {
                let entering = values.len();
                values.push(x.value(from.wrapping_add_signed(position * x_stride)));
                let values = if plan.exclusive() { &values[..entering] } else { &values };
                out.set(to.wrapping_add_signed(position * out_stride), scan(plan.op(), plan.dtype(), values));
            }
        }
        Ok(())
    }
}

impl StatisticOps for Minimal {}

impl LinearOps for Minimal {}

impl ConvOps for Minimal {}

impl PoolOps for Minimal {}

impl SortOps for Minimal {
    fn sort(&self, plan: &Sort, x: &Memory, out: &mut Memory) -> Result<()> {
        plan.check(x, out)?;
        let [out_stride, x_stride] = plan.strides();
        for [to, from] in visits(plan.rows()) {
            let at = |start: usize, index: usize, stride: isize| start.wrapping_add_signed(index as isize * stride);
            let mut sorted: Vec<usize> = (0..plan.len()).collect();
            sorted.sort_by(|&a, &b| {
                let order = sort_order(x.value(at(from, a, x_stride)), x.value(at(from, b, x_stride)));
                if plan.descending() { order.reverse() } else { order }
            });
            for (place, index) in sorted.into_iter().take(plan.taken()).enumerate() {
                let bits = if plan.op() == SortOp::Sort { x.bits[at(from, index, x_stride)] } else { index as u64 };
                out.bits[at(to, place, out_stride)] = bits;
            }
        }
        Ok(())
    }

    fn search_sorted(&self, plan: &SearchSorted, sorted: &Memory, values: &Memory, out: &mut Memory) -> Result<()> {
        plan.check(sorted, values, out)?;
        for [to, value, row] in visits(plan.nest()) {
            let before = |&index: &usize| {
                let x = sorted.value(row.wrapping_add_signed(index as isize * plan.stride()));
                let order = sort_order(x, values.value(value));
                order.is_lt() || plan.right() && order.is_eq()
            };
            out.bits[to] = (0..plan.len()).filter(before).count() as u64;
        }
        Ok(())
    }
}

impl NormOps for Minimal {}

impl AttentionOps for Minimal {}

impl MatmulOps for Minimal {
    fn matmul(&self, plan: &Matmul, a: &Memory, b: &Memory, out: &mut Memory) -> Result<()> {
        plan.check(a, b, out)?;
        let dtype = plan.dtype();
        let beta = match dtype {
            DType::F32 if self.broken => Scalar::Float(0.0),
            _ => plan.beta(),
        };
        let [to, left, right] = *plan.matrices();
        for [out_at, a_at, b_at] in visits(plan.batch()) {
            let at = |start: usize, row: usize, by_row: isize, column: usize, by_column: isize| {
                start.wrapping_add_signed(row as isize * by_row + column as isize * by_column)
            };
            for row in 0..plan.m() {
                for column in 0..plan.n() {
                    let terms = (0..plan.k()).map(|inner| {
                        let a = a.value(at(a_at, row, left.row, inner, left.col));
                        (a, b.value(at(b_at, inner, right.row, column, right.col)))
                    });
                    let to = at(out_at, row, to.row, column, to.col);
                    let value = product(dtype, terms, plan.alpha(), beta, out.value(to));
                    out.set(to, value);
                }
            }
        }
        Ok(())
    }
}

impl Minimal {
    /// The position that an index names; one outside is remembered for the next synchronising call.
    fn position(&self, index: Scalar, len: usize) -> Option<usize> {
        let position = usize::try_from(index.to_i64()).ok().filter(|&position| position < len);
        self.index_out_of_range.fetch_or(position.is_none(), Ordering::Relaxed);
        position
    }
}

impl IndexOps for Minimal {
    fn gather(&self, plan: &Gather, x: &Memory, index: &Memory, out: &mut Memory) -> Result<()> {
        plan.check(x, index, out)?;
        for [to, index_at, first] in visits(plan.nest()) {
            let position = self.position(index.value(index_at), plan.len());
            let from = position.map(|position| first.wrapping_add_signed(position as isize * plan.stride()));
            out.bits[to] = from.map_or(0, |from| x.bits[from]);
        }
        Ok(())
    }

    fn scatter(&self, plan: &Scatter, index: &Memory, src: &Memory, out: &mut Memory) -> Result<()> {
        plan.check(index, src, out)?;
        let [out_stride, index_stride, src_stride] = plan.strides();
        for [first, index_first, src_first] in visits(plan.kept()) {
            let at = |start: usize, step: usize, stride: isize| start.wrapping_add_signed(step as isize * stride);
            // The sources of each position, in their order.
            let mut sources = vec![Vec::new(); plan.len()];
            for step in 0..plan.count() {
                let index = index.value(at(index_first, step, index_stride));
                if let Some(position) = self.position(index, plan.len()) {
                    sources[position].push(at(src_first, step, src_stride));
                }
            }
            for (position, sources) in sources.into_iter().enumerate().filter(|(_, sources)| !sources.is_empty()) {
                let to = at(first, position, out_stride);
                if plan.op() == ScatterOp::Set {
                    out.bits[to] = src.bits[sources[sources.len() - 1]];
                } else {
                    let old = std::iter::once(out.value(to));
                    let values: Vec<_> = old.chain(sources.into_iter().map(|source| src.value(source))).collect();
                    let op = match plan.op() {
                        ScatterOp::Max => ReduceOp::Max,
                        ScatterOp::Min => ReduceOp::Min,
                        _ => ReduceOp::Sum,
                    };
                    out.set(to, accumulate(op, plan.dtype(), &values));
                }
            }
        }
        Ok(())
    }

    fn nonzero(&self, plan: &Nonzero, mask: &Memory, out: &mut Memory) -> Result<()> {
        plan.check(mask, out)?;
        let found =
            visits(plan.nest()).enumerate().filter(|(_, [_, at])| mask.bits[*at] != 0).map(|(number, _)| number);
        let found: Vec<i64> = found.map(|number| number as i64).collect();
        for slot in 0..plan.count() {
            let to = plan.offset().wrapping_add_signed(slot as isize * plan.stride());
            out.set(to, Scalar::Int(found.get(slot).copied().unwrap_or(-1)));
        }
        Ok(())
    }
}
