//! The backend handle: storage, transfer, and the marks that bad data leaves.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use congruent_backend_api::{Backend, DType, Error, ErrorKind, Op, Result, check_transfer};

use crate::pool::Pool;
use crate::storage::CpuStorage;

/// The CPU. Every call has finished when it returns.
///
/// Memory of dropped storages is kept for later ones, up to 512 MiB in buffers of 1 MiB and more; it is returned to
/// the system with the backend and its last storage, or when memory runs out.
#[derive(Debug, Default)]
pub struct Cpu {
    divided_by_zero: AtomicBool,
    index_out_of_range: AtomicBool,
    pool: Arc<Pool>,
}

impl Cpu {
    /// A backend on the CPU.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers a zero divisor for the next synchronising call.
    pub(crate) fn mark_division_by_zero(&self) {
        self.divided_by_zero.store(true, Ordering::Relaxed);
    }

    /// Remembers an index out of range, if there was one, for the next synchronising call.
    pub(crate) fn mark_indices(&self, outside: bool) {
        self.index_out_of_range.fetch_or(outside, Ordering::Relaxed);
    }

    fn take_error(&self, op: &'static str) -> Result<()> {
        if self.index_out_of_range.swap(false, Ordering::Relaxed) {
            let message = "an index of an earlier gather or scatter was negative or not less than the size of its axis; it \
                           read 0, or wrote nothing";
            return Err(Error::new(ErrorKind::IndexOutOfRange, op, message));
        }
        if self.divided_by_zero.swap(false, Ordering::Relaxed) {
            let message = "an earlier op divided an integer by zero, and its result there is 0; check the divisors";
            return Err(Error::new(ErrorKind::DivisionByZero, op, message));
        }
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Backend for Cpu {
    type Storage = CpuStorage;

    fn name(&self) -> &str {
        "cpu"
    }

    fn supports(&self, op: Op, dtype: DType) -> bool {
        op.accepts(dtype)
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<CpuStorage> {
        CpuStorage::new(&self.pool, dtype, len)
    }

    fn write(&self, bytes: &[u8], storage: &mut CpuStorage, start: usize) -> Result<()> {
        check_transfer("write", storage, start, bytes.len())?;
        storage.write(bytes, start);
        Ok(())
    }

    fn download(&self, storage: &CpuStorage, start: usize, bytes: &mut [u8]) -> Result<()> {
        check_transfer("download", storage, start, bytes.len())?;
        self.take_error("download")?;
        storage.read(bytes, start);
        Ok(())
    }

    /// The host is this backend's memory: through it is the direct way.
    fn receive(&self, _source: &dyn Any, _start: usize, _out: &mut CpuStorage) -> Result<bool> {
        Ok(false)
    }

    fn synchronize(&self) -> Result<()> {
        self.take_error("synchronize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_checked_and_bool_bytes_normalised() {
        let cpu = Cpu::new();
        let mut storage = cpu.alloc(DType::Bool, 4).unwrap();
        cpu.write(&[7, 0, 1], &mut storage, 1).unwrap();
        let mut bytes = [9; 4];
        cpu.download(&storage, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 1, 0, 1]);
        assert_eq!(cpu.write(&[1, 1], &mut storage, 3).unwrap_err().kind(), ErrorKind::Argument);
        assert_eq!(cpu.download(&storage, 5, &mut []).unwrap_err().kind(), ErrorKind::Argument);
    }

    #[test]
    fn out_of_memory_is_an_error_that_names_the_bytes() {
        let cpu = Cpu::new();
        let error = cpu.alloc(DType::F64, 1 << 55).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.message().contains("288230376151711744"), "{error}");
        assert_eq!(cpu.alloc(DType::F64, usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert!(cpu.alloc(DType::F64, 0).is_ok());
    }

    #[test]
    fn a_mark_is_reported_once() {
        let cpu = Cpu::new();
        cpu.mark_division_by_zero();
        assert_eq!(cpu.synchronize().unwrap_err().kind(), ErrorKind::DivisionByZero);
        cpu.synchronize().unwrap();
    }
}
