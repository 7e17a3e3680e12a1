//! The base of every backend: storage, transfer, capability, synchronisation.

use std::any::Any;
use std::fmt::Debug;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::Op;

/// Memory that a backend owns: `len` elements of one dtype.
///
/// A storage is deliberately not `Clone`: reading shares it behind a reference, writing needs `&mut`, so no op can
/// write into a copy of a handle.
pub trait Storage: Debug + Send + Sync + 'static {
    /// The dtype of the elements.
    fn dtype(&self) -> DType;

    /// The number of elements.
    fn len(&self) -> usize;

    /// Whether there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Storage, transfer, capability and synchronisation. The op families refine this trait.
///
/// Ops may run asynchronously, but always as if one after another in the order of the calls; `download` and
/// `synchronize` are the synchronising calls.
pub trait Backend: Debug + Send + Sync + 'static {
    /// The memory of this backend.
    type Storage: Storage;

    /// The name under which users choose the backend: `cpu`, `cuda:0`.
    fn name(&self) -> &str;

    /// Whether the backend implements `op` for inputs of `dtype`.
    ///
    /// # Contract
    /// - `true`: the call never returns `Unsupported`.
    /// - `false`: the call returns `Unsupported` and changes nothing.
    /// - Pairs outside the [domain](Op::accepts) of an op never reach a backend.
    fn supports(&self, op: Op, dtype: DType) -> bool;

    /// Allocates `len` elements with unspecified values.
    ///
    /// # Contract
    /// - A length of 0 succeeds.
    ///
    /// # Errors
    /// `OutOfMemory`; the backend stays usable.
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Storage>;

    /// Overwrites elements `start..` of `storage` with `bytes`, the elements' memory in the host's byte order.
    ///
    /// # Contract
    /// - Bits arrive unchanged, NaN payloads too; a bool byte that is not 0 becomes 1.
    /// - The rest of the storage keeps its value; `bytes` may be reused at once.
    ///
    /// # Errors
    /// `Argument` when `bytes` is not a whole number of elements or reaches past the end.
    fn write(&self, bytes: &[u8], storage: &mut Self::Storage, start: usize) -> Result<()>;

    /// Copies elements `start..` of `storage` to `bytes` and synchronises.
    ///
    /// # Contract
    /// - Bits arrive unchanged, NaN payloads too.
    ///
    /// # Errors
    /// `Argument` as for [`write`](Self::write); an error that an earlier op left behind, as
    /// [`synchronize`](Self::synchronize) returns it.
    fn download(&self, storage: &Self::Storage, start: usize, bytes: &mut [u8]) -> Result<()>;

    /// Fills `out` with elements `start..` of a storage that another backend made, without the host in between, when this
    /// backend knows how: between devices of one kind, say. `source` is that [`Storage`], of any type; one of
    /// [`Erase`](crate::erase::Erase) is seen through.
    ///
    /// # Contract
    /// - `true`: as if `out` had been [written](Self::write) with what [`download`](Self::download) gave, but errors that
    ///   the data of earlier ops caused stay where they are.
    /// - `false`: nothing has changed; the caller copies through the host.
    /// - `source` may be written and dropped at once.
    ///
    /// # Errors
    /// `DType` when the dtypes differ, `Argument` when the source has too few elements.
    fn receive(&self, source: &dyn Any, start: usize, out: &mut Self::Storage) -> Result<bool> {
        let _ = (source, start, out);
        Ok(false)
    }

    /// Waits until every earlier op has finished.
    ///
    /// # Contract
    /// - Reports an error that the data of an earlier op caused, once; the backend stays usable.
    ///
    /// # Errors
    /// `DivisionByZero`, `IndexOutOfRange`, or `DeviceLost`.
    fn synchronize(&self) -> Result<()>;
}

/// The element count of a transfer, checked against its storage: what `write` and `download` call first.
///
/// # Errors
/// `Argument` when `bytes` is not a whole number of elements or reaches past the end of the storage.
pub fn check_transfer(op: &'static str, storage: &impl Storage, start: usize, bytes: usize) -> Result<usize> {
    let (dtype, len) = (storage.dtype(), storage.len());
    let count = bytes / dtype.size();
    let fits = bytes.is_multiple_of(dtype.size()) && start.checked_add(count).is_some_and(|end| end <= len);
    fits.then_some(count).ok_or_else(|| {
        let message = format!("{bytes} bytes from element {start} do not fit a storage of {len} {dtype} elements");
        Error::new(ErrorKind::Argument, op, message)
    })
}
