//! Convolutions over one to three spatial axes, and their gradients.
//!
//! With stride s, dilation d and padding p before the first element of each spatial axis, tap k of output position o
//! meets input position i(o, k) = s·o + d·k − p. The three ops sum products over the same taps:
//!
//! | op | takes | gives |
//! |---|---|---|
//! | `conv` | x, weight | y\[n, m, o\] = Σ x\[n, c, i(o, k)\] · weight\[m, c, k\] |
//! | `conv_transpose` | y, weight | x\[n, c, i(o, k)\] = Σ y\[n, m, o\] · weight\[m, c, k\] |
//! | `conv_grad_weight` | x, y | weight\[m, c, k\] = Σ x\[n, c, i(o, k)\] · y\[n, m, o\] |
//!
//! x is \[N, C, spatial…\], weight \[M, C / groups, kernel…\], y \[N, M, spatial…\]; in groups, an output channel meets the
//! input channels of its own group. `conv_transpose` is the gradient of `conv` by its input. To the sums of these two a bias for
//! each channel may be added, and an activation applied, as in a [linear layer](super::linear).

mod compose;
mod geometry;

use crate::backend::Storage;
use crate::dtype::DType;
use crate::elementwise::{View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::ops::Op;
use crate::ops::binary::BinaryOps;
use crate::ops::copy::CopyOps;
use crate::ops::linear::Activation;
use crate::ops::matmul::MatmulOps;
use crate::ops::unary::UnaryOps;
use crate::shape::Shape;
use geometry::{check_options, output_padding, reach};

pub use compose::run as compose;
pub use geometry::{ConvOptions, MAX_SPATIAL};

/// Which of the three sums over the same taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvOp {
    /// The convolution (in mathematics, a cross-correlation: the kernel is not flipped).
    Conv,
    /// Its transpose: the gradient by the input, also known as a deconvolution.
    ConvTranspose,
    /// The gradient by the weight.
    ConvGradWeight,
}

impl ConvOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[Self::Conv, Self::ConvTranspose, Self::ConvGradWeight];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Conv => "conv",
            Self::ConvTranspose => "conv_transpose",
            Self::ConvGradWeight => "conv_grad_weight",
        }
    }
}

/// A validated convolution, or gradient of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    op: ConvOp,
    options: ConvOptions,
    dtype: DType,
    x: Layout,
    weight: Layout,
    y: Layout,
    bias: Option<Layout>,
    activation: Activation,
}

impl Conv {
    /// The shape of the convolution of `x` with `weight`: on each spatial axis
    /// (size + padding − (dilation·(kernel − 1) + 1)) / stride + 1, rounded down.
    ///
    /// # Errors
    /// `Shape` unless both have rank 3 to 5, the groups divide all channels, the channels agree, and the kernel has taps and
    /// fits into the padded input; `Argument` for a stride, dilation or number of groups of 0.
    pub fn shape(x: &[usize], weight: &[usize], options: &ConvOptions) -> Result<Shape> {
        Self::shape_of(ConvOp::Conv, x, weight, options)
    }

    fn shape_of(op: ConvOp, x: &[usize], weight: &[usize], options: &ConvOptions) -> Result<Shape> {
        let name = op.name();
        let fail = |rule: String| Error::new(ErrorKind::Shape, name, format!("input {x:?}, weight {weight:?}: {rule}"));
        check_options(name, x.len(), weight, options)?;
        let (groups, channels) = (options.groups, weight[1]);
        if Some(x[1]) != channels.checked_mul(groups) {
            return Err(fail(format!(
                "the input has {} channels, but {groups} groups of the weight's {channels} are {}",
                x[1],
                groups.saturating_mul(channels)
            )));
        }
        let mut sizes = vec![x[0], weight[0]];
        for (axis, (&size, &taps)) in x[2..].iter().zip(&weight[2..]).enumerate() {
            let ([before, after], extent) = (options.padding[axis], options.extent(name, axis, taps)?);
            let padded = size.checked_add(before).and_then(|size| size.checked_add(after));
            let padded = padded.ok_or_else(|| fail(format!("the padded size of spatial axis {axis} overflows")))?;
            let Some(room) = padded.checked_sub(extent) else {
                return Err(fail(format!(
                    "on spatial axis {axis} the kernel spans {}·({taps} − 1) + 1 = {extent}, more than the padded input, \
                     {before} + {size} + {after} = {padded}",
                    options.dilation[axis]
                )));
            };
            sizes.push(room / options.stride[axis] + 1);
        }
        Shape::new(name, &sizes)
    }

    /// The shape of the transposed convolution of `y` with `weight`: on each spatial axis
    /// stride·(size − 1) + dilation·(kernel − 1) + 1 − padding + `output_padding`, which is size 0 where `y` has none.
    ///
    /// # Errors
    /// `Shape` unless both have rank 3 to 5, the groups divide the channels of `y`, which are the first axis of `weight`, and
    /// the padding leaves a size that is not negative; `Argument` for a stride, dilation or number of groups of 0.
    pub fn transpose_shape(
        y: &[usize],
        weight: &[usize],
        options: &ConvOptions,
        output_padding: [usize; MAX_SPATIAL],
    ) -> Result<Shape> {
        let name = ConvOp::ConvTranspose.name();
        let fail = |rule: String| Error::new(ErrorKind::Shape, name, format!("input {y:?}, weight {weight:?}: {rule}"));
        check_options(name, y.len(), weight, options)?;
        if y[1] != weight[0] {
            return Err(fail(format!("the input has {} channels, the weight takes {}", y[1], weight[0])));
        }
        let channels = weight[1].checked_mul(options.groups);
        let mut sizes = vec![y[0], channels.ok_or_else(|| fail("the number of channels overflows".to_owned()))?];
        for (axis, (&size, &taps)) in y[2..].iter().zip(&weight[2..]).enumerate() {
            let ([before, after], extent) = (options.padding[axis], options.extent(name, axis, taps)?);
            let (stride, more) = (options.stride[axis], output_padding[axis]);
            let (reach, cut) = (reach(options, axis, size, taps), before as u128 + after as u128);
            let left = reach.saturating_add(more as u128).checked_sub(cut).ok_or_else(|| {
                fail(format!(
                    "on spatial axis {axis} the result has {stride}·({size} − 1) + {extent} + {more} − {before} − {after} \
                     elements, fewer than none"
                ))
            })?;
            sizes.push(usize::try_from(left).map_err(|_| fail(format!("the size of spatial axis {axis} overflows")))?);
        }
        Shape::new(name, &sizes)
    }

    /// Plans an op: `a` and `b` are what it [takes](self), `out` what it gives. `bias` has an element for each channel of
    /// `out`, which each sum begins with; `conv_grad_weight` has none.
    ///
    /// `out` of `conv_transpose` may be any number of elements larger than
    /// [`transpose_shape`](Self::transpose_shape) without output padding; what no tap reaches is the bias, or 0.
    ///
    /// # Errors
    /// `DType` unless all are one float dtype; `Shape` and `Argument` as for [`shape`](Self::shape), when `out` or `y` has
    /// another shape than the others give, and for a bias of another shape; `Argument` when `out` overlaps itself or
    /// `conv_grad_weight` is given a bias.
    pub fn new(
        op: ConvOp,
        a: View<'_>,
        b: View<'_>,
        bias: Option<View<'_>>,
        options: &ConvOptions,
        out: View<'_>,
    ) -> Result<Self> {
        let name = op.name();
        check_domain(Op::Conv(op), out.dtype)?;
        for operand in [Some(a), Some(b), bias].into_iter().flatten() {
            check_dtype(name, operand.dtype, out.dtype)?;
        }
        let [x, weight, y] = match op {
            ConvOp::Conv => [a.layout, b.layout, out.layout],
            ConvOp::ConvTranspose => [out.layout, b.layout, a.layout],
            ConvOp::ConvGradWeight => [a.layout, out.layout, b.layout],
        };
        if op == ConvOp::ConvTranspose {
            let more = output_padding(x.shape(), y.shape(), weight.shape(), options);
            let shape = Self::transpose_shape(y.shape(), weight.shape(), options, more)?;
            check_shape(name, "the output", x.shape(), &shape)?;
        } else {
            let shape = Self::shape_of(op, x.shape(), weight.shape(), options)?;
            let what = if op == ConvOp::Conv { "the output" } else { "the gradient" };
            check_shape(name, what, y.shape(), &shape)?;
        }
        check_output(name, out.layout)?;
        if let Some(bias) = bias {
            if op == ConvOp::ConvGradWeight {
                return Err(Error::new(
                    ErrorKind::Argument,
                    name,
                    "a gradient by the weight has no bias; leave it out",
                ));
            }
            check_shape(name, "the bias", bias.layout.shape(), &out.layout.shape()[1..2])?;
        }
        let options = options.of_rank(x.rank() - 2);
        let bias = bias.map(|bias| *bias.layout);
        let activation = Activation::Identity;
        Ok(Self { op, options, dtype: out.dtype, x: *x, weight: *weight, y: *y, bias, activation })
    }

    /// The same with an activation of the sums, the bias included.
    ///
    /// # Errors
    /// `Argument` for an activation of `conv_grad_weight`.
    pub fn with_activation(self, activation: Activation) -> Result<Self> {
        if self.op == ConvOp::ConvGradWeight && activation != Activation::Identity {
            let message = format!("a gradient by the weight has no activation; {} was given", activation.name());
            return Err(Error::new(ErrorKind::Argument, self.op.name(), message));
        }
        Ok(Self { activation, ..self })
    }

    /// The op.
    #[must_use]
    pub fn op(&self) -> ConvOp {
        self.op
    }

    /// How the kernel moves; entries past the spatial axes are those of the default.
    #[must_use]
    pub fn options(&self) -> &ConvOptions {
        &self.options
    }

    /// The dtype of operands and result.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The layout of x, [N, C, spatial…]: the output of `conv_transpose`.
    #[must_use]
    pub fn x(&self) -> &Layout {
        &self.x
    }

    /// The layout of the weight, [M, C / groups, kernel…]: the output of `conv_grad_weight`.
    #[must_use]
    pub fn weight(&self) -> &Layout {
        &self.weight
    }

    /// The layout of y, [N, M, spatial…]: the output of `conv`.
    #[must_use]
    pub fn y(&self) -> &Layout {
        &self.y
    }

    /// The layout of the bias.
    #[must_use]
    pub fn bias(&self) -> Option<&Layout> {
        self.bias.as_ref()
    }

    /// What is applied to the sums.
    #[must_use]
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// Whether each position of the output meets one position of the input: a kernel of one tap that neither moves in steps
    /// nor leaves elements out. Then an op is a product of matrices.
    #[must_use]
    pub fn is_pointwise(&self) -> bool {
        let (axes, options) = (self.x.rank() - 2, &self.options);
        let plain = |axis: usize| options.stride[axis] == 1 && options.padding[axis] == [0, 0];
        self.weight.shape()[2..].iter().all(|&taps| taps == 1)
            && self.x.shape()[2..] == self.y.shape()[2..]
            && (0..axes).all(plain)
    }

    /// The layouts of the two operands and the output, in the order of the call.
    #[must_use]
    pub fn operands(&self) -> [&Layout; 3] {
        match self.op {
            ConvOp::Conv => [&self.x, &self.weight, &self.y],
            ConvOp::ConvTranspose => [&self.y, &self.weight, &self.x],
            ConvOp::ConvGradWeight => [&self.x, &self.y, &self.weight],
        }
    }

    /// By how much the output of `conv_transpose` is larger than the taps need, on each spatial axis; 0 past them.
    #[must_use]
    pub fn output_padding(&self) -> [usize; MAX_SPATIAL] {
        output_padding(self.x.shape(), self.y.shape(), self.weight.shape(), &self.options)
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, or a bias is missing or too many.
    pub fn check<S: Storage>(&self, a: &S, b: &S, bias: Option<&S>, out: &S) -> Result<()> {
        let name = self.op.name();
        let [left, right, result] = self.operands();
        check_storage(name, "the output", self.dtype, result.min_len(), out)?;
        check_storage(name, "the first operand", self.dtype, left.min_len(), a)?;
        check_storage(name, "the second operand", self.dtype, right.min_len(), b)?;
        match (bias, &self.bias) {
            (Some(bias), Some(layout)) => check_storage(name, "the bias", self.dtype, layout.min_len(), bias),
            (None, None) => Ok(()),
            (Some(_), None) => Err(Error::new(ErrorKind::Argument, name, "a bias was given, the plan has none")),
            (None, Some(_)) => Err(Error::new(ErrorKind::Argument, name, "the plan has a bias, none was given")),
        }
    }
}

/// Convolutions and their gradients.
pub trait ConvOps: MatmulOps + UnaryOps + BinaryOps + CopyOps {
    /// Writes the plan's [sums](self), its activation applied, into `out`.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - The sums are as accurate as those of [`MatmulOps::matmul`] over the same terms, the bias one more term; f16 and bf16
    ///   accumulate in f32 and round once, after the bias and the activation.
    /// - The activation is as accurate as [`UnaryOps::unary`] has it.
    /// - In `conv` and `conv_grad_weight` padding is zeros that enter as terms: beside an infinite factor they make NaN.
    ///   `conv_transpose` sums over the taps that there are.
    /// - Without channels, or where no tap reaches, the result is the bias, or 0.
    /// - The same input gives the same bits in every run.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, `OutOfMemory` for temporaries, and what the device
    /// reports.
    fn conv(
        &self,
        plan: &Conv,
        a: &Self::Storage,
        b: &Self::Storage,
        bias: Option<&Self::Storage>,
        out: &mut Self::Storage,
    ) -> Result<()> {
        plan.check(a, b, bias, out)?;
        compose(self, plan, a, b, bias, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F32: DType = DType::F32;

    fn contiguous(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", sizes).unwrap())
    }

    fn options(stride: usize, padding: [usize; 2], dilation: usize, groups: usize) -> ConvOptions {
        ConvOptions { stride: [stride; 3], padding: [padding; 3], dilation: [dilation; 3], groups }
    }

    fn plan(
        op: ConvOp,
        a: &[usize],
        b: &[usize],
        bias: Option<usize>,
        options: &ConvOptions,
        out: &[usize],
    ) -> Result<Conv> {
        let (a, b, out) = (contiguous(a), contiguous(b), contiguous(out));
        let bias = bias.map(|size| contiguous(&[size]));
        let view = |layout| View { dtype: F32, layout };
        Conv::new(op, view(&a), view(&b), bias.as_ref().map(view), options, view(&out))
    }

    #[test]
    fn shapes_follow_the_formula_and_transposes_undo_them() {
        let shape = |x: &[usize], weight: &[usize], options| Conv::shape(x, weight, &options).unwrap().to_vec();
        assert_eq!(shape(&[2, 6, 32], &[8, 3, 5], options(3, [1, 2], 2, 2)), [2, 8, 9]);
        assert_eq!(shape(&[1, 3, 224, 224], &[64, 3, 7, 7], options(2, [3, 3], 1, 1)), [1, 64, 112, 112]);
        assert_eq!(shape(&[0, 0, 4, 4, 4], &[5, 0, 2, 3, 4], options(1, [0, 0], 1, 1)), [0, 5, 3, 2, 1]);
        for kernel in 1..6 {
            let options = ConvOptions { dilation: [2; 3], ..ConvOptions::default() };
            for options in [options.same(&[kernel]), options.causal(&[kernel])] {
                assert_eq!(shape(&[1, 1, 7], &[1, 1, kernel], options), [1, 1, 7]);
            }
        }
        let wide = options(3, [1, 2], 2, 2);
        let back = |more| Conv::transpose_shape(&[2, 8, 9], &[8, 3, 5], &wide, more).unwrap().to_vec();
        assert_eq!((back([0; 3]), back([2, 0, 0])), (vec![2, 6, 30], vec![2, 6, 32]));
        let transposed = plan(ConvOp::ConvTranspose, &[2, 8, 9], &[8, 3, 5], Some(6), &wide, &[2, 6, 37]).unwrap();
        assert_eq!(transposed.output_padding(), [7, 0, 0]);
        // The padding cuts off all that the taps reach.
        assert!(
            plan(ConvOp::ConvTranspose, &[1, 1, 1], &[1, 1, 1], None, &options(1, [1, 1], 1, 1), &[1, 1, 1]).is_ok()
        );
        // Entries past the spatial axes have no say.
        let one = ConvOptions { stride: [3, 9, 0], padding: [[1, 2], [9; 2], [9; 2]], dilation: [2, 0, 7], groups: 2 };
        let conv = |options| plan(ConvOp::Conv, &[2, 6, 32], &[8, 3, 5], None, options, &[2, 8, 9]).unwrap();
        assert_eq!(conv(&one), conv(&wide));
    }

    #[test]
    fn what_does_not_fit_is_an_error_with_its_arithmetic() {
        use ErrorKind::{Argument, Shape};
        let plain = ConvOptions::default();
        let check = |x: &[usize], weight: &[usize], options: &ConvOptions, kind, message: &str| {
            let error = Conv::shape(x, weight, options).unwrap_err();
            assert!(error.kind() == kind && error.message().contains(message), "{error}");
        };
        let apart = options(1, [1, 0], 2, 1);
        check(
            &[1, 2, 3],
            &[4, 2, 3],
            &apart,
            Shape,
            "spans 2·(3 − 1) + 1 = 5, more than the padded input, 1 + 3 + 0 = 4",
        );
        check(&[1, 2, 3], &[4, 3, 3], &plain, Shape, "the input has 2 channels, but 1 groups of the weight's 3 are 3");
        check(&[1, 2, 3], &[4, 1, 1], &options(1, [0, 0], 1, 3), Shape, "3 groups do not divide the 4 channels");
        check(&[1, 2, 3], &[4, 2, 0], &plain, Shape, "no tap");
        check(&[1, 2, 3], &[4, 2, 1, 1], &plain, Shape, "rank 3, the weight 4");
        check(&[1, 2], &[4, 2], &plain, Shape, "1 to 3 spatial axes");
        check(&[1, 2, 3], &[4, 2, 1], &options(0, [0, 0], 1, 1), Argument, "stride 0");
        check(&[1, 2, 3], &[4, 2, 1], &options(1, [0, 0], 0, 1), Argument, "dilation 0");
        check(&[1, 2, 3], &[4, 2, 1], &options(1, [0, 0], 1, 0), Argument, "0 groups");
        check(&[1, 2, 3], &[4, 2, 3], &options(1, [0, 0], usize::MAX, 1), Shape, "overflows");
        check(&[1, 2, 3], &[4, 2, 1], &options(1, [usize::MAX, 0], 1, 1), Shape, "overflows");
        let back = |y: &[usize], options| Conv::transpose_shape(y, &[4, 2, 3], &options, [0; 3]).unwrap_err();
        let error = back(&[1, 4, 1], options(1, [2, 2], 1, 1));
        assert!(error.message().contains("1·(1 − 1) + 3 + 0 − 2 − 2 elements, fewer than none"), "{error}");
        assert!(back(&[1, 3, 1], plain).message().contains("the input has 3 channels, the weight takes 4"));
    }

    #[test]
    fn plans_refuse_operands_of_other_shapes() {
        let plain = ConvOptions::default();
        let kind =
            |op, a: &[usize], b: &[usize], bias, out: &[usize]| plan(op, a, b, bias, &plain, out).unwrap_err().kind();
        assert_eq!(kind(ConvOp::Conv, &[1, 2, 5], &[4, 2, 3], None, &[1, 4, 4]), ErrorKind::Shape);
        assert_eq!(kind(ConvOp::Conv, &[1, 2, 5], &[4, 2, 3], Some(2), &[1, 4, 3]), ErrorKind::Shape);
        assert_eq!(kind(ConvOp::ConvTranspose, &[1, 4, 3], &[4, 2, 3], None, &[1, 2, 4]), ErrorKind::Shape);
        assert_eq!(kind(ConvOp::ConvTranspose, &[1, 4, 3], &[4, 2, 3], Some(4), &[1, 2, 5]), ErrorKind::Shape);
        assert_eq!(kind(ConvOp::ConvGradWeight, &[1, 2, 5], &[1, 4, 4], None, &[4, 2, 3]), ErrorKind::Shape);
        assert_eq!(kind(ConvOp::ConvGradWeight, &[1, 2, 5], &[1, 4, 3], Some(4), &[4, 2, 3]), ErrorKind::Argument);
        assert_eq!(kind(ConvOp::ConvTranspose, &[1, 4], &[4, 2, 3], None, &[1]), ErrorKind::Shape);
    }
}
