//! Memory: cache-line aligned, zeroed, allocated without aborting.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use congruent_backend_api::{DType, Error, ErrorKind, Result, Storage};

/// A cache line. A vector of lines gives SIMD loads their alignment.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Elements of one dtype in main memory. A bool is one byte, 0 or 1.
pub struct CpuStorage {
    lines: Vec<Line>,
    dtype: DType,
    len: usize,
}

impl CpuStorage {
    /// `len` elements whose bytes are 0.
    pub(crate) fn zeroed(dtype: DType, len: usize) -> Result<Self> {
        let bytes = len as u128 * dtype.size() as u128;
        let lines = usize::try_from(bytes.div_ceil(size_of::<Line>() as u128)).ok();
        match lines.map(bytemuck::allocation::try_zeroed_vec) {
            Some(Ok(lines)) => Ok(Self { lines, dtype, len }),
            _ => {
                let message = format!(
                    "{len} {dtype} elements are {bytes} bytes, more than could be allocated; free tensors or use smaller ones"
                );
                Err(Error::new(ErrorKind::OutOfMemory, "alloc", message))
            }
        }
    }

    /// The elements; `T` has the size of the dtype.
    pub(crate) fn as_slice<T: Pod>(&self) -> &[T] {
        debug_assert_eq!(size_of::<T>(), self.dtype.size());
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }

    /// The elements; `T` has the size of the dtype.
    pub(crate) fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        debug_assert_eq!(size_of::<T>(), self.dtype.size());
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }

    /// Copies checked bytes to elements `start..`.
    pub(crate) fn write(&mut self, bytes: &[u8], start: usize) {
        let start = start * self.dtype.size();
        let normalise = self.dtype == DType::Bool;
        let to = &mut bytemuck::cast_slice_mut(&mut self.lines)[start..start + bytes.len()];
        to.copy_from_slice(bytes);
        if normalise {
            to.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
    }

    /// Copies checked bytes from elements `start..`.
    pub(crate) fn read(&self, bytes: &mut [u8], start: usize) {
        let start = start * self.dtype.size();
        bytes.copy_from_slice(&bytemuck::cast_slice(&self.lines)[start..start + bytes.len()]);
    }
}

impl fmt::Debug for CpuStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuStorage").field("dtype", &self.dtype).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Storage for CpuStorage {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }
}
