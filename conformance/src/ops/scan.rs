//! Scans: each result is held to the bound of the reduction over the elements that enter it.
//!
//! `logcumsumexp` scales what it has added whenever the maximum rises. With d = `summation_depth` and r rises, a term of a
//! sequential scan passes through d additions and r scalings; in a tree the term is scaled at each of at most d levels. A
//! scaling costs an exponential (4 ULP, that is 8u) and a product, so a term passes through at most d + 9·(d + r) ≤
//! 10·(d + r) roundings; those of the differences of maxima add up to u·|x − max|, since maxima only rise.

use congruent_backend_api::DType;
use congruent_backend_api::ops::reduce::summation_depth;
use congruent_backend_api::ops::scan::{ScanOp, ScanRange};
use core_math as cr;
use proptest::prelude::*;

use crate::arithmetic::Arithmetic;
use crate::case::{Call, Case, Input, poisoned};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::host::encode_int;
use crate::model::ErrorModel;
use crate::ops::binary::extreme;
use crate::ops::reduce::{Product, Sum};
use crate::ops::statistic::log_of_terms;
use crate::ops::{host, layout};
use crate::spec::{Draw, placement, shape, tensor};
use crate::values::Class;

const CLASSES: &[Class] = &[
    Class::Specials,
    Class::Uniform,
    Class::Sparse,
    Class::Ties,
    Class::Positive,
    Class::WideInts,
    Class::Constant,
    Class::SmallInts,
    Class::Cancelling,
    Class::WideExponent,
    Class::Tiny,
];

/// How exactly a scan must agree.
#[must_use]
pub fn model(op: ScanOp, dtype: DType) -> ErrorModel {
    match op {
        _ if !dtype.is_float() => ErrorModel::Exact,
        ScanOp::Max | ScanOp::Min => ErrorModel::Exact,
        ScanOp::Prod | ScanOp::Sum => ErrorModel::Accumulated,
        ScanOp::LogSumExp => ErrorModel::Composed,
    }
}

/// Generated scans; one free draw in eight has a long axis.
pub fn cases(op: ScanOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let plain = shape(draw.scaled(4), 5);
    let shapes = match draw.cell {
        Some(_) => plain,
        None => {
            prop_oneof![7 => plain, 1 => (1..4_usize, 1500..6000_usize).prop_map(|(rows, len)| vec![rows, len])].boxed()
        }
    };
    (shapes, any::<u8>(), any::<[bool; 2]>(), tensor(draw, CLASSES), placement(), any::<u64>().no_shrink())
        .prop_map(move |(mut shape, axis, [exclusive, reverse], spec, placement, seed)| {
            if shape.is_empty() {
                shape.push(3);
            }
            let rank = shape.len() as isize;
            let axis = isize::from(axis) % rank;
            // Every other axis counts from the end.
            let axis = if axis % 2 == 0 { axis } else { axis - rank };
            let call = Call::Scan { op, axis, range: ScanRange { exclusive, reverse } };
            let x = host(&spec, dtype, &shape, seed, 0);
            Case { call, inputs: vec![Input::Tensor(x)], out: poisoned(dtype, layout(&placement, &shape), seed) }
        })
        .boxed()
}

/// What each element of a scan may be.
#[must_use]
pub fn expect(op: ScanOp, axis: isize, range: ScanRange, case: &Case, arithmetic: Arithmetic) -> Vec<Expect> {
    let Some(x) = case.tensor(0) else { return Vec::new() };
    let (shape, values) = (x.layout.shape(), x.values());
    let axis = if axis < 0 { axis + shape.rank() as isize } else { axis } as usize;
    let (len, step) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let mut expected = vec![Expect::Any; values.len()];
    for row in 0..values.len() / len.max(1) {
        let start = row / step * step * len + row % step;
        let mut running = Running::new(op, x.dtype, arithmetic);
        for position in 0..len {
            let at = start + step * if range.reverse { len - 1 - position } else { position };
            if range.exclusive {
                expected[at] = running.expect();
            }
            running.push(values[at].to_f64(), values[at].to_i64());
            if !range.exclusive {
                expected[at] = running.expect();
            }
        }
    }
    expected
}

/// What is known of the elements so far.
struct Running {
    op: ScanOp,
    dtype: DType,
    values: Vec<f64>,
    sum: Sum,
    product: Product,
    /// The scan of integers.
    integer: i128,
    extreme: f64,
    exponentials: Exponentials,
}

impl Running {
    fn new(op: ScanOp, dtype: DType, arithmetic: Arithmetic) -> Self {
        let format = arithmetic.accumulator(dtype);
        let integer = match (op, dtype) {
            (ScanOp::Max, DType::I64) => i64::MIN.into(),
            (ScanOp::Max, DType::I32) => i32::MIN.into(),
            (ScanOp::Min, DType::I64) => i64::MAX.into(),
            (ScanOp::Min, DType::I32) => i32::MAX.into(),
            (ScanOp::Min, DType::U32) => u32::MAX.into(),
            (ScanOp::Min, DType::U8) => u8::MAX.into(),
            (ScanOp::Prod, _) => 1,
            _ => 0,
        };
        Self {
            op,
            dtype,
            values: Vec::new(),
            sum: Sum::new(format),
            product: Product::new(format),
            integer,
            extreme: if op == ScanOp::Min { f64::INFINITY } else { f64::NEG_INFINITY },
            exponentials: Exponentials { max: f64::NEG_INFINITY, rises: 0, sum: Dd::default(), shifts: 0.0 },
        }
    }

    fn push(&mut self, x: f64, integer: i64) {
        let integer = i128::from(integer);
        match (self.op, self.dtype.is_float()) {
            (ScanOp::Sum, true) => self.sum.push(x),
            (ScanOp::Sum, false) => self.integer += integer,
            (ScanOp::Prod, true) => self.product.push(x),
            (ScanOp::Prod, false) => self.integer = ((self.integer * integer) as i64).into(),
            (ScanOp::Max | ScanOp::Min, true) => self.extreme = extreme(self.extreme, x, self.op == ScanOp::Max),
            (ScanOp::Max, false) => self.integer = self.integer.max(integer),
            (ScanOp::Min, false) => self.integer = self.integer.min(integer),
            (ScanOp::LogSumExp, _) => {
                self.values.push(x);
                self.exponentials.push(&self.values, x);
            }
        }
    }

    fn expect(&self) -> Expect {
        match self.op {
            _ if !self.dtype.is_float() => Expect::Bits(encode_int(self.dtype, self.integer)),
            ScanOp::Max | ScanOp::Min => Expect::exact(self.dtype, self.extreme),
            ScanOp::Prod => self.product.expect(self.dtype),
            ScanOp::Sum => self.sum.expect(self.sum.value, self.sum.bound()),
            ScanOp::LogSumExp => self.exponentials.expect(self.dtype, self.values.len()),
        }
    }
}

/// Σ e^(x − max) and Σ |x − max| e^(x − max), where NaN stays the maximum.
struct Exponentials {
    max: f64,
    rises: usize,
    sum: Dd,
    shifts: f64,
}

impl Exponentials {
    fn push(&mut self, values: &[f64], x: f64) {
        if x > self.max || x.is_nan() {
            self.max = if self.max.is_nan() { self.max } else { x };
            self.rises += 1;
            (self.sum, self.shifts) = (Dd::default(), 0.0);
            values.iter().for_each(|&x| self.add(x));
        } else {
            self.add(x);
        }
    }

    fn add(&mut self, x: f64) {
        let term = cr::exp(x - self.max);
        self.sum = self.sum + term.into();
        if term > 0.0 {
            self.shifts += term * (x - self.max).abs();
        }
    }

    fn expect(&self, dtype: DType, count: usize) -> Expect {
        if !self.max.is_finite() {
            return Expect::exact(dtype, self.max);
        }
        let roundings = 10 * (summation_depth(count) + self.rises);
        log_of_terms(dtype, self.max, self.sum.to_f64(), self.shifts, count, roundings as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::judge;
    use crate::host::{HostTensor, encode_float};
    use congruent_backend_api::{Layout, Shape};

    fn expected(op: ScanOp, exclusive: bool, reverse: bool, x: &[f64]) -> Vec<Expect> {
        let layout = Layout::contiguous(Shape::new("test", &[x.len()]).unwrap());
        let bytes = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        let x = HostTensor { dtype: DType::F64, layout, bytes };
        let call = Call::Scan { op, axis: 0, range: ScanRange { exclusive, reverse } };
        let case = Case { call, inputs: vec![Input::Tensor(x.clone())], out: x };
        expect(op, 0, ScanRange { exclusive, reverse }, &case, Arithmetic::default())
    }

    #[test]
    fn scans_by_hand() {
        let exact = |values: &[f64]| values.iter().map(|&x| Expect::near(x.into(), 0.0)).collect::<Vec<_>>();
        assert_eq!(expected(ScanOp::Sum, false, false, &[1.0, 2.0, 3.0]), exact(&[1.0, 3.0, 6.0]));
        assert_eq!(expected(ScanOp::Sum, true, true, &[1.0, 2.0, 3.0]), exact(&[5.0, 3.0, 0.0]));
        assert_eq!(expected(ScanOp::Prod, true, false, &[2.0, 4.0, 3.0])[..2], exact(&[1.0, 2.0]));
        let greatest = expected(ScanOp::Max, true, false, &[2.0, f64::NAN, 3.0]);
        assert_eq!(greatest[0], Expect::exact(DType::F64, f64::NEG_INFINITY));
        assert_eq!(greatest[2], Expect::Nan);
    }

    #[test]
    fn log_sums_are_bounded_where_the_maximum_rises() {
        let x: Vec<f64> = (0..100).map(|i| f64::from(i % 10) + 700.0).collect();
        let logs = expected(ScanOp::LogSumExp, false, false, &x);
        let mut sum = 0.0;
        for (x, expect) in x.iter().zip(&logs) {
            sum += (x - 709.0).exp();
            let right = encode_float(DType::F64, sum.ln() + 709.0);
            assert!(judge(DType::F64, right, expect).accepted, "{expect:?}");
            let wrong = encode_float(DType::F64, sum.ln() + 709.0 + 1e-9);
            assert!(!judge(DType::F64, wrong, expect).accepted, "{expect:?}");
        }
    }
}
