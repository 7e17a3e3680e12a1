//! The Rust types that loops run over. bool is stored and computed as u8.
//!
//! A lane is moved as its [`Bits`](Lane::Bits) and computed as its [`Wide`](Lane::Wide) type: f32 for f16 and bf16,
//! itself for the rest. Loops over strided memory exist once per size of bits, arithmetic once per wide type.

use std::fmt::Debug;

use bytemuck::Pod;
use congruent_backend_api::convert::{f64_to_bf16, f64_to_f16, i64_to_bf16, i64_to_f16};
use congruent_backend_api::{Scalar, bf16, f16};
use half::slice::HalfFloatSliceExt;

use crate::simd::light;

/// The most elements that a kernel is given at once: operands and temporaries then stay in the L1 cache.
pub(crate) const BLOCK: usize = 1024;

/// The type of an element in memory.
pub(crate) trait Lane: Pod + Default + Debug + PartialEq + Send + Sync {
    /// The unsigned integer of this size.
    type Bits: Pod + Default + Send + Sync;
    /// The type in which arithmetic is done.
    type Wide: Number;
    /// Room for a block of wide elements, or for none where widening is the identity.
    type Buffer: Send;

    /// A scalar that a plan has already rounded to this type.
    fn from_scalar(scalar: Scalar) -> Self;

    /// Rounds once to nearest; to integers as Rust's `as`.
    fn from_f64(value: f64) -> Self;

    /// Rounds once to nearest; to integers it wraps.
    fn from_i64(value: i64) -> Self;

    /// A cast by the rules of the contract.
    fn cast<R: Lane>(self) -> R;

    /// Whether the element is not zero; NaN is not.
    fn is_nonzero(self) -> bool;

    /// The wide element.
    fn wide(self) -> Self::Wide;

    /// Rounds a wide element.
    fn narrow(wide: Self::Wide) -> Self;

    /// A buffer for [`widen_block`](Self::widen_block) and [`narrow_block`](Self::narrow_block).
    fn buffer() -> Self::Buffer;

    /// At most [`BLOCK`] elements as wide ones, in `buffer` unless they are wide already.
    fn widen_block<'a>(block: &'a [Self], buffer: &'a mut Self::Buffer) -> &'a [Self::Wide];

    /// Lets `compute` write at most [`BLOCK`] wide elements and rounds them.
    fn narrow_block(block: &mut [Self], buffer: &mut Self::Buffer, compute: impl FnOnce(&mut [Self::Wide]));
}

/// A lane that is its own wide type.
pub(crate) trait Number: Lane<Wide = Self> + PartialOrd {
    /// The least value, −∞ for floats.
    const LEAST: Self;
    /// The greatest value, +∞ for floats.
    const GREATEST: Self;

    /// The greater; NaN if either is; −0 < +0.
    fn maximum(self, other: Self) -> Self;

    /// The smaller; NaN if either is; −0 < +0.
    fn minimum(self, other: Self) -> Self;

    /// Whether this is NaN.
    #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
    #[inline(always)]
    fn is_nan(self) -> bool {
        self != self
    }
}

/// An integer. Arithmetic modulo 2⁶⁴ followed by [`Lane::from_i64`] is arithmetic modulo 2ʷ.
pub(crate) trait Int: Number {
    /// The width in bits.
    const BITS: i64 = size_of::<Self>() as i64 * 8;

    /// The exact value.
    fn to_i64(self) -> i64;
}

/// The members of [`Lane`] that are the same for every type that is its own wide type.
macro_rules! identity {
    () => {
        type Wide = Self;
        type Buffer = [Self; 0];

        #[inline(always)]
        fn is_nonzero(self) -> bool {
            self != Self::default()
        }

        #[inline(always)]
        fn wide(self) -> Self {
            self
        }

        #[inline(always)]
        fn narrow(wide: Self) -> Self {
            wide
        }

        #[inline(always)]
        fn buffer() -> [Self; 0] {
            []
        }

        #[inline(always)]
        fn widen_block<'a>(block: &'a [Self], _: &'a mut [Self; 0]) -> &'a [Self] {
            block
        }

        #[inline(always)]
        fn narrow_block(block: &mut [Self], _: &mut [Self; 0], compute: impl FnOnce(&mut [Self])) {
            compute(block);
        }
    };
}

macro_rules! ints {
    ($($T:ty, $bits:ty;)*) => {$(
        #[allow(trivial_numeric_casts, reason = "the widest type is cast to itself")]
        impl Lane for $T {
            type Bits = $bits;

            #[inline(always)]
            fn from_scalar(scalar: Scalar) -> Self {
                scalar.to_i64() as Self
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn cast<R: Lane>(self) -> R {
                R::from_i64(i64::from(self))
            }

            identity!();
        }

        impl Number for $T {
            const LEAST: Self = Self::MIN;
            const GREATEST: Self = Self::MAX;

            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                self.max(other)
            }

            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                self.min(other)
            }
        }

        impl Int for $T {
            #[inline(always)]
            fn to_i64(self) -> i64 {
                i64::from(self)
            }
        }
    )*};
}

ints! {
    i64, u64;
    i32, u32;
    u32, u32;
    u8, u8;
}

macro_rules! floats {
    ($($T:ty, $bits:ty;)*) => {$(
        #[allow(trivial_numeric_casts, reason = "the widest type is cast to itself")]
        impl Lane for $T {
            type Bits = $bits;

            #[inline(always)]
            fn from_scalar(scalar: Scalar) -> Self {
                scalar.to_f64() as Self
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn cast<R: Lane>(self) -> R {
                R::from_f64(f64::from(self))
            }

            identity!();
        }

        impl Number for $T {
            const LEAST: Self = Self::NEG_INFINITY;
            const GREATEST: Self = Self::INFINITY;

            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                // Selections, not branches: loops are then vectorised. Equal numbers differ at most in the sign of zero.
                let equal = Self::from_bits(self.to_bits() & other.to_bits());
                let apart = if self > other { self } else { other };
                let number = if self == other { equal } else { apart };
                if self.is_nan() { self } else { number }
            }

            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                // Selections, not branches: loops are then vectorised. Equal numbers differ at most in the sign of zero.
                let equal = Self::from_bits(self.to_bits() | other.to_bits());
                let apart = if self < other { self } else { other };
                let number = if self == other { equal } else { apart };
                if self.is_nan() { self } else { number }
            }
        }
    )*};
}

floats! {
    f64, u64;
    f32, u32;
}

macro_rules! halves {
    ($($T:ty, $from_f64:path, $from_i64:path, $widen:path, $narrow:path;)*) => {$(
        impl Lane for $T {
            type Bits = u16;
            type Wide = f32;
            type Buffer = [f32; BLOCK];

            #[inline(always)]
            fn from_scalar(scalar: Scalar) -> Self {
                $from_f64(scalar.to_f64())
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                $from_f64(value)
            }

            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                $from_i64(value)
            }

            #[inline(always)]
            fn cast<R: Lane>(self) -> R {
                R::from_f64(f64::from(self))
            }

            #[inline(always)]
            fn is_nonzero(self) -> bool {
                self.to_bits() << 1 != 0
            }

            #[inline(always)]
            fn wide(self) -> f32 {
                self.to_f32()
            }

            #[inline(always)]
            fn narrow(wide: f32) -> Self {
                Self::from_f32(wide)
            }

            #[inline(always)]
            fn buffer() -> [f32; BLOCK] {
                [0.0; BLOCK]
            }

            #[inline(always)]
            fn widen_block<'a>(block: &'a [Self], buffer: &'a mut [f32; BLOCK]) -> &'a [f32] {
                let wide = &mut buffer[..block.len()];
                $widen(block, wide);
                wide
            }

            #[inline(always)]
            fn narrow_block(block: &mut [Self], buffer: &mut [f32; BLOCK], compute: impl FnOnce(&mut [f32])) {
                let wide = &mut buffer[..block.len()];
                compute(wide);
                $narrow(wide, block);
            }
        }
    )*};
}

halves! {
    f16, f64_to_f16, i64_to_f16, widen_f16, narrow_f16;
    bf16, f64_to_bf16, i64_to_bf16, widen_bf16, narrow_bf16;
}

/// By the processor's own instruction where it has one.
fn widen_f16(block: &[f16], wide: &mut [f32]) {
    block.convert_to_f32_slice(wide);
}

fn narrow_f16(wide: &[f32], block: &mut [f16]) {
    block.convert_from_f32_slice(wide);
}

fn widen_bf16(block: &[bf16], wide: &mut [f32]) {
    light(|| {
        for (wide, x) in wide.iter_mut().zip(block) {
            *wide = f32::from_bits(u32::from(x.to_bits()) << 16);
        }
    });
}

fn narrow_bf16(wide: &[f32], block: &mut [bf16]) {
    light(|| {
        for (narrow, x) in block.iter_mut().zip(wide) {
            let bits = x.to_bits();
            // Half a unit is added, less at an even one; a carry into the exponent is right, up to infinity.
            let rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
            // NaN must not round to infinity.
            *narrow = bf16::from_bits(if x.is_nan() { bits >> 16 | 0x40 } else { rounded } as u16);
        }
    });
}
