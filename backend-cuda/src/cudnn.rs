//! Convolutions with cuDNN, through its graph interface: an operation, or a convolution with a bias, is described
//! by tensors with strides; heuristics propose engines for it; the first that keeps the contract and whose workspace is
//! not too large becomes a plan, which is kept for all convolutions of the same kind.
//!
//! Engines say what they do to numbers. Left out are those that are not deterministic, that round operands or partial sums
//! to fewer bits, the transforms of Winograd and Fourier, whose errors are not bounded term by term, and those that never
//! multiply padding, which is zeros like any other by the contract.

mod descriptor;
mod graph;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use congruent_backend_api::ops::conv::ConvOp;
use congruent_backend_api::{DType, Error, ErrorKind, Result};
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Attribute, cudnnBackendDescriptorType_t as Class,
    cudnnBackendHeurMode_t as Heuristic, cudnnBackendNumericalNote_t as Note, cudnnStatus_t,
};

use crate::blas::opened;
use crate::device::{Cuda, Device};
use crate::error::{Library, native_error};
use crate::storage::{CudaStorage, DevicePointer};
use descriptor::{Address, Descriptor, Memory, Session};
use graph::{BIAS, Parts, WEIGHT, X, Y};

pub(crate) use graph::order;

const OP: &str = "conv";

/// What an engine may take for partial sums and for operands in another order.
const WORKSPACE: usize = 1 << 30;

/// Kinds of convolutions that are remembered; past that all are forgotten.
const PLANS: usize = 4096;

/// The most axes of a tensor: batch, channels, three of space.
pub(crate) const AXES: usize = 5;

/// All that the choice of an engine depends on. Tensors are packed, all in the same order of axes, and aligned to 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Graph {
    pub(crate) op: ConvOp,
    /// Of the operands.
    pub(crate) dtype: DType,
    pub(crate) out_dtype: DType,
    /// How many of the sizes count, at least 4.
    pub(crate) axes: usize,
    /// Of x, weight and y.
    pub(crate) sizes: [[i64; AXES]; 3],
    /// Whether the channels come last in memory, else before the space.
    pub(crate) channels_last: bool,
    /// Along the spatial axes.
    pub(crate) stride: [i64; 3],
    pub(crate) dilation: [i64; 3],
    /// On either side.
    pub(crate) padding: [i64; 3],
    /// Whether one is added, only in `conv`.
    pub(crate) bias: bool,
}

/// Where x, weight, y and the bias lie; that is `NULL` without one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses(pub(crate) [DevicePointer; 4]);

/// The library as far as it has been needed; `None` when it cannot be loaded.
#[derive(Default)]
pub(crate) struct Dnn(OnceLock<Option<Mutex<Cudnn>>>);

/// A cuDNN handle on a device's stream, and the plans made so far; `None` for a kind that has none.
pub(crate) struct Cudnn {
    plans: HashMap<Graph, Option<Plan>>,
    handle: Handle,
}

struct Handle(sys::cudnnHandle_t);

// SAFETY: a handle may be used from any thread, one at a time, which `&mut Cudnn` ensures.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create_handle` and is destroyed once. A failure leaks it.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

impl Cuda {
    /// Whether convolutions can go to cuDNN: it is installed and not turned off.
    ///
    /// # Errors
    /// What a library that is there reports when it is opened.
    pub fn has_cudnn(&self) -> Result<bool> {
        self.device.bind("has_cudnn")?;
        Ok(self.device.cudnn()?.is_some())
    }
}

impl Device {
    /// cuDNN, opened at the first call; the caller has bound the context.
    pub(crate) fn cudnn(&self) -> Result<Option<MutexGuard<'_, Cudnn>>> {
        self.dnn().map_or(Ok(None), |dnn| opened(&dnn.0, || Cudnn::open(self)))
    }
}

impl Cudnn {
    fn open(device: &Device) -> Result<Self> {
        Library::Cudnn.require(OP)?;
        check_version()?;
        let open = || {
            let handle = Handle(result::create_handle()?);
            // SAFETY: the handle was just made, and the stream lives as long as the device, which owns the handle.
            unsafe { result::set_stream(handle.0, device.stream().cast()) }?;
            Ok(handle)
        };
        Ok(Self { plans: HashMap::new(), handle: open().map_err(cudnn_error)? })
    }

    /// Whether an engine takes such convolutions.
    pub(crate) fn takes(&mut self, device: &Device, graph: &Graph) -> Result<bool> {
        if !self.plans.contains_key(graph) {
            if self.plans.len() == PLANS {
                self.plans.clear();
            }
            let plan = match Plan::new(&self.handle, graph, device.tf32()) {
                Ok(plan) => plan,
                Err(error) if is_refusal(error) => None,
                Err(error) => return Err(cudnn_error(error)),
            };
            self.plans.insert(*graph, plan);
        }
        Ok(matches!(self.plans.get(graph), Some(Some(_))))
    }

    /// Starts a convolution that an engine [takes](Self::takes); `false` when there is none.
    ///
    /// # Safety
    /// The addresses are aligned to 16 bytes and those of packed tensors, as the graph has them, in memory of this device value;
    /// nothing but this stream uses the output. The context is bound.
    pub(crate) unsafe fn run(&mut self, device: &Arc<Device>, graph: &Graph, addresses: Addresses) -> Result<bool> {
        let Some(Some(plan)) = self.plans.get(graph) else { return Ok(false) };
        // Freed in stream order, after the convolution.
        let workspace = match plan.workspace {
            0 => None,
            size => Some(CudaStorage::alloc(device, DType::U8, size)?),
        };
        let workspace = workspace.as_ref().map_or(DevicePointer::NULL, |workspace| workspace.at(0));
        let tensors = if graph.bias { 4 } else { 3 };
        let address = |pointer: DevicePointer| Memory(pointer.address() as *mut c_void);
        let pack = || {
            let pack = Descriptor::new(Class::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
            pack.set(Attribute::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &[X, WEIGHT, Y, BIAS][..tensors])?;
            pack.set(Attribute::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses.0.map(address)[..tensors])?;
            pack.set(Attribute::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[address(workspace)])?;
            pack.finalize().map(|()| pack)
        };
        let pack = pack().map_err(cudnn_error)?;
        // SAFETY: the plan was made for tensors of this kind on this handle, alignment included. The caller vouches for their
        // memory; the stream orders the call after its allocation and before its release, and so for the workspace, which
        // is as large as the plan says.
        unsafe { plan.execution.execute(self.handle.0, &pack) }.map_err(cudnn_error)?;
        Ok(true)
    }
}

/// How cuDNN runs a kind of convolution.
struct Plan {
    execution: Descriptor,
    /// What it was made from.
    _parts: Parts,
    workspace: usize,
}

impl Plan {
    /// The first that is allowed of what the heuristics propose.
    fn new(handle: &Handle, graph: &Graph, tf32: bool) -> Result<Option<Self>, CudnnError> {
        let mut parts = Parts::default();
        let operations = graph.operations(&mut parts)?;
        let whole = parts.add(Class::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, |whole| {
            whole.set(Attribute::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[Session(handle.0)])?;
            whole.set(Attribute::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)
        })?;
        // Tensor cores would round f32 to TF32.
        let exact = graph.dtype == DType::F32 && !tf32;
        for mode in [Heuristic::CUDNN_HEUR_MODE_A, Heuristic::CUDNN_HEUR_MODE_FALLBACK] {
            for proposal in proposals(whole, mode).unwrap_or_default() {
                if !is_allowed(&proposal.notes()?, exact) {
                    continue;
                }
                // One that does not fit after all is refused here.
                if let Ok((execution, workspace)) = proposal.execution(handle)
                    && workspace <= WORKSPACE
                {
                    parts.0.push(proposal);
                    return Ok(Some(Self { execution, _parts: parts, workspace }));
                }
            }
        }
        Ok(None)
    }
}

/// The engines that a heuristic proposes for a graph, and how they are set, the best first.
fn proposals(graph: Address, mode: Heuristic) -> Result<Vec<Descriptor>, CudnnError> {
    let heuristic = Descriptor::new(Class::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
    heuristic.set(Attribute::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph])?;
    heuristic.set(Attribute::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?;
    heuristic.finalize()?;
    heuristic.list(Attribute::CUDNN_ATTR_ENGINEHEUR_RESULTS, Class::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
}

/// Whether an engine with these notes keeps the contract.
fn is_allowed(notes: &[u32], exact: bool) -> bool {
    let refused = [
        Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
        Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
        Note::CUDNN_NUMERICAL_NOTE_FFT,
        Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD,
        Note::CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP,
    ];
    let has = |note: Note| notes.contains(&(note as u32));
    !(refused.into_iter().any(has) || exact && has(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
}

impl Descriptor {
    /// What the engine of a configuration says about its numbers.
    fn notes(&self) -> Result<Vec<u32>, CudnnError> {
        let engine = self.part(Attribute::CUDNN_ATTR_ENGINECFG_ENGINE, Class::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
        engine.numbers(Attribute::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
    }

    /// An engine's configuration made ready to run, and the bytes of its workspace.
    fn execution(&self, handle: &Handle) -> Result<(Self, usize), CudnnError> {
        let execution = Self::new(Class::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        execution.set(Attribute::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[Session(handle.0)])?;
        execution.set(Attribute::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[self.address()])?;
        execution.finalize()?;
        let size = execution.size(Attribute::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
        Ok((execution, usize::try_from(size).unwrap_or(usize::MAX)))
    }
}

/// Fails for a version before 9, whose status codes are others.
fn check_version() -> Result<()> {
    let version = result::get_version();
    if version >= 90_000 {
        return Ok(());
    }
    let message = format!("cuDNN {}.{} is too old; install cuDNN 9", version / 1000, version % 1000 / 100);
    Err(Error::new(ErrorKind::LibraryNotFound, OP, message))
}

/// Whether cuDNN has nothing for a graph, rather than failed.
fn is_refusal(CudnnError(status): CudnnError) -> bool {
    // The classes of codes: 2000 for parameters, 3000 for what is not supported.
    (2000..4000).contains(&(status as u32))
}

fn cudnn_error(error: CudnnError) -> Error {
    match error.0 {
        cudnnStatus_t::CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED => {
            Error::new(ErrorKind::OutOfMemory, OP, "cuDNN could not allocate").with_source(error)
        }
        _ => native_error(OP, "cuDNN failed", error),
    }
}
