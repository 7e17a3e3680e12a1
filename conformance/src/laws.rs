//! Laws that need no oracle: equalities between results of one backend that hold bit for bit, through the frontend.
//!
//! They are sharp where error bounds are loose, and independent of anything that the oracle might get wrong.

use std::sync::Arc;

use congruent::api::erase::AnyBackend;
use congruent::{DType, ErrorKind, Result, Tensor};

use crate::host::HostTensor;
use crate::spec::{Placement, TensorSpec};
use crate::values::{Class, hash};

type Backend = Arc<AnyBackend>;

/// A law: a name that says what holds, and its test, which returns what broke it.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// What holds.
    pub name: &'static str,
    /// Returns `Some` with what was found when the law is broken.
    pub test: fn(&Backend, u64) -> Result<Option<String>>,
}

/// Every law.
pub const LAWS: &[Law] = &[
    Law { name: "host → device → host keeps every bit", test: round_trip },
    Law { name: "(AB)ᵀ = BᵀAᵀ on integers", test: product_transposed },
    Law { name: "a permutation matrix picks columns exactly", test: permutation_matrix },
    Law { name: "a batch is a loop of products", test: batch_is_loop },
    Law { name: "splitting k and adding is exact on integers", test: split_inner },
    Law { name: "sum over two axes = sum of sums on integers", test: sum_of_sums },
    Law { name: "reversing an axis leaves its sum and extremes", test: reversal },
    Law { name: "max of parts = max of the whole", test: max_of_parts },
    Law { name: "casting up and down is the identity", test: cast_round_trip },
    Law { name: "a view gives what its contiguous copy gives", test: layout_invariance },
    Law { name: "exactly one of <, =, > holds, or a NaN is there", test: trichotomy },
    Law { name: "scaling by a power of two commutes", test: power_of_two },
    Law { name: "three runs give the same bits", test: determinism },
    Law { name: "writing to a clone leaves the original", test: copy_on_write },
    Law { name: "a chain of 100 ops = one op at a time", test: chain },
    Law { name: "long sums of equal terms stay accurate", test: long_sums },
    Law { name: "empty tensors have results, or errors before launch", test: empties },
    Law { name: "an error leaves the backend usable", test: usable_after_error },
];

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

fn round_trip(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in DType::ALL {
        let bytes: Vec<u8> =
            (0..4096).map(|at| hash(seed, at) as u8 & if dtype == DType::Bool { 1 } else { 0xff }).collect();
        let mut storage = backend.alloc(dtype, bytes.len() / dtype.size())?;
        backend.write(&bytes, &mut storage, 0)?;
        let mut back = vec![0; bytes.len()];
        backend.download(&storage, 0, &mut back)?;
        if back != bytes {
            return Ok(Some(format!("{dtype}: the bytes that came back differ")));
        }
    }
    Ok(None)
}

fn product_transposed(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U32, DType::U8] {
        let (a, b) = (
            make(backend, dtype, Class::Ties, &[33, 17], seed)?,
            make(backend, dtype, Class::Ties, &[17, 65], seed + 1)?,
        );
        let (left, right) = (a.matmul(&b)?.t()?, b.t()?.matmul(&a.t()?)?);
        // Ties holds −0; a product of zeros may have either sign, an integer sum of them has none.
        if let Some(found) = differ(&left.add(&left)?, &right.add(&right)?, dtype.is_float())? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

fn permutation_matrix(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let a = make(backend, dtype, Class::WideExponent, &[19, 40], seed)?;
        let eye = Tensor::arange(backend, 0..40, DType::I64)?;
        // Column j of the permutation picks column 39 − j.
        let hot = eye.unsqueeze(-1)?.eq(&eye.flip([0])?)?.cast(dtype)?;
        if let Some(found) = differ(&a.matmul(&hot)?, &a.flip([1])?, false)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

fn batch_is_loop(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F32, DType::BF16, DType::I32] {
        let a = make(backend, dtype, Class::SmallInts, &[3, 1, 5, 7], seed)?;
        let b = make(backend, dtype, Class::SmallInts, &[2, 7, 9], seed + 1)?;
        let batched = a.matmul(&b)?;
        for outer in 0..3 {
            for inner in 0..2 {
                let one = a.i((outer, 0))?.matmul(&b.i(inner)?)?;
                if let Some(found) = differ(&batched.i((outer, inner))?, &one, true)? {
                    return Ok(Some(format!("{dtype}, batch [{outer}, {inner}]: {found}")));
                }
            }
        }
    }
    Ok(None)
}

fn split_inner(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let a = make(backend, DType::F32, Class::SmallInts, &[20, 130], seed)?;
    let b = make(backend, DType::F32, Class::SmallInts, &[130, 11], seed + 1)?;
    let parts = (a.i((.., ..77))?.matmul(&b.i(..77)?)? + a.i((.., 77..))?.matmul(&b.i(77..)?)?)?;
    differ(&a.matmul(&b)?, &parts, true)
}

fn sum_of_sums(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::I64, DType::I32, DType::U8] {
        let x = make(backend, dtype, Class::SmallInts, &[7, 33, 129], seed)?;
        if let Some(found) = differ(&x.sum([0, 2], false)?, &x.sum(2, false)?.sum(0, false)?, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

fn reversal(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::SmallInts, &[65, 257], seed)?;
    let flipped = x.flip([0, 1])?;
    for axis in [0, 1] {
        let back = |y: Tensor<AnyBackend>| y.flip([0]);
        let pairs = [
            (x.sum(axis, false)?, back(flipped.sum(axis, false)?)?),
            (x.max(axis, false)?, back(flipped.max(axis, false)?)?),
        ];
        for (plain, reversed) in pairs {
            if let Some(found) = differ(&plain, &reversed, true)? {
                return Ok(Some(format!("axis {axis}: {found}")));
            }
        }
    }
    Ok(None)
}

fn max_of_parts(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::Specials, &[3, 300], seed)?;
    let parts = x.i((.., ..123))?.max(-1, false)?.maximum(&x.i((.., 123..))?.max(-1, false)?)?;
    differ(&x.max(-1, false)?, &parts, false)
}

fn cast_round_trip(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let pairs = [
        (DType::F32, DType::F64),
        (DType::F16, DType::F32),
        (DType::BF16, DType::F64),
        (DType::I32, DType::F64),
        (DType::U32, DType::I64),
        (DType::U8, DType::F16),
        (DType::Bool, DType::U8),
    ];
    for (narrow, wide) in pairs {
        let x = make(backend, narrow, Class::FullRange, &[5, 129], seed)?;
        if let Some(found) = differ(&x.cast(wide)?.cast(narrow)?, &x, false)? {
            return Ok(Some(format!("{narrow} → {wide} → {narrow}: {found}")));
        }
    }
    Ok(None)
}

fn layout_invariance(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::I64, DType::U8] {
        let x = make(backend, dtype, Class::SmallInts, &[6, 34, 10], seed)?;
        for view in
            [x.permute([2, 0, 1])?, x.i((.., congruent::step(.., -3), 1..8))?, x.i((.., 3..4))?.expand([6, 5, 10])?]
        {
            let dense = view.contiguous()?;
            let pairs = [
                (view.add(&view)?, dense.add(&dense)?),
                (view.square()?, dense.square()?),
                (view.max(1, true)?, dense.max(1, true)?),
                (view.cast(DType::Bool)?, dense.cast(DType::Bool)?),
            ];
            for (strided, dense) in pairs {
                if let Some(found) = differ(&strided, &dense, false)? {
                    return Ok(Some(format!("{dtype}, {:?}: {found}", view.layout())));
                }
            }
        }
    }
    Ok(None)
}

fn trichotomy(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let (a, b) = (
            make(backend, dtype, Class::Specials, &[1000], seed)?,
            make(backend, dtype, Class::Ties, &[1000], seed + 1)?,
        );
        let one = a.lt(&b)?.logical_xor(&a.eq(&b)?)?.logical_xor(&a.gt(&b)?)?;
        let nan = a.is_nan()?.logical_or(&b.is_nan()?)?;
        if !one.ne(&nan)?.all((), false)?.item::<bool>()? || differ(&a.lt(&b)?, &b.gt(&a)?, false)?.is_some() {
            return Ok(Some(format!("{dtype}: the comparisons contradict each other")));
        }
    }
    Ok(None)
}

fn power_of_two(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let a = make(backend, DType::F32, Class::Uniform, &[31, 70], seed)?;
    let b = make(backend, DType::F32, Class::Uniform, &[70, 12], seed + 1)?;
    let scaled = a.mul(1024.0)?;
    if let Some(found) = differ(&scaled.matmul(&b)?, &a.matmul(&b)?.mul(1024.0)?, false)? {
        return Ok(Some(format!("matmul: {found}")));
    }
    differ(&scaled.sum(-1, false)?, &a.sum(-1, false)?.mul(1024.0)?, false)
}

fn determinism(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::WideExponent, &[70, 1025], seed)?;
    let run = || -> Result<Vec<Tensor<AnyBackend>>> {
        Ok(vec![x.sum((), false)?, x.sum(0, false)?, x.mean(1, false)?, x.matmul(&x.t()?)?, x.logsumexp(0, false)?])
    };
    let first = run()?;
    for round in 0..2 {
        // Another history of allocations before each repetition.
        let _held = Tensor::zeros(backend, [1000 * (round + 1)], DType::U8)?;
        for (before, after) in first.iter().zip(run()?) {
            if let Some(found) = differ(before, &after, false)? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

fn copy_on_write(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::Uniform, &[40, 3], seed)?;
    let before = x.to_vec::<f32>()?;
    let (mut clone, mut view) = (x.clone(), x.t()?);
    clone.add_assign(1.0)?;
    view.neg_assign()?;
    let mut own = x.contiguous()?;
    own.mul_assign(&x)?;
    Ok((x.to_vec::<f32>()? != before).then(|| "the original changed".to_owned()))
}

fn chain(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::Uniform, &[1000], seed)?;
    let (mut queued, mut stepped) = (x.clone(), x);
    for step in 0..100 {
        queued = queued.mul(1.01)?.add(f64::from(step))?;
    }
    for step in 0..100 {
        stepped = stepped.mul(1.01)?;
        stepped.synchronize()?;
        stepped = stepped.add(f64::from(step))?;
        stepped.synchronize()?;
    }
    differ(&queued, &stepped, false)
}

fn long_sums(backend: &Backend, _: u64) -> Result<Option<String>> {
    let tenth = Tensor::full(backend, 0.1, [1], DType::F32)?.expand([10_000_000])?;
    let sum = f64::from(tenth.sum((), false)?.item::<f32>()?);
    let ones = Tensor::ones(backend, [1, 1], DType::F32)?.expand([1 << 25, 2])?;
    let means = ones.mean(0, false)?.to_vec::<f32>()?;
    let exact = 1e7 * f64::from(0.1_f32);
    let wrong = (sum / exact - 1.0).abs() > 1e-6 || means != [1.0, 1.0];
    Ok(wrong.then(|| format!("10⁷ × 0.1 sums to {sum}, the mean of 2²⁵ ones is {means:?}")))
}

fn empties(backend: &Backend, _: u64) -> Result<Option<String>> {
    let x = Tensor::zeros(backend, [3, 0], DType::F32)?;
    let shapes =
        [x.exp()?.count(), x.add(&x)?.count(), x.matmul(&Tensor::zeros(backend, [0, 0], DType::F32)?)?.count()];
    let zeros = x.matmul(&Tensor::zeros(backend, [0, 2], DType::F32)?)?.to_vec::<f32>()?;
    let sums =
        (x.sum(1, false)?.to_vec::<f32>()?, x.prod((), false)?.item::<f32>()?, x.mean((), false)?.item::<f32>()?);
    let right = shapes == [0; 3] && zeros == [0.0; 6] && sums.0 == [0.0; 3] && sums.1 == 1.0 && sums.2.is_nan();
    let kinds = [x.max(1, false), x.argmax(1, false), x.cast(DType::I32)?.mean((), false)]
        .map(|result| result.map_err(|error| error.kind()));
    let refused = kinds.iter().all(|kind| matches!(kind, Err(ErrorKind::Argument)));
    Ok((!right || !refused).then(|| format!("sums {sums:?}, product {zeros:?}, extremes {kinds:?}")))
}

fn usable_after_error(backend: &Backend, _: u64) -> Result<Option<String>> {
    let x = Tensor::arange(backend, 1..5, DType::I32)?;
    let quotient = x.div(0)?;
    let first = quotient.to_vec::<i32>().map_err(|error| error.kind());
    let again = quotient.to_vec::<i32>().map_err(|error| error.kind());
    let huge = Tensor::zeros(backend, [1 << 52], DType::F64).map(|_| ()).map_err(|error| error.kind());
    let after = x.add(1)?.to_vec::<i32>()?;
    let right = first == Err(ErrorKind::DivisionByZero)
        && again == Ok(vec![0; 4])
        && huge == Err(ErrorKind::OutOfMemory)
        && after == [2, 3, 4, 5];
    Ok((!right).then(|| format!("division {first:?}, then {again:?}; 32 PiB {huge:?}; then {after:?}")))
}

/// A contiguous tensor of a class.
fn make(backend: &Backend, dtype: DType, class: Class, shape: &[usize], seed: u64) -> Result<Tensor<AnyBackend>> {
    let placement = Placement { order: Vec::new(), steps: Vec::new(), offset: 0 };
    let HostTensor { layout, bytes, .. } =
        TensorSpec { placement, broadcast: 0, class }.build(dtype, shape, seed, 0)?;
    let mut storage = backend.alloc(dtype, bytes.len() / dtype.size())?;
    backend.write(&bytes, &mut storage, 0)?;
    Tensor::from_parts(backend, Arc::new(storage), layout)
}

/// Where two tensors differ in bits; NaN equals NaN, and zeros of either sign each other when `zeros_equal`.
fn differ(a: &Tensor<AnyBackend>, b: &Tensor<AnyBackend>, zeros_equal: bool) -> Result<Option<String>> {
    if a.shape() != b.shape() || a.dtype() != b.dtype() {
        return Ok(Some(format!("{} {:?} against {} {:?}", a.dtype(), a.shape(), b.dtype(), b.shape())));
    }
    let (left, right) = (scalars(a)?, scalars(b)?);
    let equal = |x: f64, y: f64| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan() || zeros_equal && x == y;
    let at = (0..left.len()).find(|&at| match (left[at], right[at]) {
        (congruent::Scalar::Float(x), congruent::Scalar::Float(y)) => !equal(x, y),
        (x, y) => x != y,
    });
    Ok(at.map(|at| format!("element {at} is {} and {}", left[at], right[at])))
}

fn scalars(x: &Tensor<AnyBackend>) -> Result<Vec<congruent::Scalar>> {
    congruent::api::match_dtype!(x.dtype(), T => Ok(x.to_vec::<T>()?.into_iter().map(Into::into).collect()))
}
