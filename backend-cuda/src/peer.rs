//! Copies between storages of different devices, and of different streams of one.

use congruent_backend_api::{Error, ErrorKind, Result, Storage, check_transfer};
use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::device::Cuda;
use crate::error::driver_error;
use crate::graph;
use crate::storage::CudaStorage;

const OP: &str = "receive";

impl Cuda {
    /// Fills `out` with elements `start..` of `source`, which is on any device, without waiting for either.
    pub(crate) fn copy_storage(&self, source: &CudaStorage, start: usize, out: &mut CudaStorage) -> Result<()> {
        if source.dtype() != out.dtype() {
            let message = format!("the source holds {}, the output {}", source.dtype(), out.dtype());
            return Err(Error::new(ErrorKind::DType, OP, message));
        }
        let bytes = out.len() * out.dtype().size();
        check_transfer(OP, source, start, bytes)?;
        self.order(OP, [], out)?;
        if bytes == 0 {
            return Ok(());
        }
        graph::use_memory(&self.device, OP, source.at(0).address())?;
        let copy = || {
            source.order_read(&self.device)?;
            let (own, other) = (self.device.context(), source.context());
            if own.cu_ctx() != other.cu_ctx() {
                open_pool(other, own)?;
            }
            own.bind_to_thread()?;
            let (to, from) = (out.at(0).address(), source.at(start).address());
            // SAFETY: both ranges lie in their storages, as was checked; the output is borrowed mutably, and the stream
            // orders the copy behind all other uses of it and behind the last write of the source. Later writes of both,
            // and their release, are ordered behind the copy.
            unsafe { result::memcpy_peer_async(own.cu_ctx(), to, other.cu_ctx(), from, bytes, self.device.stream()) }
        };
        copy().map_err(|error| driver_error(OP, error))
    }
}

/// Lets a device read the memory of another one's pool directly, where the machine can; elsewhere the driver copies through
/// the host. Doing it again is cheap beside a copy.
fn open_pool(of: &CudaContext, to: &CudaContext) -> Result<(), DriverError> {
    if !of.has_async_alloc() {
        return Ok(());
    }
    let mut can = 0;
    // SAFETY: both are handles of devices whose contexts are alive, and one i32 is written.
    unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, to.cu_device(), of.cu_device()) }.result()?;
    if can == 0 {
        return Ok(());
    }
    let location =
        sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: to.cu_device() };
    let access = sys::CUmemAccessDesc { location, flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    // SAFETY: the device handle is that of a live context.
    let pool = unsafe { result::device::get_mem_pool(of.cu_device()) }?;
    // SAFETY: one descriptor is passed, which outlives the call; access changes nothing for those who have it already.
    unsafe { sys::cuMemPoolSetAccess(pool, &raw const access, 1) }.result()
}
