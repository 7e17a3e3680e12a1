//! Element types: the run-time value [`DType`], the Rust types that map to it ([`Element`]), and scalars.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use half::{bf16, f16};

use crate::convert::{f64_to_bf16, f64_to_f16, i64_to_bf16, i64_to_f16};
use crate::error::{Error, ErrorKind, Result};

/// The element type of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// 64-bit two's complement.
    I64,
    /// 32-bit two's complement.
    I32,
    /// 32-bit unsigned.
    U32,
    /// 8-bit unsigned.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every dtype.
    pub const ALL: [Self; 9] =
        [Self::F64, Self::F32, Self::F16, Self::BF16, Self::I64, Self::I32, Self::U32, Self::U8, Self::Bool];

    /// Bytes per element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::U8 | Self::Bool => 1,
        }
    }

    /// The short lower-case name: `f32`, `bf16`, `bool` …
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }

    /// Whether this is f64, f32, f16 or bf16.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::BF16)
    }

    /// Whether this is i64, i32, u32 or u8.
    #[must_use]
    pub const fn is_int(self) -> bool {
        matches!(self, Self::I64 | Self::I32 | Self::U32 | Self::U8)
    }

    /// Whether this is a float or an integer, that is, not bool.
    #[must_use]
    pub const fn is_number(self) -> bool {
        !matches!(self, Self::Bool)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|dtype| dtype.name()).collect();
            Error::new(ErrorKind::DType, "dtype", format!("`{name}` is none of {}", names.join(" ")))
        })
    }
}

/// Runs `$body` with the type alias `$T` set to the Rust type of a dtype (all nine).
#[macro_export]
macro_rules! match_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::Bool => {
                type $T = bool;
                $body
            }
            dtype => $crate::match_number!(dtype, $T => $body, else => unreachable!("bool is matched above")),
        }
    };
}

/// Runs `$body` with `$T` set to the Rust type of a numeric dtype; `$other` for bool.
#[macro_export]
macro_rules! match_number {
    ($dtype:expr, $T:ident => $body:expr, else => $other:expr) => {
        match $dtype {
            $crate::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::DType::I32 => {
                type $T = i32;
                $body
            }
            $crate::DType::U32 => {
                type $T = u32;
                $body
            }
            $crate::DType::U8 => {
                type $T = u8;
                $body
            }
            dtype => $crate::match_float!(dtype, $T => $body, else => $other),
        }
    };
}

/// Runs `$body` with `$T` set to the Rust type of a float dtype; `$other` for the rest.
#[macro_export]
macro_rules! match_float {
    ($dtype:expr, $T:ident => $body:expr, else => $other:expr) => {
        match $dtype {
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F16 => {
                type $T = $crate::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $T = $crate::bf16;
                $body
            }
            _ => $other,
        }
    };
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is the element of a tensor: f64 f32 f16 bf16 i64 i32 u32 u8 bool. Sealed.
pub trait Element:
    sealed::Sealed + Copy + Default + fmt::Debug + PartialEq + Into<Scalar> + Send + Sync + 'static
{
    /// The dtype of this type.
    const DTYPE: DType;

    /// The memory of a slice.
    fn as_bytes(elements: &[Self]) -> &[u8];

    /// `len` elements whose memory `fill` writes; a byte that is not 0 reads as `true` for bool.
    ///
    /// # Errors
    /// `OutOfMemory`, and whatever `fill` returns.
    fn read(len: usize, fill: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<Vec<Self>>;
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn as_bytes(elements: &[Self]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }

    fn read(len: usize, fill: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<Vec<Self>> {
        Ok(u8::read(len, fill)?.into_iter().map(|byte| byte != 0).collect())
    }
}

impl sealed::Sealed for bool {}

impl From<bool> for Scalar {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// A number or truth value given by the user, in the precision in which it was given.
///
/// Two scalars are equal when their bits are, so that plans that hold scalars can be hashed.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A float; every float dtype fits in f64 without loss.
    Float(f64),
    /// An integer; every integer dtype fits in i64 without loss.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

impl Scalar {
    fn bits(self) -> (u8, u64) {
        match self {
            Self::Float(value) => (0, value.to_bits()),
            Self::Int(value) => (1, value.cast_unsigned()),
            Self::Bool(value) => (2, u64::from(value)),
        }
    }

    /// The scalar as an element of `dtype`, rounded once to nearest.
    ///
    /// # Errors
    /// `Argument` when an integer does not fit; `DType` when a float is given to an integer dtype, or bool meets
    /// a number: scalars are never converted between kinds, except an integer to a float.
    pub fn to_dtype(self, op: &'static str, dtype: DType) -> Result<Self> {
        let fits = |low: i64, high: i64, value: i64| {
            if (low..=high).contains(&value) {
                Ok(Self::Int(value))
            } else {
                let message = format!("the scalar {value} is outside the range {low}..={high} of {dtype}");
                Err(Error::new(ErrorKind::Argument, op, message))
            }
        };
        match (self, dtype) {
            (Self::Float(value), DType::F64) => Ok(Self::Float(value)),
            (Self::Float(value), DType::F32) => Ok(Self::Float(f64::from(value as f32))),
            (Self::Float(value), DType::F16) => Ok(Self::Float(f64_to_f16(value).to_f64())),
            (Self::Float(value), DType::BF16) => Ok(Self::Float(f64_to_bf16(value).to_f64())),
            (Self::Int(value), DType::F64) => Ok(Self::Float(value as f64)),
            (Self::Int(value), DType::F32) => Ok(Self::Float(f64::from(value as f32))),
            (Self::Int(value), DType::F16) => Ok(Self::Float(i64_to_f16(value).to_f64())),
            (Self::Int(value), DType::BF16) => Ok(Self::Float(i64_to_bf16(value).to_f64())),
            (Self::Int(value), DType::I64) => Ok(Self::Int(value)),
            (Self::Int(value), DType::I32) => fits(i32::MIN.into(), i32::MAX.into(), value),
            (Self::Int(value), DType::U32) => fits(0, u32::MAX.into(), value),
            (Self::Int(value), DType::U8) => fits(0, u8::MAX.into(), value),
            (Self::Bool(value), DType::Bool) => Ok(Self::Bool(value)),
            _ => Err(Error::new(
                ErrorKind::DType,
                op,
                format!("the scalar {self} is not a {dtype}; cast the tensor, or give a scalar of its kind"),
            )),
        }
    }

    /// The value as f64; integers round to nearest, truth values are 0 and 1.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Int(value) => value as f64,
            Self::Bool(value) => f64::from(u8::from(value)),
        }
    }

    /// The value as i64; floats truncate and saturate, NaN is 0.
    #[must_use]
    pub fn to_i64(self) -> i64 {
        match self {
            Self::Float(value) => value as i64,
            Self::Int(value) => value,
            Self::Bool(value) => i64::from(value),
        }
    }

    /// The truth of the value: anything but zero, NaN too.
    #[must_use]
    pub fn to_bool(self) -> bool {
        match self {
            Self::Float(value) => value != 0.0,
            Self::Int(value) => value != 0,
            Self::Bool(value) => value,
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// Maps each numeric Rust type, whose bit patterns are all valid, to its dtype and its kind of scalar.
macro_rules! numbers {
    ($($T:ty, $dtype:ident, $scalar:ident, $into:expr;)*) => {$(
        impl sealed::Sealed for $T {}

        impl Element for $T {
            const DTYPE: DType = DType::$dtype;

            fn as_bytes(elements: &[Self]) -> &[u8] {
                bytemuck::cast_slice(elements)
            }

            fn read(len: usize, fill: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<Vec<Self>> {
                let mut elements = bytemuck::allocation::try_zeroed_vec(len).map_err(|()| {
                    let message = format!("{len} {} elements do not fit the memory of the host", Self::DTYPE);
                    Error::new(ErrorKind::OutOfMemory, "read", message)
                })?;
                fill(bytemuck::cast_slice_mut(&mut elements))?;
                Ok(elements)
            }
        }

        impl From<$T> for Scalar {
            fn from(value: $T) -> Self {
                Self::$scalar($into(value))
            }
        }
    )*};
}

numbers! {
    f64, F64, Float, std::convert::identity;
    f32, F32, Float, f64::from;
    f16, F16, Float, f64::from;
    bf16, BF16, Float, f64::from;
    i64, I64, Int, std::convert::identity;
    i32, I32, Int, i64::from;
    u32, U32, Int, i64::from;
    u8, U8, Int, i64::from;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_convert_once_and_never_between_kinds() {
        let to = |scalar: Scalar, dtype| scalar.to_dtype("add", dtype);
        assert_eq!(to(0.1.into(), DType::F64).unwrap(), Scalar::Float(0.1));
        assert_eq!(to(0.1.into(), DType::F32).unwrap(), Scalar::Float(f64::from(0.1_f32)));
        assert_eq!(to(3.into(), DType::BF16).unwrap(), Scalar::Float(3.0));
        assert_eq!(to(300.into(), DType::U8).unwrap_err().kind(), ErrorKind::Argument);
        assert_eq!(to((-1).into(), DType::U32).unwrap_err().kind(), ErrorKind::Argument);
        assert_eq!(to(1.5.into(), DType::I32).unwrap_err().kind(), ErrorKind::DType);
        assert_eq!(to(true.into(), DType::F32).unwrap_err().kind(), ErrorKind::DType);
        assert_ne!(Scalar::from(0.0), Scalar::from(-0.0));
        assert_eq!(Scalar::from(f64::NAN), Scalar::from(f64::NAN));
    }

    #[test]
    fn bool_reads_any_nonzero_byte_as_true() {
        let read = bool::read(3, &mut |bytes| {
            bytes.copy_from_slice(&[0, 1, 200]);
            Ok(())
        });
        assert_eq!(read.unwrap(), [false, true, true]);
        let error = f64::read(1 << 58, &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn names_parse_back() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
            assert_eq!(match_dtype!(dtype, T => T::DTYPE), dtype);
        }
        assert!("f8".parse::<DType>().unwrap_err().message().contains("bf16"));
    }
}
