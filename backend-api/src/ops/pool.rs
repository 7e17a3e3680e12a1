//! Pooling over one to three spatial axes: maxima, averages and their gradients.
//!
//! With kernel size K, stride s, dilation d and padding p before the first element of each spatial axis, window o holds the
//! elements at s·o + d·k − p for k in 0..K, as far as they lie in the input. Of what it holds:
//!
//! | op | takes | gives |
//! |---|---|---|
//! | `max_pool` | x | y\[n, c, o\] = the greatest element |
//! | `argmax_pool` | x | where the first greatest element lies, as row-major position among the spatial axes of x |
//! | `max_pool_grad` | y, positions | x\[n, c, i\] = Σ y\[n, c, o\] over the windows o whose position is i |
//! | `avg_pool` | x | y\[n, c, o\] = the sum over the window, divided by its [`Divisor`] |
//! | `avg_pool_grad` | y | x\[n, c, i\] = Σ y\[n, c, o\] / divisor over the windows o that hold i |
//!
//! x is \[N, C, spatial…\], y and positions \[N, C, windows…\]. Padding has no elements: it never is the greatest, and counts
//! only in a divisor. A window that holds no element at all is an error of the plan.

mod compose;
mod geometry;

use crate::backend::Storage;
use crate::dtype::DType;
use crate::elementwise::{View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::ops::Op;
use crate::ops::binary::BinaryOps;
use crate::ops::compare::CompareOps;
use crate::ops::conv::MAX_SPATIAL;
use crate::ops::copy::CopyOps;
use crate::shape::Shape;

pub use geometry::{Divisor, PoolOptions, Window, Windows};

/// What is made of the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolOp {
    /// The greatest element.
    MaxPool,
    /// Its position.
    ArgmaxPool,
    /// The gradient of the maximum by the input.
    MaxPoolGrad,
    /// The average.
    AvgPool,
    /// Its gradient by the input.
    AvgPoolGrad,
}

impl PoolOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[Self::MaxPool, Self::ArgmaxPool, Self::MaxPoolGrad, Self::AvgPool, Self::AvgPoolGrad];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MaxPool => "max_pool",
            Self::ArgmaxPool => "argmax_pool",
            Self::MaxPoolGrad => "max_pool_grad",
            Self::AvgPool => "avg_pool",
            Self::AvgPoolGrad => "avg_pool_grad",
        }
    }

    /// Whether the op is defined for `dtype`: maxima and their positions for all numbers, the rest for floats.
    #[must_use]
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::MaxPool | Self::ArgmaxPool => dtype.is_number(),
            Self::MaxPoolGrad | Self::AvgPool | Self::AvgPoolGrad => dtype.is_float(),
        }
    }

    /// Whether the op goes from windows to the input.
    #[must_use]
    pub fn is_gradient(self) -> bool {
        matches!(self, Self::MaxPoolGrad | Self::AvgPoolGrad)
    }

    /// The dtype of the result for inputs of `dtype`.
    #[must_use]
    pub fn out_dtype(self, dtype: DType) -> DType {
        if self == Self::ArgmaxPool { DType::I64 } else { dtype }
    }
}

/// A validated pooling, or gradient of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    op: PoolOp,
    options: PoolOptions,
    dtype: DType,
    x: Layout,
    y: Layout,
    indices: Option<Layout>,
    windows: [Windows; MAX_SPATIAL],
}

impl Pool {
    /// The shape of the pooling of `x`: on each spatial axis (size + padding − (dilation·(kernel − 1) + 1)) / stride + 1,
    /// rounded down, or up with `ceil`, less a last window that would start in the padding at the end.
    ///
    /// # Errors
    /// `Shape` unless `x` has rank 3 to 5, each window fits into the padded input and holds an element; `Argument` for a
    /// kernel, stride, dilation or fixed divisor of 0.
    pub fn shape(op: PoolOp, x: &[usize], options: &PoolOptions) -> Result<Shape> {
        let windows = Self::windows_of(op.name(), x, options)?;
        let sizes: Vec<usize> =
            x[..2].iter().copied().chain(windows[..x.len() - 2].iter().map(|axis| axis.count)).collect();
        Shape::new(op.name(), &sizes)
    }

    fn windows_of(name: &'static str, x: &[usize], options: &PoolOptions) -> Result<[Windows; MAX_SPATIAL]> {
        if !(3..=2 + MAX_SPATIAL).contains(&x.len()) {
            let rule = format!(
                "the input {x:?} has rank {}, it must be 3 to 5: batch, channels, and 1 to 3 spatial axes (add one with \
                 `unsqueeze`)",
                x.len()
            );
            return Err(Error::new(ErrorKind::Shape, name, rule));
        }
        if options.divisor == Divisor::Fixed(0) {
            return Err(Error::new(ErrorKind::Argument, name, "the divisor is 0; it must be at least 1"));
        }
        let options = options.of_rank(x.len() - 2);
        let size = |axis: usize| x.get(2 + axis).copied().unwrap_or(1);
        let mut windows = [Windows::new(name, 0, size(0), &options)?; MAX_SPATIAL];
        for (axis, windows) in windows.iter_mut().enumerate().skip(1) {
            *windows = Windows::new(name, axis, size(axis), &options)?;
        }
        Ok(windows)
    }

    /// Plans an op: `input` is x, or y for a gradient; `indices` are the positions that `max_pool_grad` takes, and nothing
    /// else does.
    ///
    /// # Errors
    /// `DType` when the op is not defined for the input, the output has another dtype than the op gives, or positions are not
    /// i64; `Shape` and `Argument` as for [`shape`](Self::shape), and when shapes do not fit together; `Argument` when `out`
    /// overlaps itself, or positions are missing or too many.
    pub fn new(
        op: PoolOp,
        input: View<'_>,
        indices: Option<View<'_>>,
        options: &PoolOptions,
        out: View<'_>,
    ) -> Result<Self> {
        let name = op.name();
        check_domain(Op::Pool(op), input.dtype)?;
        check_dtype(name, out.dtype, op.out_dtype(input.dtype))?;
        let (x, y) = if op.is_gradient() { (out.layout, input.layout) } else { (input.layout, out.layout) };
        let windows = Self::windows_of(name, x.shape(), options)?;
        let what = if op.is_gradient() { "the gradient" } else { "the output" };
        check_shape(name, what, y.shape(), &Self::shape(op, x.shape(), options)?)?;
        match indices {
            Some(indices) if op == PoolOp::MaxPoolGrad => {
                check_dtype(name, indices.dtype, DType::I64)?;
                check_shape(name, "the tensor of positions", indices.layout.shape(), y.shape())?;
            }
            None if op != PoolOp::MaxPoolGrad => {}
            _ => {
                let message = "`max_pool_grad` takes the positions that `argmax_pool` gave, other ops take none";
                return Err(Error::new(ErrorKind::Argument, name, message));
            }
        }
        check_output(name, out.layout)?;
        let mut options = options.of_rank(x.rank() - 2);
        if matches!(op, PoolOp::MaxPool | PoolOp::ArgmaxPool | PoolOp::MaxPoolGrad) {
            options.divisor = Divisor::default();
        }
        let indices = indices.map(|indices| *indices.layout);
        Ok(Self { op, options, dtype: input.dtype, x: *x, y: *y, indices, windows })
    }

    /// The op.
    #[must_use]
    pub fn op(&self) -> PoolOp {
        self.op
    }

    /// How the window moves; entries past the spatial axes are those of a window of one element.
    #[must_use]
    pub fn options(&self) -> &PoolOptions {
        &self.options
    }

    /// The dtype of the input.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The layout of x, [N, C, spatial…]: the output of a gradient.
    #[must_use]
    pub fn x(&self) -> &Layout {
        &self.x
    }

    /// The layout of y, [N, C, windows…]: the output of the rest.
    #[must_use]
    pub fn y(&self) -> &Layout {
        &self.y
    }

    /// The layout of the positions that `max_pool_grad` takes.
    #[must_use]
    pub fn indices(&self) -> Option<&Layout> {
        self.indices.as_ref()
    }

    /// The layouts of input and output.
    #[must_use]
    pub fn operands(&self) -> [&Layout; 2] {
        if self.op.is_gradient() { [&self.y, &self.x] } else { [&self.x, &self.y] }
    }

    /// The windows along each spatial axis; past the last there is one window of one element.
    #[must_use]
    pub fn windows(&self) -> &[Windows; MAX_SPATIAL] {
        &self.windows
    }

    /// What the sum over a window is divided by, given what is in it along each axis.
    #[must_use]
    pub fn divisor(&self, window: [Window; MAX_SPATIAL]) -> usize {
        match self.options.divisor {
            Divisor::Elements => window.iter().map(|axis| axis.count).product(),
            Divisor::Padded => window.iter().map(|axis| axis.places).product(),
            Divisor::Fixed(divisor) => divisor,
        }
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, or positions are missing or too many.
    pub fn check<S: Storage>(&self, input: &S, indices: Option<&S>, out: &S) -> Result<()> {
        let name = self.op.name();
        let [given, result] = self.operands();
        check_storage(name, "the output", self.op.out_dtype(self.dtype), result.min_len(), out)?;
        check_storage(name, "the input", self.dtype, given.min_len(), input)?;
        match (indices, &self.indices) {
            (Some(indices), Some(layout)) => {
                check_storage(name, "the tensor of positions", DType::I64, layout.min_len(), indices)
            }
            (None, None) => Ok(()),
            _ => Err(Error::new(ErrorKind::Argument, name, "positions were given or left out against the plan")),
        }
    }
}

/// Pooling and its gradients.
pub trait PoolOps: BinaryOps + CompareOps + CopyOps {
    /// Writes what the plan's [op](self) makes of the windows into `out`.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - `max_pool` is NaN where a window holds one, and takes −0 as less than +0; `argmax_pool` gives the first NaN of a
    ///   window if there is one, else the first of its greatest elements, −0 equal to +0.
    /// - An average over n elements is within γₙ of the sum of their magnitudes over the divisor: added in any order, then
    ///   divided; f16 and bf16 accumulate and divide in f32 and round once.
    /// - An element of a gradient to which n windows contribute is within γₙ of the sum of their magnitudes, in any order;
    ///   f16 and bf16 accumulate in f32 and round once. Without contributions it is 0.
    /// - In `max_pool_grad` a position that is none of its window's elements adds nothing.
    /// - The same input gives the same bits in every run.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, `OutOfMemory` for temporaries, and what the device
    /// reports.
    fn pool(
        &self,
        plan: &Pool,
        input: &Self::Storage,
        indices: Option<&Self::Storage>,
        out: &mut Self::Storage,
    ) -> Result<()> {
        plan.check(input, indices, out)?;
        compose::run(self, plan, input, indices, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contiguous(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", sizes).unwrap())
    }

    fn shape(x: &[usize], options: PoolOptions) -> Vec<usize> {
        Pool::shape(PoolOp::MaxPool, x, &options).unwrap().to_vec()
    }

    #[test]
    fn shapes_round_down_or_up() {
        let two = PoolOptions::new([2; 3]);
        assert_eq!(shape(&[2, 3, 7], two), [2, 3, 3]);
        assert_eq!(shape(&[2, 3, 7, 8], PoolOptions { ceil: true, ..two }), [2, 3, 4, 4]);
        assert_eq!(shape(&[0, 0, 4, 5, 6], two), [0, 0, 2, 2, 3]);
        let resnet = PoolOptions { stride: [2; 3], padding: [[1; 2]; 3], ..PoolOptions::new([3; 3]) };
        assert_eq!(shape(&[1, 64, 112, 112], resnet), [1, 64, 56, 56]);
        let apart = PoolOptions { stride: [1; 3], dilation: [2; 3], ..two };
        assert_eq!(shape(&[1, 1, 4, 4], apart), [1, 1, 2, 2]);
        // A last window that would start in the padding at the end is left out.
        let last = PoolOptions { stride: [2; 3], padding: [[0, 1]; 3], ceil: true, ..PoolOptions::new([1; 3]) };
        assert_eq!(shape(&[1, 1, 2], last), [1, 1, 1]);
    }

    #[test]
    fn windows_hold_what_the_formula_says() {
        for (size, kernel, stride, dilation, before, after, ceil) in [
            (7, 3, 2, 1, 1, 1, false),
            (7, 3, 2, 2, 2, 1, true),
            (5, 2, 3, 1, 0, 1, true),
            (9, 4, 1, 3, 3, 3, false),
            (4, 2, 5, 1, 0, 0, true),
        ] {
            let options = PoolOptions {
                kernel: [kernel; 3],
                stride: [stride; 3],
                dilation: [dilation; 3],
                padding: [[before, after]; 3],
                ceil,
                divisor: Divisor::Padded,
            };
            let windows = Windows::new("test", 0, size, &options).unwrap();
            let at = |window: usize, tap: usize| (stride * window + dilation * tap) as isize - before as isize;
            let inside = |at: isize| (0..size as isize).contains(&at);
            for window in 0..windows.count {
                let places: Vec<isize> = (0..kernel).map(|tap| at(window, tap)).collect();
                let held: Vec<isize> = places.iter().copied().filter(|&at| inside(at)).collect();
                let found = windows.window(window);
                let padded = places.iter().filter(|&&at| at < (size + after) as isize).count();
                assert_eq!((found.first as isize, found.count, found.places), (held[0], held.len(), padded));
                assert!((0..size + 2).all(|at| windows.holds(window, at) == held.contains(&(at as isize))));
            }
            for tap in 0..kernel {
                let expected: Vec<usize> = (0..windows.count).filter(|&window| inside(at(window, tap))).collect();
                let (range, first) = windows.of_tap(tap);
                assert_eq!(range.clone().collect::<Vec<_>>(), expected);
                assert!(range.is_empty() || first as isize == at(range.start, tap));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error_with_its_arithmetic() {
        use ErrorKind::{Argument, Shape};
        let check = |x: &[usize], options: PoolOptions, kind, message: &str| {
            let error = Pool::shape(PoolOp::AvgPool, x, &options).unwrap_err();
            assert!(error.kind() == kind && error.message().contains(message), "{error}");
        };
        let three = PoolOptions::new([3; 3]);
        check(&[1, 1, 2], three, Shape, "spans 1·(3 − 1) + 1 = 3 elements, more than the padded input, 0 + 2 + 0 = 2");
        check(&[1, 2], three, Shape, "rank 2");
        check(&[1, 1, 9], PoolOptions::new([0; 3]), Argument, "0 elements");
        check(&[1, 1, 9], PoolOptions { stride: [0; 3], ..three }, Argument, "stride 0");
        check(&[1, 1, 9], PoolOptions { dilation: [0; 3], ..three }, Argument, "dilation 0");
        check(&[1, 1, 9], PoolOptions { divisor: Divisor::Fixed(0), ..three }, Argument, "divisor is 0");
        check(&[1, 1, 9], PoolOptions { dilation: [usize::MAX; 3], ..three }, Shape, "overflows");
        check(&[1, 1, 9], PoolOptions { padding: [[usize::MAX, 0]; 3], ..three }, Shape, "overflows");
        check(
            &[1, 1, 9],
            PoolOptions { padding: [[3, 0]; 3], ..three },
            Shape,
            "window 0 has 3 elements 1 apart from position -3",
        );
        check(&[1, 1, 0], PoolOptions { padding: [[2; 2]; 3], ..three }, Shape, "none of them one of the input's 0");
        let around = PoolOptions { padding: [[1; 2]; 3], dilation: [2; 3], ..PoolOptions::new([2; 3]) };
        check(&[1, 1, 1], around, Shape, "2 elements 2 apart from position -1");
    }

    #[test]
    fn plans_refuse_operands_that_do_not_fit() {
        let (x, y, two) = (contiguous(&[1, 1, 4]), contiguous(&[1, 1, 2]), PoolOptions::new([2; 3]));
        let view = |dtype, layout| View { dtype, layout };
        let plan = |op, a, b, out| Pool::new(op, a, b, &two, out).map_err(|error| error.kind());
        let (float, whole) = (DType::F32, DType::I64);
        assert!(plan(PoolOp::MaxPool, view(whole, &x), None, view(whole, &y)).is_ok());
        assert!(plan(PoolOp::ArgmaxPool, view(float, &x), None, view(whole, &y)).is_ok());
        assert_eq!(plan(PoolOp::AvgPool, view(whole, &x), None, view(whole, &y)), Err(ErrorKind::DType));
        assert_eq!(plan(PoolOp::ArgmaxPool, view(float, &x), None, view(float, &y)), Err(ErrorKind::DType));
        assert_eq!(plan(PoolOp::MaxPool, view(float, &x), None, view(float, &x)), Err(ErrorKind::Shape));
        let grad = PoolOp::MaxPoolGrad;
        assert!(plan(grad, view(float, &y), Some(view(whole, &y)), view(float, &x)).is_ok());
        assert_eq!(plan(grad, view(float, &y), None, view(float, &x)), Err(ErrorKind::Argument));
        assert_eq!(plan(grad, view(float, &y), Some(view(float, &y)), view(float, &x)), Err(ErrorKind::DType));
        assert_eq!(plan(grad, view(float, &y), Some(view(whole, &x)), view(float, &x)), Err(ErrorKind::Shape));
        // Entries past the spatial axes have no say, nor has the divisor of a maximum.
        let other = PoolOptions { kernel: [2, 0, 9], divisor: Divisor::Elements, ..two };
        let of = |options| Pool::new(PoolOp::MaxPool, view(float, &x), None, &options, view(float, &y)).unwrap();
        assert_eq!(of(two), of(other));
    }
}
