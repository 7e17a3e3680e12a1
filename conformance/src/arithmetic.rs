//! What a backend declares about its arithmetic beyond the contract: each declaration widens bounds, and is printed.

use std::fmt;

use congruent_backend_api::DType;

use crate::round::{Format, exp2};

/// Departures from the contract that a backend declares. None is the default: the contract itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arithmetic {
    /// Operands of f32 products are rounded to TF32, 11 bits of significand.
    pub tf32: bool,
    /// Subnormal results of float ops may be zero.
    pub flushes_subnormals: bool,
    /// f16 and bf16 accumulate in their own format.
    pub half_accumulates_in_half: bool,
}

impl Arithmetic {
    /// The format in which results of a dtype are accumulated.
    pub(crate) fn accumulator(self, dtype: DType) -> Format {
        match Format::of(dtype) {
            Some(format) if self.half_accumulates_in_half => format,
            Some(format) => format.accumulator(),
            None => Format::F64,
        }
    }

    /// The relative error of a product from rounding its operands.
    pub(crate) fn operand_error(self, dtype: DType) -> f64 {
        // Two operands, each off by at most half a unit of 11 bits.
        if self.tf32 && dtype == DType::F32 { 2.0 * exp2(-11) + exp2(-22) } else { 0.0 }
    }

    /// Whether a zero may stand for a value this small.
    pub(crate) fn flushes(self, dtype: DType, value: f64) -> bool {
        let smallest = Format::of(dtype).map_or(0.0, |format| exp2(format.min_exponent));
        self.flushes_subnormals && value.abs() < smallest
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let declared = [
            (self.tf32, "TF32 products"),
            (self.flushes_subnormals, "subnormals flushed"),
            (self.half_accumulates_in_half, "half-precision accumulation"),
        ];
        let names: Vec<_> = declared.iter().filter(|(holds, _)| *holds).map(|&(_, name)| name).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(", "))
    }
}
