//! How kernels report what only the data shows: words of host memory that they write, which cost nothing until then.
//!
//! An error is reported once, by the first synchronising call behind the op in the order of the stream. A call that
//! finds a word set therefore clears it by a function that the stream runs in its order: kernels behind it, which other
//! threads may have started meanwhile, keep their own report, and all writes of the kernels before it are taken at once.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use congruent_backend_api::{Error, ErrorKind, Result};
use cudarc::driver::{DriverError, result, sys};

use crate::device::Device;
use crate::error::driver_error;
use crate::storage::DevicePointer;

/// What kernels report, each by writing something else than 0 to its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    DivisionByZero,
    IndexOutOfRange,
}

impl Mark {
    const ALL: [Self; 2] = [Self::DivisionByZero, Self::IndexOutOfRange];

    fn error(self, op: &'static str) -> Error {
        let (kind, message) = match self {
            Self::DivisionByZero => (
                ErrorKind::DivisionByZero,
                "an earlier integer `div`, `rem`, `modulo` or `pow` on this backend divided by zero; such elements are 0",
            ),
            Self::IndexOutOfRange => (
                ErrorKind::IndexOutOfRange,
                "an index of an earlier gather or scatter on this backend was negative or not less than the size of its axis; \
                 it read 0, or wrote nothing",
            ),
        };
        Error::new(kind, op, message)
    }
}

const WORDS: usize = Mark::ALL.len();

/// The words, and those that have been taken and not yet reported.
struct Words {
    written: [AtomicU32; WORDS],
    taken: [AtomicU32; WORDS],
}

/// Mapped host memory with the words of a backend.
pub(crate) struct HostFlag {
    words: NonNull<Words>,
    device_address: u64,
    // Held while words are taken and reported, so that two threads do not share one report.
    reporting: Mutex<()>,
}

// SAFETY: the words are only accessed atomically by the host, and live as long as the value.
unsafe impl Send for HostFlag {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostFlag {}

impl HostFlag {
    /// Cleared words; the caller has bound the context.
    pub(crate) fn new() -> Result<Self, DriverError> {
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the memory is written before it is read.
        let memory = unsafe { result::malloc_host(size_of::<Words>(), flags) }?;
        let words = NonNull::new(memory.cast::<Words>()).ok_or(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
        // SAFETY: the allocation is page-aligned and as large as the value, and nobody else knows it.
        unsafe { words.write(Words { written: Default::default(), taken: Default::default() }) };
        let mut flag = Self { words, device_address: 0, reporting: Mutex::default() };
        // SAFETY: the memory was allocated as mapped just above; the address is written to a u64. `written`, which
        // kernels know, is the first field.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut flag.device_address, memory, 0) }.result()?;
        Ok(flag)
    }

    /// The word of a mark as kernels see it.
    pub(crate) fn pointer(&self, mark: Mark) -> DevicePointer {
        DevicePointer::new(self.device_address + 4 * mark as u64)
    }

    fn words(&self) -> &Words {
        // SAFETY: the allocation lives until `drop`, and its parts are only accessed atomically.
        unsafe { self.words.as_ref() }
    }
}

impl Device {
    /// The error that the data of an earlier op caused, once; the caller has waited for the stream.
    pub(crate) fn report(&self, op: &'static str) -> Result<()> {
        let words = self.host_flag().words();
        let clear = |words: &[AtomicU32]| words.iter().all(|word| word.load(Ordering::Relaxed) == 0);
        if clear(&words.written) && clear(&words.taken) {
            return Ok(());
        }
        let _reporting = self.host_flag().reporting.lock().unwrap_or_else(PoisonError::into_inner);
        self.take_words().map_err(|error| driver_error(op, error))?;
        // With several errors at once, one is for this call and the others for the next.
        let mark = Mark::ALL.into_iter().find(|&mark| words.taken[mark as usize].swap(0, Ordering::Relaxed) != 0);
        mark.map_or(Ok(()), |mark| Err(mark.error(op)))
    }

    /// Moves what is written before this point of the stream to `taken`, and waits for it.
    fn take_words(&self) -> Result<(), DriverError> {
        unsafe extern "C" fn take(words: *mut c_void) {
            // SAFETY: the pointer is that of the flag of a device, which waits for its stream before it drops the flag.
            let words = unsafe { &*words.cast::<Words>() };
            for (written, taken) in words.written.iter().zip(&words.taken) {
                taken.fetch_or(written.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let words = self.host_flag().words.as_ptr().cast();
        // SAFETY: the function takes this pointer, does not unwind, and calls nothing of CUDA.
        unsafe { result::stream::launch_host_function(self.stream(), take, words) }?;
        self.wait()
    }
}

impl Drop for HostFlag {
    fn drop(&mut self) {
        // SAFETY: the memory came from `malloc_host` and is freed once; the device waits for its stream before. That
        // a failure is ignored costs a page at most.
        let _ = unsafe { result::free_host(self.words.as_ptr().cast()) };
    }
}
