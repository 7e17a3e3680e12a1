//! Memory: cache-line aligned, allocated without aborting, large buffers used again.

use std::fmt;
use std::mem;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use congruent_backend_api::{DType, Error, ErrorKind, Result, Storage};

use crate::pool::Pool;

/// A cache line. A vector of lines gives SIMD loads their alignment.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

/// The memory of a storage; it may be longer than the elements.
enum Memory {
    /// A few elements, for which an allocation would take longer than most ops.
    Inline([u64; 8]),
    Lines(Vec<Line>),
}

/// Elements of one dtype in main memory. A bool is one byte, 0 or 1.
pub struct CpuStorage {
    memory: Memory,
    dtype: DType,
    len: usize,
    /// Where the lines go in the end, if they are enough.
    pool: Option<Arc<Pool>>,
}

impl CpuStorage {
    /// `len` elements with unspecified values.
    pub(crate) fn new(pool: &Arc<Pool>, dtype: DType, len: usize) -> Result<Self> {
        let bytes = len as u128 * dtype.size() as u128;
        let out_of_memory = || {
            let message = format!(
                "{len} {dtype} elements are {bytes} bytes, more than could be allocated; free tensors or use smaller ones"
            );
            Error::new(ErrorKind::OutOfMemory, "alloc", message)
        };
        if bytes <= size_of::<[u64; 8]>() as u128 {
            return Ok(Self { memory: Memory::Inline([0; 8]), dtype, len, pool: None });
        }
        let count = usize::try_from(bytes.div_ceil(size_of::<Line>() as u128)).map_err(|_| out_of_memory())?;
        let pooled = Pool::keeps(count).then(|| Arc::clone(pool));
        let lines = match pooled.as_ref().and_then(|pool| pool.take(count)) {
            Some(mut lines) => {
                if dtype == DType::Bool {
                    lines.fill(Line::zeroed());
                }
                lines
            }
            None => allocate(count).or_else(|()| {
                pool.clear();
                allocate(count).map_err(|()| out_of_memory())
            })?,
        };
        Ok(Self { memory: Memory::Lines(lines), dtype, len, pool: pooled })
    }

    /// The elements; `T` has the size of the dtype.
    pub(crate) fn as_slice<T: Pod>(&self) -> &[T] {
        debug_assert_eq!(size_of::<T>(), self.dtype.size());
        &self.all()[..self.len]
    }

    /// The elements; `T` has the size of the dtype.
    pub(crate) fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        debug_assert_eq!(size_of::<T>(), self.dtype.size());
        let len = self.len;
        &mut self.all_mut()[..len]
    }

    fn all<T: Pod>(&self) -> &[T] {
        match &self.memory {
            Memory::Inline(words) => bytemuck::cast_slice(words),
            Memory::Lines(lines) => bytemuck::cast_slice(lines),
        }
    }

    fn all_mut<T: Pod>(&mut self) -> &mut [T] {
        match &mut self.memory {
            Memory::Inline(words) => bytemuck::cast_slice_mut(words),
            Memory::Lines(lines) => bytemuck::cast_slice_mut(lines),
        }
    }

    /// Copies checked bytes to elements `start..`.
    pub(crate) fn write(&mut self, bytes: &[u8], start: usize) {
        let start = start * self.dtype.size();
        let normalise = self.dtype == DType::Bool;
        let to = &mut self.all_mut()[start..start + bytes.len()];
        to.copy_from_slice(bytes);
        if normalise {
            to.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
    }

    /// Copies checked bytes from elements `start..`.
    pub(crate) fn read(&self, bytes: &mut [u8], start: usize) {
        let start = start * self.dtype.size();
        bytes.copy_from_slice(&self.all()[start..start + bytes.len()]);
    }
}

/// Lines whose bytes are 0.
fn allocate(count: usize) -> Result<Vec<Line>, ()> {
    bytemuck::allocation::try_zeroed_vec(count)
}

impl Drop for CpuStorage {
    fn drop(&mut self) {
        if let (Some(pool), Memory::Lines(lines)) = (&self.pool, &mut self.memory) {
            pool.put(mem::take(lines));
        }
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
