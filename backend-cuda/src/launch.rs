//! Launching: the structures that kernels take, and the one call that starts them.
//!
//! Each structure here has its mirror in `common.cuh`, `reduce.cu`, `scan.cu`, `sort.cu`, `matmul.cu` or `index.cu`, with the same fields in the same
//! order. Where the driver can tell (CUDA 12.4), the sizes are compared when a kernel is first used.

use std::ffi::c_void;

use congruent_backend_api::{Error, ErrorKind, MAX_RANK, Nest, Result};
use cudarc::driver::sys;
use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaFunction, result};

use crate::device::Device;
use crate::error::driver_error;
use crate::kernels::Kernel;
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

/// How threads walk a nest; see `common.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Mode {
    Vector = 0,
    Narrow = 1,
    Wide = 2,
}

/// `Nest<N>` of `common.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct DeviceNest<const N: usize> {
    pub(crate) count: u64,
    pub(crate) rank: u32,
    pub(crate) mode: Mode,
    sizes: [u64; MAX_RANK],
    strides: [[i64; MAX_RANK]; N],
}

impl<const N: usize> DeviceNest<N> {
    /// A nest over `axes`, outermost first: each a size and a stride per operand. At most [`MAX_RANK`] are taken.
    pub(crate) fn new(axes: impl Iterator<Item = (usize, [isize; N])>) -> Self {
        let mut nest =
            Self { count: 1, rank: 0, mode: Mode::Narrow, sizes: [1; MAX_RANK], strides: [[0; MAX_RANK]; N] };
        let mut reach = [0_u128; N];
        for (axis, (size, strides)) in axes.enumerate().take(MAX_RANK) {
            nest.count *= size as u64;
            nest.rank += 1;
            nest.sizes[axis] = size as u64;
            for operand in 0..N {
                nest.strides[operand][axis] = strides[operand] as i64;
                reach[operand] += (size.max(1) as u128 - 1) * strides[operand].unsigned_abs() as u128;
            }
        }
        let narrow = |value: u128| value <= i32::MAX as u128;
        if !narrow(nest.count.into()) || !reach.into_iter().all(narrow) {
            nest.mode = Mode::Wide;
        }
        nest
    }

    /// The size and the stride of an operand along an axis.
    pub(crate) fn axis(&self, operand: usize, axis: usize) -> (u64, i64) {
        (self.sizes[axis], self.strides[operand][axis])
    }

    /// The same visits in square tiles of the last axis and the one along which another operand lies closest together.
    /// A block then reads whole sectors of both; without it a transposed operand costs a sector for each element.
    pub(crate) fn tiled(self) -> Self {
        let Some(last) = (self.rank as usize).checked_sub(1) else { return self };
        let stride = |operand: usize, axis: usize| self.strides[operand][axis].unsigned_abs();
        let closer = |operand: usize, axis: usize| (1..stride(operand, last)).contains(&stride(operand, axis));
        let across = (1..N).find_map(|operand| {
            (0..last).filter(|&axis| closer(operand, axis)).min_by_key(|&axis| stride(operand, axis))
        });
        let Some(across) = across.filter(|_| self.rank as usize + 2 <= MAX_RANK) else { return self };
        let side = |axis: usize| [32, 8].into_iter().find(|side| self.sizes[axis].is_multiple_of(*side));
        let (Some(rows), Some(columns)) = (side(across), side(last)) else { return self };
        let step = |axis: usize, by: u64| self.strides.map(|strides| strides[axis] as isize * by as isize);
        let axis = |axis: usize, size: u64, by: u64| (size as usize, step(axis, by));
        let others = (0..last).filter(|&other| other != across).map(|other| axis(other, self.sizes[other], 1));
        let tiles = [
            axis(across, self.sizes[across] / rows, rows),
            axis(last, self.sizes[last] / columns, columns),
            axis(across, rows, 1),
            axis(last, columns, 1),
        ];
        Self::new(others.chain(tiles))
    }

    /// Whether the operand is one run of memory.
    pub(crate) fn is_contiguous(&self, operand: usize) -> bool {
        self.rank == 0 || (self.rank == 1 && (self.strides[operand][0] == 1 || self.sizes[0] == 1))
    }

    /// Whether the operand stays at one element.
    pub(crate) fn is_constant(&self, operand: usize) -> bool {
        self.rank == 0 || (self.rank == 1 && self.strides[operand][0] == 0)
    }
}

impl<const N: usize> From<&Nest<N>> for DeviceNest<N> {
    fn from(nest: &Nest<N>) -> Self {
        let strides = |axis: usize| std::array::from_fn(|operand| nest.strides(operand)[axis]);
        Self::new(nest.sizes().iter().enumerate().map(|(axis, &size)| (size, strides(axis))))
    }
}

/// `Source` of `common.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct DeviceSource {
    pub(crate) memory: DevicePointer,
    pub(crate) bits: u64,
}

impl DeviceSource {
    pub(crate) const NONE: Self = Self { memory: DevicePointer::NULL, bits: 0 };
}

/// `Elementwise<N>` of `common.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ElementwiseParameter<const N: usize> {
    pub(crate) nest: DeviceNest<N>,
    pub(crate) out: DevicePointer,
    pub(crate) flag: DevicePointer,
    pub(crate) sources: [DeviceSource; 3],
    pub(crate) options: u32,
    pub(crate) constant: u32,
}

impl<const N: usize> Parameter for ElementwiseParameter<N> {}

/// `Reduce` of `reduce.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ReduceParameter {
    pub(crate) kept: DeviceNest<2>,
    pub(crate) reduced: DeviceNest<1>,
    pub(crate) x: DevicePointer,
    pub(crate) out: DevicePointer,
    pub(crate) partial: DevicePointer,
    pub(crate) splits: u64,
    pub(crate) lanes: u32,
    pub(crate) outputs: u32,
    pub(crate) columns: u32,
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

/// `Normalize` of `norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NormalizeParameter {
    pub(crate) kept: DeviceNest<4>,
    pub(crate) row: DeviceNest<4>,
    pub(crate) out: DevicePointer,
    pub(crate) inputs: [DevicePointer; 3],
    pub(crate) epsilon: f64,
    pub(crate) lanes: u32,
    pub(crate) packed: u32,
    pub(crate) cached: u32,
}

impl Parameter for NormalizeParameter {}

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
    /// Starts a kernel with about `blocks` blocks; fewer when that many cannot run at once, since every kernel strides
    /// over its work by the size of the grid.
    ///
    /// # Safety
    /// What the nests of `parameter` reach from its addresses lies in memory of this device value that holds elements of
    /// the kernel's dtypes, and nothing but this stream uses the output.
    pub(crate) unsafe fn launch<P: Parameter>(&self, kernel: Kernel, blocks: usize, parameter: &P) -> Result<()> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.launch_with(kernel, blocks, SharedMemory { threads: THREADS, bytes: 0 }, parameter) }
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
        let op = kernel.op.name();
        self.bind(op)?;
        let function = self.kernels().function(self, kernel, |function| {
            if shared.bytes > 0 {
                self.allow_shared_memory(kernel, function)?;
            }
            self.check_size::<P>(kernel, function)
        })?;
        let blocks = blocks.clamp(1, 32 * self.multiprocessors() as usize) as u32;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets of every visit, sorted.
    fn visits<const N: usize>(nest: &DeviceNest<N>) -> Vec<[i64; N]> {
        let mut visits: Vec<[i64; N]> = (0..nest.count)
            .map(|mut index| {
                let mut at = [0; N];
                for axis in (0..nest.rank as usize).rev() {
                    let step = (index % nest.sizes[axis]) as i64;
                    index /= nest.sizes[axis];
                    for (at, strides) in at.iter_mut().zip(&nest.strides) {
                        *at += step * strides[axis];
                    }
                }
                at
            })
            .collect();
        visits.sort_unstable();
        visits
    }

    #[test]
    fn tiles_visit_the_same_elements() {
        for (sizes, tiles) in [([3, 64, 32], true), ([2, 8, 40], true), ([3, 7, 32], false), ([1, 32, 9], false)] {
            let [batch, rows, columns] = sizes;
            let axes = [
                (batch, [(rows * columns) as isize, (rows * columns) as isize]),
                (rows, [columns as isize, 1]),
                (columns, [1, rows as isize]),
            ];
            let nest = DeviceNest::new(axes.into_iter());
            let tiled = nest.tiled();
            assert_eq!(tiled.rank, if tiles { 5 } else { 3 });
            assert_eq!(visits(&tiled), visits(&nest));
        }
        let plain = DeviceNest::new([(64, [128, 128]), (64, [1, 1])].into_iter());
        assert_eq!(plain.tiled().rank, 2);
        assert_eq!(DeviceNest::<2>::new(std::iter::empty()).tiled().rank, 0);
    }

    #[test]
    fn offsets_past_32_bits_need_wide_indices() {
        let mode = |size: usize, stride: isize| DeviceNest::new(std::iter::once((size, [stride]))).mode;
        assert_eq!(mode(1 << 20, 1 << 10), Mode::Narrow);
        assert_eq!(mode(1 << 20, -(1 << 12)), Mode::Wide);
        assert_eq!(mode(1 << 32, 0), Mode::Wide);
    }
}
