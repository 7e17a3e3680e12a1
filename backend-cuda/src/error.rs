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
        let name = self.name();
        let cure = match self {
            Self::Driver => "install NVIDIA's driver",
            Self::Nvrtc => "install CUDA 12 or 13, or the PyPI package nvidia-cuda-nvrtc",
            Self::Cublas => "install CUDA 12 or 13, or the PyPI package nvidia-cublas",
        };
        let searched = cudarc::get_lib_name_candidates(name).join(" ");
        let message = format!(
            "the library `{name}` was not found; {cure}, and make sure that the loader finds it (LD_LIBRARY_PATH); searched: \
             {searched}"
        );
        Err(Error::new(ErrorKind::LibraryNotFound, op, message))
    }

    /// The error for a library that is there to link with, and whose functions do nothing.
    pub(crate) fn is_stub(self, op: &'static str) -> Error {
        let message = format!(
            "the library `{}` that the loader finds first is the toolkit's stub; take the folder `stubs` out of \
             LD_LIBRARY_PATH",
            self.name()
        );
        Error::new(ErrorKind::LibraryNotFound, op, message)
    }

    /// The file's name without prefix and suffix.
    fn name(self) -> &'static str {
        match self {
            Self::Driver => "cuda",
            Self::Nvrtc => "nvrtc",
            Self::Cublas => "cublas",
        }
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
        CUresult::CUDA_ERROR_INVALID_IMAGE
        | CUresult::CUDA_ERROR_INVALID_PTX
        | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
        | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => (
            ErrorKind::LibraryNotFound,
            "the driver is too old for what NVRTC compiled; update the driver, or install the NVRTC of its CUDA version",
        ),
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
