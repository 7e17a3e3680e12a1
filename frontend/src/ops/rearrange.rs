//! Elements in other places and more than once: pad, roll, repeat, tile. Part of the `copy` family: each block of the
//! result is one copy from a view of the input, straight into the output.

use congruent_backend_api::{CopyOps, Error, ErrorKind, Layout, MAX_RANK, Result, Scalar, Shape, Slice, axis};

use crate::operand::Axes;
use crate::tensor::Tensor;

/// What [`Tensor::pad`] puts around a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pad {
    /// One value.
    Constant(Scalar),
    /// The elements mirrored at the edge, which is not repeated: `c b | a b c | b a`.
    Reflect,
    /// The element at the edge: `a a | a b c | c c`.
    Replicate,
    /// The elements from the other side: `b c | a b c | a b`.
    Circular,
}

impl Pad {
    /// Padding with one value of any scalar type.
    #[must_use]
    pub fn constant(value: impl Into<Scalar>) -> Self {
        Self::Constant(value.into())
    }
}

/// Consecutive positions of an axis of the output, and the positions of the input that go there: from `from` on
/// forwards, backwards, or again and again the same.
struct Run {
    to: usize,
    length: usize,
    from: usize,
    step: isize,
}

impl<B: CopyOps + ?Sized> Tensor<B> {
    /// The tensor with `[before, after]` elements added at the ends of each axis; negative numbers cut off instead.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{Tensor, ops::Pad};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[1, 2, 3], [3])?;
    /// assert_eq!(x.pad([[1, 2]], Pad::constant(0))?.to_vec::<i32>()?, [0, 1, 2, 3, 0, 0]);
    /// assert_eq!(x.pad([[2, 1]], Pad::Reflect)?.to_vec::<i32>()?, [3, 2, 1, 2, 3, 2]);
    /// assert_eq!(x.pad([[-1, 2]], Pad::Replicate)?.to_vec::<i32>()?, [2, 3, 3, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Argument` unless there is a pair for each axis, when more is cut off than there is, when `Reflect` adds as many
    /// elements as there are or more, `Circular` more than there are, or `Replicate` any to none; `DType` or `Argument`
    /// for a constant that does not fit; `Shape`; `Unsupported`; `OutOfMemory`.
    pub fn pad(&self, pads: impl AsRef<[[isize; 2]]>, mode: Pad) -> Result<Self> {
        const OP: &str = "pad";
        let pads = pads.as_ref();
        if pads.len() != self.rank() {
            let message = format!("{} pairs for the {} axes of shape {:?}", pads.len(), self.rank(), self.shape());
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        let background = match mode {
            Pad::Constant(value) => Some(value.to_dtype(OP, self.dtype())?),
            Pad::Reflect | Pad::Replicate | Pad::Circular => None,
        };
        let (mut x, mut sizes, mut runs) = (self.clone(), Vec::new(), Vec::new());
        for (axis, &pad) in pads.iter().enumerate() {
            let [before, after] = pad.map(|width| width.max(0).unsigned_abs());
            x = cut(&x, axis, pad)?;
            let size = x.shape()[axis];
            check_widths(mode, axis, size, before.max(after))?;
            // A size that overflows is past every limit that `Shape` knows.
            sizes.push(size.saturating_add(before).saturating_add(after));
            runs.push(pad_runs(mode, size, before, after));
        }
        let shape = Shape::new(OP, &sizes)?;
        let covered = pads.iter().all(|pad| pad.iter().all(|&width| width <= 0));
        let background = background.filter(|_| !covered);
        Self::assemble(self.backend(), self.dtype(), shape, background, |out| blocks(&x, &runs, out))
    }

    /// Each element moved by `shifts[i]` along `axes[i]`; those moved past the end come in at the start. Without axes
    /// (`()`) the elements in row-major order are moved by the only shift.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::arange(&device, 0..6, DType::I64)?.reshape([2, 3])?;
    /// assert_eq!(x.roll([1], -1)?.to_vec::<i64>()?, [2, 0, 1, 5, 3, 4]);
    /// assert_eq!(x.roll([-1], ())?.to_vec::<i64>()?, [1, 2, 3, 4, 5, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Axis`; `Argument` unless there is a shift for each axis; `Unsupported`; `OutOfMemory`.
    pub fn roll(&self, shifts: impl AsRef<[isize]>, axes: impl Into<Axes>) -> Result<Self> {
        const OP: &str = "roll";
        let (shifts, axes) = (shifts.as_ref(), axes.into());
        let named = axes.as_slice().map_or(1, <[isize]>::len);
        if shifts.len() != named {
            let message = format!("{} shifts for {named} axes; each axis needs one", shifts.len());
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        let Some(axes) = axes.as_slice() else {
            return self.flatten()?.roll(shifts, 0)?.reshape(self.shape());
        };
        self.layout().shape().axis_mask(OP, Some(axes))?;
        let mut runs: Vec<Vec<Run>> = self.shape().iter().map(|&size| roll_runs(size, 0)).collect();
        for (&along, &shift) in axes.iter().zip(shifts) {
            let along = axis(OP, along, self.rank())?;
            runs[along] = roll_runs(self.shape()[along], shift);
        }
        let shape = *self.layout().shape();
        Self::assemble(self.backend(), self.dtype(), shape, None, |out| blocks(self, &runs, out))
    }

    /// Each element `repeats` times in a row along `axis`, or of the flattened tensor for `None`: NumPy's `repeat`,
    /// PyTorch's `repeat_interleave`. Whole tensors one after another are [`tile`](Self::tile).
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::arange(&device, 0..4, DType::I64)?.reshape([2, 2])?;
    /// assert_eq!(x.repeat(2, 1)?.to_vec::<i64>()?, [0, 0, 1, 1, 2, 2, 3, 3]);
    /// assert_eq!(x.tile([1, 2])?.to_vec::<i64>()?, [0, 1, 0, 1, 2, 3, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Axis`; `Shape` when the result is too large; `Unsupported`; `OutOfMemory`.
    pub fn repeat(&self, repeats: usize, axis: impl Into<Option<isize>>) -> Result<Self> {
        const OP: &str = "repeat";
        let Some(along) = axis.into() else { return self.flatten()?.repeat(repeats, 0) };
        let along = congruent_backend_api::axis(OP, along, self.rank())?;
        let shape = multiplied(OP, self.shape(), &[(along, repeats)])?;
        if self.rank() == MAX_RANK {
            return self.around(along)?.repeat(repeats, 1)?.reshape(&*shape);
        }
        again(self, along + 1, repeats)?.copy()?.reshape(&*shape)
    }

    /// The tensor `reps[i]` times one after another along axis i. Of tensor and `reps` the shorter one gets leading axes
    /// of size 1, as in NumPy; PyTorch calls this `repeat` too.
    ///
    /// # Errors
    /// `Shape` when the result is too large or has more than eight axes; `Unsupported`; `OutOfMemory`.
    pub fn tile(&self, reps: impl AsRef<[usize]>) -> Result<Self> {
        const OP: &str = "tile";
        let reps = reps.as_ref();
        let mut x = self.clone();
        while x.rank() < reps.len() {
            x = x.unsqueeze(0)?;
        }
        let first = x.rank() - reps.len();
        let times: Vec<(usize, usize)> =
            reps.iter().enumerate().map(|(index, &times)| (first + index, times)).filter(|pair| pair.1 != 1).collect();
        let shape = multiplied(OP, x.shape(), &times)?;
        if x.rank() + times.len() > MAX_RANK {
            // More axes than one copy can have: one after another, with the axes around each as one.
            return times.iter().try_fold(x, |x, &(along, times)| {
                let shape = multiplied(OP, x.shape(), &[(along, times)])?;
                x.around(along)?.tile([1, times, 1])?.reshape(&*shape)
            });
        }
        // From the last axis on, since each adds one before it.
        let tiles = times.iter().rev().try_fold(x, |x, &(along, times)| again(&x, along, times))?;
        tiles.copy()?.reshape(&*shape)
    }

    /// The tensor in three axes: those before `along` as one, it, and those after it as one.
    fn around(&self, along: usize) -> Result<Self> {
        let shape = self.shape();
        self.reshape([shape[..along].iter().product(), shape[along], shape[along + 1..].iter().product()])
    }
}

/// Drops what negative widths cut off.
fn cut<B: CopyOps + ?Sized>(x: &Tensor<B>, axis: usize, pad: [isize; 2]) -> Result<Tensor<B>> {
    let size = x.shape()[axis];
    let [front, back] = pad.map(|width| width.min(0).unsigned_abs());
    match front.checked_add(back).and_then(|cut| size.checked_sub(cut)) {
        Some(length) => x.narrow(axis as isize, front, length),
        None => {
            let message = format!("widths {pad:?} cut more off axis {axis} than its size {size}");
            Err(Error::new(ErrorKind::Argument, "pad", message))
        }
    }
}

/// Whether an axis has enough elements to add `width` at one end.
fn check_widths(mode: Pad, axis: usize, size: usize, width: usize) -> Result<()> {
    let (most, name) = match mode {
        Pad::Constant(_) => return Ok(()),
        Pad::Reflect => (size.saturating_sub(1), "Reflect"),
        Pad::Replicate => (if size == 0 { 0 } else { usize::MAX }, "Replicate"),
        Pad::Circular => (size, "Circular"),
    };
    if width <= most {
        return Ok(());
    }
    let message = format!("`{name}` adds at most {most} elements to axis {axis} of size {size}, not {width}");
    Err(Error::new(ErrorKind::Argument, "pad", message))
}

fn pad_runs(mode: Pad, size: usize, before: usize, after: usize) -> Vec<Run> {
    let end = before + size;
    let border = |front: (usize, isize), back: (usize, isize)| {
        [
            Run { to: 0, length: before, from: front.0, step: front.1 },
            Run { to: end, length: after, from: back.0, step: back.1 },
        ]
    };
    let mut runs = vec![Run { to: before, length: size, from: 0, step: 1 }];
    let last = size.saturating_sub(1);
    match mode {
        Pad::Constant(_) => {}
        Pad::Reflect => runs.extend(border((before, -1), (last.saturating_sub(1), -1))),
        Pad::Replicate => runs.extend(border((0, 0), (last, 0))),
        Pad::Circular => runs.extend(border((size - before, 1), (0, 1))),
    }
    runs
}

fn roll_runs(size: usize, shift: isize) -> Vec<Run> {
    // `Shape` keeps sizes in the range of isize.
    let shift = if size == 0 { 0 } else { shift.rem_euclid(size as isize) as usize };
    vec![
        Run { to: shift, length: size - shift, from: 0, step: 1 },
        Run { to: 0, length: shift, from: size - shift, step: 1 },
    ]
}

/// The copies that a run for each axis, in every combination, stand for.
fn blocks<B: CopyOps + ?Sized>(x: &Tensor<B>, runs: &[Vec<Run>], out: &Layout) -> Result<Vec<(Tensor<B>, Layout)>> {
    let mut blocks = vec![(x.clone(), *out)];
    for (axis, runs) in runs.iter().enumerate() {
        let mut parts = Vec::new();
        for (x, out) in &blocks {
            for run in runs.iter().filter(|run| run.length > 0) {
                let (to, length) = (run.to as isize, run.length as isize);
                let place = Slice { start: Some(to), stop: Some(to + length), step: 1 };
                parts.push((taken(x, axis, run)?, out.slice(axis as isize, place)?));
            }
        }
        blocks = parts;
    }
    Ok(blocks)
}

fn taken<B: CopyOps + ?Sized>(x: &Tensor<B>, axis: usize, run: &Run) -> Result<Tensor<B>> {
    let along = axis as isize;
    if run.step == 0 {
        let mut shape = x.shape().to_vec();
        shape[axis] = run.length;
        return x.narrow(along, run.from, 1)?.expand(shape);
    }
    let from = run.from as isize;
    // Before the first position there is no bound that does not count from the end.
    let stop = Some(from + run.step * run.length as isize).filter(|&stop| stop >= 0);
    x.slice(along, Slice { start: Some(from), stop, step: run.step })
}

/// The shape with these axes so many times as long.
fn multiplied(op: &'static str, shape: &[usize], times: &[(usize, usize)]) -> Result<Shape> {
    let mut sizes = shape.to_vec();
    for &(axis, times) in times {
        // A size that overflows is past every limit that `Shape` knows.
        sizes[axis] = sizes[axis].saturating_mul(times);
    }
    Shape::new(op, &sizes)
}

/// The tensor with a new axis, before axis `at`, along which it is the same `times` times.
fn again<B: CopyOps + ?Sized>(x: &Tensor<B>, at: usize, times: usize) -> Result<Tensor<B>> {
    let mut shape = x.shape().to_vec();
    shape.insert(at, times);
    x.unsqueeze(at as isize)?.expand(shape)
}
