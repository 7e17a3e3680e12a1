//! The device's memory pool: how much it keeps, what it holds, and giving back what nobody uses.

use congruent_backend_api::Result;
use cudarc::driver::sys::{self, CUmemPool_attribute};
use cudarc::driver::{CudaContext, DriverError, result};

use crate::device::{Cuda, Device};
use crate::error::driver_error;

/// How the memory of a device is used, in bytes; [`Cuda::memory_stats`] takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// What storages and temporaries hold, of every backend of the device in this process.
    pub in_use: u64,
    /// What the pool holds: `in_use`, and freed memory kept for the next allocation. 0 on a device without pools.
    pub reserved: u64,
    /// What the device has left, for every process.
    pub free: u64,
    /// What the device has.
    pub total: u64,
}

impl Cuda {
    /// How the device's memory is used. An op that has not run yet may still hold memory which is already dropped;
    /// synchronise first for a figure of what is really in use.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn memory_stats(&self) -> Result<MemoryStats> {
        let stats = || {
            let context = self.device.context();
            let (free, total) = context.mem_get_info()?;
            let held = |attribute| if context.has_async_alloc() { pool_attribute(context, attribute) } else { Ok(0) };
            Ok(MemoryStats {
                in_use: held(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
                reserved: held(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
                free: free as u64,
                total: total as u64,
            })
        };
        stats().map_err(|error| driver_error("memory_stats", error))
    }
}

impl Device {
    /// Gives back what the pool holds but nobody uses; the caller has bound the context.
    pub(crate) fn trim_pool(&self, op: &'static str) -> Result<()> {
        let trim = || {
            self.wait()?;
            if !self.context().has_async_alloc() {
                return Ok(());
            }
            let pool = pool(self.context())?;
            // SAFETY: the pool is the device's own; trimming touches no memory in use.
            unsafe { result::mem_pool::trim_to(pool, 0) }
        };
        trim().map_err(|error| driver_error(op, error))
    }
}

/// Sets how many bytes of freed memory the pool keeps.
pub(crate) fn keep_in_pool(context: &CudaContext, mut bytes: u64) -> Result<(), DriverError> {
    if !context.has_async_alloc() {
        return Ok(());
    }
    let (pool, value) = (pool(context)?, (&raw mut bytes).cast());
    // SAFETY: the pool is the device's own, and this attribute is a u64.
    unsafe { result::mem_pool::set_attribute(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, value) }
}

fn pool_attribute(context: &CudaContext, attribute: CUmemPool_attribute) -> Result<u64, DriverError> {
    let mut bytes = 0_u64;
    let pool = pool(context)?;
    // SAFETY: the pool is the device's own, and the attributes asked for here are u64.
    unsafe { result::mem_pool::get_attribute(pool, attribute, (&raw mut bytes).cast()) }?;
    Ok(bytes)
}

fn pool(context: &CudaContext) -> Result<sys::CUmemoryPool, DriverError> {
    // SAFETY: the device handle is that of a live context.
    unsafe { result::device::get_mem_pool(context.cu_device()) }
}
