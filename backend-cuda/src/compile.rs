//! CUDA C++ to machine code with NVRTC.

use std::ffi::{CStr, CString, c_char};

use congruent_backend_api::{Error, ErrorKind, Result};
use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys;

use crate::error::{Library, native_error};

const OP: &str = "compile";

/// What a module is compiled for: `target` decides between machine code and PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// `sm_90`, or `compute_90` for PTX that the driver compiles further.
    name: String,
}

impl Target {
    /// The best that NVRTC can do for a device of compute capability `arch`: its machine code, or PTX of the nearest
    /// older architecture when NVRTC doesn't know the device.
    pub(crate) fn of(arch: u32) -> Result<Self> {
        Library::Nvrtc.require(OP)?;
        let version = version()?;
        if version.0 < 12 {
            let message = format!("NVRTC {}.{} is too old; install that of CUDA 12 or 13", version.0, version.1);
            return Err(Error::new(ErrorKind::LibraryNotFound, OP, message));
        }
        let known = known_archs().map_err(|error| native_error(OP, "NVRTC doesn't list its architectures", error))?;
        let nearest = known.iter().copied().filter(|&known| known <= arch).max();
        let name = match nearest {
            Some(nearest) if nearest == arch => format!("sm_{arch}"),
            Some(nearest) => format!("compute_{nearest}"),
            None => {
                let message =
                    format!("compute capability {arch} is older than all that NVRTC {}.{} knows", version.0, version.1);
                return Err(Error::new(ErrorKind::LibraryNotFound, OP, message));
            }
        };
        Ok(Self { name })
    }

    /// Compiles one module.
    pub(crate) fn compile(&self, name: &str, source: &str, options: &[String]) -> Result<Vec<u8>> {
        let mut all = vec![format!("--gpu-architecture={}", self.name)];
        all.extend_from_slice(options);
        let text = |text: &str| {
            CString::new(text).map_err(|error| native_error(OP, format!("`{name}` contains a NUL byte"), error))
        };
        let (source, file) = (text(source)?, text(name)?);
        let program = Program::new(&source, &file)
            .map_err(|error| native_error(OP, format!("NVRTC doesn't take `{name}`"), error))?;
        program.compile(&all).map_err(|error| {
            let log = program.log().unwrap_or_default();
            if error.0 == sys::nvrtcResult::NVRTC_ERROR_BUILTIN_OPERATION_FAILURE {
                let message = format!("a part of NVRTC is missing; install it whole: {}", log.trim());
                return Error::new(ErrorKind::LibraryNotFound, OP, message).with_source(error);
            }
            native_error(OP, format!("NVRTC rejects `{name}` for {}:\n{log}", self.name), error)
        })?;
        let image = if self.name.starts_with("sm_") { program.cubin() } else { program.ptx() };
        image.map_err(|error| native_error(OP, format!("NVRTC has no image of `{name}`"), error))
    }
}

/// Major and minor version, and with it whether the library is the real one.
fn version() -> Result<(i32, i32)> {
    // The status is an integer here: what a stub returns is no value of cudarc's enum.
    type Version = unsafe extern "C" fn(*mut i32, *mut i32) -> i32;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is present (`Target::of` asked).
    let library = unsafe { sys::culib() };
    // SAFETY: NVRTC declares the function so in every version.
    let version = unsafe { library.get::<Version>(b"nvrtcVersion") }
        .map_err(|error| native_error(OP, "NVRTC has no function `nvrtcVersion`", error))?;
    // SAFETY: two i32 are written.
    let status = unsafe { version(&raw mut major, &raw mut minor) };
    if status == 0 { Ok((major, minor)) } else { Err(Library::Nvrtc.is_stub(OP)) }
}

fn known_archs() -> Result<Vec<u32>, NvrtcError> {
    let mut count = 0;
    // SAFETY: the library is present and writes one i32.
    unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }.result()?;
    let mut archs = vec![0_i32; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the array has as many entries as the library said it will write.
    unsafe { sys::nvrtcGetSupportedArchs(archs.as_mut_ptr()) }.result()?;
    Ok(archs.into_iter().map(i32::unsigned_abs).collect())
}

/// C's `char`, which is signed on some targets only, as bytes.
fn bytes(text: Vec<c_char>) -> impl Iterator<Item = u8> {
    text.into_iter().flat_map(c_char::to_ne_bytes)
}

/// An NVRTC program; the source and name that it may refer to outlive it.
struct Program<'a> {
    handle: sys::nvrtcProgram,
    _source: &'a CStr,
}

impl<'a> Program<'a> {
    fn new(source: &'a CStr, name: &'a CStr) -> Result<Self, NvrtcError> {
        Ok(Self { handle: result::create_program(source, Some(name))?, _source: source })
    }

    fn compile(&self, options: &[String]) -> Result<(), NvrtcError> {
        // SAFETY: the handle is that of a program which `drop` has not destroyed yet.
        unsafe { result::compile_program(self.handle, options) }
    }

    fn log(&self) -> Result<String, NvrtcError> {
        // SAFETY: as for `compile`.
        let log = unsafe { result::get_program_log(self.handle) }?;
        let text: Vec<u8> = bytes(log).take_while(|&byte| byte != 0).collect();
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// PTX text, with the NUL at its end that the driver expects.
    fn ptx(&self) -> Result<Vec<u8>, NvrtcError> {
        // SAFETY: as for `compile`, which has succeeded.
        let ptx = unsafe { result::get_ptx(self.handle) }?;
        Ok(bytes(ptx).collect())
    }

    fn cubin(&self) -> Result<Vec<u8>, NvrtcError> {
        let mut size = 0;
        // SAFETY: as for `compile`, which has succeeded; the size is written to a usize.
        unsafe { sys::nvrtcGetCUBINSize(self.handle, &raw mut size) }.result()?;
        let mut image = vec![0_u8; size];
        // SAFETY: the buffer has the size that the library named.
        unsafe { sys::nvrtcGetCUBIN(self.handle, image.as_mut_ptr().cast()) }.result()?;
        Ok(image)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create_program` and is destroyed once. A failure leaks it.
        let _ = unsafe { result::destroy_program(self.handle) };
    }
}
