//! Normalisation over any set of axes, and its gradients: softmax, log-softmax, layer norm, RMS norm, L2 norm.
//!
//! A *row* is the elements of the normalised axes at one place of the others. With n its length, μ its mean, σ² its
//! biased variance, w and b the optional weight and bias, g = w ⊙ dy (dy itself without a weight):
//!
//! | op | y | dx |
//! |---|---|---|
//! | `softmax` | exp(x − max x) / Σ exp(x − max x) | y ⊙ (dy − Σ y ⊙ dy) |
//! | `log_softmax` | x − max x − ln Σ exp(x − max x) | dy − exp(y)·Σ dy |
//! | `layer_norm` | w ⊙ x̂ + b, x̂ = (x − μ)·r, r = 1/√(σ² + ε) | r·(g − mean g − x̂ ⊙ mean(g ⊙ x̂)) |
//! | `rms_norm` | w ⊙ x̂ + b, x̂ = x·r, r = 1/√(mean x² + ε) | r·(g − x̂ ⊙ mean(g ⊙ x̂)) |
//! | `l2_normalize` | w ⊙ x̂ + b, x̂ = x / max(‖x‖₂, ε) | (g − x̂·Σ g ⊙ x̂)/‖x‖₂, or g/ε where ‖x‖₂ ≤ ε |
//!
//! Group, instance and batch norm are `layer_norm` over other axes. The composition here is the reference that a new
//! backend inherits; a backend overrides both methods for speed. f16 and bf16 are cast to f32 first and rounded once.

mod compose;

use crate::backend::Storage;
use crate::dtype::{DType, Scalar};
use crate::elementwise::{View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::nest::Nest;
use crate::ops::Op;
use crate::ops::statistic::StatisticOps;
use crate::shape::MAX_RANK;

pub use compose::compose;

/// A normalisation. Floats only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormalizeOp {
    /// x divided by its Euclidean norm, which counts as at least ε.
    L2Normalize,
    /// x less its mean, divided by its standard deviation.
    LayerNorm,
    /// The logarithm of [`Softmax`](Self::Softmax).
    LogSoftmax,
    /// x divided by the root of its mean square.
    RmsNorm,
    /// Exponentials divided by their sum.
    Softmax,
}

impl NormalizeOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[Self::L2Normalize, Self::LayerNorm, Self::LogSoftmax, Self::RmsNorm, Self::Softmax];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::L2Normalize => "l2_normalize",
            Self::LayerNorm => "layer_norm",
            Self::LogSoftmax => "log_softmax",
            Self::RmsNorm => "rms_norm",
            Self::Softmax => "softmax",
        }
    }

    /// The name of the op's gradient.
    #[must_use]
    pub fn grad_name(self) -> &'static str {
        match self {
            Self::L2Normalize => "l2_normalize_grad",
            Self::LayerNorm => "layer_norm_grad",
            Self::LogSoftmax => "log_softmax_grad",
            Self::RmsNorm => "rms_norm_grad",
            Self::Softmax => "softmax_grad",
        }
    }

    /// Whether the op takes ε, a weight and a bias, and its gradient the input; else the gradient takes the result.
    #[must_use]
    pub fn is_affine(self) -> bool {
        !matches!(self, Self::LogSoftmax | Self::Softmax)
    }
}

/// The rows of up to four operands, operand 0 being the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// Over the rows.
    kept: Nest<4>,
    /// Over the elements of a row, relative to the row's first.
    row: Nest<4>,
    starts: [usize; 4],
}

impl Rows {
    fn new(op: &'static str, layouts: [&Layout; 4], mask: &[bool; MAX_RANK]) -> Result<Self> {
        if layouts[0].count() == 0 {
            let none = Layout::new(op, &[0], &[0], 0)?;
            return Ok(Self { kept: Nest::new([&none; 4]), row: Nest::new([&none; 4]), starts: [0; 4] });
        }
        let rank = layouts[0].rank();
        let without = |layout: &Layout, masked: bool| {
            let axes = (0..rank).rev().filter(|&axis| mask[axis] == masked);
            axes.map(|axis| axis as isize).try_fold(*layout, |layout, axis| layout.select(axis, 0))
        };
        let mut kept = [Layout::new(op, &[], &[], 0)?; 4];
        let mut row = kept;
        for operand in 0..4 {
            kept[operand] = without(layouts[operand], true)?;
            row[operand] = without(layouts[operand], false)?;
        }
        let (kept, row) = (Nest::new(kept.each_ref()), Nest::new(row.each_ref()));
        // Both nests may start at another element than the layout does; a row starts where both say.
        let starts = std::array::from_fn(|operand| {
            let base = layouts[operand].offset();
            kept.offset(operand).wrapping_add(row.offset(operand)).wrapping_sub(base)
        });
        Ok(Self { kept, row, starts })
    }

    /// The rows: strides from a row to the next. Its offsets mean nothing; [`start`](Self::start) does.
    #[must_use]
    pub fn kept(&self) -> &Nest<4> {
        &self.kept
    }

    /// The elements of a row: strides from an element to the next. Its offsets mean nothing.
    #[must_use]
    pub fn row(&self) -> &Nest<4> {
        &self.row
    }

    /// Where an operand's first element of the first row lies in its storage.
    #[must_use]
    pub fn start(&self, operand: usize) -> usize {
        self.starts[operand]
    }
}

/// A validated call of a normalisation or of its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Normalize {
    op: NormalizeOp,
    gradient: bool,
    epsilon: Scalar,
    dtype: DType,
    mask: [bool; MAX_RANK],
    /// The output and up to three inputs; an input that is absent stays at element 0.
    layouts: [Layout; 4],
    present: [bool; 4],
    rows: Rows,
    min_lens: [usize; 4],
}

impl Normalize {
    /// Plans `out = op(x)` over `axes` (`None` is all). `weight` and `bias` broadcast to the shape of `x`; `epsilon`
    /// is added to the (mean) square, or bounds the norm. The softmaxes take neither, and ignore `epsilon`.
    ///
    /// # Errors
    /// `DType` when `x` is not a float or another operand has another dtype; `Axis`; `Shape` when the weight or the
    /// bias do not broadcast to `x`, or `out` has another shape; `Argument` for a NaN or negative `epsilon`, for a
    /// bias without a weight, for a weight of a softmax, or when `out` overlaps.
    pub fn new(
        op: NormalizeOp,
        epsilon: f64,
        axes: Option<&[isize]>,
        x: View<'_>,
        weight: Option<View<'_>>,
        bias: Option<View<'_>>,
        out: View<'_>,
    ) -> Result<Self> {
        check_domain(Op::Normalize(op), x.dtype)?;
        if weight.is_none() && bias.is_some() {
            let message = "a bias was given without a weight; give a weight of ones, or add the bias to the result";
            return Err(Error::new(ErrorKind::Argument, op.name(), message));
        }
        Self::plan(op, false, epsilon, axes, [Some(x), weight, bias], out)
    }

    /// Plans `out = dx`, the gradient of `op` with respect to its input for the gradient `grad` of its result. `x` is
    /// what the op was given, except for the softmaxes, which take what they returned.
    ///
    /// # Errors
    /// As [`new`](Self::new); `Shape` when `grad` has another shape than `x`.
    pub fn gradient(
        op: NormalizeOp,
        epsilon: f64,
        axes: Option<&[isize]>,
        x: View<'_>,
        grad: View<'_>,
        weight: Option<View<'_>>,
        out: View<'_>,
    ) -> Result<Self> {
        check_domain(Op::NormalizeGrad(op), x.dtype)?;
        check_shape(op.grad_name(), "the gradient of the result", grad.layout.shape(), x.layout.shape())?;
        Self::plan(op, true, epsilon, axes, [Some(x), Some(grad), weight], out)
    }

    fn plan(
        op: NormalizeOp,
        gradient: bool,
        epsilon: f64,
        axes: Option<&[isize]>,
        inputs: [Option<View<'_>>; 3],
        out: View<'_>,
    ) -> Result<Self> {
        let name = if gradient { op.grad_name() } else { op.name() };
        let affine = if gradient { inputs[2] } else { inputs[1] };
        let argument = |message: String| Err(Error::new(ErrorKind::Argument, name, message));
        if !op.is_affine() && affine.is_some() {
            return argument(format!("`{name}` takes no weight; multiply its result"));
        }
        if op.is_affine() && (epsilon.is_nan() || epsilon < 0.0) {
            return argument(format!("epsilon is {epsilon}; it must be a number of at least 0"));
        }
        let Some(x) = inputs[0] else { return argument("there is no input".to_owned()) };
        let mask = x.layout.shape().axis_mask(name, axes)?;
        check_dtype(name, out.dtype, x.dtype)?;
        check_shape(name, "the output", out.layout.shape(), x.layout.shape())?;
        check_output(name, out.layout)?;
        let absent = Layout::new(name, &[], &[], 0)?.broadcast_to(name, x.layout.shape())?;
        let (mut layouts, mut present, mut min_lens) = ([*out.layout, absent, absent, absent], [true; 4], [0; 4]);
        min_lens[0] = out.layout.min_len();
        for (operand, input) in inputs.into_iter().enumerate() {
            present[operand + 1] = input.is_some();
            if let Some(input) = input {
                check_dtype(name, input.dtype, x.dtype)?;
                layouts[operand + 1] = input.layout.broadcast_to(name, x.layout.shape())?;
                min_lens[operand + 1] = input.layout.min_len();
            }
        }
        let rows = Rows::new(name, layouts.each_ref(), &mask)?;
        let epsilon = Scalar::Float(if op.is_affine() { epsilon } else { 0.0 });
        Ok(Self { op, gradient, epsilon, dtype: x.dtype, mask, layouts, present, rows, min_lens })
    }

    /// The normalisation.
    #[must_use]
    pub fn op(&self) -> NormalizeOp {
        self.op
    }

    /// Whether this is the gradient.
    #[must_use]
    pub fn is_gradient(&self) -> bool {
        self.gradient
    }

    /// The op as backends are asked about it.
    #[must_use]
    pub fn full_op(&self) -> Op {
        if self.gradient { Op::NormalizeGrad(self.op) } else { Op::Normalize(self.op) }
    }

    /// ε.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        self.epsilon.to_f64()
    }

    /// The dtype of every operand.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Which axes are normalised.
    #[must_use]
    pub fn mask(&self) -> &[bool; MAX_RANK] {
        &self.mask
    }

    /// The layout of an operand in the shape of the output, which is operand 0.
    #[must_use]
    pub fn layout(&self, operand: usize) -> &Layout {
        &self.layouts[operand]
    }

    /// Whether an operand is given.
    #[must_use]
    pub fn has(&self, operand: usize) -> bool {
        self.present[operand]
    }

    /// The rows of the operands.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, is missing, or was not planned.
    pub fn check<S: Storage>(&self, inputs: [Option<&S>; 3], out: &S) -> Result<()> {
        let name = self.full_op().name();
        check_storage(name, "the output", self.dtype, self.min_lens[0], out)?;
        for (operand, input) in inputs.into_iter().enumerate() {
            match input {
                Some(input) if self.present[operand + 1] => {
                    check_storage(name, "an input", self.dtype, self.min_lens[operand + 1], input)?;
                }
                None if !self.present[operand + 1] => {}
                _ => {
                    let message = format!("input {operand} was given or left out against the plan");
                    return Err(Error::new(ErrorKind::Argument, name, message));
                }
            }
        }
        Ok(())
    }

    /// The number of elements of a row.
    fn width(&self) -> usize {
        let x = &self.layouts[0];
        (0..x.rank()).filter(|&axis| self.mask[axis]).map(|axis| x.shape()[axis]).product()
    }
}

/// Normalisation over any set of axes, and its gradients.
pub trait NormOps: StatisticOps {
    /// Writes the normalised `x` into `out`; `weight` and `bias` are given as the plan says.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - f16 and bf16 are computed in f32 and rounded once; the error is that of the composed steps, variance in two
    ///   passes.
    /// - NaN in a row makes the row NaN. A softmax of a row whose maximum is infinite is NaN; −∞ beside a finite
    ///   maximum gives 0.
    /// - Where the sum of the squares of a row overflows the accumulator, the norms of the row may be anything.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, `OutOfMemory` for temporaries, and what the
    /// device reports.
    fn normalize(
        &self,
        plan: &Normalize,
        x: &Self::Storage,
        weight: Option<&Self::Storage>,
        bias: Option<&Self::Storage>,
        out: &mut Self::Storage,
    ) -> Result<()> {
        compose(self, plan, [Some(x), weight, bias], out)
    }

    /// Writes the gradient of a normalisation with respect to its input into `out`.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - f16 and bf16 are computed in f32 and rounded once; the error is that of the composed steps.
    /// - Where an input is infinite, or a sum of squares overflows the accumulator, the row may be anything.
    ///
    /// # Errors
    /// As [`normalize`](Self::normalize).
    fn normalize_grad(
        &self,
        plan: &Normalize,
        x: &Self::Storage,
        grad: &Self::Storage,
        weight: Option<&Self::Storage>,
        out: &mut Self::Storage,
    ) -> Result<()> {
        compose(self, plan, [Some(x), Some(grad), weight], out)
    }
}
