//! Device memory: allocation, freeing and copies, all in the order of the device's one stream.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use congruent_backend_api::{DType, Error, ErrorKind, Result, Storage};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUpointer_attribute};

use crate::device::Device;
use crate::error::driver_error;

/// Memory of a [`Cuda`](crate::Cuda) backend. It keeps its device's context alive and is freed in stream order.
pub struct CudaStorage {
    device: Arc<Device>,
    // 0 when there are no elements.
    pointer: u64,
    dtype: DType,
    len: usize,
}

/// An address in device memory, as kernels and cuBLAS take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct DevicePointer(u64);

impl DevicePointer {
    /// No memory.
    pub(crate) const NULL: Self = Self(0);

    /// Whether vector accesses of 16 bytes may start here.
    pub(crate) fn is_aligned(self) -> bool {
        self.0.is_multiple_of(16)
    }

    /// The address of the element `elements` further on, or back.
    pub(crate) fn offset(self, elements: isize, dtype: DType) -> Self {
        Self(self.0.wrapping_add_signed((elements * dtype.size() as isize) as i64))
    }

    /// The address, for a call of a library.
    pub(crate) fn address(self) -> u64 {
        self.0
    }
}

impl CudaStorage {
    /// Allocates; after a failure everything that the pool holds in vain is given back, and it tries again.
    pub(crate) fn alloc(device: &Arc<Device>, dtype: DType, len: usize) -> Result<Self> {
        let mut storage = Self { device: device.clone(), pointer: 0, dtype, len };
        if len > 0 {
            let bytes = len.checked_mul(dtype.size()).ok_or_else(|| out_of_memory(device, dtype, len))?;
            device.bind("alloc")?;
            storage.pointer = match malloc(device, bytes) {
                Ok(pointer) => pointer,
                Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                    device.trim_pool("alloc")?;
                    malloc(device, bytes).map_err(|error| out_of_memory(device, dtype, len).with_source(error))?
                }
                Err(error) => return Err(driver_error("alloc", error)),
            };
        }
        Ok(storage)
    }

    /// The address of an element.
    pub(crate) fn at(&self, element: usize) -> DevicePointer {
        DevicePointer(self.pointer + (element * self.dtype.size()) as u64)
    }

    /// Whether the storage was made by this device value.
    pub(crate) fn is_on(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Sets all bytes to 0.
    pub(crate) fn clear(&mut self, op: &'static str) -> Result<()> {
        if self.pointer == 0 {
            return Ok(());
        }
        self.device.bind(op)?;
        // SAFETY: the allocation has this many bytes, and the stream that owns it orders the call.
        unsafe { result::memset_d8_async(self.pointer, 0, self.len * self.dtype.size(), self.device.stream()) }
            .map_err(|error| driver_error(op, error))
    }

    /// Copies from the host; `bytes` lies within the storage and may be reused on return.
    pub(crate) fn upload(&mut self, bytes: &[u8], start: usize) -> Result<()> {
        const OP: &str = "write";
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.bind(OP)?;
        let target = self.at(start).0;
        // SAFETY: `check_transfer` showed that the bytes fit the allocation after `start`, and the copy is ordered on
        // the stream that owns the allocation. That `bytes` outlives the copy is seen to below.
        unsafe { result::memcpy_htod_async(target, bytes, self.device.stream()) }
            .map_err(|error| driver_error(OP, error))?;
        // The driver stages pageable memory before it returns; memory that the device reads directly it does not.
        if self.device.reads_pageable_memory() || is_pinned(bytes) {
            self.device.wait().map_err(|error| driver_error(OP, error))?;
        }
        Ok(())
    }

    /// Copies to the host and waits for it.
    pub(crate) fn download(&self, start: usize, bytes: &mut [u8]) -> Result<()> {
        const OP: &str = "download";
        self.device.bind(OP)?;
        if !bytes.is_empty() {
            // SAFETY: `check_transfer` showed that the bytes lie in the allocation after `start`; the wait below ends
            // the copy before the borrow of `bytes` ends.
            unsafe { result::memcpy_dtoh_async(bytes, self.at(start).0, self.device.stream()) }
                .map_err(|error| driver_error(OP, error))?;
        }
        self.device.wait().map_err(|error| driver_error(OP, error))
    }
}

impl Storage for CudaStorage {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for CudaStorage {
    fn drop(&mut self) {
        if self.pointer == 0 {
            return;
        }
        // Errors are ignored: either the context is gone, which every later call reports, or the memory leaks.
        let context = self.device.context();
        let _ = context.bind_to_thread();
        if context.has_async_alloc() {
            // SAFETY: the pointer came from `malloc_async` on this stream and is freed once; the free is ordered after
            // every kernel that uses it, since the device has no other stream.
            let _ = unsafe { result::free_async(self.pointer, self.device.stream()) };
        } else {
            let _ = self.device.wait();
            // SAFETY: the pointer came from `malloc_sync`, is freed once, and the stream has finished with it.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
    }
}

impl std::fmt::Debug for CudaStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaStorage")
            .field("device", &self.device.name())
            .field("dtype", &self.dtype)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

fn malloc(device: &Device, bytes: usize) -> Result<u64, cudarc::driver::DriverError> {
    if device.context().has_async_alloc() {
        // SAFETY: the stream is alive, and all uses of the memory are ordered on it.
        unsafe { result::malloc_async(device.stream(), bytes) }
    } else {
        // SAFETY: the context is bound to this thread; the memory is written before it is read, or its values are
        // unspecified by the contract of `alloc`.
        unsafe { result::malloc_sync(bytes) }
    }
}

fn out_of_memory(device: &Device, dtype: DType, len: usize) -> Error {
    let state = match device.context().mem_get_info() {
        Ok((free, total)) => format!("{free} of {total} bytes are free"),
        Err(_) => "how much is free is unknown".to_owned(),
    };
    let requested = len as u128 * dtype.size() as u128;
    let message = format!("{requested} bytes for {len} {dtype} elements on {}, where {state}", device.name());
    Error::new(ErrorKind::OutOfMemory, "alloc", message)
}

/// Whether the driver knows the host memory as page-locked; when it doesn't say, it may be.
fn is_pinned(bytes: &[u8]) -> bool {
    let mut kind = 0_u32;
    let mut attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut target = (&raw mut kind).cast::<c_void>();
    let pointer = bytes.as_ptr() as u64;
    // SAFETY: one attribute is asked for, which is a u32; of memory that the driver doesn't know it writes 0.
    let answer = unsafe { sys::cuPointerGetAttributes(1, &raw mut attribute, &raw mut target, pointer) };
    answer != sys::CUresult::CUDA_SUCCESS || kind != 0
}

/// What kernels report of the data that they meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    DivisionByZero = 0,
    IndexOutOfRange = 1,
}

/// Words of host memory that kernels can write, one for each kind of bad data: they are readable without a copy once the
/// stream has been waited for.
pub(crate) struct HostFlag {
    words: NonNull<[AtomicU32; 2]>,
    device_address: u64,
}

// SAFETY: the words are only accessed atomically by the host, and live as long as the value.
unsafe impl Send for HostFlag {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostFlag {}

impl HostFlag {
    /// Cleared flags; the caller has bound the context.
    pub(crate) fn new() -> Result<Self, cudarc::driver::DriverError> {
        // SAFETY: eight bytes are allocated, and written before they are read.
        let memory = unsafe { result::malloc_host(8, sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE) }?;
        let words = NonNull::new(memory.cast::<[AtomicU32; 2]>())
            .ok_or(cudarc::driver::DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
        // SAFETY: the allocation is page-aligned, eight bytes long, and nobody else knows it.
        unsafe { words.write([const { AtomicU32::new(0) }; 2]) };
        let mut flag = Self { words, device_address: 0 };
        // SAFETY: the memory was allocated as mapped just above; the address is written to a u64.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut flag.device_address, memory, 0) }.result()?;
        Ok(flag)
    }

    /// The word of a kind as kernels see it; they set it to 1.
    pub(crate) fn pointer(&self, mark: Mark) -> DevicePointer {
        DevicePointer(self.device_address + 4 * mark as u64)
    }

    /// Reads and clears a word.
    pub(crate) fn take(&self, mark: Mark) -> bool {
        // SAFETY: the allocation lives until `drop`, and is only accessed atomically.
        let words = unsafe { self.words.as_ref() };
        words[mark as usize].swap(0, Ordering::Relaxed) != 0
    }
}

impl Drop for HostFlag {
    fn drop(&mut self) {
        // SAFETY: the memory came from `malloc_host` and is freed once; the device waits for its stream before. That
        // a failure is ignored costs a page at most.
        let _ = unsafe { result::free_host(self.words.as_ptr().cast()) };
    }
}
