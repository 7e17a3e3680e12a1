//! The wrapper that injects a fault: storage, transfer, synchronisation. Its ops are in `ops.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::thread::ThreadId;

use congruent_backend_api::erase::{AnyBackend, Erased};
use congruent_backend_api::{Backend, DType, Error, ErrorKind, Layout, Op, Result, Shape, Storage};

use super::{Fault, Special};
use crate::host::HostTensor;

/// A backend that does one thing wrong.
#[derive(Debug)]
pub struct Faulty {
    pub(super) inner: Arc<AnyBackend>,
    pub(super) fault: Fault,
    pub(super) calls: AtomicUsize,
    pub(super) first_thread: OnceLock<ThreadId>,
    // Calls since the last synchronising one.
    pub(super) queued: AtomicUsize,
    transfers: AtomicUsize,
    last: Mutex<Weak<RwLock<Erased>>>,
    // An error of the wrapped backend that came up while the wrapper looked at a storage.
    pending: Mutex<Option<Error>>,
}

/// A storage of the wrapped backend. The lock lets a fault do what a device can with a raw pointer: change a storage that
/// others only read.
#[derive(Debug)]
pub struct Held {
    dtype: DType,
    len: usize,
    inner: Arc<RwLock<Erased>>,
}

impl Held {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Erased> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Erased> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The storage, unless somebody reads it at this moment.
    pub(super) fn try_write(&self) -> Option<RwLockWriteGuard<'_, Erased>> {
        self.inner.try_write().ok()
    }
}

impl Storage for Held {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Faulty {
    /// Wraps a correct backend.
    #[must_use]
    pub fn new(inner: Arc<AnyBackend>, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            calls: AtomicUsize::new(0),
            first_thread: OnceLock::new(),
            queued: AtomicUsize::new(0),
            transfers: AtomicUsize::new(0),
            last: Mutex::default(),
            pending: Mutex::default(),
        }
    }

    /// Reads a whole storage; an error that earlier ops left behind is kept for the next synchronising call.
    pub(super) fn peek(&self, storage: &Erased) -> Result<HostTensor> {
        let mut bytes = vec![0; storage.len() * storage.dtype().size()];
        if let Err(error) = self.inner.download(storage, 0, &mut bytes) {
            *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            self.inner.download(storage, 0, &mut bytes)?;
        }
        let layout = Layout::contiguous(Shape::new("fault", &[storage.len()])?);
        Ok(HostTensor { dtype: storage.dtype(), layout, bytes })
    }

    /// Flips the lowest bit of the first element of a storage.
    pub(super) fn scribble(&self, storage: &mut Erased) -> Result<()> {
        let mut host = self.peek(storage)?;
        if host.storage_len() > 0 {
            host.set_bits(0, host.bits(0) ^ 1);
        }
        self.inner.write(&host.bytes, storage, 0)
    }

    /// What a synchronising call returns, where the wrapped backend returned `result`.
    fn report(&self, result: Result<()>) -> Result<()> {
        self.queued.store(0, Ordering::Relaxed);
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let result = pending.take().map_or(result, Err);
        let Err(error) = result else { return Ok(()) };
        let (silent, sticky) = match error.kind() {
            ErrorKind::DivisionByZero => (Special::SilentDivision, Special::StickyDivision),
            _ => (Special::SilentIndex, Special::StickyIndex),
        };
        let caused = matches!(error.kind(), ErrorKind::DivisionByZero | ErrorKind::IndexOutOfRange);
        if caused && self.fault.is(silent) {
            return Ok(());
        }
        if caused && self.fault.is(sticky) {
            *pending = Some(Error::new(error.kind(), error.op(), error.message()));
        }
        Err(error)
    }
}

impl Backend for Faulty {
    type Storage = Held;

    fn name(&self) -> &str {
        self.fault.name
    }

    fn supports(&self, op: Op, dtype: DType) -> bool {
        !(self.fault.is(Special::Denies) && self.fault.touches(op, dtype)) && self.inner.supports(op, dtype)
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Held> {
        let mut inner = self.inner.alloc(dtype, len)?;
        if self.fault.is(Special::FreedInUse) {
            // The wrapped backend gives no values to new memory; here they must not depend on the allocator.
            self.inner.write(&vec![0; len * dtype.size()], &mut inner, 0)?;
        }
        let inner = Arc::new(RwLock::new(inner));
        if self.fault.is(Special::FreedInUse) {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let in_use = std::mem::replace(&mut *last, Arc::downgrade(&inner)).upgrade();
            // What another thread is reading stays right: waiting for it could wait for ever.
            if self.transfers.fetch_add(1, Ordering::Relaxed) % 4 == 3
                && let Some(mut storage) = in_use.as_ref().and_then(|in_use| in_use.try_write().ok())
            {
                self.scribble(&mut storage)?;
            }
        }
        Ok(Held { dtype, len, inner })
    }

    fn write(&self, bytes: &[u8], storage: &mut Held, start: usize) -> Result<()> {
        let start = if self.fault.is(Special::WriteStart) { 0 } else { start };
        if self.fault.is(Special::BoolBytes) && storage.dtype == DType::Bool {
            let low: Vec<u8> = bytes.iter().map(|&byte| u8::from(byte == 1)).collect();
            return self.inner.write(&low, &mut storage.write(), start);
        }
        self.inner.write(bytes, &mut storage.write(), start)
    }

    fn download(&self, storage: &Held, start: usize, bytes: &mut [u8]) -> Result<()> {
        let start = if self.fault.is(Special::DownloadStart) { 0 } else { start };
        let result = self.inner.download(&storage.read(), start, bytes);
        let refused = matches!(&result, Err(error) if error.kind() == ErrorKind::Argument);
        if !refused {
            let failed = result.is_err();
            self.report(result)?;
            if failed {
                // The error was kept back: the bytes still have to come.
                self.inner.download(&storage.read(), start, bytes)?;
            }
            if self.fault.is(Special::NoWait) && self.transfers.fetch_add(1, Ordering::Relaxed) % 8 == 7 {
                bytes.fill(0);
            }
            return Ok(());
        }
        result
    }

    fn synchronize(&self) -> Result<()> {
        self.report(self.inner.synchronize())
    }
}
