//! Page-locked host buffers that users fill and read, and copies that run while the host goes on.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use congruent_backend_api::{DType, Element, Error, ErrorKind, Result, Storage, check_transfer};
use cudarc::driver::result;

use crate::device::Cuda;
use crate::error::driver_error;
use crate::storage::CudaStorage;
use crate::stream::Event;
use crate::transfer::{PinnedBytes, pinned_error};

/// A host buffer that the device reaches directly, at the full rate of the bus; [`Cuda::pinned`] makes one. It is a slice
/// to read and to fill.
///
/// [`write`](congruent_backend_api::Backend::write) takes such a slice as any other and copies it without staging;
/// [`Cuda::start_upload`] and [`Cuda::start_download`] don't even wait. Page-locked memory is taken from all other
/// programs, and making it is slow, so keep a buffer and use it again.
pub struct Pinned<T> {
    // `None` for no elements.
    memory: Option<PinnedBytes>,
    len: usize,
    elements: PhantomData<T>,
}

/// A copy between a [`Pinned`] buffer and the device that has been started. It owns the buffer until it is done; dropping
/// it waits.
#[must_use = "dropping it waits for the copy and releases the buffer"]
#[derive(Debug)]
pub struct Transfer<T: Element> {
    // `None` once `wait` has taken it.
    buffer: Option<Pinned<T>>,
    done: Event,
}

impl Cuda {
    /// A page-locked host buffer of `len` elements, all 0 (`false`), for every device of the process.
    ///
    /// ```
    /// # use congruent_backend_api::{Backend, DType};
    /// # use congruent_backend_cuda::Cuda;
    /// # fn main() -> congruent_backend_api::Result<()> {
    /// # let Ok(cuda) = Cuda::new(0) else { return Ok(()) };
    /// let mut buffer = cuda.pinned::<f32>(1 << 20)?;
    /// buffer.fill(1.0);
    /// let mut storage = cuda.alloc(DType::F32, buffer.len())?;
    /// let copy = cuda.start_upload(buffer, &mut storage, 0)?;
    /// // The host does something else; ops on `storage` may be started too.
    /// let buffer = copy.wait()?;
    /// let buffer = cuda.start_download(&storage, 0, buffer)?.wait()?;
    /// assert!(buffer.iter().all(|&element| element == 1.0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `OutOfMemory` when the system doesn't lock as much.
    pub fn pinned<T: Element>(&self, len: usize) -> Result<Pinned<T>> {
        const OP: &str = "pinned";
        let bytes =
            len.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(|| {
                let message = format!("{len} {} elements do not fit the address space", T::DTYPE);
                Error::new(ErrorKind::OutOfMemory, OP, message)
            })?;
        let memory = if bytes == 0 {
            None
        } else {
            self.device.bind(OP)?;
            Some(PinnedBytes::new(bytes).map_err(|error| pinned_error(OP, bytes, error))?)
        };
        Ok(Pinned { memory, len, elements: PhantomData })
    }

    /// Starts to copy the buffer to elements `start..` of `storage`, in the order of this backend's work. Ops that follow
    /// see the new elements.
    ///
    /// # Errors
    /// `DType` and `Argument` when the buffer doesn't fit the storage; what the driver reports. The buffer is released then.
    pub fn start_upload<T: Element>(
        &self,
        buffer: Pinned<T>,
        storage: &mut CudaStorage,
        start: usize,
    ) -> Result<Transfer<T>> {
        const OP: &str = "start_upload";
        self.device.bind_apart(OP)?;
        check::<T>(OP, storage, start, buffer.len())?;
        self.order(OP, [], storage)?;
        let target = storage.at(start).address();
        self.start(OP, buffer, |bytes| {
            // SAFETY: the elements lie in the storage, as was checked, which is of this GPU, is borrowed mutably, and is
            // ordered behind its other users. The buffer lives until the copy is done, which `Transfer` sees to.
            unsafe { result::memcpy_htod_async(target, bytes, self.device.stream()) }
        })
    }

    /// Starts to copy elements `start..` of `storage` to the buffer, as many as it holds, in the order of this backend's
    /// work. Ops that follow may overwrite them. Errors that the data of an op caused are left to `synchronize`.
    ///
    /// # Errors
    /// `DType` and `Argument` when the buffer doesn't fit the storage; what the driver reports. The buffer is released then.
    pub fn start_download<T: Element>(
        &self,
        storage: &CudaStorage,
        start: usize,
        buffer: Pinned<T>,
    ) -> Result<Transfer<T>> {
        const OP: &str = "start_download";
        self.device.bind_apart(OP)?;
        check::<T>(OP, storage, start, buffer.len())?;
        self.order_input(OP, storage)?;
        let source = storage.at(start).address();
        self.start(OP, buffer, |bytes| {
            // SAFETY: the elements lie in the storage, as was checked, which is of this GPU and is ordered behind its last
            // writer; later writes and its release are ordered behind the copy. The buffer lives until the copy is done,
            // which `Transfer` sees to.
            unsafe { result::memcpy_dtoh_async(bytes, source, self.device.stream()) }
        })
    }

    fn start<T: Element>(
        &self,
        op: &'static str,
        mut buffer: Pinned<T>,
        copy: impl FnOnce(&mut [u8]) -> Result<(), cudarc::driver::DriverError>,
    ) -> Result<Transfer<T>> {
        self.device.bind(op)?;
        if let Some(memory) = &mut buffer.memory {
            copy(memory.bytes_mut()).map_err(|error| driver_error(op, error))?;
        }
        match self.record() {
            Ok(done) => Ok(Transfer { buffer: Some(buffer), done }),
            Err(error) => {
                // The copy may have been started, so the stream is waited for before the buffer is released.
                let _ = self.device.wait();
                Err(error)
            }
        }
    }
}

/// Fails unless `len` elements of `T` lie in the storage from `start` on.
fn check<T: Element>(op: &'static str, storage: &CudaStorage, start: usize, len: usize) -> Result<()> {
    if storage.dtype() != T::DTYPE {
        let message = format!("the buffer holds {}, the storage {}", T::DTYPE, storage.dtype());
        return Err(Error::new(ErrorKind::DType, op, message));
    }
    check_transfer(op, storage, start, len * size_of::<T>()).map(drop)
}

impl<T: Element> Transfer<T> {
    /// Blocks until the copy is done, and gives the buffer back.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn wait(mut self) -> Result<Pinned<T>> {
        self.done.wait()?;
        let mut buffer = self.buffer.take().unwrap_or(Pinned { memory: None, len: 0, elements: PhantomData });
        if T::DTYPE == DType::Bool
            && let Some(memory) = &mut buffer.memory
        {
            // The device's bytes are 0 and 1 unless another library wrote them; a `bool` must never be anything else.
            memory.bytes_mut().iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(buffer)
    }

    /// Whether the copy is done.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn is_done(&self) -> Result<bool> {
        self.done.is_done()
    }
}

impl<T: Element> Drop for Transfer<T> {
    fn drop(&mut self) {
        if self.buffer.is_some() {
            // An error means that the context is gone, and the copy with it.
            let _ = self.done.wait();
        }
    }
}

impl<T: Element> Deref for Pinned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.memory {
            // SAFETY: the memory is aligned to a page, has room for `len` elements, and holds values of `T`: zeros, what
            // the user stored, or a copy of elements of this dtype.
            Some(memory) => unsafe { std::slice::from_raw_parts(memory.start().cast().as_ptr(), self.len) },
            None => &[],
        }
    }
}

impl<T: Element> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            // SAFETY: as for `deref`, and the buffer is borrowed mutably.
            Some(memory) => unsafe { std::slice::from_raw_parts_mut(memory.start().cast().as_ptr(), self.len) },
            None => &mut [],
        }
    }
}

impl<T: Element> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("dtype", &T::DTYPE).field("len", &self.len).finish_non_exhaustive()
    }
}
