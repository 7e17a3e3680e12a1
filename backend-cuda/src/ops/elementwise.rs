//! Elementwise kernels: how a launch walks its operands. The ways, and when each is taken, are in `elementwise.cuh`.

use congruent_backend_api::{DType, Elementwise, MAX_RANK, Op, Operand, Result, Scalar};

use super::scalar_bits;
use crate::device::Cuda;
use crate::kernels::Kernel;
use crate::launch::{DeviceSource, ElementwiseParameter, Path, SharedMemory, THREADS};
use crate::nest::{DeviceNest, Mode};
use crate::storage::{CudaStorage, DevicePointer};

/// What an elementwise kernel takes beside the operands of its plan.
#[derive(Clone, Copy, Default)]
pub(super) struct Extra {
    pub(super) options: u32,
    /// Scalars after the plan's operands.
    pub(super) scalars: [Option<Scalar>; 2],
}

impl Cuda {
    /// Runs an elementwise kernel; `inputs` are the plan's operands from 1, and `dtype` is that of its scalars.
    pub(super) fn elementwise<const N: usize>(
        &self,
        op: Op,
        dtype: DType,
        plan: &Elementwise<N>,
        inputs: &[Option<&CudaStorage>],
        out: &mut CudaStorage,
        extra: Extra,
    ) -> Result<()> {
        plan.check(inputs, out)?;
        self.order(op.name(), inputs.iter().copied().flatten(), out)?;
        let nest = DeviceNest::from(plan.nest());
        if nest.count == 0 {
            return Ok(());
        }
        let mut memory = [Some((out.at(plan.nest().offset(0)), plan.out_dtype())); N];
        let mut bits = [0; 3];
        for operand in 1..N {
            let (storage, dtype) = match plan.operand(operand) {
                Operand::Scalar(value) => {
                    bits[operand - 1] = scalar_bits(value, dtype);
                    memory[operand] = None;
                    continue;
                }
                Operand::Storage { dtype, .. } => (inputs[operand - 1].unwrap_or(&*out), dtype),
                Operand::Output => (&*out, plan.out_dtype()),
            };
            memory[operand] = Some((storage.at(plan.nest().offset(operand)), dtype));
        }
        for (bits, scalar) in bits[N - 1..].iter_mut().zip(extra.scalars) {
            *bits = scalar.map_or(0, |scalar| scalar_bits(scalar, dtype));
        }
        let widest = dtype.size().max(plan.out_dtype().size());
        // SAFETY: the plan was checked against these storages, which are this device's, and `out` is borrowed mutably.
        unsafe { self.walk(Kernel::new(op, dtype), widest, nest, memory, bits, extra.options) }
    }

    /// Copies elements along `axes` (size, stride of the output, stride of the input).
    ///
    /// # Safety
    /// What the axes reach from the two addresses lies in memory of this device that holds elements of `dtype`, and
    /// nothing but this stream uses the output.
    pub(super) unsafe fn move_elements(
        &self,
        dtype: DType,
        axes: impl Iterator<Item = (usize, [isize; 2])>,
        from: DevicePointer,
        to: DevicePointer,
    ) -> Result<()> {
        let memory = [to, from].map(|address| Some((address, dtype)));
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.walk(Kernel::new(Op::Copy, dtype), dtype.size(), DeviceNest::new(axes), memory, [0; 3], 0) }
    }

    /// Runs a kernel whose largest operand type has `widest` bytes over a nest that is not empty. `bits` are the values
    /// of inputs without memory.
    ///
    /// # Safety
    /// What the nest reaches from the addresses lies in memory of this device that holds elements of the kernel's
    /// dtypes, and nothing but this stream uses the output.
    pub(super) unsafe fn walk<const N: usize>(
        &self,
        kernel: Kernel,
        widest: usize,
        nest: DeviceNest<N>,
        memory: [Memory; N],
        bits: [u64; 3],
        options: u32,
    ) -> Result<()> {
        let dtype = |operand: usize| memory.get(operand).copied().flatten().map(|(_, dtype)| dtype);
        let tiles = has_tiles(kernel.op);
        each_narrow(nest, [0; N], &mut |nest, offsets| {
            let mut memory = memory;
            for (memory, offset) in memory.iter_mut().zip(offsets) {
                *memory = memory.map(|(address, dtype)| (address.offset(offset, dtype), dtype));
            }
            let mut walk = Walk::new(nest, memory, widest, tiles);
            if let Some(same) = dtype(0).filter(|&same| !tiles && N == 2 && dtype(1) == Some(same))
                && walk.path == Path::Elements
            {
                // What would go by tiles moves to the output first, and is taken from there.
                let moving = Walk::new(nest, memory, widest, true);
                if moving.path == Path::Tiles {
                    // SAFETY: as for the kernel itself, and the two dtypes are equal.
                    unsafe { self.start_walk(Kernel::new(Op::Copy, same), &moving, memory, [0; 3], 0) }?;
                    memory[1] = memory[0];
                    let axes = nest.axes().map(|(size, strides)| (size, [strides[0]; N]));
                    walk = Walk::new(DeviceNest::new(axes), memory, widest, false);
                }
            }
            // SAFETY: the caller's promise is the one asked for, and the walk was made for these addresses.
            unsafe { self.start_walk(kernel, &walk, memory, bits, options) }
        })
    }

    /// # Safety
    /// As for [`walk`](Self::walk), and `walk` was made for these addresses.
    unsafe fn start_walk<const N: usize>(
        &self,
        kernel: Kernel,
        walk: &Walk<N>,
        memory: [Memory; N],
        bits: [u64; 3],
        options: u32,
    ) -> Result<()> {
        let address = |operand: usize| memory.get(operand).copied().flatten().map_or(DevicePointer::NULL, |(at, _)| at);
        let parameter = ElementwiseParameter {
            out: address(0),
            flag: self.device.flag(),
            sources: std::array::from_fn(|input| DeviceSource { memory: address(input + 1), bits: bits[input] }),
            path: walk.path,
            options,
            constant: walk.constant,
            staged: walk.staged,
            packed: walk.packed.into(),
            rest: walk.rest as u32,
            nest: walk.nest,
        };
        // SAFETY: the caller's promise is the one asked for; the walk's shared memory is what its tiles take.
        unsafe {
            self.device.start(
                kernel,
                walk.blocks,
                SharedMemory { bytes: walk.shared, ..SharedMemory::NONE },
                &parameter,
            )
        }
    }
}

/// Whether the op's kernels have `Path::Tiles`: those with `tiles` in their `.cu`.
fn has_tiles(op: Op) -> bool {
    matches!(op, Op::Binary(_) | Op::Where | Op::Copy | Op::Cast(_) | Op::Linear)
}

/// Calls `run` with the nest, or with parts of it and their offsets: a nest of several axes has 32-bit offsets then.
fn each_narrow<const N: usize>(
    nest: DeviceNest<N>,
    offsets: [isize; N],
    run: &mut dyn FnMut(DeviceNest<N>, [isize; N]) -> Result<()>,
) -> Result<()> {
    if nest.mode == Mode::Narrow || nest.rank <= 1 {
        return run(nest, offsets);
    }
    let reach = |axis: usize| {
        let (size, _) = nest.axis(0, axis);
        (0..N).map(|operand| u128::from(size - 1) * u128::from(nest.axis(operand, axis).1.unsigned_abs())).max()
    };
    let Some(widest) = (0..nest.rank as usize).max_by_key(|&axis| reach(axis)) else { return Ok(()) };
    let half = nest.axis(0, widest).0 as usize / 2;
    let part = |size: usize| {
        DeviceNest::new(
            nest.axes().enumerate().map(move |(axis, all)| if axis == widest { (size, all.1) } else { all }),
        )
    };
    let rest = nest.axis(0, widest).0 as usize - half;
    each_narrow(part(half), offsets, run)?;
    let next = std::array::from_fn(|operand| offsets[operand] + half as isize * nest.axis(operand, widest).1 as isize);
    each_narrow(part(rest), next, run)
}

/// The address of an operand's first element, and the dtype; none for a scalar.
pub(super) type Memory = Option<(DevicePointer, DType)>;

/// An axis with fewer elements is not worth a tile.
const SHORT: u64 = 8;

/// How a launch walks its operands; the fields are those of `Elementwise` in `elementwise.cuh`.
#[derive(Clone, Copy, Debug)]
struct Walk<const N: usize> {
    path: Path,
    nest: DeviceNest<N>,
    constant: u32,
    staged: u32,
    packed: bool,
    rest: u64,
    blocks: usize,
    shared: usize,
}

impl<const N: usize> Walk<N> {
    /// `widest` is the size of the kernel's largest operand type, `tiles` whether it has [`Path::Tiles`].
    fn new(nest: DeviceNest<N>, memory: [Memory; N], widest: usize, tiles: bool) -> Self {
        let pack = (16 / widest) as u64;
        let last = (nest.rank as usize).checked_sub(1);
        let stays = |operand: usize| last.is_none_or(|last| nest.axis(operand, last).1 == 0);
        let inputs = (1..N).filter(|&operand| memory[operand].is_some() && stays(operand));
        let constant = inputs.fold(0, |bits, operand| bits | 1 << operand);
        let mut walk =
            Self { path: Path::Elements, nest, constant, staged: 0, packed: false, rest: 0, blocks: 0, shared: 0 };
        let whole = nest.rank <= 1 || last.is_some_and(|last| nest.axis(0, last).0.is_multiple_of(pack));
        if whole && memory.iter().enumerate().all(|(operand, &memory)| walk.in_packs(operand, last, memory, pack)) {
            walk.take_packs(pack);
        } else if !(tiles && walk.take_tiles(memory, pack)) {
            walk.take_elements(if tiles { 4 } else { 2 });
        }
        walk
    }

    /// Whether an operand is read or written in packs along `along`: a run there, which starts at whole packs.
    fn in_packs(&self, operand: usize, along: Option<usize>, memory: Memory, pack: u64) -> bool {
        let Some((address, dtype)) = memory else { return true };
        if operand > 0 && along.is_none_or(|along| self.nest.axis(operand, along).1 == 0) {
            return true;
        }
        let even = |axis: usize| {
            let (size, stride) = self.nest.axis(operand, axis);
            if Some(axis) == along { stride == 1 || size == 1 } else { stride.unsigned_abs().is_multiple_of(pack) }
        };
        address.address().is_multiple_of(pack * dtype.size() as u64) && (0..self.nest.rank as usize).all(even)
    }

    /// [`Path::Packs`]: the last axis counts packs.
    fn take_packs(&mut self, pack: u64) {
        const AHEAD: u64 = 2;
        if self.nest.rank == 0 {
            self.nest = DeviceNest::new(std::iter::once((1, [0; N])));
        }
        let last = self.nest.rank as usize - 1;
        self.rest = if last == 0 { self.nest.axis(0, 0).0 % pack } else { 0 };
        let scale = |(axis, (size, strides)): (usize, (usize, [isize; N]))| {
            let packs = (size / pack as usize, strides.map(|stride| stride * pack as isize));
            if axis == last { packs } else { (size, strides) }
        };
        self.nest = DeviceNest::new(self.nest.axes().enumerate().map(scale));
        self.path = Path::Packs;
        self.blocks = self.nest.count.div_ceil(THREADS as u64 * AHEAD) as usize;
    }

    /// [`Path::Tiles`], if an operand runs along another axis than the output and both axes are long enough.
    fn take_tiles(&mut self, memory: [Memory; N], pack: u64) -> bool {
        let Some(across) = self.across() else { return false };
        let last = self.nest.rank as usize - 1;
        let (rows, columns) = (self.nest.axis(0, across).0, self.nest.axis(0, last).0);
        // With fewer, most of a tile would be empty.
        if rows.min(columns) < SHORT {
            return false;
        }
        let side = if pack < 4 {
            32
        } else if pack < 16 {
            64
        } else {
            128
        };
        let stride = |operand: usize, axis: usize| self.nest.axis(operand, axis).1.unsigned_abs();
        let (mut staged, mut shared) = (0, 0);
        for (operand, memory) in memory.iter().enumerate().skip(1) {
            if let Some((_, dtype)) = memory
                && (1..stride(operand, last)).contains(&stride(operand, across))
            {
                staged |= 1 << operand;
                shared += ((side + 1) * side * dtype.size()).next_multiple_of(16);
            }
        }
        // What a block may have without asking for more.
        if shared > 48 << 10 {
            return false;
        }
        self.packed = memory.iter().enumerate().all(|(operand, &memory)| {
            let along = if staged >> operand & 1 != 0 { across } else { last };
            self.in_packs(operand, Some(along), memory, pack)
        });
        let others = self.nest.count / (rows * columns);
        self.blocks = (others * rows.div_ceil(side as u64) * columns.div_ceil(side as u64)) as usize;
        self.nest = self.reordered(across, last);
        (self.path, self.staged, self.shared) = (Path::Tiles, staged, shared);
        true
    }

    /// [`Path::Elements`]. A short axis along which an operand runs is walked first, so that whole sectors are read.
    fn take_elements(&mut self, ahead: u64) {
        if let Some(across) = self.across()
            && self.nest.axis(0, across).0 < SHORT
        {
            self.nest = self.reordered(self.nest.rank as usize - 1, across);
        }
        self.blocks = self.nest.count.div_ceil(THREADS as u64 * ahead) as usize;
    }

    /// The axis along which some input lies closest together, where that is not the last.
    fn across(&self) -> Option<usize> {
        let last = (self.nest.rank as usize).checked_sub(1)?;
        let stride = |operand: usize, axis: usize| self.nest.axis(operand, axis).1.unsigned_abs();
        let closer = |operand: usize, axis: usize| (1..stride(operand, last)).contains(&stride(operand, axis));
        (1..N).find_map(|operand| {
            (0..last).filter(|&axis| closer(operand, axis)).min_by_key(|&axis| stride(operand, axis))
        })
    }

    /// The nest with two of its axes as the last two.
    fn reordered(&self, row: usize, column: usize) -> DeviceNest<N> {
        let mut axes = [(1, [0; N]); MAX_RANK];
        axes.iter_mut().zip(self.nest.axes()).for_each(|(slot, axis)| *slot = axis);
        let others = (0..self.nest.rank as usize).filter(|&axis| axis != row && axis != column);
        DeviceNest::new(others.chain([row, column]).map(|axis| axes[axis]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The walk of f32 operands at aligned addresses over axes of a size and a stride per operand.
    fn walk<const N: usize>(axes: &[(usize, [isize; N])]) -> Walk<N> {
        let memory = [Some((DevicePointer::NULL, DType::F32)); N];
        Walk::new(DeviceNest::new(axes.iter().copied()), memory, 4, true)
    }

    fn way<const N: usize>(axes: &[(usize, [isize; N])]) -> (Path, bool, u32, u32) {
        let walk = walk(axes);
        (walk.path, walk.packed, walk.constant, walk.staged)
    }

    #[test]
    fn the_strides_decide() {
        // Contiguous, and what is left after the last pack.
        assert_eq!(way(&[(1027, [1, 1])]), (Path::Packs, false, 0, 0));
        let contiguous = walk(&[(1027, [1, 1])]);
        assert_eq!((contiguous.nest.count, contiguous.rest, contiguous.blocks), (256, 3, 1));
        let scalar = walk::<2>(&[]);
        assert_eq!((scalar.path, scalar.nest.count, scalar.rest, scalar.constant), (Path::Packs, 0, 1, 2));
        // A row, a column; rows of whole packs and of others.
        assert_eq!(way(&[(64, [64, 0]), (64, [1, 1])]), (Path::Packs, false, 0, 0));
        assert_eq!(way(&[(64, [64, 1]), (64, [1, 0])]), (Path::Packs, false, 2, 0));
        assert_eq!(way(&[(64, [64, 65]), (64, [1, 1])]), (Path::Elements, false, 0, 0));
        assert_eq!(way(&[(64, [63, 0]), (63, [1, 1])]), (Path::Elements, false, 0, 0));
        // Transposed; the tile is moved in packs where all rows allow it.
        assert_eq!(way(&[(64, [96, 96, 1]), (96, [1, 1, 64])]), (Path::Tiles, true, 0, 4));
        assert_eq!(way(&[(64, [97, 1]), (97, [1, 64])]), (Path::Tiles, false, 0, 2));
        assert_eq!(walk(&[(65, [97, 1]), (97, [1, 65])]).blocks, 4);
        // A short axis that the input runs along is walked first.
        let short = walk(&[(3, [96, 1]), (96, [1, 3])]);
        assert_eq!((short.path, short.nest.axis(1, 1)), (Path::Elements, (3, 1)));
        // A stepped slice and a reversed row.
        assert_eq!(way(&[(64, [1, 2])]), (Path::Elements, false, 0, 0));
        assert_eq!(way(&[(64, [1, -1])]), (Path::Elements, false, 0, 0));
    }

    #[test]
    fn wide_nests_are_split() {
        let mut parts = Vec::new();
        let nest = DeviceNest::new([(4, [1 << 30, 1]), (1 << 30, [1, 4])].into_iter());
        each_narrow(nest, [0; 2], &mut |nest, offsets| {
            assert_eq!(nest.mode, Mode::Narrow);
            parts.push((nest.count, offsets));
            Ok(())
        })
        .unwrap();
        assert_eq!(parts.iter().map(|part| part.0).sum::<u64>(), 1 << 32);
        assert!(parts.contains(&(1 << 30, [(2 << 30) + (1 << 29), 2 + (1 << 31)])), "{parts:?}");
    }
}
