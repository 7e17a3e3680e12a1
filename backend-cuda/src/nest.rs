//! Loop nests as kernels take them: sizes and strides by value, and what divides by each size.

use congruent_backend_api::{MAX_RANK, Nest};

/// How wide the indices and offsets of a nest are; see `common.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Mode {
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
    magics: [u32; MAX_RANK],
    shifts: [u8; MAX_RANK],
    sizes: [u64; MAX_RANK],
    strides: [[i64; MAX_RANK]; N],
}

impl<const N: usize> DeviceNest<N> {
    /// A nest over `axes`, outermost first: each a size and a stride per operand. At most [`MAX_RANK`] are taken.
    pub(crate) fn new(axes: impl Iterator<Item = (usize, [isize; N])>) -> Self {
        let mut nest = Self {
            count: 1,
            rank: 0,
            mode: Mode::Narrow,
            magics: [0; MAX_RANK],
            shifts: [0; MAX_RANK],
            sizes: [1; MAX_RANK],
            strides: [[0; MAX_RANK]; N],
        };
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
            return nest;
        }
        for axis in 0..nest.rank as usize {
            (nest.magics[axis], nest.shifts[axis]) = magic(nest.sizes[axis]);
        }
        nest
    }

    /// The size and the stride of an operand along an axis.
    pub(crate) fn axis(&self, operand: usize, axis: usize) -> (u64, i64) {
        (self.sizes[axis], self.strides[operand][axis])
    }

    /// The axes, outermost first: each a size and a stride per operand.
    pub(crate) fn axes(&self) -> impl Iterator<Item = (usize, [isize; N])> {
        (0..self.rank as usize)
            .map(|axis| (self.sizes[axis] as usize, self.strides.map(|strides| strides[axis] as isize)))
    }
}

/// The multiplier and the shift that divide by `size` in [`DeviceNest`]; for sizes below 2³¹ (Granlund and Montgomery,
/// "Division by invariant integers using multiplication", 1994).
fn magic(size: u64) -> (u32, u8) {
    let size = size.max(1);
    let shift = size.next_power_of_two().ilog2();
    let magic = ((((1 << shift) - size) << 32) / size + 1) as u32;
    (magic, shift as u8)
}

impl<const N: usize> From<&Nest<N>> for DeviceNest<N> {
    fn from(nest: &Nest<N>) -> Self {
        let strides = |axis: usize| std::array::from_fn(|operand| nest.strides(operand)[axis]);
        Self::new(nest.sizes().iter().enumerate().map(|(axis, &size)| (size, strides(axis))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_numbers_divide() {
        let top = i32::MAX as u64;
        for size in [1, 2, 3, 5, 7, 8, 31, 32, 33, 641, 8192, 65_537, 1 << 30, top - 1, top] {
            let (magic, shift) = magic(size);
            for n in [0, 1, size - 1, size, size + 1, 3 * size - 1, 3 * size, top / 2, top - 1, top] {
                if n <= top {
                    let quotient = (((n * u64::from(magic)) >> 32) + n) >> shift;
                    assert_eq!(quotient, n / size, "{n} / {size}");
                }
            }
        }
    }

    #[test]
    fn offsets_past_32_bits_need_wide_indices() {
        let mode = |size: usize, stride: isize| DeviceNest::new(std::iter::once((size, [stride]))).mode;
        assert_eq!(mode(1 << 20, 1 << 10), Mode::Narrow);
        assert_eq!(mode(1 << 20, -(1 << 12)), Mode::Wide);
        assert_eq!(mode(1 << 32, 0), Mode::Wide);
    }
}
