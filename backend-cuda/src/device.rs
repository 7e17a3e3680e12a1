//! The device behind a [`Cuda`] backend: context, stream, memory pool, compiled kernels, handles of libraries.

use std::any::Any;
use std::env;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use congruent_backend_api::erase::exposed;
use congruent_backend_api::{Backend, DType, Error, ErrorKind, Op, Result, Storage, check_transfer};
use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};

use crate::blas::Blas;
use crate::cudnn::Dnn;
use crate::error::{Library, driver_error};
use crate::flag::{HostFlag, Mark};
use crate::fork;
use crate::graph;
use crate::kernels::Kernels;
use crate::memory::keep_in_pool;
use crate::storage::{CudaStorage, DevicePointer};
use crate::stream::Tail;
use crate::transfer::Staging;

/// The CUDA backend: one device, one stream. Cloning gives another handle to the same device state.
///
/// # Example
/// ```
/// use congruent_backend_api::Backend;
/// use congruent_backend_cuda::Cuda;
///
/// match Cuda::new(0) {
///     Ok(cuda) => println!("{} is ready", cuda.name()),
///     Err(error) => println!("no CUDA here: {error}"),
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Cuda {
    pub(crate) device: Arc<Device>,
}

/// Options of a [`Cuda`] backend; [`Cuda::builder`] makes one.
#[derive(Clone, Debug)]
#[must_use]
pub struct CudaBuilder {
    ordinal: usize,
    tf32: bool,
    cudnn: bool,
    atomic_scatter: bool,
    pool_threshold: u64,
}

impl Cuda {
    /// The device `ordinal` with the default options.
    ///
    /// # Errors
    /// `LibraryNotFound` without a CUDA driver, `DriverTooOld` for one older than CUDA 12, `Argument` when there is no
    /// such device, and what the driver reports.
    pub fn new(ordinal: usize) -> Result<Self> {
        Self::builder(ordinal).build()
    }

    /// Options for the device `ordinal`.
    pub fn builder(ordinal: usize) -> CudaBuilder {
        let cudnn = env::var_os("CONGRUENT_CUDNN").is_none_or(|value| value != "0");
        CudaBuilder { ordinal, tf32: false, cudnn, atomic_scatter: false, pool_threshold: u64::MAX }
    }

    /// The number of CUDA devices; 0 when there is a driver but no device.
    ///
    /// # Errors
    /// `LibraryNotFound` without a CUDA driver, and what the driver reports.
    pub fn device_count() -> Result<usize> {
        const OP: &str = "device_count";
        fork::check(OP)?;
        Library::Driver.require(OP)?;
        match CudaContext::device_count() {
            Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => Ok(0),
            Err(error) => Err(driver_error(OP, error)),
        }
    }
}

impl CudaBuilder {
    /// Lets f32 matrix products and convolutions use TF32: faster, and only 11 bits of each factor count. Off by default.
    pub fn tf32(mut self, tf32: bool) -> Self {
        self.tf32 = tf32;
        self
    }

    /// Whether convolutions may go to cuDNN where it is installed. Without it they are products of matrices, or run in kernels
    /// of the crate's own. On by default, unless the environment has `CONGRUENT_CUDNN=0`.
    pub fn cudnn(mut self, cudnn: bool) -> Self {
        self.cudnn = cudnn;
        self
    }

    /// Lets `scatter_add` of f32 and f64 add in whatever order the device comes to: faster where many sources meet, within
    /// γₙ·(|old| + Σ|x|) for n sources, and not the same bits in every run. Off by default.
    pub fn atomic_scatter(mut self, atomic: bool) -> Self {
        self.atomic_scatter = atomic;
        self
    }

    /// How many bytes of freed memory the pool keeps when the device is waited for; the default is all. The pool is
    /// shared by all backends of the device in the process.
    pub fn pool_threshold(mut self, bytes: u64) -> Self {
        self.pool_threshold = bytes;
        self
    }

    /// Opens the device.
    ///
    /// # Errors
    /// As for [`Cuda::new`].
    pub fn build(self) -> Result<Cuda> {
        const OP: &str = "open";
        Library::Driver.require(OP)?;
        let count = Cuda::device_count()?;
        if self.ordinal >= count {
            let message = format!("there is no CUDA device {}: {count} found, and numbers start at 0", self.ordinal);
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        let version = driver_version().map_err(|error| driver_error(OP, error))?;
        if version < 12000 {
            let message = format!(
                "the driver is of CUDA {}.{}, too old; install one of CUDA 12 or 13",
                version / 1000,
                version % 1000 / 10
            );
            return Err(Error::new(ErrorKind::DriverTooOld, OP, message));
        }
        fork::watch();
        let device = Device::open(&self, version).map_err(|error| driver_error(OP, error))?;
        // Older devices cannot take a kernel's parameters as `__grid_constant__`.
        if device.arch() < 70 {
            let (major, minor) = (device.arch() / 10, device.arch() % 10);
            let message = format!(
                "device {} has compute capability {major}.{minor}; the kernels need 7.0 (Volta) or later",
                self.ordinal
            );
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        Ok(Cuda { device: Arc::new(device) })
    }
}

/// What all handles of one backend share: a stream.
pub(crate) struct Device {
    // In a forked child nothing of it can be dropped.
    parts: ManuallyDrop<Parts>,
}

struct Parts {
    gpu: Arc<Gpu>,
    flag: HostFlag,
    blas: Blas,
    dnn: Dnn,
    staging: Staging,
    tail: Tail,
    // Last, since it keeps the context that the fields above need to be dropped.
    stream: Arc<CudaStream>,
}

/// What the streams of one device share that were forked from each other.
struct Gpu {
    name: String,
    kernels: Kernels,
    arch: u32,
    multiprocessors: u32,
    shared_memory: usize,
    driver_version: i32,
    reads_pageable_memory: bool,
    tf32: bool,
    cudnn: bool,
    atomic_scatter: bool,
}

impl Device {
    fn open(options: &CudaBuilder, driver_version: i32) -> Result<Self, DriverError> {
        let context = CudaContext::new(options.ordinal)?;
        // SAFETY: cudarc's own slices, whose uses it would track by events, are not used in this crate.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = context.compute_capability()?;
        let count = |attribute| context.attribute(attribute);
        let multiprocessors = count(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared = count(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let pageable = count(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)?;
        keep_in_pool(&context, options.pool_threshold)?;
        let gpu = Gpu {
            name: format!("cuda:{}", options.ordinal),
            kernels: Kernels::new(),
            arch: (10 * major + minor).unsigned_abs(),
            multiprocessors: multiprocessors.unsigned_abs(),
            shared_memory: shared.unsigned_abs() as usize,
            driver_version,
            reads_pageable_memory: pageable != 0,
            tf32: options.tf32,
            cudnn: options.cudnn,
            atomic_scatter: options.atomic_scatter,
        };
        Self::on(Arc::new(gpu), &context)
    }

    /// Another stream of the same device; the caller has bound the context.
    pub(crate) fn fork(&self) -> Result<Self, DriverError> {
        Self::on(self.parts.gpu.clone(), self.context())
    }

    fn on(gpu: Arc<Gpu>, context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let stream = context.new_stream()?;
        let parts = Parts {
            gpu,
            flag: HostFlag::new()?,
            blas: Blas::default(),
            dnn: Dnn::default(),
            staging: Staging::default(),
            tail: Tail::new(&stream)?,
            stream,
        };
        Ok(Self { parts: ManuallyDrop::new(parts) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.parts.gpu.name
    }

    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        self.parts.stream.context()
    }

    pub(crate) fn stream(&self) -> sys::CUstream {
        self.parts.stream.cu_stream()
    }

    pub(crate) fn cuda_stream(&self) -> &CudaStream {
        &self.parts.stream
    }

    pub(crate) fn staging(&self) -> &Staging {
        &self.parts.staging
    }

    pub(crate) fn tail(&self) -> &Tail {
        &self.parts.tail
    }

    pub(crate) fn host_flag(&self) -> &HostFlag {
        &self.parts.flag
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.parts.gpu.kernels
    }

    pub(crate) fn blas(&self) -> &Blas {
        &self.parts.blas
    }

    /// cuDNN, unless the options turn it off.
    pub(crate) fn dnn(&self) -> Option<&Dnn> {
        self.parts.gpu.cudnn.then_some(&self.parts.dnn)
    }

    /// The compute capability, 90 for 9.0.
    pub(crate) fn arch(&self) -> u32 {
        self.parts.gpu.arch
    }

    pub(crate) fn multiprocessors(&self) -> u32 {
        self.parts.gpu.multiprocessors
    }

    /// The most shared memory that a block can have, in bytes.
    pub(crate) fn shared_memory(&self) -> usize {
        self.parts.gpu.shared_memory
    }

    /// The CUDA version of the driver, 13000 for 13.0.
    pub(crate) fn driver_version(&self) -> i32 {
        self.parts.gpu.driver_version
    }

    pub(crate) fn reads_pageable_memory(&self) -> bool {
        self.parts.gpu.reads_pageable_memory
    }

    pub(crate) fn tf32(&self) -> bool {
        self.parts.gpu.tf32
    }

    /// Where kernels report a division by zero.
    pub(crate) fn flag(&self) -> DevicePointer {
        self.parts.flag.pointer(Mark::DivisionByZero)
    }

    /// Where kernels report an index out of range.
    pub(crate) fn index_flag(&self) -> DevicePointer {
        self.parts.flag.pointer(Mark::IndexOutOfRange)
    }

    /// Whether float sums of a scatter may be added in any order.
    pub(crate) fn atomic_scatter(&self) -> bool {
        self.parts.gpu.atomic_scatter
    }

    /// Makes the context current on this thread.
    pub(crate) fn bind(&self, op: &'static str) -> Result<()> {
        fork::check(op)?;
        graph::refuse_other_threads(self, op)?;
        self.context().bind_to_thread().map_err(|error| driver_error(op, error))
    }

    /// Makes the context current for the release of something, which every thread may do at any time.
    pub(crate) fn bind_to_release(&self) -> Result<()> {
        const OP: &str = "drop";
        fork::check(OP)?;
        self.context().bind_to_thread().map_err(|error| driver_error(OP, error))
    }

    /// The same as [`bind`](Self::bind) for a call that a graph cannot record.
    pub(crate) fn bind_apart(&self, op: &'static str) -> Result<()> {
        graph::refuse_while_recording(self, op)?;
        self.bind(op)
    }

    /// Waits for the stream; the caller has bound the context. Nothing but the driver decides whether this waits, so that
    /// memory which the device was using may be released afterwards.
    pub(crate) fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives as long as this value.
        unsafe { result::stream::synchronize(self.stream()) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if fork::check("drop").is_err() {
            return;
        }
        // Kernels in flight may still write the flag, and copies read the staging buffers. An error means that the context
        // is gone, and they with it.
        let _ = self.context().bind_to_thread();
        let _ = self.wait();
        // SAFETY: this is the one place that drops the parts, and nothing uses them after.
        unsafe { ManuallyDrop::drop(&mut self.parts) };
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.parts.gpu.name)
            .field("arch", &self.parts.gpu.arch)
            .finish_non_exhaustive()
    }
}

/// The CUDA version of the driver, 13000 for 13.0.
fn driver_version() -> Result<i32, DriverError> {
    let mut version = 0;
    // SAFETY: the library is present, as the caller has asked, and writes one i32.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    Ok(version)
}

impl Backend for Cuda {
    type Storage = CudaStorage;

    fn name(&self) -> &str {
        self.device.name()
    }

    fn supports(&self, _op: Op, _dtype: DType) -> bool {
        true
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<CudaStorage> {
        CudaStorage::alloc(&self.device, dtype, len)
    }

    fn write(&self, bytes: &[u8], storage: &mut CudaStorage, start: usize) -> Result<()> {
        self.device.bind_apart("write")?;
        self.order("write", [], storage)?;
        check_transfer("write", storage, start, bytes.len())?;
        let mut truths = Vec::new();
        let bytes = if storage.dtype() == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
            truths.extend(bytes.iter().map(|&byte| u8::from(byte != 0)));
            &truths
        } else {
            bytes
        };
        // SAFETY: the transfer was checked to lie in the storage, which is of this GPU, is borrowed mutably, and is ordered
        // behind its other users.
        unsafe { self.device.upload(bytes, storage.at(start)) }
    }

    fn download(&self, storage: &CudaStorage, start: usize, bytes: &mut [u8]) -> Result<()> {
        self.device.bind_apart("download")?;
        self.order_input("download", storage)?;
        check_transfer("download", storage, start, bytes.len())?;
        // SAFETY: the transfer was checked to lie in the storage, which is of this GPU, is borrowed, and is ordered behind
        // its last writer.
        unsafe { self.device.download(storage.at(start), bytes) }?;
        self.device.report("download")
    }

    /// From any stream of any CUDA device of the process.
    fn receive(&self, source: &dyn Any, start: usize, out: &mut CudaStorage) -> Result<bool> {
        match exposed(source).downcast_ref() {
            Some(source) => self.copy_storage(source, start, out).map(|()| true),
            None => Ok(false),
        }
    }

    fn synchronize(&self) -> Result<()> {
        self.device.bind_apart("synchronize")?;
        self.device.wait().map_err(|error| driver_error("synchronize", error))?;
        self.device.report("synchronize")
    }
}
