//! Single elements: symmetry, range and smoothness of functions, casts.

use congruent::ops::UnaryOp;
use congruent::{DType, Result, Tensor};

use super::{Backend, FLOATS, differ, make, scalars};
use crate::round::Format;
use crate::values::Class;

const ODD: [UnaryOp; 12] = [
    UnaryOp::Asin,
    UnaryOp::Asinh,
    UnaryOp::Atan,
    UnaryOp::Atanh,
    UnaryOp::Erf,
    UnaryOp::Recip,
    UnaryOp::Round,
    UnaryOp::Sin,
    UnaryOp::Sinh,
    UnaryOp::Tan,
    UnaryOp::Tanh,
    UnaryOp::Trunc,
];
const EVEN: [UnaryOp; 4] = [UnaryOp::Abs, UnaryOp::Cos, UnaryOp::Cosh, UnaryOp::Square];

pub(super) fn symmetry(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        for class in [Class::Uniform, Class::FullRange, Class::Specials, Class::Large] {
            let x = make(backend, dtype, class, &[777], seed)?;
            let negated = x.neg()?;
            for op in ODD.into_iter().chain(EVEN) {
                let (plain, mirrored) = (x.unary(op)?, negated.unary(op)?);
                let mirrored = if ODD.contains(&op) { mirrored.neg()? } else { mirrored };
                if let Some(found) = differ(&plain, &mirrored, false)? {
                    return Ok(Some(format!("{} {dtype}: {found}", op.name())));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn ranges(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let ranges = [
        (UnaryOp::Sin, -1.0, 1.0),
        (UnaryOp::Cos, -1.0, 1.0),
        (UnaryOp::Tanh, -1.0, 1.0),
        (UnaryOp::Erf, -1.0, 1.0),
        (UnaryOp::Erfc, 0.0, 2.0),
        (UnaryOp::Sigmoid, 0.0, 1.0),
        (UnaryOp::Exp, 0.0, f64::INFINITY),
        (UnaryOp::Exp2, 0.0, f64::INFINITY),
        (UnaryOp::Expm1, -1.0, f64::INFINITY),
        (UnaryOp::Softplus, 0.0, f64::INFINITY),
        (UnaryOp::Cosh, 1.0, f64::INFINITY),
        (UnaryOp::Acosh, 0.0, f64::INFINITY),
    ];
    for dtype in FLOATS {
        for class in [Class::Uniform, Class::FullRange, Class::Specials, Class::Large] {
            let x = make(backend, dtype, class, &[777], seed)?;
            for (op, low, high) in ranges {
                for (x, y) in scalars(&x)?.into_iter().zip(scalars(&x.unary(op)?)?) {
                    if y.to_f64() < low || y.to_f64() > high {
                        return Ok(Some(format!("{} {dtype} of {x} is {y}", op.name())));
                    }
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn monotone(backend: &Backend, seed: u64) -> Result<Option<String>> {
    // Neighbours of powers of two and of random arguments, where formulas change.
    let starts = scalars(&make(backend, DType::F32, Class::WideExponent, &[40], seed)?)?;
    let powers = (-12..7).flat_map(|e| [1.0, -1.0].map(|sign| sign * crate::round::exp2(e)));
    let mut arguments = Vec::new();
    for start in powers.chain(starts.iter().map(|start| start.to_f64())) {
        let mut x = (0..16).fold(start as f32, |x, _| x.next_down());
        for _ in 0..32 {
            arguments.push(x);
            x = x.next_up();
        }
    }
    let x = Tensor::from_slice(backend, &arguments, [arguments.len()])?;
    // Each of two neighbours may be off by the function's bound.
    for (op, ulps) in [(UnaryOp::Exp, 3.0), (UnaryOp::Tanh, 4.0), (UnaryOp::Sigmoid, 8.0)] {
        let values = scalars(&x.unary(op)?)?;
        for (arguments, values) in arguments.chunks(32).zip(values.chunks(32)) {
            for (x, y) in arguments.windows(2).zip(values.windows(2)) {
                let (low, high) = (y[0].to_f64(), y[1].to_f64());
                if high < low - 2.0 * ulps * Format::F32.ulp(low) {
                    let (name, next) = (op.name(), x[1]);
                    return Ok(Some(format!("{name} falls from {low} at {} to {high} at {next}", x[0])));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn cast_round_trip(backend: &Backend, seed: u64) -> Result<Option<String>> {
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

pub(super) fn cast_once(backend: &Backend, _: u64) -> Result<Option<String>> {
    // Half way between two numbers of the narrow format, and a last bit of the wide one above that.
    let floats = [(DType::F32, 24), (DType::F16, 11), (DType::BF16, 8)];
    for (to, precision) in floats {
        let (half, last) = (crate::round::exp2(-precision), f64::EPSILON);
        let x = Tensor::from_slice(backend, &[1.0 + half, 1.0 + half + last, -1.0 - half - last], [3])?;
        let up = 1.0 + 2.0 * half;
        let found: Vec<f64> = scalars(&x.cast(to)?)?.iter().map(|x| x.to_f64()).collect();
        if found != [1.0, up, -up] {
            return Ok(Some(format!("f64 → {to}: ties and their neighbours became {found:?}")));
        }
    }
    for (to, precision) in [(DType::F64, 53), (DType::F32, 24), (DType::BF16, 8)] {
        let (whole, half) = (1_i64 << 62, 1_i64 << (62 - precision));
        let x = Tensor::from_slice(backend, &[whole + half, whole + half + 1, -whole - half - 1], [3])?;
        let up = (whole + 2 * half) as f64;
        let found: Vec<f64> = scalars(&x.cast(to)?)?.iter().map(|x| x.to_f64()).collect();
        if found != [whole as f64, up, -up] {
            return Ok(Some(format!("i64 → {to}: ties and their neighbours became {found:?}")));
        }
    }
    Ok(None)
}
