//! CUDA graphs: ops that are recorded once and then start together, without the host's cost of each.
//!
//! While [`Cuda::capture`] runs its closure, the ops of that thread go into the graph instead of to the device. The graph
//! holds addresses, so what it may name is restricted:
//!
//! - Ops read and write tensors that were there before (`_into` forms). The graph does not keep them alive; once one is
//!   dropped, [`Graph::replay`] is an error. New values are written into them in place; another shape is another tensor.
//! - Memory that an op takes and gives back within the capture belongs to the graph. A tensor that is made within and
//!   outlives it is an error.
//! - What waits for the device, or copies from or to the host, is an error; and so is every call of another thread on
//!   this backend until the capture ends. Tensors that another stream has used since are made known to this one before:
//!   by any op on them.
//!
//! A replay is work of the backend's stream like any other: other streams that use its tensors wait for it, and it for
//! them. What kernels report, such as a division by zero, is an error of the next synchronising call.
//!
//! The addresses in use are kept in one table of the process. While nothing is captured, an op asks one atomic.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use congruent_backend_api::{Error, ErrorKind, Result};
use cudarc::driver::{DriverError, result, sys};

use crate::device::{Cuda, Device};
use crate::error::driver_error;
use crate::storage::CudaStorage;

/// Ops recorded by [`Cuda::capture`], which [`replay`](Self::replay) starts together.
pub struct Graph {
    device: Arc<Device>,
    exec: Executable,
    memory: Arc<Memory>,
}

/// The addresses that a graph uses.
struct Memory {
    /// What the graph's stream was.
    device: Weak<Device>,
    used: HashSet<u64>,
    /// Whether one of them was released.
    is_stale: AtomicBool,
    /// The other streams that have used one of them since the last replay.
    others: Mutex<Vec<Arc<Device>>>,
}

/// What the driver made of a graph.
struct Executable(sys::CUgraphExec);

// SAFETY: a graph may be used from any thread, one at a time; `replay` holds the table's lock.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

/// A capture that is under way.
struct Recording {
    /// Their addresses, to be compared.
    device: usize,
    context: usize,
    thread: ThreadId,
    used: HashSet<u64>,
    /// Allocated within, and not yet released.
    own: HashSet<u64>,
    /// Dropped within but older: released when the capture has ended.
    late: Vec<CudaStorage>,
    is_stale: bool,
}

impl Recording {
    fn new(device: &Device) -> Self {
        Self {
            device: std::ptr::from_ref(device).addr(),
            context: device.context().cu_ctx().addr(),
            thread: thread::current().id(),
            used: HashSet::new(),
            own: HashSet::new(),
            late: Vec::new(),
            is_stale: false,
        }
    }
}

#[derive(Default)]
struct Table {
    recordings: Vec<Recording>,
    graphs: Vec<Weak<Memory>>,
    /// Addresses without memory: of tensors that were made in a capture and outlived it.
    void: HashSet<u64>,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);
/// Recordings and void addresses: what ops ask for.
static ASKED_BY_OPS: AtomicUsize = AtomicUsize::new(0);
/// The same and graphs: what releases ask for.
static ASKED_BY_RELEASES: AtomicUsize = AtomicUsize::new(0);

impl Cuda {
    /// Records the ops that `ops` calls on this backend, instead of running them.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use congruent::{DType, Tensor, ops::BinaryOp};
    /// # use congruent_backend_cuda::Cuda;
    /// # fn main() -> congruent::Result<()> {
    /// # let Ok(cuda) = Cuda::new(0) else { return Ok(()) };
    /// let cuda = Arc::new(cuda);
    /// let x = Tensor::ones(&cuda, [4], DType::F32)?;
    /// let mut sum = Tensor::zeros(&cuda, [4], DType::F32)?;
    /// let mut step = Tensor::zeros(&cuda, [4], DType::F32)?;
    /// let graph = cuda.capture(|| {
    ///     Tensor::binary_into(BinaryOp::Mul, &x, 0.5, &mut step)?;
    ///     sum.add_assign(&step)
    /// })?;
    /// for _ in 0..10 {
    ///     graph.replay()?;
    /// }
    /// assert_eq!(sum.to_vec::<f32>()?, [5.0; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `ops` returns; `Argument` when captures are nested, when a tensor that is made within outlives the capture,
    /// or when one that is used within is dropped there; what the driver reports. The backend is as before then.
    pub fn capture(&self, ops: impl FnOnce() -> Result<()>) -> Result<Graph> {
        const OP: &str = "capture";
        self.device.bind(OP)?;
        let capture = Capture::begin(&self.device)?;
        let outcome = ops();
        let (graph, recording) = capture.end();
        // Tensors that outlive the capture name addresses of the graph, which is then never destroyed.
        let escaped = recording.own.len();
        if escaped == 0 && (outcome.is_err() || recording.is_stale) {
            destroy(&graph);
        }
        outcome?;
        if escaped > 0 {
            let message = format!(
                "{escaped} tensors that were made within outlive the capture, and have no memory; make outputs before it and \
                 write them with the `_into` forms (a shared output is replaced by a new one: clones count)"
            );
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        if recording.is_stale {
            let message =
                "a tensor that a captured op uses was dropped within the capture; keep it until after the last replay";
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        let graph = graph.map_err(|error| driver_error(OP, error))?;
        // SAFETY: the graph was just made, and is destroyed below.
        let exec = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        destroy(&Ok(graph));
        let exec = Executable(exec.map_err(|error| driver_error(OP, error))?);
        let memory = Arc::new(Memory {
            device: Arc::downgrade(&self.device),
            used: recording.used,
            is_stale: AtomicBool::new(false),
            others: Mutex::default(),
        });
        lock(|table| table.graphs.push(Arc::downgrade(&memory)));
        Ok(Graph { device: self.device.clone(), exec, memory })
    }
}

impl Graph {
    /// Runs the recorded ops, in the order of this backend's other work; does not wait for them.
    ///
    /// # Errors
    /// `Argument` when a tensor that they use was dropped, or within a capture; what the driver reports.
    pub fn replay(&self) -> Result<()> {
        const OP: &str = "replay";
        self.device.bind_apart(OP)?;
        // A release in another thread comes before, or is ordered after the launch.
        lock(|table| {
            if self.memory.is_stale.load(Ordering::Relaxed) {
                let message = "a tensor that the graph uses was dropped; keep its tensors, or capture again";
                return Err(Error::new(ErrorKind::Argument, OP, message));
            }
            let mut others = self.memory.others.lock().unwrap_or_else(PoisonError::into_inner);
            let mut start = || {
                while let Some(other) = others.last() {
                    table.follow(&self.device, other)?;
                    others.pop();
                }
                // SAFETY: the executable lives as long as this value, and so does the stream. The memory that it uses has
                // not been released: the table's lock is held, and a later release is ordered after it.
                unsafe { result::graph::launch(self.exec.0, self.device.stream()) }
            };
            start().map_err(|error| driver_error(OP, error))
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // Errors are ignored: the context is gone then, and the graph with it.
        if self.device.bind_to_release().is_ok() {
            // SAFETY: the executable was made in `capture` and is destroyed once; the driver lets it finish.
            let _ = unsafe { result::graph::exec_destroy(self.exec.0) };
        }
        let memory = Arc::as_ptr(&self.memory);
        lock(|table| table.graphs.retain(|graph| graph.as_ptr() != memory));
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("device", &self.device)
            .field("storages", &self.memory.used.len())
            .finish_non_exhaustive()
    }
}

/// A capture under way; dropped when the closure panics.
struct Capture<'a> {
    device: &'a Device,
    is_open: bool,
}

impl<'a> Capture<'a> {
    fn begin(device: &'a Device) -> Result<Self> {
        const OP: &str = "capture";
        refuse_while_recording(device, OP)?;
        // SAFETY: the stream is alive. The relaxed mode leaves the calls on other streams alone.
        unsafe {
            result::stream::begin_capture(device.stream(), sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)
        }
        .map_err(|error| driver_error(OP, error))?;
        lock(|table| table.recordings.push(Recording::new(device)));
        Ok(Self { device, is_open: true })
    }

    /// The graph, unless the driver gave up the capture, and what it uses.
    fn end(mut self) -> (Result<sys::CUgraph, DriverError>, Recording) {
        self.close()
    }

    fn close(&mut self) -> (Result<sys::CUgraph, DriverError>, Recording) {
        self.is_open = false;
        // SAFETY: `begin` has begun a capture on this stream, which ends once.
        let graph = unsafe { result::stream::end_capture(self.device.stream()) };
        let recording = lock(|table| {
            let at = table
                .recordings
                .iter()
                .position(|recording| recording.device == std::ptr::from_ref(self.device).addr());
            let recording = at.map(|at| table.recordings.swap_remove(at));
            if let Some(recording) = &recording {
                table.void.extend(&recording.own);
            }
            recording
        });
        let recording = recording.unwrap_or_else(|| Recording::new(self.device));
        (graph, recording)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let (graph, recording) = self.close();
            if recording.own.is_empty() {
                destroy(&graph);
            }
        }
    }
}

/// Before an op uses a storage: records that, and refuses other threads while this stream is recorded.
pub(crate) fn use_memory(device: &Device, op: &'static str, pointer: u64) -> Result<()> {
    if ASKED_BY_OPS.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    lock(|table| {
        if table.void.contains(&pointer) {
            let message = "the tensor was made in a capture, and has no memory outside of it";
            return Err(Error::new(ErrorKind::Argument, op, message));
        }
        if let Some(recording) = table.recording(device)
            && !recording.own.contains(&pointer)
        {
            recording.used.insert(pointer);
        }
        Ok(())
    })
}

/// Before another stream than that of its owner, or one of several, uses a storage: orders it and the replays of graphs
/// that use the same memory behind each other.
pub(crate) fn order_beside(pointer: u64, by: &Arc<Device>) -> Result<(), DriverError> {
    if ASKED_BY_RELEASES.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    lock(|table| {
        for graph in table.using(pointer) {
            let Some(device) = graph.device.upgrade().filter(|device| !Arc::ptr_eq(device, by)) else { continue };
            table.follow(by, &device)?;
            let mut others = graph.others.lock().unwrap_or_else(PoisonError::into_inner);
            if !others.iter().any(|other| Arc::ptr_eq(other, by)) {
                others.push(by.clone());
            }
        }
        Ok(())
    })
}

impl Device {
    /// Makes this stream wait for all that the other one has been given. One that is being recorded cannot: the wait
    /// would make the other one part of the capture.
    pub(crate) fn follow(&self, other: &Self) -> Result<(), DriverError> {
        if ASKED_BY_OPS.load(Ordering::Relaxed) == 0 {
            self.wait_on(other)
        } else {
            lock(|table| table.follow(self, other))
        }
    }
}

/// Whether some stream of the context is being recorded.
pub(crate) fn records_in(device: &Device) -> bool {
    let context = device.context().cu_ctx().addr();
    ASKED_BY_OPS.load(Ordering::Relaxed) > 0
        && lock(|table| table.recordings.iter().any(|recording| recording.context == context))
}

/// After an allocation on the stream of `device`.
pub(crate) fn allocated(device: &Device, pointer: u64) {
    if ASKED_BY_OPS.load(Ordering::Relaxed) > 0 {
        lock(|table| table.recording(device).map(|recording| recording.own.insert(pointer)));
    }
}

/// When a storage of `device` is dropped: whether its release is left to us. `storage` makes another one of the same
/// memory, whose drop comes here again once the capture has ended.
pub(crate) fn releases(device: &Arc<Device>, pointer: u64, storage: impl FnOnce() -> CudaStorage) -> bool {
    if ASKED_BY_RELEASES.load(Ordering::Relaxed) == 0 {
        return false;
    }
    lock(|table| {
        if table.void.remove(&pointer) {
            return true;
        }
        let is_recorded = table.recording(device).is_some();
        for graph in table.using(pointer) {
            graph.is_stale.store(true, Ordering::Relaxed);
            if let Some(other) = graph.device.upgrade().filter(|other| !is_recorded && !Arc::ptr_eq(other, device))
                && table.follow(device, &other).is_err()
            {
                // Memory that a replay may still use leaks rather than being handed out again.
                return true;
            }
        }
        for recording in table.recordings.iter_mut().filter(|recording| recording.used.contains(&pointer)) {
            recording.is_stale = true;
        }
        let Some(recording) = table.recording(device) else { return false };
        let is_own = recording.own.remove(&pointer);
        if !is_own {
            recording.late.push(storage());
        }
        !is_own
    })
}

/// Before any call on the stream: refuses other threads while one records it.
pub(crate) fn refuse_other_threads(device: &Device, op: &'static str) -> Result<()> {
    if ASKED_BY_OPS.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    let thread = thread::current().id();
    lock(|table| match table.recording(device) {
        Some(recording) if recording.thread != thread => {
            let message = "another thread captures what this backend is given; wait until its capture ends";
            Err(Error::new(ErrorKind::Argument, op, message))
        }
        _ => Ok(()),
    })
}

/// Before what a graph cannot hold: a wait for the device, a copy from or to the host, another graph.
pub(crate) fn refuse_while_recording(device: &Device, op: &'static str) -> Result<()> {
    if ASKED_BY_OPS.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    lock(|table| match table.recording(device) {
        Some(_) => {
            let message = "this waits for the device or copies from or to the host, which a capture cannot record; do it before or after";
            Err(Error::new(ErrorKind::Argument, op, message))
        }
        None => Ok(()),
    })
}

impl Table {
    /// The graphs that use memory.
    fn using(&self, pointer: u64) -> Vec<Arc<Memory>> {
        self.graphs.iter().filter_map(Weak::upgrade).filter(|graph| graph.used.contains(&pointer)).collect()
    }

    /// [`Device::follow`], which asks the table.
    fn follow(&mut self, device: &Device, other: &Device) -> Result<(), DriverError> {
        if self.recording(device).is_some() || self.recording(other).is_some() {
            return Err(DriverError(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
        }
        device.wait_on(other)
    }

    fn recording(&mut self, device: &Device) -> Option<&mut Recording> {
        self.recordings.iter_mut().find(|recording| recording.device == std::ptr::from_ref(device).addr())
    }
}

/// Runs `change` on the table, and counts anew afterwards.
fn lock<R>(change: impl FnOnce(&mut Table) -> R) -> R {
    let mut table: MutexGuard<'_, Option<Table>> = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let table = table.get_or_insert_default();
    let result = change(table);
    let asked = table.recordings.len() + table.void.len();
    ASKED_BY_OPS.store(asked, Ordering::Relaxed);
    ASKED_BY_RELEASES.store(asked + table.graphs.len(), Ordering::Relaxed);
    result
}

fn destroy(graph: &Result<sys::CUgraph, DriverError>) {
    if let Ok(graph) = *graph
        && !graph.is_null()
    {
        // SAFETY: the graph came from `end_capture`, and is destroyed once. A failure leaks it.
        let _ = unsafe { result::graph::destroy(graph) };
    }
}
