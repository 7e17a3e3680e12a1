//! The device's memory pool: how much it keeps, what it holds, and giving back what nobody uses.

use congruent_backend_api::{Error, ErrorKind, Result};
use cudarc::driver::sys::{self, CUgraphMem_attribute, CUmemPool_attribute};
use cudarc::driver::{CudaContext, DriverError, result};

use crate::device::{Cuda, Device};
use crate::error::driver_error;
use crate::graph;

/// How the memory of a device is used, in bytes; [`Cuda::memory_stats`] takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// What storages and temporaries hold, of every backend of the device in this process.
    pub in_use: u64,
    /// What the pools hold: `in_use`, and freed memory kept for the next allocation. 0 on a device without pools.
    pub reserved: u64,
    /// The most that `in_use` has been since the process started, or since [`Cuda::reset_peak`].
    pub peak: u64,
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
            // The temporaries of graphs lie in a pool of their own.
            let held = |attribute, of_graphs| match context.has_async_alloc() {
                true => Ok(pool_attribute(context, attribute)? + graph_attribute(context, of_graphs)?),
                false => Ok(0),
            };
            use {CUgraphMem_attribute as Graphs, CUmemPool_attribute as Pool};
            Ok(MemoryStats {
                in_use: held(Pool::CU_MEMPOOL_ATTR_USED_MEM_CURRENT, Graphs::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?,
                reserved: held(
                    Pool::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                    Graphs::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                )?,
                peak: held(Pool::CU_MEMPOOL_ATTR_USED_MEM_HIGH, Graphs::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?,
                free: free as u64,
                total: total as u64,
            })
        };
        self.device.bind("memory_stats")?;
        stats().map_err(|error| driver_error("memory_stats", error))
    }

    /// Makes `peak` of [`memory_stats`](Self::memory_stats) count from what is in use now.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn reset_peak(&self) -> Result<()> {
        const OP: &str = "reset_peak";
        self.device.bind(OP)?;
        // 0 is the one value that the driver takes.
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        let context = self.device.context();
        let reset = || {
            set_pool_attribute(context, attribute, 0)?;
            let (attribute, mut zero) = (CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, 0_u64);
            // SAFETY: the device handle is that of a live context, and the attribute is a u64.
            unsafe { sys::cuDeviceSetGraphMemAttribute(context.cu_device(), attribute, (&raw mut zero).cast()) }
                .result()
        };
        reset().map_err(|error| driver_error(OP, error))
    }

    /// Gives freed memory, which the pool keeps for the next allocation, back to the device, where other processes can
    /// have it. Waits for all work of the device.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn trim(&self) -> Result<()> {
        const OP: &str = "trim";
        self.device.bind(OP)?;
        self.device.trim_pool(OP)
    }
}

impl Device {
    /// Gives back what the pool holds but nobody uses; the caller has bound the context.
    pub(crate) fn trim_pool(&self, op: &'static str) -> Result<()> {
        if graph::records_in(self) {
            let message =
                "this waits for the device, which would end a capture that is under way on it; do it afterwards";
            return Err(Error::new(ErrorKind::Argument, op, message));
        }
        let trim = || {
            // All streams, since what another one has dropped is free only once it has got there.
            result::ctx::synchronize()?;
            if !self.context().has_async_alloc() {
                return Ok(());
            }
            let pool = pool(self.context())?;
            // SAFETY: the pool is the device's own; trimming touches no memory in use.
            unsafe { result::mem_pool::trim_to(pool, 0) }?;
            // SAFETY: the device handle is that of a live context; what graphs use stays.
            unsafe { sys::cuDeviceGraphMemTrim(self.context().cu_device()) }.result()
        };
        trim().map_err(|error| driver_error(op, error))
    }
}

/// Sets how many bytes of freed memory the pool keeps.
pub(crate) fn keep_in_pool(context: &CudaContext, bytes: u64) -> Result<(), DriverError> {
    set_pool_attribute(context, CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
}

/// Does nothing on a device without pools.
fn set_pool_attribute(
    context: &CudaContext,
    attribute: CUmemPool_attribute,
    mut value: u64,
) -> Result<(), DriverError> {
    if !context.has_async_alloc() {
        return Ok(());
    }
    let pool = pool(context)?;
    // SAFETY: the pool is the device's own, and the attributes set here are u64.
    unsafe { result::mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()) }
}

fn pool_attribute(context: &CudaContext, attribute: CUmemPool_attribute) -> Result<u64, DriverError> {
    let mut bytes = 0_u64;
    let pool = pool(context)?;
    // SAFETY: the pool is the device's own, and the attributes asked for here are u64.
    unsafe { result::mem_pool::get_attribute(pool, attribute, (&raw mut bytes).cast()) }?;
    Ok(bytes)
}

fn graph_attribute(context: &CudaContext, attribute: CUgraphMem_attribute) -> Result<u64, DriverError> {
    let mut bytes = 0_u64;
    // SAFETY: the device handle is that of a live context, and the attributes are u64.
    unsafe { sys::cuDeviceGetGraphMemAttribute(context.cu_device(), attribute, (&raw mut bytes).cast()) }.result()?;
    Ok(bytes)
}

fn pool(context: &CudaContext) -> Result<sys::CUmemoryPool, DriverError> {
    // SAFETY: the device handle is that of a live context.
    unsafe { result::device::get_mem_pool(context.cu_device()) }
}
