//! Streams of one process: a second one on the same device, events, and the order of work that shares memory.
//!
//! A [`Cuda`] value is a stream; `Cuda::new(0)` twice, or [`Cuda::fork`], makes two that run side by side. Storages may
//! be used by every stream of their device. Nothing is recorded while only the stream that made a storage uses it. Once
//! another one does, the storage remembers who wrote it last and who has read it since, and the streams wait for each
//! other, on the device, only when that changes:
//!
//! - a reader waits for the last writer, the first time;
//! - a writer, and the release of the memory, wait for the last writer and all its readers.
//!
//! "Wait for a stream" means for all that it had been given by then. That is more than needed at times, and needs no
//! event for each op.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

use congruent_backend_api::{Error, ErrorKind, Result};
use cudarc::driver::{CudaEvent, CudaStream, DriverError};

use crate::device::{Cuda, Device};
use crate::error::driver_error;
use crate::fork;
use crate::graph;
use crate::storage::CudaStorage;

/// A point in the work of a backend; [`Cuda::record`] makes one.
#[derive(Debug)]
pub struct Event {
    // In a forked child it cannot be dropped.
    event: ManuallyDrop<CudaEvent>,
}

impl Cuda {
    /// A second backend on the same device with the same options: a stream of its own, which runs beside this one's, and
    /// an error flag of its own. Compiled kernels are shared. Both may use the storages of either; see [the
    /// module](crate#order-threads-errors).
    ///
    /// ```
    /// # use congruent_backend_cuda::Cuda;
    /// # use congruent_backend_api::Backend;
    /// # fn main() -> congruent_backend_api::Result<()> {
    /// # let Ok(cuda) = Cuda::new(0) else { return Ok(()) };
    /// let copies = cuda.fork()?;
    /// let uploaded = copies.record()?;
    /// cuda.wait_for(&uploaded)?; // what `cuda` does from here on runs after what `copies` did until then
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the driver reports.
    pub fn fork(&self) -> Result<Self> {
        const OP: &str = "fork";
        self.device.bind(OP)?;
        let device = self.device.fork().map_err(|error| driver_error(OP, error))?;
        Ok(Self { device: Arc::new(device) })
    }

    /// An event after everything that this backend has been given so far.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn record(&self) -> Result<Event> {
        const OP: &str = "record";
        self.device.bind_apart(OP)?;
        let event = self.device.cuda_stream().record_event(None).map_err(|error| driver_error(OP, error))?;
        Ok(Event { event: ManuallyDrop::new(event) })
    }

    /// What this backend is given from now on runs after the event, of whichever backend and device. Does not block.
    ///
    /// Sharing storages needs no such call; it orders what no storage connects, such as work of another library.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        const OP: &str = "wait_for";
        self.device.bind_apart(OP)?;
        self.device.cuda_stream().wait(&event.event).map_err(|error| driver_error(OP, error))
    }

    /// What every op does with its operands first: refuses those of another device, and orders the op behind what other
    /// streams do with them.
    pub(crate) fn order<'s>(
        &self,
        op: &'static str,
        inputs: impl IntoIterator<Item = &'s CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        for input in inputs {
            self.order_input(op, input)?;
        }
        self.check_device(op, out)?;
        out.order_write(&self.device).map_err(|error| driver_error(op, error))
    }

    /// As [`order`](Self::order) for what only reads.
    pub(crate) fn order_input(&self, op: &'static str, input: &CudaStorage) -> Result<()> {
        self.check_device(op, input)?;
        input.order_read(&self.device).map_err(|error| driver_error(op, error))
    }

    fn check_device(&self, op: &'static str, storage: &CudaStorage) -> Result<()> {
        if storage.is_on(&self.device) {
            return graph::use_memory(&self.device, op, storage.at(0).address());
        }
        let message = format!(
            "{storage:?} is memory of another device than `{}`; move the tensor there first (`to_backend`)",
            self.device.name()
        );
        Err(Error::new(ErrorKind::Argument, op, message))
    }
}

impl Event {
    /// Blocks until the device has got there. Errors of the data, such as a division by zero, are left to the backend's
    /// own synchronising calls.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn wait(&self) -> Result<()> {
        fork::check("wait")?;
        self.event.synchronize().map_err(|error| driver_error("wait", error))
    }

    /// Whether the device has got there.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn is_done(&self) -> Result<bool> {
        fork::check("is_done")?;
        self.event.try_is_complete().map_err(|error| driver_error("is_done", error))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if fork::check("drop").is_ok() {
            // SAFETY: this is the one place that drops it, and nothing uses it after.
            unsafe { ManuallyDrop::drop(&mut self.event) };
        }
    }
}

/// The end of a stream's work so far. One event serves every wait: waiting takes the state that it has then.
#[derive(Debug)]
pub(crate) struct Tail(Mutex<CudaEvent>);

impl Tail {
    pub(crate) fn new(stream: &CudaStream) -> Result<Self, DriverError> {
        Ok(Self(Mutex::new(stream.context().new_event(None)?)))
    }
}

impl Device {
    /// Makes this stream wait for all that the other one has been given; neither is being recorded.
    pub(crate) fn wait_on(&self, other: &Self) -> Result<(), DriverError> {
        let event = other.tail().0.lock().unwrap_or_else(PoisonError::into_inner);
        event.record(other.cuda_stream())?;
        self.cuda_stream().wait(&event)
    }
}

/// The streams that use a storage.
#[derive(Debug)]
pub(crate) struct Users {
    /// Who wrote last; at first the stream that allocated.
    writer: Arc<Device>,
    /// Whose work from now on comes after that write, and may have read it.
    readers: Vec<Arc<Device>>,
}

impl Users {
    pub(crate) fn new(owner: &Arc<Device>) -> Self {
        Self { writer: owner.clone(), readers: Vec::new() }
    }

    pub(crate) fn read(&mut self, by: &Arc<Device>) -> Result<(), DriverError> {
        if Arc::ptr_eq(&self.writer, by) || self.readers.iter().any(|reader| Arc::ptr_eq(reader, by)) {
            return Ok(());
        }
        by.follow(&self.writer)?;
        self.readers.push(by.clone());
        Ok(())
    }

    /// The caller owns the storage: no read is under way that this doesn't know.
    pub(crate) fn write(&mut self, by: &Arc<Device>) -> Result<(), DriverError> {
        for other in self.readers.iter().chain([&self.writer]).filter(|other| !Arc::ptr_eq(other, by)) {
            by.follow(other)?;
        }
        self.writer = by.clone();
        self.readers.clear();
        Ok(())
    }
}
