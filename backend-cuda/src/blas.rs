//! Float matrix products by NVIDIA's libraries, which are loaded when the first one runs: matrices by cuBLASLt
//! (`cublaslt.rs`), vectors by cuBLAS (`cublas.rs`), whose kernels for them read the matrix at the memory's rate.
//!
//! Both take columns where rows are meant, so a row-major `out = a @ b` is given to them as `outᵀ = bᵀ @ aᵀ`.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use congruent_backend_api::{DType, ErrorKind, Result};

use crate::cublas::Cublas;
use crate::cublaslt::CublasLt;
use crate::device::{Cuda, Device};
use crate::storage::DevicePointer;

/// A matrix that BLAS can read: row-major with rows `ld` apart, or, `transposed`, columns `ld` apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlasMatrix {
    pub(crate) pointer: DevicePointer,
    pub(crate) transposed: bool,
    pub(crate) ld: usize,
    /// From one matrix of the batch to the next; 0 repeats it.
    pub(crate) batch_stride: isize,
}

/// `out = alpha · a @ b + beta · out` for `batch` matrices, out \[m, n\], a \[m, k\], b \[k, n\]; no size is 0. The operands
/// are of `dtype`, the output of `out_dtype`: the same, or f32 for half-precision operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gemm {
    pub(crate) dtype: DType,
    pub(crate) out_dtype: DType,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) a: BlasMatrix,
    pub(crate) b: BlasMatrix,
    pub(crate) out: BlasMatrix,
    /// `n` neighbours that are added to every row, only to an output that is not transposed, and only by cuBLASLt.
    pub(crate) bias: Option<DevicePointer>,
    pub(crate) batch: usize,
}

impl Gemm {
    /// The same with an output that is not transposed.
    pub(crate) fn upright(&self) -> Self {
        if !self.out.transposed {
            return *self;
        }
        let flip = |matrix: BlasMatrix| BlasMatrix { transposed: !matrix.transposed, ..matrix };
        Self { m: self.n, n: self.m, a: flip(self.b), b: flip(self.a), out: flip(self.out), ..*self }
    }

    /// α and β in f32, as all dtypes but f64 take them.
    pub(crate) fn narrow_factors(&self) -> [f32; 2] {
        [self.alpha as f32, self.beta as f32]
    }
}

/// The libraries as far as they have been needed; `None` when one cannot be loaded.
#[derive(Default)]
pub(crate) struct Blas {
    vectors: OnceLock<Option<Mutex<Cublas>>>,
    matrices: OnceLock<Option<Mutex<CublasLt>>>,
}

impl Cuda {
    /// Whether cuBLAS and cuBLASLt can be loaded. Without them float products run too, in a plain kernel that is slower by
    /// far.
    ///
    /// # Errors
    /// What a library that is there reports when it is opened.
    pub fn has_blas(&self) -> Result<bool> {
        self.device.bind("has_blas")?;
        Ok(self.device.vectors()?.is_some() && self.device.matrices()?.is_some())
    }
}

impl Device {
    /// Starts a product; `false` when there is no library or none of its algorithms takes it.
    ///
    /// # Safety
    /// The matrices lie in memory of this device value that holds elements of their dtypes, and nothing but this stream
    /// uses the output; the bias has `n` elements of `dtype`.
    pub(crate) unsafe fn gemm(self: &std::sync::Arc<Self>, gemm: &Gemm) -> Result<bool> {
        self.bind("matmul")?;
        let gemm = gemm.upright();
        if (gemm.m == 1 || gemm.n == 1)
            && gemm.bias.is_none()
            && let Some(mut cublas) = self.vectors()?
        {
            // SAFETY: the caller's promise is the one asked for.
            return unsafe { cublas.run(self, &gemm) }.map(|()| true);
        }
        let Some(mut cublaslt) = self.matrices()? else { return Ok(false) };
        // SAFETY: as above.
        unsafe { cublaslt.run(self, &gemm) }
    }

    fn vectors(&self) -> Result<Option<MutexGuard<'_, Cublas>>> {
        opened(&self.blas().vectors, || Cublas::open(self))
    }

    fn matrices(&self) -> Result<Option<MutexGuard<'_, CublasLt>>> {
        opened(&self.blas().matrices, CublasLt::open)
    }
}

/// The library, opened at the first call.
pub(crate) fn opened<L>(
    cell: &OnceLock<Option<Mutex<L>>>,
    open: impl FnOnce() -> Result<L>,
) -> Result<Option<MutexGuard<'_, L>>> {
    let library = match cell.get() {
        Some(library) => library,
        None => {
            let library = match open() {
                Ok(library) => Some(Mutex::new(library)),
                Err(error) if error.kind() == ErrorKind::LibraryNotFound => None,
                Err(error) => return Err(error),
            };
            // Of two threads that came here at once, one drops what it has opened.
            cell.get_or_init(|| library)
        }
    };
    Ok(library.as_ref().map(|library| library.lock().unwrap_or_else(PoisonError::into_inner)))
}
