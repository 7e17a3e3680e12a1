//! Native errors as [`Error`], and the check that a library is there before anything calls it.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

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
    /// Products of matrices and vectors.
    Cublas,
    /// Products of matrices.
    CublasLt,
    /// Convolutions.
    Cudnn,
}

impl Library {
    /// Fails with `LibraryNotFound` unless the library can be loaded. cudarc panics when it calls a missing one.
    pub(crate) fn require(self, op: &'static str) -> Result<()> {
        let named = if self == Self::Nvrtc { named_nvrtc() } else { None };
        let present = match self {
            // SAFETY: the probe loads a library, which runs only its own initialisers.
            Self::Driver => unsafe { cudarc::driver::sys::is_culib_present() },
            // SAFETY: as above.
            Self::Nvrtc => unsafe { cudarc::nvrtc::sys::is_culib_present() },
            // SAFETY: as above.
            Self::Cublas => unsafe { cudarc::cublas::sys::is_culib_present() },
            // SAFETY: as above.
            Self::CublasLt => unsafe { cudarc::cublaslt::sys::is_culib_present() },
            // SAFETY: as above.
            Self::Cudnn => unsafe { cudarc::cudnn::sys::is_culib_present() },
        };
        if present {
            return Ok(());
        }
        let name = self.name();
        let cure = match self {
            Self::Driver => "install NVIDIA's driver",
            Self::Nvrtc => {
                "install CUDA 12 or 13, or the PyPI package nvidia-cuda-nvrtc, whose library CONGRUENT_NVRTC may name"
            }
            Self::Cudnn => "install cuDNN 9, or the PyPI package nvidia-cudnn-cu13",
            Self::Cublas | Self::CublasLt => "install CUDA 12 or 13, or the PyPI package nvidia-cublas",
        };
        let searched = cudarc::get_lib_name_candidates(name).join(" ");
        let path = env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let named = named.map(|problem| format!("; {problem}")).unwrap_or_default();
        let message = format!(
            "the library `{name}` was not found; {cure}, and make sure that the loader finds it; searched, in \
             LD_LIBRARY_PATH={path} and the system's folders: {searched}{named}"
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
            Self::CublasLt => "cublasLt",
            Self::Cudnn => "cudnn",
        }
    }
}

/// Loads the library that the environment variable CONGRUENT_NVRTC names, once, and the part of it that it loads itself;
/// says what is wrong with it. The loader then finds both under their own names, whatever folder they are in.
fn named_nvrtc() -> Option<&'static str> {
    static PROBLEM: OnceLock<Option<String>> = OnceLock::new();
    let load = || {
        let path = PathBuf::from(env::var_os("CONGRUENT_NVRTC").filter(|path| !path.is_empty())?);
        let beside = path.parent().and_then(|folder| folder.read_dir().ok()).into_iter().flatten().flatten();
        let is_part =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("builtins.so"));
        beside.map(|entry| entry.path()).filter(is_part).for_each(|part| drop(keep_loaded(&part)));
        let error = keep_loaded(&path).err()?;
        Some(format!("CONGRUENT_NVRTC={} cannot be loaded: {error}", path.display()))
    };
    PROBLEM.get_or_init(load).as_deref()
}

fn keep_loaded(path: &Path) -> Result<(), libloading::Error> {
    // SAFETY: the user names the library, whose initialisers are its own.
    let library = unsafe { libloading::Library::new(path) }?;
    std::mem::forget(library);
    Ok(())
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
            ErrorKind::DriverTooOld,
            "the driver is too old for what NVRTC compiled; update the driver, or install the NVRTC of its CUDA version",
        ),
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH | CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => (
            ErrorKind::DriverTooOld,
            "libcuda is of another version than the kernel's driver; install both from one package, and restart",
        ),
        CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION => (
            ErrorKind::Argument,
            "a capture would have to wait for another stream, or another stream for it; let this backend use the tensor \
             once before the capture, and others after it",
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
