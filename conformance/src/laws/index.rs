//! Reading and writing at positions that are data.

use congruent::api::erase::AnyBackend;
use congruent::ops::ScatterOp;
use congruent::{DType, ErrorKind, Result, Tensor};

use super::{Backend, bits, differ, make};
use crate::values::{Class, hash};

/// The numbers below `count`, each once, in an order that the seed decides.
fn permutation(backend: &Backend, count: usize, dtype: DType, seed: u64) -> Result<Tensor<AnyBackend>> {
    let mut order: Vec<i64> = (0..count as i64).collect();
    order.sort_by_key(|&number| hash(seed, number as u64));
    Tensor::from_slice(backend, &order, [count])?.cast(dtype)
}

pub(super) fn permuted(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::I64, DType::U8] {
        for (index, count) in [(DType::I64, 513), (DType::I32, 129), (DType::U32, 1025), (DType::U8, 255)] {
            let x = make(backend, dtype, Class::Specials, &[count, 17], seed)?;
            let order = permutation(backend, count, index, seed)?;
            let taken = x.index_select(0, &order)?;
            let zeros = Tensor::zeros(backend, [count, 17], dtype)?;
            let back = zeros.scatter(0, &order.unsqueeze(-1)?, &taken)?;
            // Bits, since NaN must come back as it was.
            if bits(&back)? != bits(&x)? {
                return Ok(Some(format!("{dtype} by {index}: {count} rows taken and written back are others")));
            }
        }
    }
    Ok(None)
}

pub(super) fn adjoint(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::I64, DType::I32] {
        let (x, y) = (
            make(backend, dtype, Class::SmallInts, &[37, 19], seed)?,
            make(backend, dtype, Class::SmallInts, &[300, 19], seed + 1)?,
        );
        let rows: Vec<i64> = (0..300).map(|place| (hash(seed, place) % 37) as i64).collect();
        let rows = Tensor::from_slice(backend, &rows, [300])?;
        let left = x.index_select(0, &rows)?.mul(&y)?.sum((), false)?;
        let zeros = Tensor::zeros(backend, [37, 19], dtype)?;
        let right = x.mul(&zeros.index_add(0, &rows, &y)?)?.sum((), false)?;
        if let Some(found) = differ(&left, &right, true)? {
            return Ok(Some(format!("⟨gather x, y⟩ and ⟨x, scatter_add y⟩ of {dtype}: {found}")));
        }
    }
    Ok(None)
}

pub(super) fn one_hot(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let tokens: Vec<i32> = (0..500).map(|place| (hash(seed, place) % 41) as i32).collect();
    let tokens = Tensor::from_slice(backend, &tokens, [500])?;
    let table = make(backend, DType::F32, Class::SmallInts, &[41, 23], seed)?;
    let hot = tokens.one_hot(41, DType::F32)?;
    if let Some(found) = differ(&table.embedding(&tokens)?, &hot.matmul(&table)?, true)? {
        return Ok(Some(format!("embedding and one_hot · table: {found}")));
    }
    let counts = hot.sum(0, false)?.cast(DType::I64)?;
    if let Some(found) = differ(&tokens.bincount(41)?, &counts, false)? {
        return Ok(Some(format!("bincount and the sum of one_hot: {found}")));
    }
    let gradient = make(backend, DType::F32, Class::SmallInts, &[500, 23], seed)?;
    let (left, right) = (gradient.embedding_grad(&tokens, 41)?, hot.t()?.matmul(&gradient)?);
    Ok(differ(&left, &right, true)?.map(|found| format!("embedding_grad and one_hotᵀ · gradient: {found}")))
}

pub(super) fn last_wins(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let (count, rows) = (4096, 7);
    let places: Vec<i64> = (0..count).map(|place| (hash(seed, place) % rows) as i64).collect();
    let index = Tensor::from_slice(backend, &places, [count as usize])?;
    let numbers = Tensor::arange(backend, 0..count as i64, DType::I64)?;
    let start = Tensor::full(backend, -1, [rows as usize], DType::I64)?;
    let written = start.scatter(0, &index, &numbers)?;
    let greatest = start.scatter_max(0, &index, &numbers)?;
    Ok(differ(&written, &greatest, false)?.map(|found| format!("the last source and the greatest number: {found}")))
}

pub(super) fn order_of_sources(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let index: Vec<i64> = (0..2000).map(|place| (hash(seed, place) % 13) as i64).collect();
    let index = Tensor::from_slice(backend, &index, [2000, 1])?;
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I32, DType::U8] {
        let src = make(backend, dtype, Class::SmallInts, &[2000, 33], seed)?;
        let start = make(backend, dtype, Class::SmallInts, &[13, 33], seed + 1)?;
        for op in [ScatterOp::Add, ScatterOp::Max, ScatterOp::Min] {
            let forwards = start.scatter_with(op, 0, &index, &src)?;
            let backwards = start.scatter_with(op, 0, &index.flip([0])?, &src.flip([0])?)?;
            if let Some(found) = differ(&forwards, &backwards, true)? {
                return Ok(Some(format!("{} {dtype} of reversed sources: {found}", op.name())));
            }
        }
    }
    Ok(None)
}

pub(super) fn selection(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F16, DType::I32, DType::Bool] {
        let x = make(backend, dtype, Class::FullRange, &[61, 130], seed)?;
        let mask = make(backend, DType::Bool, Class::FullRange, &[61, 130], seed + 1)?;
        let (taken, rest) = (x.masked_select(&mask)?, x.masked_select(&mask.logical_not()?)?);
        if taken.count() + rest.count() != x.count() {
            return Ok(Some(format!("{} and {} of {} elements", taken.count(), rest.count(), x.count())));
        }
        let back = Tensor::zeros(backend, [61, 130], dtype)?
            .put(&mask.flatnonzero()?, &taken)?
            .put(&mask.logical_not()?.flatnonzero()?, &rest)?;
        if bits(&back)? != bits(&x)? {
            return Ok(Some(format!("{dtype}: what a mask selects, written back, is something else")));
        }
    }
    Ok(None)
}

pub(super) fn out_of_range(backend: &Backend, _: u64) -> Result<Option<String>> {
    let x = Tensor::arange(backend, 0..100, DType::I32)?;
    let wrong = Tensor::from_slice(backend, &[5_i64, -1, 100, i64::MIN, i64::MAX, 7], [6])?;
    let taken = x.take(&wrong)?;
    let first = taken.to_vec::<i32>().map_err(|error| error.kind());
    let again = taken.to_vec::<i32>().map_err(|error| error.kind());
    let written = x.scatter_add(0, &wrong, &Tensor::ones(backend, [6], DType::I32)?)?;
    let reported = written.synchronize().map_err(|error| error.kind());
    let sum = written.sub(&x)?.sum((), false)?.item::<i32>().map_err(|error| error.kind());
    let after = x.add(1)?.take(&Tensor::from_slice(backend, &[99_u8], [1])?)?.to_vec::<i32>()?;
    let outside = Err(ErrorKind::IndexOutOfRange);
    let right = first == outside
        && again == Ok(vec![5, 0, 0, 0, 0, 7])
        && reported == Err(ErrorKind::IndexOutOfRange)
        && sum == Ok(2)
        && after == [100];
    Ok((!right).then(|| format!("take {first:?}, then {again:?}; scatter {reported:?}, adds {sum:?}; then {after:?}")))
}

pub(super) fn long_sums(backend: &Backend, _: u64) -> Result<Option<String>> {
    // 2²⁰ tenths one after another in f32 are 1 % off.
    let tenths = Tensor::full(backend, 0.1, [1 << 20], DType::F32)?;
    let index = Tensor::zeros(backend, [1 << 20], DType::U8)?;
    let sum = Tensor::zeros(backend, [3], DType::F32)?.scatter_add(0, &index, &tenths)?.to_vec::<f32>()?;
    let halves = Tensor::full(backend, 1, [4096], DType::F16)?;
    let half = Tensor::zeros(backend, [1], DType::F16)?.index_add(0, &index.slice(0, ..4096)?, &halves)?;
    let half = half.cast(DType::F32)?.item::<f32>()?;
    let right = (f64::from(sum[0]) / (f64::from(0.1_f32) * f64::from(1 << 20)) - 1.0).abs() < 1e-6;
    Ok((!right || half != 4096.0).then(|| format!("2²⁰ · 0.1 is {}, 4096 · 1 in f16 is {half}", sum[0])))
}
