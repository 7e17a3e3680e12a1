//! Native errors as [`Error`], and the check that a library is there before anything calls it.

use congruent_backend_api::{Error, ErrorKind, Result};
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// A native library that is loaded when first needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// The driver, which comes with the GPU's driver package.
    Driver,
    /// The compiler of the kernels.
    Nvrtc,
    /// Float matrix products.
    Cublas,
}

impl Library {
    /// Fails with `LibraryNotFound` unless the library can be loaded. cudarc panics when it calls a missing one.
    pub(crate) fn require(self, op: &'static str) -> Result<()> {
        let present = match self {
            // SAFETY: the probe loads a library, which runs only its own initialisers.
            Self::Driver => unsafe { cudarc::driver::sys::is_culib_present() },
            // SAFETY: as above.
            Self::Nvrtc => unsafe { cudarc::nvrtc::sys::is_culib_present() },
            // SAFETY: as above.
            Self::Cublas => unsafe { cudarc::cublas::sys::is_culib_present() },
        };
        if present {
            return Ok(());
        }
        let (name, cure) = match self {
            Self::Driver => ("cuda", "install NVIDIA's driver"),
            Self::Nvrtc => ("nvrtc", "install CUDA 12 or 13, or the PyPI package nvidia-cuda-nvrtc"),
            Self::Cublas => ("cublas", "install CUDA 12 or 13, or the PyPI package nvidia-cublas"),
        };
        let searched = cudarc::get_lib_name_candidates(name).join(" ");
        let message = format!(
            "the library `{name}` was not found; {cure}, and make sure that the loader finds it (LD_LIBRARY_PATH); searched: \
             {searched}"
        );
        Err(Error::new(ErrorKind::LibraryNotFound, op, message))
    }
}

/// Maps a driver error to its class.
pub(crate) fn driver_error(op: &'static str, error: DriverError) -> Error {
    let (kind, message) = match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => (ErrorKind::OutOfMemory, "the device is out of memory"),
        CUresult::CUDA_ERROR_STUB_LIBRARY => {
            (ErrorKind::LibraryNotFound, "libcuda is the toolkit's stub; install NVIDIA's driver")
        }
        CUresult::CUDA_ERROR_INVALID_DEVICE | CUresult::CUDA_ERROR_NO_DEVICE => {
            (ErrorKind::Argument, "there is no CUDA device of this number")
        }
        // After these the context refuses every call.
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | CUresult::CUDA_ERROR_INVALID_PC
        | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
        | CUresult::CUDA_ERROR_ASSERT
        | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
        | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
        | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
        | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
        | CUresult::CUDA_ERROR_DEINITIALIZED => {
            (ErrorKind::DeviceLost, "the device's context is broken; start the process again")
        }
        _ => (ErrorKind::Native, "the CUDA driver failed"),
    };
    Error::new(kind, op, message).with_source(error)
}

/// Any other native error.
pub(crate) fn native_error(
    op: &'static str,
    message: impl Into<String>,
    source: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::new(ErrorKind::Native, op, message).with_source(source)
}
