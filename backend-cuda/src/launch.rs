//! Launching: the structures that kernels take, and the one call that starts them.
//!
//! Each structure here has its mirror in `common.cuh`, `elementwise.cuh` or the family's `.cu`, with the same fields in the
//! same order. Where the driver can tell (CUDA 12.4), the sizes are compared when a kernel is first used.

use std::ffi::c_void;

use congruent_backend_api::ops::pool::Windows;
use congruent_backend_api::{Error, ErrorKind, Result};
use cudarc::driver::sys;
use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaFunction, result};

use crate::device::Device;
use crate::error::driver_error;
use crate::kernels::Kernel;
use crate::nest::DeviceNest;
use crate::storage::DevicePointer;

/// Threads per block, `THREADS` in `common.cuh`.
pub(crate) const THREADS: usize = 256;

/// A structure that some kernel takes as its one parameter. Implemented in this file only.
pub(crate) trait Parameter: Copy {}

/// The threads of a block, and the shared memory that they have beside the kernel's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedMemory {
    pub(crate) threads: usize,
    pub(crate) bytes: usize,
}

impl SharedMemory {
    /// The usual block, without dynamic shared memory.
    pub(crate) const NONE: Self = Self { threads: THREADS, bytes: 0 };
}

/// `Source` of `common.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct DeviceSource {
    pub(crate) memory: DevicePointer,
    pub(crate) bits: u64,
}

/// `Elementwise<N>` of `elementwise.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ElementwiseParameter<const N: usize> {
    pub(crate) out: DevicePointer,
    pub(crate) flag: DevicePointer,
    pub(crate) sources: [DeviceSource; 3],
    pub(crate) path: Path,
    pub(crate) options: u32,
    pub(crate) constant: u32,
    pub(crate) staged: u32,
    pub(crate) packed: u32,
    pub(crate) rest: u32,
    pub(crate) nest: DeviceNest<N>,
}

impl<const N: usize> Parameter for ElementwiseParameter<N> {}

/// The ways of `elementwise.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Path {
    Packs = 0,
    Elements = 1,
    Tiles = 2,
}

/// `Random` of `random.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RandomParameter {
    pub(crate) nest: DeviceNest<2>,
    pub(crate) out: DevicePointer,
    pub(crate) offset: u64,
    pub(crate) first: u64,
    pub(crate) low: i64,
    pub(crate) span: u64,
    pub(crate) keys: [u32; 24],
    pub(crate) bits: u32,
    pub(crate) vector: u32,
}

impl Parameter for RandomParameter {}

/// `Reduce` of `reduce.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ReduceParameter {
    pub(crate) x: DevicePointer,
    pub(crate) out: DevicePointer,
    pub(crate) partial: DevicePointer,
    pub(crate) count: u64,
    pub(crate) results: u64,
    pub(crate) splits: u64,
    pub(crate) run: u64,
    pub(crate) out_step: i64,
    pub(crate) lanes: u32,
    pub(crate) slots: u32,
    pub(crate) columns: u32,
    pub(crate) packed: u32,
    pub(crate) finish_lanes: u32,
    pub(crate) kept: DeviceNest<2>,
    pub(crate) reduced: DeviceNest<1>,
}

impl Parameter for ReduceParameter {}

/// `Scan` of `scan.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ScanParameter {
    pub(crate) rows: DeviceNest<2>,
    pub(crate) x: DevicePointer,
    pub(crate) out: DevicePointer,
    pub(crate) partial: DevicePointer,
    pub(crate) len: u64,
    pub(crate) run: u64,
    pub(crate) splits: u64,
    pub(crate) out_stride: i64,
    pub(crate) x_stride: i64,
    pub(crate) lanes: u32,
    pub(crate) outputs: u32,
    pub(crate) columns: u32,
    pub(crate) exclusive: u32,
}

impl Parameter for ScanParameter {}

/// `Sort` of `sort.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SortParameter {
    pub(crate) rows: DeviceNest<2>,
    pub(crate) x: DevicePointer,
    pub(crate) out: DevicePointer,
    pub(crate) keys: [DevicePointer; 2],
    pub(crate) positions: [DevicePointer; 2],
    pub(crate) counts: DevicePointer,
    pub(crate) totals: DevicePointer,
    pub(crate) len: u64,
    pub(crate) taken: u64,
    pub(crate) tiles: u64,
    pub(crate) out_stride: i64,
    pub(crate) x_stride: i64,
    pub(crate) phase: u32,
    pub(crate) pass: u32,
    pub(crate) descending: u32,
    pub(crate) elements: u32,
    pub(crate) wide: u32,
    pub(crate) unused: u32,
}

impl Parameter for SortParameter {}

/// `Search` of `sort.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SearchParameter {
    pub(crate) nest: DeviceNest<3>,
    pub(crate) sorted: DevicePointer,
    pub(crate) values: DevicePointer,
    pub(crate) out: DevicePointer,
    pub(crate) len: u64,
    pub(crate) stride: i64,
    pub(crate) right: u64,
}

impl Parameter for SearchParameter {}

/// `Matmul` of `matmul.cu`; pairs are row and column strides.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MatmulParameter {
    pub(crate) batch: DeviceNest<3>,
    pub(crate) pointers: [DevicePointer; 3],
    pub(crate) strides: [[i64; 2]; 3],
    pub(crate) sizes: [u64; 3],
    pub(crate) alpha: u64,
    pub(crate) beta: u64,
    pub(crate) wide: u64,
}

impl Parameter for MatmulParameter {}

/// `Attention` of `attention.cu`; strides are those of the plan's operands.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AttentionParameter {
    pub(crate) out: DevicePointer,
    pub(crate) inputs: [DevicePointer; 9],
    pub(crate) strides: [[i64; 4]; 10],
    pub(crate) batch: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) group: u64,
    pub(crate) queries: u64,
    pub(crate) keys: u64,
    pub(crate) window: i64,
    pub(crate) scale: f64,
    pub(crate) soft_cap: f64,
    pub(crate) kept: f64,
    pub(crate) threshold: u64,
    pub(crate) seed: u64,
    pub(crate) offset: u64,
    pub(crate) depth: u32,
    pub(crate) width: u32,
    pub(crate) columns: u32,
    pub(crate) causal: u32,
    pub(crate) first: u32,
    pub(crate) boolean: u32,
    pub(crate) splits: u64,
    pub(crate) partial: DevicePointer,
}

impl Parameter for AttentionParameter {}

/// `Windows` of `pool.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct WindowsParameter {
    size: i64,
    kernel: i64,
    stride: i64,
    dilation: i64,
    before: i64,
    after: i64,
    count: i64,
}

impl From<Windows> for WindowsParameter {
    fn from(axis: Windows) -> Self {
        Self {
            size: axis.size as i64,
            kernel: axis.kernel as i64,
            stride: axis.stride as i64,
            dilation: axis.dilation as i64,
            before: axis.before as i64,
            after: axis.after as i64,
            count: axis.count as i64,
        }
    }
}

/// `Pool` of `pool.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PoolParameter {
    pub(crate) nest: DeviceNest<3>,
    pub(crate) out: DevicePointer,
    pub(crate) input: DevicePointer,
    pub(crate) positions: DevicePointer,
    pub(crate) windows: [WindowsParameter; 3],
    pub(crate) divisor: i64,
    pub(crate) counted: u32,
    pub(crate) narrow: u32,
}

impl Parameter for PoolParameter {}

/// `Conv` of `conv.cu`; strides are those of the batch, the channels and the space.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ConvParameter {
    pub(crate) places: DeviceNest<1>,
    pub(crate) out: DevicePointer,
    pub(crate) input: DevicePointer,
    pub(crate) weight: DevicePointer,
    pub(crate) bias: DevicePointer,
    pub(crate) flag: DevicePointer,
    pub(crate) group_in: u64,
    pub(crate) out_strides: [i64; 5],
    pub(crate) in_strides: [i64; 5],
    pub(crate) weight_strides: [i64; 6],
    pub(crate) bias_stride: i64,
    pub(crate) out_size: [i64; 3],
    pub(crate) in_size: [i64; 3],
    pub(crate) kernel: [i64; 3],
    pub(crate) stride: [i64; 3],
    pub(crate) dilation: [i64; 3],
    pub(crate) before: [i64; 3],
    pub(crate) activation: u64,
}

impl Parameter for ConvParameter {}

/// `ConvCheck` of `conv.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ConvCheckParameter {
    pub(crate) flag: DevicePointer,
    pub(crate) starts: [DevicePointer; 2],
    pub(crate) counts: [u64; 2],
}

impl Parameter for ConvCheckParameter {}

/// `Rows` of `rows.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RowsParameter {
    pub(crate) kept: DeviceNest<4>,
    pub(crate) row: DeviceNest<4>,
    pub(crate) out: DevicePointer,
    pub(crate) inputs: [DevicePointer; 3],
    pub(crate) parameter: f64,
    pub(crate) lanes: u32,
    pub(crate) packed: u32,
    pub(crate) cached: u32,
}

impl Parameter for RowsParameter {}

/// `Gather` of `index.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct GatherParameter {
    pub(crate) outer: DeviceNest<3>,
    pub(crate) x: DevicePointer,
    pub(crate) index: DevicePointer,
    pub(crate) out: DevicePointer,
    pub(crate) flag: DevicePointer,
    pub(crate) len: u64,
    pub(crate) stride: i64,
    pub(crate) width: u64,
    pub(crate) steps: [i64; 2],
    pub(crate) index_type: u32,
    pub(crate) vector: u32,
}

impl Parameter for GatherParameter {}

/// `Scatter` of `index.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ScatterParameter {
    pub(crate) outer: DeviceNest<3>,
    pub(crate) inner: DeviceNest<3>,
    pub(crate) out: DevicePointer,
    pub(crate) index: DevicePointer,
    pub(crate) src: DevicePointer,
    pub(crate) flag: DevicePointer,
    pub(crate) items: DevicePointer,
    pub(crate) spare: DevicePointer,
    pub(crate) counts: DevicePointer,
    pub(crate) heads: DevicePointer,
    pub(crate) tails: DevicePointer,
    pub(crate) count: u64,
    pub(crate) len: u64,
    pub(crate) strides: [i64; 3],
    pub(crate) chunk: u64,
    pub(crate) chunks: u64,
    pub(crate) position_bits: u32,
    pub(crate) shift: u32,
    pub(crate) index_type: u32,
    pub(crate) vector: u32,
}

impl Parameter for ScatterParameter {}

/// `Scan` of `index.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct OffsetsParameter {
    pub(crate) values: DevicePointer,
    pub(crate) count: u64,
}

impl Parameter for OffsetsParameter {}

/// `Mask` of `index.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MaskParameter {
    pub(crate) nest: DeviceNest<2>,
    pub(crate) mask: DevicePointer,
    pub(crate) out: DevicePointer,
    pub(crate) counts: DevicePointer,
    pub(crate) stride: i64,
    pub(crate) room: u64,
    pub(crate) share: u64,
    pub(crate) vector: u32,
}

impl Parameter for MaskParameter {}

impl Device {
    /// Starts a kernel that strides over its work by the size of the grid, with about `blocks` blocks; fewer when that
    /// many cannot run at once.
    ///
    /// # Safety
    /// As for [`start`](Self::start).
    pub(crate) unsafe fn launch<P: Parameter>(&self, kernel: Kernel, blocks: usize, parameter: &P) -> Result<()> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.launch_with(kernel, blocks, SharedMemory::NONE, parameter) }
    }

    /// The same for a kernel whose blocks have another size, or dynamic shared memory.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch); the kernel is made for that many threads and reaches no further into its shared
    /// memory.
    pub(crate) unsafe fn launch_with<P: Parameter>(
        &self,
        kernel: Kernel,
        blocks: usize,
        shared: SharedMemory,
        parameter: &P,
    ) -> Result<()> {
        let blocks = blocks.min(32 * self.multiprocessors() as usize);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.start(kernel, blocks, shared, parameter) }
    }

    /// Starts a kernel with exactly `blocks` blocks, at least one.
    ///
    /// # Safety
    /// What the nests of `parameter` reach from its addresses lies in memory of this device value that holds elements of
    /// the kernel's dtypes, nothing but this stream uses the output, and `shared` is what the kernel takes.
    pub(crate) unsafe fn start<P: Parameter>(
        &self,
        kernel: Kernel,
        blocks: usize,
        shared: SharedMemory,
        parameter: &P,
    ) -> Result<()> {
        let op = kernel.op.name();
        self.bind(op)?;
        let function = self.kernels().function(self, kernel, |function| {
            if shared.bytes > 0 {
                self.allow_shared_memory(kernel, function)?;
            }
            self.check_size::<P>(kernel, function)
        })?;
        // More blocks than that would have more results than memory has bytes.
        let blocks = blocks.clamp(1, i32::MAX as usize) as u32;
        let mut parameters = [std::ptr::from_ref(parameter).cast_mut().cast::<c_void>()];
        // SAFETY: the function takes one structure, `P` is its mirror, and the driver copies it before it returns. The
        // kernels of this crate touch what the structure's nests reach from its addresses, which the caller vouches for;
        // the stream orders them after the allocation of that memory, and its release after them.
        unsafe {
            result::launch_kernel(
                function.cu_function(),
                (blocks, 1, 1),
                (shared.threads as u32, 1, 1),
                shared.bytes as u32,
                self.stream(),
                &mut parameters,
            )
        }
        .map_err(|error| driver_error(op, error))
    }

    /// Lets a kernel have all the shared memory that a block can have.
    fn allow_shared_memory(&self, kernel: Kernel, function: &CudaFunction) -> Result<()> {
        let attribute = |attribute| function.get_attribute(attribute);
        let set = attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES).and_then(|own| {
            let most = self.shared_memory() as i32 - own;
            function.set_attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)
        });
        set.map_err(|error| driver_error(kernel.op.name(), error))
    }

    /// Fails when the kernel's parameter has another size than `P`.
    fn check_size<P: Parameter>(&self, kernel: Kernel, function: &CudaFunction) -> Result<()> {
        if self.driver_version() < 12040 {
            return Ok(());
        }
        let op = kernel.op.name();
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded, has a parameter 0, and two usize are written.
        unsafe { sys::cuFuncGetParamInfo(function.cu_function(), 0, &raw mut offset, &raw mut size) }
            .result()
            .map_err(|error| driver_error(op, error))?;
        if size == size_of::<P>() {
            return Ok(());
        }
        let message = format!("`{kernel}` takes {size} bytes, its mirror in launch.rs has {}", size_of::<P>());
        Err(Error::new(ErrorKind::Native, op, message))
    }
}
