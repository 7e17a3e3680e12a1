//! Tensors in host memory as the kit sees them: a storage's bytes and a layout, decoded one element at a time.

use congruent_backend_api::{DType, Layout, Scalar, bf16, f16};

use crate::round::Format;

/// The bytes of a storage and the layout of a view of it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// The dtype of the elements.
    pub dtype: DType,
    /// Where the view's elements lie.
    pub layout: Layout,
    /// The whole storage, in the host's byte order.
    pub bytes: Vec<u8>,
}

impl HostTensor {
    /// The number of elements in the storage.
    #[must_use]
    pub fn storage_len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// The bits of an element of the storage.
    #[must_use]
    pub fn bits(&self, at: usize) -> u64 {
        let size = self.dtype.size();
        let mut word = [0; 8];
        word[..size].copy_from_slice(&self.bytes[at * size..(at + 1) * size]);
        u64::from_le_bytes(word)
    }

    /// Overwrites an element of the storage.
    pub fn set_bits(&mut self, at: usize, bits: u64) {
        let size = self.dtype.size();
        self.bytes[at * size..(at + 1) * size].copy_from_slice(&bits.to_le_bytes()[..size]);
    }

    /// The view's elements in row-major order.
    #[must_use]
    pub fn values(&self) -> Vec<Scalar> {
        positions(&self.layout).into_iter().map(|at| decode(self.dtype, self.bits(at))).collect()
    }

    /// The view's elements in row-major order, as bits.
    #[must_use]
    pub fn view_bits(&self) -> Vec<u64> {
        positions(&self.layout).into_iter().map(|at| self.bits(at)).collect()
    }
}

/// The storage elements of a view in row-major order.
#[must_use]
pub fn positions(layout: &Layout) -> Vec<usize> {
    let mut positions = Vec::with_capacity(layout.count());
    let mut index = vec![0_usize; layout.rank()];
    for _ in 0..layout.count() {
        let steps = index.iter().zip(layout.strides()).map(|(&i, &stride)| i as isize * stride);
        positions.push((layout.offset() as isize + steps.sum::<isize>()) as usize);
        for (i, &size) in index.iter_mut().zip(&**layout.shape()).rev() {
            *i += 1;
            if *i < size {
                break;
            }
            *i = 0;
        }
    }
    positions
}

/// The value of an element's bits.
#[must_use]
pub fn decode(dtype: DType, bits: u64) -> Scalar {
    match dtype {
        DType::F64 => Scalar::Float(f64::from_bits(bits)),
        DType::F32 => Scalar::Float(f32::from_bits(bits as u32).into()),
        DType::F16 => Scalar::Float(f16::from_bits(bits as u16).to_f64()),
        DType::BF16 => Scalar::Float(bf16::from_bits(bits as u16).to_f64()),
        DType::I64 => Scalar::Int(bits.cast_signed()),
        DType::I32 => Scalar::Int((bits as u32).cast_signed().into()),
        DType::U32 => Scalar::Int((bits as u32).into()),
        DType::U8 => Scalar::Int((bits as u8).into()),
        DType::Bool => Scalar::Bool(bits != 0),
    }
}

/// The bits of a float rounded to `dtype`.
#[must_use]
pub fn encode_float(dtype: DType, value: f64) -> u64 {
    let rounded = Format::of(dtype).map_or(value, |format| format.round(value));
    // Each conversion below is exact: `rounded` is a number of the format.
    match dtype {
        DType::F32 => (rounded as f32).to_bits().into(),
        DType::F16 => f16::from_f64(rounded).to_bits().into(),
        DType::BF16 => bf16::from_f64(rounded).to_bits().into(),
        _ => rounded.to_bits(),
    }
}

/// The bits of an integer, wrapped to the width of `dtype`; bool takes 0 and 1.
#[must_use]
pub fn encode_int(dtype: DType, value: i128) -> u64 {
    match dtype.size() {
        1 => (value as u8).into(),
        4 => (value as u32).into(),
        _ => value as u64,
    }
}

/// The bits of a scalar in `dtype`, whose kind it must have.
#[must_use]
pub fn encode(dtype: DType, value: Scalar) -> u64 {
    match value {
        Scalar::Float(value) => encode_float(dtype, value),
        Scalar::Int(value) if dtype.is_float() => encode_float(dtype, value as f64),
        Scalar::Int(value) => encode_int(dtype, value.into()),
        Scalar::Bool(value) => value.into(),
    }
}
