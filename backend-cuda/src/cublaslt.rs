//! Products of matrices with cuBLASLt. Which algorithm is the best is asked once for each kind of product and kept.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use congruent_backend_api::{DType, Error, ErrorKind, Result};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulAlgo_t, cublasLtMatmulDescAttributes_t as Desc,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtMatrixLayoutAttribute_t as Layout,
    cublasLtReductionScheme_t, cublasStatus_t, cudaDataType_t,
};

use crate::blas::{BlasMatrix, Gemm};
use crate::device::Device;
use crate::error::{Library, native_error};
use crate::storage::{CudaStorage, DevicePointer};

const OP: &str = "matmul";

/// What an algorithm may take for partial sums: the size that NVIDIA advises for Hopper.
const WORKSPACE: u64 = 32 << 20;

/// Matrices of one call: the batch is an axis of the grid, which ends there.
const BATCH: usize = 65_535;

/// Kinds of products that are remembered; past that all are forgotten.
const PLANS: usize = 4096;

/// A cuBLASLt handle and the algorithms chosen so far; `None` for a product that has none.
pub(crate) struct CublasLt {
    plans: HashMap<Kind, Option<Plan>>,
    handle: Handle,
}

/// All that the choice of an algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    dtypes: [DType; 2],
    sizes: [usize; 4],
    bias: bool,
    // Each transposed, leading dimension, batch stride, and the bytes to which it is aligned.
    matrices: [(bool, usize, isize, u32); 3],
}

struct Handle(sys::cublasLtHandle_t);

// SAFETY: a handle may be used from any thread.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create_handle` and is destroyed once. A failure leaks it.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

impl CublasLt {
    /// A handle for the device whose context is bound.
    pub(crate) fn open() -> Result<Self> {
        Library::CublasLt.require(OP)?;
        check_version()?;
        let handle = result::create_handle().map_err(cublas_error)?;
        Ok(Self { plans: HashMap::new(), handle: Handle(handle) })
    }

    /// Starts a product whose output is not transposed; `false` when there is no algorithm for it.
    ///
    /// # Safety
    /// As for [`Device::gemm`], and the context of `device` is bound.
    pub(crate) unsafe fn run(&mut self, device: &Arc<Device>, gemm: &Gemm) -> Result<bool> {
        for start in (0..gemm.batch).step_by(BATCH) {
            let along = |matrix: BlasMatrix, dtype: DType| BlasMatrix {
                pointer: matrix.pointer.offset(start as isize * matrix.batch_stride, dtype),
                ..matrix
            };
            let part = Gemm {
                a: along(gemm.a, gemm.dtype),
                b: along(gemm.b, gemm.dtype),
                out: along(gemm.out, gemm.out_dtype),
                batch: (gemm.batch - start).min(BATCH),
                ..*gemm
            };
            // SAFETY: the part's matrices are some of those for which the caller vouches.
            let ran = unsafe { self.part(device, &part) }?;
            if !ran {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn part(&mut self, device: &Arc<Device>, gemm: &Gemm) -> Result<bool> {
        let kind = Kind::of(gemm);
        if !self.plans.contains_key(&kind) {
            if self.plans.len() == PLANS {
                self.plans.clear();
            }
            let plan = match Plan::new(&self.handle, gemm, &kind, device.tf32()) {
                Ok(plan) => Some(plan),
                Err(CublasError(
                    cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED | cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE,
                )) => None,
                Err(error) => return Err(cublas_error(error)),
            };
            self.plans.insert(kind, plan);
        }
        let Some(Some(plan)) = self.plans.get(&kind) else { return Ok(false) };
        // Freed in stream order, after the product.
        let workspace = match plan.workspace {
            0 => None,
            size => Some(CudaStorage::alloc(device, DType::U8, size)?),
        };
        let workspace = workspace.as_ref().map_or(DevicePointer::NULL, |workspace| workspace.at(0));
        let (wide, narrow) = ([gemm.alpha, gemm.beta], gemm.narrow_factors());
        // The factors are of the compute type.
        let factor = |index: usize| -> *const c_void {
            if gemm.dtype == DType::F64 { (&raw const wide[index]).cast() } else { (&raw const narrow[index]).cast() }
        };
        let address = |pointer: DevicePointer| pointer.address() as *mut c_void;
        if let Some(bias) = gemm.bias {
            plan.desc.set(Desc::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.address()).map_err(cublas_error)?;
        }
        // SAFETY: the plan was made for products of this kind, alignment included. The caller vouches for the matrices, the
        // stream orders the call after their allocation and before their release, and so for the workspace. The factors are
        // read before the call returns (host pointer mode, the default).
        let status = unsafe {
            result::matmul(
                self.handle.0,
                plan.desc.0,
                factor(0),
                factor(1),
                address(gemm.b.pointer),
                plan.b.0,
                address(gemm.a.pointer),
                plan.a.0,
                address(gemm.out.pointer),
                plan.out.0,
                address(gemm.out.pointer),
                plan.out.0,
                &raw const plan.algorithm,
                address(workspace),
                plan.workspace,
                device.stream().cast(),
            )
        };
        status.map_err(cublas_error).map(|()| true)
    }
}

impl Kind {
    fn of(gemm: &Gemm) -> Self {
        let matrix = |matrix: BlasMatrix, dtype: DType| {
            // The whole batch must be as aligned as is promised.
            let stride = matrix.batch_stride.unsigned_abs() as u64 * dtype.size() as u64;
            let aligned = (matrix.pointer.address() | stride).trailing_zeros().min(8);
            (matrix.transposed, matrix.ld, matrix.batch_stride, 1 << aligned)
        };
        Self {
            dtypes: [gemm.dtype, gemm.out_dtype],
            sizes: [gemm.m, gemm.n, gemm.k, gemm.batch],
            bias: gemm.bias.is_some(),
            matrices: [matrix(gemm.out, gemm.out_dtype), matrix(gemm.a, gemm.dtype), matrix(gemm.b, gemm.dtype)],
        }
    }
}

/// How cuBLASLt runs a kind of product. Its A is our b and its B our a (see `blas.rs`).
struct Plan {
    desc: Description,
    a: MatrixLayout,
    b: MatrixLayout,
    out: MatrixLayout,
    algorithm: cublasLtMatmulAlgo_t,
    workspace: usize,
}

impl Plan {
    fn new(handle: &Handle, gemm: &Gemm, kind: &Kind, tf32: bool) -> Result<Self, CublasError> {
        let (compute, scale) = match gemm.dtype {
            DType::F64 => (cublasComputeType_t::CUBLAS_COMPUTE_64F, cudaDataType_t::CUDA_R_64F),
            DType::F32 if tf32 => (cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32, cudaDataType_t::CUDA_R_32F),
            _ => (cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType_t::CUDA_R_32F),
        };
        let desc = Description(result::create_matmul_desc(compute, scale)?);
        // CUBLAS_OP_N and CUBLAS_OP_T.
        let operation = |matrix: BlasMatrix| i32::from(matrix.transposed);
        desc.set(Desc::CUBLASLT_MATMUL_DESC_TRANSA, &operation(gemm.b))?;
        desc.set(Desc::CUBLASLT_MATMUL_DESC_TRANSB, &operation(gemm.a))?;
        if let Some(bias) = gemm.bias {
            desc.set(Desc::CUBLASLT_MATMUL_DESC_EPILOGUE, &cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS)?;
            desc.set(Desc::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.address())?;
        }
        let (m, n, k) = (gemm.m, gemm.n, gemm.k);
        let a = MatrixLayout::new(gemm.dtype, gemm.a, [m, k], gemm.batch)?;
        let b = MatrixLayout::new(gemm.dtype, gemm.b, [k, n], gemm.batch)?;
        let out = MatrixLayout::new(gemm.out_dtype, gemm.out, [m, n], gemm.batch)?;
        let preference = Preferences(result::create_matmul_pref()?);
        preference.set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE)?;
        // Partial sums are not rounded to a half-precision output.
        let scheme = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme)?;
        let [out_aligned, a_aligned, b_aligned] = kind.matrices.map(|matrix| matrix.3);
        preference.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b_aligned)?;
        preference.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a_aligned)?;
        preference.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out_aligned)?;
        preference.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out_aligned)?;
        // SAFETY: all were made above and are alive.
        let found =
            unsafe { result::get_matmul_algo_heuristic(handle.0, desc.0, b.0, a.0, out.0, out.0, preference.0) }?;
        Ok(Self { desc, a, b, out, algorithm: found.algo, workspace: found.workspaceSize })
    }
}

/// A description of a product.
struct Description(sys::cublasLtMatmulDesc_t);

impl Description {
    /// Sets an attribute whose type is `T`.
    fn set<T>(&self, attribute: Desc, value: &T) -> Result<(), CublasError> {
        let value = std::ptr::from_ref(value).cast();
        // SAFETY: the description is alive, and as many bytes are read as `T` has; a wrong size is an error.
        unsafe { result::set_matmul_desc_attribute(self.0, attribute, value, size_of::<T>()) }
    }
}

// SAFETY: a description is plain memory that no thread but the one with `&mut CublasLt` touches.
unsafe impl Send for Description {}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: it came from `create_matmul_desc` and is destroyed once. A failure leaks it.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// The layout of a batch of matrices.
struct MatrixLayout(sys::cublasLtMatrixLayout_t);

impl MatrixLayout {
    fn new(dtype: DType, matrix: BlasMatrix, [rows, cols]: [usize; 2], batch: usize) -> Result<Self, CublasError> {
        let kind = match dtype {
            DType::F64 => cudaDataType_t::CUDA_R_64F,
            DType::F16 => cudaDataType_t::CUDA_R_16F,
            DType::BF16 => cudaDataType_t::CUDA_R_16BF,
            _ => cudaDataType_t::CUDA_R_32F,
        };
        // In columns as they lie in memory.
        let (height, width) = if matrix.transposed { (rows, cols) } else { (cols, rows) };
        let layout = Self(result::create_matrix_layout(kind, height as u64, width as u64, matrix.ld as i64)?);
        layout.set(Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &(batch as i32))?;
        layout.set(Layout::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &(matrix.batch_stride as i64))?;
        Ok(layout)
    }

    /// Sets an attribute whose type is `T`.
    fn set<T>(&self, attribute: Layout, value: &T) -> Result<(), CublasError> {
        let value = std::ptr::from_ref(value).cast();
        // SAFETY: the layout is alive, and as many bytes are read as `T` has; a wrong size is an error.
        unsafe { result::set_matrix_layout_attribute(self.0, attribute, value, size_of::<T>()) }
    }
}

// SAFETY: as for `Description`.
unsafe impl Send for MatrixLayout {}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: it came from `create_matrix_layout` and is destroyed once. A failure leaks it.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

/// What an algorithm must do.
struct Preferences(sys::cublasLtMatmulPreference_t);

impl Preferences {
    /// Sets an attribute whose type is `T`.
    fn set<T>(&self, attribute: Preference, value: &T) -> Result<(), CublasError> {
        let value = std::ptr::from_ref(value).cast();
        // SAFETY: the preferences are alive, and as many bytes are read as `T` has; a wrong size is an error.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, value, size_of::<T>()) }
    }
}

impl Drop for Preferences {
    fn drop(&mut self) {
        // SAFETY: it came from `create_matmul_pref` and is destroyed once. A failure leaks it.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

/// Fails for a stub and for a version before 12.
fn check_version() -> Result<()> {
    // The status is an integer here: what a stub returns is no value of cudarc's enum.
    type Property = unsafe extern "C" fn(i32, *mut i32) -> i32;
    let mut major = 0;
    // SAFETY: the library is present, as the caller has asked.
    let library = unsafe { sys::culib() };
    // SAFETY: cuBLASLt declares the function so in every version.
    let property = unsafe { library.get::<Property>(b"cublasLtGetProperty") }
        .map_err(|error| native_error(OP, "cuBLASLt has no function `cublasLtGetProperty`", error))?;
    // SAFETY: one i32 is written.
    let status = unsafe { property(sys::libraryPropertyType::MAJOR_VERSION as i32, &raw mut major) };
    if status != 0 {
        return Err(Library::CublasLt.is_stub(OP));
    }
    if major >= 12 {
        return Ok(());
    }
    let message = format!("cuBLASLt {major} is too old; install that of CUDA 12 or 13");
    Err(Error::new(ErrorKind::LibraryNotFound, OP, message))
}

fn cublas_error(error: CublasError) -> Error {
    match error.0 {
        cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => {
            Error::new(ErrorKind::OutOfMemory, OP, "cuBLASLt could not allocate").with_source(error)
        }
        _ => native_error(OP, "cuBLASLt failed", error),
    }
}
