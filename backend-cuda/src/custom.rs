//! Kernels of the user's own: CUDA C++ at run time, launched on storages of this backend, in the order of its calls.
//!
//! What can be checked is: dtypes, bounds, owners, and, where the driver tells (CUDA 12.4), the number and sizes of the
//! parameters. What the kernel does with its addresses cannot, so [`Launch::run`] is unsafe.

use std::ffi::c_void;
use std::sync::Arc;

use congruent_backend_api::{Element, Error, ErrorKind, Result, Storage};
use cudarc::driver::sys::{self, CUfunction_attribute, CUresult};
use cudarc::driver::{CudaFunction, CudaModule, DriverError, result};
use cudarc::nvrtc::Ptx;

use crate::cache;
use crate::compile::Target;
use crate::device::{Cuda, Device};
use crate::error::{driver_error, native_error};
use crate::graph;
use crate::storage::CudaStorage;

const OP: &str = "custom_kernel";

/// Dynamic shared memory that a kernel has without asking for more.
const SHARED: u32 = 48 << 10;

/// Compiled CUDA C++ on a device; [`Cuda::compile`] makes one.
#[derive(Clone, Debug)]
pub struct Module {
    device: Arc<Device>,
    module: Arc<CudaModule>,
}

/// A function of a [`Module`], ready to be launched.
#[derive(Clone, Debug)]
pub struct CustomKernel {
    device: Arc<Device>,
    function: CudaFunction,
    name: String,
    /// The sizes of the parameters; `None` when the driver does not tell.
    parameters: Option<Vec<usize>>,
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y and z; with a 0 among them nothing is launched.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y and z.
    pub threads: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl Grid {
    /// As many blocks of `threads` as give each of `count` elements a thread, up to the largest grid: a kernel that strides
    /// by the size of the grid takes any count.
    #[must_use]
    pub fn covering(count: usize, threads: u32) -> Self {
        let blocks = count.div_ceil(threads.max(1) as usize).min(i32::MAX as usize);
        Self { blocks: [blocks as u32, 1, 1], threads: [threads, 1, 1], shared_bytes: 0 }
    }
}

impl Cuda {
    /// Compiles CUDA C++ for this device with NVRTC and its `options`, such as `--use_fast_math`, `-DTILE=16` or
    /// `-I/usr/local/cuda/include`. Kernels are `extern "C" __global__`.
    ///
    /// The result is kept on disk like the backend's own kernels, unless the source includes a file, which may change.
    ///
    /// # Errors
    /// `Native` with the compiler's log for a source or an option that it rejects; `LibraryNotFound` without NVRTC.
    pub fn compile(&self, source: &str, options: &[&str]) -> Result<Module> {
        let arch = self.device.arch();
        let load = |image: Vec<u8>| self.device.context().load_module(Ptx::from_binary(image));
        let made = |module| Module { device: Arc::clone(&self.device), module };
        let key = (!source.contains("#include")).then(|| format!("custom {arch} {}\n{source}", options.join(" ")));
        // What the driver does not take, perhaps since it is older than the one before, is compiled again.
        let kept = key.as_deref().and_then(cache::load).and_then(|image| load(image).ok());
        if let Some(module) = kept {
            return Ok(made(module));
        }
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let image = Target::of(arch)?.compile("custom.cu", source, &options)?;
        if let Some(key) = &key {
            cache::store(key, &image);
        }
        load(image).map(made).map_err(|error| driver_error(OP, error))
    }

    /// The `CUstream` on which everything of this backend runs, for other CUDA libraries: what they enqueue on it comes
    /// after all earlier calls of this backend and before all later ones. It lives as long as the backend or any of its
    /// storages; whoever uses it must not destroy it.
    #[must_use]
    pub fn raw_stream(&self) -> *mut c_void {
        self.device.stream().cast()
    }

    /// The `CUcontext` of the device: its primary context, which the CUDA runtime uses too.
    #[must_use]
    pub fn raw_context(&self) -> *mut c_void {
        self.device.context().cu_ctx().cast()
    }

    /// Makes the context current on this thread, as a call of another CUDA library expects.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn make_current(&self) -> Result<()> {
        self.device.bind("make_current")
    }
}

impl CudaStorage {
    /// The address of the first element in device memory, for other CUDA libraries; 0 without elements. To read there is
    /// right only for work on, or ordered after, the backend's [stream](Cuda::raw_stream), and while the storage lives.
    #[must_use]
    pub fn device_address(&self) -> u64 {
        if self.is_empty() { 0 } else { self.at(0).address() }
    }

    /// The same for writing, which needs the storage for itself.
    #[must_use]
    pub fn device_address_mut(&mut self) -> u64 {
        self.device_address()
    }
}

impl Module {
    /// The kernel of this name.
    ///
    /// # Errors
    /// `Argument` when there is none.
    pub fn kernel(&self, name: &str) -> Result<CustomKernel> {
        let function = self.module.load_function(name).map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_NOT_FOUND => {
                let message = format!("there is no kernel `{name}`; is it `extern \"C\" __global__`?");
                Error::new(ErrorKind::Argument, OP, message).with_source(error)
            }
            _ => driver_error(OP, error),
        })?;
        let parameters = if self.device.driver_version() < 12040 { None } else { Some(parameters(&function)?) };
        Ok(CustomKernel { device: Arc::clone(&self.device), function, name: name.to_owned(), parameters })
    }
}

impl CustomKernel {
    /// A launch whose arguments are given next, in the order of the kernel's parameters.
    pub fn launch(&self, grid: Grid) -> Launch<'_> {
        Launch { kernel: self, grid, arguments: Vec::new() }
    }

    fn fail(&self, message: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Argument, OP, format!("`{}`: {message}", self.name))
    }
}

/// A launch in preparation. It borrows the storages, outputs mutably, so that none is written while another argument reads it.
#[derive(Debug)]
#[must_use]
pub struct Launch<'a> {
    kernel: &'a CustomKernel,
    grid: Grid,
    // Each in its own eight bytes, from the first on, and how many of them count.
    arguments: Vec<(u64, usize)>,
}

impl<'a> Launch<'a> {
    /// A `const T*` to element `start` of a storage, of which the kernel may read `len`.
    ///
    /// # Errors
    /// `DType` when the storage holds another type; `Argument` when it ends before, or lies on another device; what the driver reports.
    pub fn input<T: Element>(self, storage: &'a CudaStorage, start: usize, len: usize) -> Result<Self> {
        let launch = self.pointer::<T>(storage, start, len)?;
        // What the stream waits for here comes before the launch, and while the storage is borrowed nothing writes it.
        storage.order_read(&launch.kernel.device).map_err(|error| driver_error(OP, error))?;
        Ok(launch)
    }

    /// A `T*` to element `start` of a storage, of which the kernel may read and write `len`.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn output<T: Element>(self, storage: &'a mut CudaStorage, start: usize, len: usize) -> Result<Self> {
        let launch = self.pointer::<T>(storage, start, len)?;
        storage.order_write(&launch.kernel.device).map_err(|error| driver_error(OP, error))?;
        Ok(launch)
    }

    /// A number: `double float __half __nv_bfloat16 long long, int, unsigned, unsigned char` or `bool`.
    pub fn scalar<T: Element>(mut self, value: T) -> Self {
        let mut bytes = [0; 8];
        bytes[..size_of::<T>()].copy_from_slice(T::as_bytes(&[value]));
        self.arguments.push((u64::from_ne_bytes(bytes), size_of::<T>()));
        self
    }

    /// A count, as `unsigned long long`.
    pub fn size(mut self, value: usize) -> Self {
        self.arguments.push((value as u64, 8));
        self
    }

    /// Starts the kernel on the backend's stream, and does not wait for it.
    ///
    /// # Safety
    /// The kernel's parameters have the types of the arguments. From each address it touches no more elements than were
    /// given for it, it writes to those of outputs only, and writes no bool but 0 and 1. It ends.
    ///
    /// # Errors
    /// `Argument` when the driver knows other parameters than were given, or for a shape that the device does not take;
    /// what the driver reports. What goes wrong inside of a kernel is an error of the next synchronising call.
    pub unsafe fn run(self) -> Result<()> {
        let Self { kernel, grid, arguments } = &self;
        let (device, function) = (&kernel.device, kernel.function.cu_function());
        if let Some(parameters) = &kernel.parameters {
            let given: Vec<usize> = arguments.iter().map(|argument| argument.1).collect();
            if given != *parameters {
                return Err(kernel.fail(format!(
                    "the parameters have {parameters:?} bytes, the arguments {given:?}; give one for each, in order"
                )));
            }
        }
        device.bind(OP)?;
        let most = attribute(function, CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        let threads = grid.threads.iter().map(|&threads| u64::from(threads)).product::<u64>();
        if threads == 0 || threads > most {
            return Err(kernel.fail(format!("{:?} threads are given, this kernel takes 1 to {most}", grid.threads)));
        }
        if grid.blocks.contains(&0) {
            return Ok(());
        }
        if grid.shared_bytes > SHARED {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(grid.shared_bytes).unwrap_or(i32::MAX);
            // SAFETY: the function is loaded; a size that the device does not have is an error.
            unsafe { sys::cuFuncSetAttribute(function, attribute, bytes) }.result().map_err(|error| {
                kernel.fail(format!("{bytes} bytes of shared memory are more than the device has")).with_source(error)
            })?;
        }
        let mut addresses: Vec<*mut c_void> =
            arguments.iter().map(|(bits, _)| std::ptr::from_ref(bits).cast_mut().cast()).collect();
        let (blocks, threads) = (grid.blocks.into(), grid.threads.into());
        // SAFETY: the driver copies each argument, as many bytes as its parameter has, before it returns; the caller
        // vouches for their types and for what the kernel does. The storages belong to this device and are borrowed; their
        // release is ordered after the kernel.
        unsafe { result::launch_kernel(function, blocks, threads, grid.shared_bytes, device.stream(), &mut addresses) }
            .map_err(|error| match error.0 {
                CUresult::CUDA_ERROR_INVALID_VALUE => {
                    kernel.fail(format!("the device does not take {grid:?}")).with_source(error)
                }
                _ => driver_error(OP, error),
            })
    }

    fn pointer<T: Element>(mut self, storage: &CudaStorage, start: usize, len: usize) -> Result<Self> {
        let (kernel, index) = (self.kernel, self.arguments.len());
        if !storage.is_on(&kernel.device) {
            return Err(kernel.fail(format!("argument {index} is memory of another device than the kernel's")));
        }
        if storage.dtype() != T::DTYPE {
            let message = format!("`{}`: argument {index} is {}, not {}", kernel.name, storage.dtype(), T::DTYPE);
            return Err(Error::new(ErrorKind::DType, OP, message));
        }
        if start.checked_add(len).is_none_or(|end| end > storage.len()) {
            return Err(kernel.fail(format!(
                "argument {index} has {} elements; {len} from {start} on were asked for",
                storage.len()
            )));
        }
        graph::use_memory(&kernel.device, OP, storage.at(0).address())?;
        self.arguments.push((if len == 0 { 0 } else { storage.at(start).address() }, 8));
        Ok(self)
    }
}

/// The sizes of a function's parameters.
fn parameters(function: &CudaFunction) -> Result<Vec<usize>> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded, and two usize are written; a number past the last parameter is an error.
        let status =
            unsafe { sys::cuFuncGetParamInfo(function.cu_function(), sizes.len(), &raw mut offset, &raw mut size) };
        match status.result() {
            Ok(()) => sizes.push(size),
            Err(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE)) => return Ok(sizes),
            Err(error) => return Err(driver_error(OP, error)),
        }
    }
}

fn attribute(function: sys::CUfunction, attribute: CUfunction_attribute) -> Result<u64> {
    let mut value = 0;
    // SAFETY: the function is loaded, and one i32 is written.
    unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, function) }
        .result()
        .map_err(|error| native_error(OP, "the driver does not describe the kernel", error))?;
    Ok(u64::from(value.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_cover_counts() {
        for (count, blocks) in [(0, 0), (1, 1), (256, 1), (257, 2), (usize::MAX, i32::MAX as u32)] {
            assert_eq!(Grid::covering(count, 256).blocks, [blocks, 1, 1]);
        }
    }
}
