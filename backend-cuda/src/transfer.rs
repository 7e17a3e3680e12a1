//! Copies between host slices and device memory.
//!
//! The device can only read page-locked memory. Given an ordinary slice, the driver copies it piece by piece on one thread;
//! here several threads do: each takes the next piece, copies it to a page-locked buffer of its own, starts the
//! device's copy, and goes on with its second buffer meanwhile. A slice that is page-locked itself
//! ([`Cuda::pinned`](crate::Cuda::pinned)) is copied directly.
//!
//! Measured by `cargo test --release -p congruent-backend-cuda --test gpu transfer_rates -- --ignored --nocapture` on an
//! H200 with 32 host cores, in GB/s:
//!
//! | bytes | slice to device | device to slice | device to a new `Vec` | page-locked, both ways |
//! |---|---|---|---|---|
//! | 16 MiB | 20 | 21 | 9 | 53 |
//! | 64 MiB | 38 | 38 | 5 | 54 |
//! | 1 GiB | 50 | 41 | 7 | 55 |
//!
//! The page faults of fresh memory bound the copy to a new `Vec`.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::thread;

use congruent_backend_api::{Error, ErrorKind, Result};
use cudarc::driver::sys::{self, CUpointer_attribute};
use cudarc::driver::{CudaContext, CudaEvent, DriverError, result};

use crate::device::Device;
use crate::error::driver_error;
use crate::fork;
use crate::storage::DevicePointer;

/// The piece that a thread copies at once: large enough to hide the cost of a copy's start.
const PIECE: usize = 2 << 20;
/// Slices from this length on are staged here; the driver is faster for short ones.
const STAGED: usize = 512 << 10;
/// More threads no longer add bandwidth.
const THREADS: usize = 8;

impl Device {
    /// Copies `bytes` to `target` in the order of the stream; they may be reused on return.
    ///
    /// # Safety
    /// As many bytes from `target` on lie in memory of this GPU that other streams don't use meanwhile.
    pub(crate) unsafe fn upload(&self, bytes: &[u8], target: DevicePointer) -> Result<()> {
        const OP: &str = "write";
        if bytes.is_empty() {
            return Ok(());
        }
        self.bind(OP)?;
        if is_pinned(bytes) {
            // SAFETY: the caller vouches for the target, and the wait ends the copy before the borrow of `bytes` ends.
            unsafe { result::memcpy_htod_async(target.address(), bytes, self.stream()) }
                .and_then(|()| self.wait())
                .map_err(|error| driver_error(OP, error))
        } else if bytes.len() >= STAGED || self.reads_pageable_memory() {
            let pieces = Mutex::new(bytes.chunks(PIECE).enumerate());
            self.in_lanes(OP, bytes.len(), |lane| {
                while let Some((index, piece)) = next(&pieces) {
                    // SAFETY: the piece belongs to its part of the target, for which the caller vouches.
                    unsafe { lane.upload(self, piece, target.address() + (index * PIECE) as u64) }?;
                }
                Ok(())
            })
        } else {
            // SAFETY: the caller vouches for the target. The driver has copied pageable memory when it returns, on a
            // device that cannot read it directly.
            unsafe { result::memcpy_htod_async(target.address(), bytes, self.stream()) }
                .map_err(|error| driver_error(OP, error))
        }
    }

    /// Copies from `source` to `bytes` in the order of the stream, and waits for the stream.
    ///
    /// # Safety
    /// As many bytes from `source` on lie in memory of this GPU that other streams don't write meanwhile.
    pub(crate) unsafe fn download(&self, source: DevicePointer, bytes: &mut [u8]) -> Result<()> {
        const OP: &str = "download";
        self.bind(OP)?;
        if bytes.len() >= STAGED && !is_pinned(bytes) {
            let len = bytes.len();
            let pieces = Mutex::new(bytes.chunks_mut(PIECE).enumerate());
            self.in_lanes(OP, len, |lane| {
                // The piece that is on its way, and the half to which it comes.
                let mut pending: Option<(usize, &mut [u8])> = None;
                loop {
                    let started = match next(&pieces) {
                        Some((index, piece)) => {
                            // SAFETY: the piece's part of the source is one that the caller vouches for.
                            let half =
                                unsafe { lane.request(self, source.address() + (index * PIECE) as u64, piece.len()) }?;
                            Some((half, piece))
                        }
                        None => None,
                    };
                    if let Some((half, piece)) = pending.take() {
                        lane.receive(half, piece)?;
                    }
                    if started.is_none() {
                        return Ok(());
                    }
                    pending = started;
                }
            })?;
        } else if !bytes.is_empty() {
            // SAFETY: the caller vouches for the source; the wait below ends the copy before the borrow of `bytes` ends.
            unsafe { result::memcpy_dtoh_async(bytes, source.address(), self.stream()) }
                .map_err(|error| driver_error(OP, error))?;
        }
        self.wait().map_err(|error| driver_error(OP, error))
    }

    /// Runs `work` on as many threads as the copy of `len` bytes deserves, this one included, each with a lane.
    fn in_lanes(
        &self,
        op: &'static str,
        len: usize,
        work: impl Fn(&mut Lane) -> Result<(), DriverError> + Sync,
    ) -> Result<()> {
        let most = thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        let wanted = len.div_ceil(PIECE).clamp(1, most);
        let mut lanes = self.staging().0.lock().unwrap_or_else(PoisonError::into_inner);
        while lanes.len() < wanted {
            match Lane::new(self.context()) {
                Ok(lane) => lanes.push(lane),
                // Fewer lanes are slower and no worse.
                Err(_) if !lanes.is_empty() => break,
                Err(error) => return Err(pinned_error(op, 2 * PIECE, error)),
            }
        }
        let wanted = wanted.min(lanes.len());
        let Some((own, others)) = lanes[..wanted].split_first_mut() else { return Ok(()) };
        let bound = |lane| self.context().bind_to_thread().and_then(|()| work(lane));
        let results = thread::scope(|scope| {
            // A thread that cannot be had leaves its pieces to the others.
            let spawn = |lane| thread::Builder::new().spawn_scoped(scope, || bound(lane)).ok();
            let threads: Vec<_> = others.iter_mut().filter_map(spawn).collect();
            let own = work(own);
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            joined.fold(own, Result::and)
        });
        results.map_err(|error| driver_error(op, error))
    }
}

/// The next piece of a copy that threads share.
fn next<T>(pieces: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    pieces.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// The lanes of a backend, made when first needed; one copy has them at a time.
#[derive(Default)]
pub(crate) struct Staging(Mutex<Vec<Lane>>);

/// What one thread copies through: two buffers, of which one is filled while the device uses the other.
struct Lane {
    halves: [Half; 2],
    turn: usize,
}

struct Half {
    memory: PinnedBytes,
    // When the device no longer uses the buffer.
    done: CudaEvent,
}

impl Lane {
    fn new(context: &std::sync::Arc<CudaContext>) -> Result<Self, DriverError> {
        let half = || Ok(Half { memory: PinnedBytes::new(PIECE)?, done: context.new_event(None)? });
        Ok(Self { halves: [half()?, half()?], turn: 0 })
    }

    /// The other half, once the device has done with it.
    fn turn(&mut self) -> Result<usize, DriverError> {
        self.turn ^= 1;
        self.halves[self.turn].done.synchronize()?;
        Ok(self.turn)
    }

    /// Starts the copy of a piece.
    ///
    /// # Safety
    /// As for [`Device::upload`].
    unsafe fn upload(&mut self, device: &Device, piece: &[u8], target: u64) -> Result<(), DriverError> {
        let index = self.turn()?;
        let half = &mut self.halves[index];
        let staged = &mut half.memory.bytes_mut()[..piece.len()];
        staged.copy_from_slice(piece);
        // SAFETY: the caller vouches for the target; the buffer is not touched again before `done`, and is not freed
        // before the device has waited for its stream.
        unsafe { result::memcpy_htod_async(target, staged, device.stream()) }?;
        half.done.record(device.cuda_stream())
    }

    /// Starts the copy of a piece to a half of the lane, and says to which.
    ///
    /// # Safety
    /// As for [`Device::download`].
    unsafe fn request(&mut self, device: &Device, source: u64, len: usize) -> Result<usize, DriverError> {
        let index = self.turn()?;
        let half = &mut self.halves[index];
        // SAFETY: the caller vouches for the source; the buffer is not touched again before `done`, and is not freed
        // before the device has waited for its stream.
        unsafe { result::memcpy_dtoh_async(&mut half.memory.bytes_mut()[..len], source, device.stream()) }?;
        half.done.record(device.cuda_stream())?;
        Ok(index)
    }

    /// Waits for a half and empties it.
    fn receive(&mut self, index: usize, piece: &mut [u8]) -> Result<(), DriverError> {
        let half = &mut self.halves[index];
        half.done.synchronize()?;
        piece.copy_from_slice(&half.memory.bytes_mut()[..piece.len()]);
        Ok(())
    }
}

/// Page-locked host memory, which every device can reach directly.
pub(crate) struct PinnedBytes {
    memory: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the value alone, as that of a `Vec` does.
unsafe impl Send for PinnedBytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for PinnedBytes {}

impl PinnedBytes {
    /// `len` bytes of 0, at least one; the caller has bound a context.
    pub(crate) fn new(len: usize) -> Result<Self, DriverError> {
        // SAFETY: the memory is zeroed before it is read.
        let memory = unsafe { result::malloc_host(len, sys::CU_MEMHOSTALLOC_PORTABLE) }?;
        let memory = NonNull::new(memory.cast()).ok_or(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
        // SAFETY: the allocation has `len` bytes.
        unsafe { memory.write_bytes(0, len) };
        Ok(Self { memory, len })
    }

    /// The start of the memory, aligned to a page.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.memory
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the allocation has `len` initialised bytes and lives until `drop`.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        if fork::check("drop").is_err() {
            return;
        }
        // SAFETY: the memory came from `malloc_host` and is freed once; its owners wait for the device first. A failure
        // leaks it.
        let _ = unsafe { result::free_host(self.memory.as_ptr().cast()) };
    }
}

/// The error when page-locked memory cannot be had.
pub(crate) fn pinned_error(op: &'static str, bytes: usize, error: DriverError) -> Error {
    if error.0 != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return driver_error(op, error);
    }
    let message = format!("{bytes} bytes of page-locked host memory; the system limits how much there can be");
    Error::new(ErrorKind::OutOfMemory, op, message).with_source(error)
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
