//! Float matrix products with cuBLAS, which is loaded when the first one runs.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use congruent_backend_api::{DType, Error, ErrorKind, Result};
use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys::{
    self, cublasComputeType_t, cublasGemmAlgo_t, cublasMath_t, cublasOperation_t, cublasStatus_t, cudaDataType_t,
};

use crate::device::Device;
use crate::error::{Library, native_error};
use crate::storage::DevicePointer;

const OP: &str = "matmul";

/// A matrix that BLAS can read: row-major with rows `ld` apart, or, `transposed`, columns `ld` apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlasMatrix {
    pub(crate) pointer: DevicePointer,
    pub(crate) transposed: bool,
    pub(crate) ld: usize,
    /// From one matrix of the batch to the next; 0 repeats it.
    pub(crate) batch_stride: isize,
}

/// `out = alpha · a @ b + beta · out` for `batch` matrices, out \[m, n\], a \[m, k\], b \[k, n\]; no size is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gemm {
    pub(crate) dtype: DType,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) a: BlasMatrix,
    pub(crate) b: BlasMatrix,
    pub(crate) out: BlasMatrix,
    pub(crate) batch: usize,
}

/// The cuBLAS handle of a device, made at the first product.
pub(crate) struct Blas(Mutex<Option<Handle>>);

struct Handle(sys::cublasHandle_t);

// SAFETY: a handle may be used from any thread, one at a time, which the mutex around it ensures.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create_handle` and is destroyed once. A failure leaks it.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

impl Blas {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }
}

impl Device {
    /// Starts a product.
    ///
    /// # Safety
    /// The matrices lie in memory of this device value that holds elements of `gemm.dtype`, and nothing but this stream
    /// uses the output.
    pub(crate) unsafe fn gemm(&self, gemm: &Gemm) -> Result<()> {
        self.bind(OP)?;
        let mut handle = self.blas().0.lock().unwrap_or_else(PoisonError::into_inner);
        if handle.is_none() {
            Library::Cublas.require(OP)?;
            check_version()?;
            *handle = Some(self.create_handle().map_err(blas_error)?);
        }
        // SAFETY: the caller's promise is the one asked for.
        handle.as_ref().map_or(Ok(()), |handle| unsafe { self.run(handle, gemm) }).map_err(blas_error)
    }

    fn create_handle(&self) -> Result<Handle, CublasError> {
        let handle = Handle(result::create_handle()?);
        // SAFETY: the handle was just made, and the stream lives as long as this device, which owns the handle.
        unsafe { result::set_stream(handle.0, self.stream().cast()) }?;
        // f32 is computed as f32, and partial sums of half types are not rounded to them.
        let mode = cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        // SAFETY: the handle was just made.
        unsafe { sys::cublasSetMathMode(handle.0, mode) }.result()?;
        Ok(handle)
    }

    /// # Safety
    /// As for [`gemm`](Self::gemm).
    unsafe fn run(&self, handle: &Handle, gemm: &Gemm) -> Result<(), CublasError> {
        // A column-major result is the row-major result of the transposed problem: outᵀ = bᵀ @ aᵀ.
        let flip = |matrix: BlasMatrix| BlasMatrix { transposed: !matrix.transposed, ..matrix };
        let (m, n, a, b) = if gemm.out.transposed {
            (gemm.n, gemm.m, flip(gemm.b), flip(gemm.a))
        } else {
            (gemm.m, gemm.n, gemm.a, gemm.b)
        };
        let (kind, compute) = match gemm.dtype {
            DType::F64 => (cudaDataType_t::CUDA_R_64F, cublasComputeType_t::CUBLAS_COMPUTE_64F),
            DType::F16 => (cudaDataType_t::CUDA_R_16F, cublasComputeType_t::CUBLAS_COMPUTE_32F),
            DType::BF16 => (cudaDataType_t::CUDA_R_16BF, cublasComputeType_t::CUBLAS_COMPUTE_32F),
            _ if self.tf32() => (cudaDataType_t::CUDA_R_32F, cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32),
            _ => (cudaDataType_t::CUDA_R_32F, cublasComputeType_t::CUBLAS_COMPUTE_32F),
        };
        // The factors are of the compute type.
        let wide = [gemm.alpha, gemm.beta];
        let narrow = wide.map(|factor| factor as f32);
        let factor = |index: usize| -> *const c_void {
            if gemm.dtype == DType::F64 { (&raw const wide[index]).cast() } else { (&raw const narrow[index]).cast() }
        };
        // cuBLAS takes columns where rows are meant, so it computes outᵀ = bᵀ @ aᵀ: the operands change places.
        let operation = |matrix: BlasMatrix| {
            if matrix.transposed { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N }
        };
        let address = |matrix: BlasMatrix| matrix.pointer.address() as *const c_void;
        // SAFETY: the handle is alive and locked. The caller vouches for the matrices; the stream orders the call after their allocation and before their release. The factors are
        // read before the call returns (host pointer mode, the default).
        unsafe {
            sys::cublasGemmStridedBatchedEx_64(
                handle.0,
                operation(b),
                operation(a),
                n as i64,
                m as i64,
                gemm.k as i64,
                factor(0),
                address(b),
                kind,
                b.ld as i64,
                b.batch_stride as i64,
                address(a),
                kind,
                a.ld as i64,
                a.batch_stride as i64,
                factor(1),
                gemm.out.pointer.address() as *mut c_void,
                kind,
                gemm.out.ld as i64,
                gemm.out.batch_stride as i64,
                gemm.batch as i64,
                compute,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .result()
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

fn blas_error(error: CublasError) -> Error {
    match error.0 {
        cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => {
            Error::new(ErrorKind::OutOfMemory, OP, "cuBLAS could not allocate its workspace").with_source(error)
        }
        _ => native_error(OP, "cuBLAS failed", error),
    }
}
