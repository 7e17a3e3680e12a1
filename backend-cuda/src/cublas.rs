//! Products of a matrix and a vector with cuBLAS.

use std::ffi::c_void;

use congruent_backend_api::{DType, Error, ErrorKind, Result};
use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys::{
    self, cublasComputeType_t, cublasGemmAlgo_t, cublasMath_t, cublasOperation_t, cublasStatus_t, cudaDataType_t,
};

use crate::blas::{BlasMatrix, Gemm};
use crate::device::Device;
use crate::error::{Library, native_error};

const OP: &str = "matmul";

/// A cuBLAS handle on a device's stream.
pub(crate) struct Cublas(sys::cublasHandle_t);

// SAFETY: a handle may be used from any thread, one at a time, which `&mut` ensures.
unsafe impl Send for Cublas {}

impl Drop for Cublas {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create_handle` and is destroyed once. A failure leaks it.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

impl Cublas {
    /// A handle for the stream of `device`, which must own it and has bound its context.
    pub(crate) fn open(device: &Device) -> Result<Self> {
        Library::Cublas.require(OP)?;
        check_version()?;
        let open = || {
            let handle = Self(result::create_handle()?);
            // SAFETY: the handle was just made, and the stream lives as long as the device, which owns the handle.
            unsafe { result::set_stream(handle.0, device.stream().cast()) }?;
            // f32 is computed as f32, and partial sums of half types are not rounded to them.
            let mode = cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
            // SAFETY: the handle was just made.
            unsafe { sys::cublasSetMathMode(handle.0, mode) }.result()?;
            Ok(handle)
        };
        open().map_err(cublas_error)
    }

    /// Starts a product whose output is not transposed.
    ///
    /// # Safety
    /// As for [`Device::gemm`], and the context of `device` is bound.
    pub(crate) unsafe fn run(&mut self, device: &Device, gemm: &Gemm) -> Result<()> {
        let compute = match gemm.dtype {
            DType::F64 => cublasComputeType_t::CUBLAS_COMPUTE_64F,
            DType::F32 if device.tf32() => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        // The factors are of the compute type.
        let (wide, narrow) = ([gemm.alpha, gemm.beta], gemm.narrow_factors());
        let factor = |index: usize| -> *const c_void {
            if gemm.dtype == DType::F64 { (&raw const wide[index]).cast() } else { (&raw const narrow[index]).cast() }
        };
        let operation = |matrix: BlasMatrix| {
            if matrix.transposed { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N }
        };
        let address = |matrix: BlasMatrix| matrix.pointer.address() as *const c_void;
        let (a, b, operand) = (gemm.a, gemm.b, data_type(gemm.dtype));
        // SAFETY: the handle is alive and used by this thread alone. The caller vouches for the matrices; the stream orders
        // the call after their allocation and before their release. The factors are read before the call returns (host
        // pointer mode, the default).
        unsafe {
            sys::cublasGemmStridedBatchedEx_64(
                self.0,
                operation(b),
                operation(a),
                gemm.n as i64,
                gemm.m as i64,
                gemm.k as i64,
                factor(0),
                address(b),
                operand,
                b.ld as i64,
                b.batch_stride as i64,
                address(a),
                operand,
                a.ld as i64,
                a.batch_stride as i64,
                factor(1),
                gemm.out.pointer.address() as *mut c_void,
                data_type(gemm.out_dtype),
                gemm.out.ld as i64,
                gemm.out.batch_stride as i64,
                gemm.batch as i64,
                compute,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .result()
        .map_err(cublas_error)
    }
}

/// A float dtype.
fn data_type(dtype: DType) -> cudaDataType_t {
    match dtype {
        DType::F64 => cudaDataType_t::CUDA_R_64F,
        DType::F16 => cudaDataType_t::CUDA_R_16F,
        DType::BF16 => cudaDataType_t::CUDA_R_16BF,
        _ => cudaDataType_t::CUDA_R_32F,
    }
}

/// Fails for a stub and for a version without the 64-bit interface, which came with cuBLAS 12.
fn check_version() -> Result<()> {
    // The status is an integer here: what a stub returns is no value of cudarc's enum.
    type Property = unsafe extern "C" fn(i32, *mut i32) -> i32;
    let mut major = 0;
    // SAFETY: the library is present, as the caller has asked.
    let library = unsafe { sys::culib() };
    // SAFETY: cuBLAS declares the function so in every version.
    let property = unsafe { library.get::<Property>(b"cublasGetProperty") }
        .map_err(|error| native_error(OP, "cuBLAS has no function `cublasGetProperty`", error))?;
    // SAFETY: one i32 is written.
    let status = unsafe { property(sys::libraryPropertyType::MAJOR_VERSION as i32, &raw mut major) };
    if status != 0 {
        return Err(Library::Cublas.is_stub(OP));
    }
    if major >= 12 {
        return Ok(());
    }
    let message = format!("cuBLAS {major} is too old; install that of CUDA 12 or 13");
    Err(Error::new(ErrorKind::LibraryNotFound, OP, message))
}

fn cublas_error(error: CublasError) -> Error {
    match error.0 {
        cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => {
            Error::new(ErrorKind::OutOfMemory, OP, "cuBLAS could not allocate its workspace").with_source(error)
        }
        _ => native_error(OP, "cuBLAS failed", error),
    }
}
