//! Device memory: allocation and freeing in the order of a stream, and use by several.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use congruent_backend_api::{DType, Error, ErrorKind, Result, Storage};
use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::device::Device;
use crate::error::driver_error;
use crate::graph;
use crate::stream::Users;

/// Memory of a [`Cuda`](crate::Cuda) backend. It keeps its device's context alive and is freed in stream order.
pub struct CudaStorage {
    device: Arc<Device>,
    // 0 when there are no elements.
    pointer: u64,
    dtype: DType,
    len: usize,
    // Set once another stream than that of `device` uses the memory.
    users: OnceLock<Box<Mutex<Users>>>,
}

/// An address in device memory, as kernels and cuBLAS take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct DevicePointer(u64);

impl DevicePointer {
    /// No memory.
    pub(crate) const NULL: Self = Self(0);

    pub(crate) fn new(address: u64) -> Self {
        Self(address)
    }

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
        let mut storage = Self { device: device.clone(), pointer: 0, dtype, len, users: OnceLock::new() };
        if len > 0 {
            let bytes = len.checked_mul(dtype.size()).ok_or_else(|| out_of_memory(device, dtype, len))?;
            device.bind("alloc")?;
            if !device.context().has_async_alloc() {
                graph::refuse_while_recording(device, "alloc")?;
            }
            storage.pointer = match malloc(device, bytes) {
                Ok(pointer) => pointer,
                Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY && !graph::records_in(device) => {
                    device.trim_pool("alloc")?;
                    malloc(device, bytes).map_err(|error| out_of_memory(device, dtype, len).with_source(error))?
                }
                Err(error) => return Err(driver_error("alloc", error)),
            };
            graph::allocated(device, storage.pointer);
        }
        Ok(storage)
    }

    /// The address of an element.
    pub(crate) fn at(&self, element: usize) -> DevicePointer {
        DevicePointer(self.pointer + (element * self.dtype.size()) as u64)
    }

    /// Whether the memory is that of the same GPU, of whichever stream.
    pub(crate) fn is_on(&self, device: &Device) -> bool {
        std::ptr::eq(&*self.device, device) || self.device.context().cu_ctx() == device.context().cu_ctx()
    }

    /// The context of the GPU whose memory it is.
    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        self.device.context()
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

    /// Orders the next work of `by`, which reads the memory, behind its last write.
    pub(crate) fn order_read(&self, by: &Arc<Device>) -> Result<(), DriverError> {
        if self.users.get().is_none() && Arc::ptr_eq(&self.device, by) {
            return Ok(());
        }
        graph::order_beside(self.pointer, by)?;
        let users = self.users.get_or_init(|| Box::new(Mutex::new(Users::new(&self.device))));
        users.lock().unwrap_or_else(PoisonError::into_inner).read(by)
    }

    /// Orders the next work of `by`, which writes the memory, behind every use of it.
    pub(crate) fn order_write(&mut self, by: &Arc<Device>) -> Result<(), DriverError> {
        if self.users.get().is_none() && Arc::ptr_eq(&self.device, by) {
            return Ok(());
        }
        graph::order_beside(self.pointer, by)?;
        self.users.get_or_init(|| Box::new(Mutex::new(Users::new(&self.device))));
        // It was just set.
        self.users.get_mut().map_or(Ok(()), |users| users.get_mut().unwrap_or_else(PoisonError::into_inner).write(by))
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
        // Errors are ignored: either the context is gone, which every later call reports, or the memory leaks.
        if self.pointer == 0 {
            return;
        }
        let later = || Self {
            device: self.device.clone(),
            pointer: self.pointer,
            dtype: self.dtype,
            len: self.len,
            users: std::mem::take(&mut self.users),
        };
        if graph::releases(&self.device, self.pointer, later) || self.device.bind_to_release().is_err() {
            return;
        }
        if let Some(users) = self.users.get_mut() {
            // Memory that another stream may still use leaks rather than being handed out again.
            if users.get_mut().unwrap_or_else(PoisonError::into_inner).write(&self.device).is_err() {
                return;
            }
        }
        let context = self.device.context();
        if context.has_async_alloc() {
            // SAFETY: the pointer came from `malloc_async` on this stream and is freed once; the free is ordered after
            // every kernel that uses it: those of this stream come before it, and those of others were waited for above.
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

fn malloc(device: &Device, bytes: usize) -> Result<u64, DriverError> {
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
