//! The provided composition: products of matrices of windows.
//!
//! The windows of x are a view \[N, C, kernel…, out…\] of its padded copy in which elements lie on top of each other; as
//! matrices \[C / groups · taps, out\] they are the right operand of `conv` and of `conv_grad_weight`, copied only where their
//! strides are not those of a matrix. `conv_transpose` goes the other way: its products are the windows, and one addition for
//! each tap puts them where they belong; where one position meets one, the products are the result. Temporaries are bounded: a
//! batch that is too large goes in parts.
//!
//! An activation is one more pass over the result. In half precision that would round twice, so there everything is f32
//! until the end.

use std::ops::Range;

use super::{Conv, ConvOp, ConvOps};
use crate::dtype::{DType, Scalar};
use crate::elementwise::{Source, View};
use crate::error::Result;
use crate::layout::{Layout, Slice};
use crate::ops::binary::{Binary, BinaryOp};
use crate::ops::copy::{Copy, Fill};
use crate::ops::linear::Activation;
use crate::ops::matmul::Matmul;
use crate::ops::unary::Unary;
use crate::shape::Shape;

const OP: &str = "conv";

/// About how many elements the windows of one part of a batch have.
const PART: usize = 1 << 24;

/// [`ConvOps::conv`] from other ops of the backend; the caller has checked the plan.
///
/// # Errors
/// What those ops return.
pub fn run<B: ConvOps + ?Sized>(
    backend: &B,
    plan: &Conv,
    a: &B::Storage,
    b: &B::Storage,
    bias: Option<&B::Storage>,
    out: &mut B::Storage,
) -> Result<()> {
    let [_, _, result] = plan.operands();
    if result.count() == 0 {
        return Ok(());
    }
    let composer = Composer { backend, plan };
    if plan.activation != Activation::Identity && widened(plan.dtype) != plan.dtype {
        return composer.in_f32([Some(a), Some(b), bias], out);
    }
    match plan.op {
        ConvOp::Conv => composer.forward(a, b, bias, out),
        ConvOp::ConvTranspose if plan.is_pointwise() => composer.pointwise_transpose(a, b, bias, out),
        ConvOp::ConvTranspose => composer.transpose(a, b, bias, out),
        ConvOp::ConvGradWeight => composer.grad_weight(a, b, out),
    }?;
    let Some(function) = plan.activation.function() else { return Ok(()) };
    let view = View { dtype: plan.dtype, layout: result };
    backend.unary(&Unary::new(function, Source::Output, view)?, None, out)
}

struct Composer<'p, B: ?Sized> {
    backend: &'p B,
    plan: &'p Conv,
}

/// A view of a storage in some shape, or a contiguous copy of it.
struct Readable<'s, S> {
    given: &'s S,
    copy: Option<S>,
    dtype: DType,
    layout: Layout,
}

impl<S> Readable<'_, S> {
    fn storage(&self) -> &S {
        self.copy.as_ref().unwrap_or(self.given)
    }

    fn view(&self) -> View<'_> {
        View { dtype: self.dtype, layout: &self.layout }
    }
}

impl<B: ConvOps + ?Sized> Composer<'_, B> {
    fn forward(
        &self,
        x: &B::Storage,
        weight: &B::Storage,
        bias: Option<&B::Storage>,
        out: &mut B::Storage,
    ) -> Result<()> {
        let (plan, dtype) = (self.plan, self.plan.dtype);
        let [groups, outputs, terms] = self.matrix();
        if terms == 0 {
            return self.begin(dtype, &plan.y, bias, out);
        }
        let weight = self.readable(weight, dtype, &plan.weight, dtype, &[groups, outputs, terms])?;
        for part in self.parts() {
            let windows = self.windows(x, dtype, part.clone())?;
            let sizes = [part.len(), groups, terms, positions(&plan.y)];
            let windows = self.readable(windows.storage(), dtype, &windows.layout, dtype, &sizes)?;
            self.write(&weight, &windows, outputs, (bias, &of_batch(&plan.y, part)?), out)?;
        }
        Ok(())
    }

    /// Widens the operands, and rounds the result.
    fn in_f32(&self, operands: [Option<&B::Storage>; 3], out: &mut B::Storage) -> Result<()> {
        let (plan, dtype, to) = (self.plan, self.plan.dtype, DType::F32);
        let [a, b, result] = plan.operands();
        let mut wide = [const { None }; 3];
        for ((wide, storage), layout) in wide.iter_mut().zip(operands).zip([Some(a), Some(b), plan.bias.as_ref()]) {
            if let (Some(storage), Some(layout)) = (storage, layout) {
                *wide = Some(self.readable(storage, dtype, layout, to, layout.shape())?);
            }
        }
        let [Some(a), Some(b), bias] = wide else { return Ok(()) };
        let compact = contiguous(result.shape())?;
        let mut sums = self.backend.alloc(to, compact.count())?;
        let view = View { dtype: to, layout: &compact };
        let plan_of_sums =
            Conv::new(plan.op, a.view(), b.view(), bias.as_ref().map(Readable::view), &plan.options, view)?;
        let plan_of_sums = plan_of_sums.with_activation(plan.activation)?;
        self.backend.conv(&plan_of_sums, a.storage(), b.storage(), bias.as_ref().map(Readable::storage), &mut sums)?;
        self.copy((&sums, view), out, View { dtype, layout: result })
    }

    /// Writes `left @ right` for a part of the batch, plus the bias: `left` is \[groups, rows, terms\], `right` \[batch, groups,
    /// terms, positions\].
    fn write(
        &self,
        left: &Readable<'_, B::Storage>,
        right: &Readable<'_, B::Storage>,
        rows: usize,
        (bias, layout): (Option<&B::Storage>, &Layout),
        out: &mut B::Storage,
    ) -> Result<()> {
        let dtype = self.plan.dtype;
        let sizes = right.layout.shape();
        let sizes = [sizes[0], sizes[1], rows, sizes[3]];
        let right = (right.storage(), right.view());
        if let Some(products) = layout.reshape(&sizes)? {
            let beta = self.bias(dtype, layout, bias, out)?;
            return self.product(beta, left, right, out, View { dtype, layout: &products });
        }
        let (products, compact) = (contiguous(&sizes)?, contiguous(layout.shape())?);
        let mut sums = self.backend.alloc(dtype, products.count())?;
        let beta = self.bias(dtype, &compact, bias, &mut sums)?;
        self.product(beta, left, right, &mut sums, View { dtype, layout: &products })?;
        self.copy((&sums, View { dtype, layout: &compact }), out, View { dtype, layout })
    }

    /// A transpose whose windows are the result.
    fn pointwise_transpose(
        &self,
        y: &B::Storage,
        weight: &B::Storage,
        bias: Option<&B::Storage>,
        out: &mut B::Storage,
    ) -> Result<()> {
        let (plan, dtype) = (self.plan, self.plan.dtype);
        let [groups, inputs, terms] = self.matrix();
        if plan.y.count() == 0 {
            return self.begin(dtype, &plan.x, bias, out);
        }
        let weight = self.readable(weight, dtype, &plan.weight, dtype, &[groups, inputs, terms])?;
        let columns = weight.layout.permute(&[0, 2, 1])?;
        let weight = Readable { layout: columns, ..weight };
        for part in self.parts() {
            let sizes = [part.len(), groups, inputs, positions(&plan.y)];
            let y = self.readable(y, dtype, &of_batch(&plan.y, part.clone())?, dtype, &sizes)?;
            self.write(&weight, &y, terms, (bias, &of_batch(&plan.x, part)?), out)?;
        }
        Ok(())
    }

    fn transpose(
        &self,
        y: &B::Storage,
        weight: &B::Storage,
        bias: Option<&B::Storage>,
        out: &mut B::Storage,
    ) -> Result<()> {
        let (plan, dtype) = (self.plan, self.plan.dtype);
        let [groups, inputs, terms] = self.matrix();
        if plan.y.count() == 0 {
            return self.begin(dtype, &plan.x, bias, out);
        }
        // More than one addition: the sums are kept in the wide type until the end.
        let wide = widened(dtype);
        let weight = self.readable(weight, dtype, &plan.weight, wide, &[groups, inputs, terms])?;
        let columns = weight.layout.permute(&[0, 2, 1])?;
        let weight = Readable { layout: columns, ..weight };
        for part in self.parts() {
            let sizes = [part.len(), groups, inputs, positions(&plan.y)];
            let y = self.readable(y, dtype, &of_batch(&plan.y, part.clone())?, wide, &sizes)?;
            let products = contiguous(&[part.len(), groups, terms, sizes[3]])?;
            let mut windows = self.backend.alloc(wide, products.count())?;
            let view = View { dtype: wide, layout: &products };
            self.product(0.0, &weight, (y.storage(), y.view()), &mut windows, view)?;
            let x = of_batch(&plan.x, part)?;
            if wide == dtype {
                self.begin(dtype, &x, bias, out)?;
                self.put_back(&windows, &x, out)?;
            } else {
                let compact = contiguous(x.shape())?;
                let mut sums = self.backend.alloc(wide, compact.count())?;
                self.begin(wide, &compact, bias, &mut sums)?;
                self.put_back(&windows, &compact, &mut sums)?;
                self.copy((&sums, View { dtype: wide, layout: &compact }), out, View { dtype, layout: &x })?;
            }
        }
        Ok(())
    }

    fn grad_weight(&self, x: &B::Storage, y: &B::Storage, out: &mut B::Storage) -> Result<()> {
        let (plan, dtype) = (self.plan, self.plan.dtype);
        let [groups, outputs, terms] = self.matrix();
        let shape = [groups, outputs, terms];
        if plan.y.count() == 0 {
            return self.begin(dtype, &plan.weight, None, out);
        }
        // The parts of a batch add up in the wide type.
        let wide = widened(dtype);
        let mut sums = None;
        let given = plan.weight.reshape(&shape)?.filter(|_| wide == dtype);
        let layout = given.map_or_else(|| contiguous(&shape), Ok)?;
        if given.is_none() {
            sums = Some(self.backend.alloc(wide, layout.count())?);
        }
        for part in self.parts() {
            let steps = part.len() * positions(&plan.y);
            let beta = if part.start == 0 { 0.0 } else { 1.0 };
            let grad = of_batch(&plan.y, part.clone())?;
            // Channels first: the rest is one axis of terms.
            let grad = self.readable(y, dtype, &batch_after(&grad, 1)?, wide, &[groups, outputs, steps])?;
            let windows = self.windows(x, dtype, part)?;
            let taps = batch_after(&windows.layout, 1 + plan.x.rank() - 2)?;
            let windows = self.readable(windows.storage(), dtype, &taps, wide, &[groups, terms, steps])?;
            let columns = windows.layout.permute(&[0, 2, 1])?;
            let right = (windows.storage(), View { dtype: wide, layout: &columns });
            self.product(
                beta,
                &grad,
                right,
                sums.as_mut().unwrap_or(&mut *out),
                View { dtype: wide, layout: &layout },
            )?;
        }
        let Some(sums) = sums else { return Ok(()) };
        let compact = contiguous(plan.weight.shape())?;
        self.copy((&sums, View { dtype: wide, layout: &compact }), out, View { dtype, layout: &plan.weight })
    }

    /// Groups, output channels of each, and the terms of a sum: the weight as matrices.
    fn matrix(&self) -> [usize; 3] {
        let (weight, groups) = (self.plan.weight.shape(), self.plan.options.groups);
        [groups, weight[0] / groups, weight[1..].iter().product()]
    }

    /// The batch in parts whose windows do not take too much memory.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> + use<B> {
        let [groups, _, terms] = self.matrix();
        let (batch, of_one) =
            (self.plan.y.shape()[0], groups.saturating_mul(terms).saturating_mul(positions(&self.plan.y)));
        let size = (PART / of_one.max(1)).max(1);
        (0..batch).step_by(size).map(move |start| start..(start + size).min(batch))
    }

    /// The windows of a part of the batch, \[N, C, kernel…, out…\], over x or over its padded copy.
    fn windows<'s>(&self, x: &'s B::Storage, dtype: DType, part: Range<usize>) -> Result<Readable<'s, B::Storage>> {
        let (plan, options) = (self.plan, &self.plan.options);
        let mut layout = of_batch(&plan.x, part)?;
        let mut copy = None;
        if options.padding.iter().flatten().any(|&padding| padding > 0) {
            let mut sizes = layout.shape().to_vec();
            sizes[2..].iter_mut().zip(&options.padding).for_each(|(size, [before, after])| *size += before + after);
            let padded = contiguous(&sizes)?;
            let mut inner = padded;
            for (axis, &[before, _]) in options.padding[..layout.rank() - 2].iter().enumerate() {
                inner = cut(&inner, 2 + axis, before..before + layout.shape()[2 + axis], 1)?;
            }
            let mut storage = self.backend.alloc(dtype, padded.count())?;
            self.fill(View { dtype, layout: &padded }, &mut storage)?;
            self.copy((x, View { dtype, layout: &layout }), &mut storage, View { dtype, layout: &inner })?;
            (layout, copy) = (padded, Some(storage));
        }
        let (kernel, out) = (&plan.weight.shape()[2..], &plan.y.shape()[2..]);
        let shape = [&layout.shape()[..2], kernel, out].concat();
        let mut strides = layout.strides()[..2].to_vec();
        for (sizes, factors) in [(kernel, &options.dilation), (out, &options.stride)] {
            // With one element the stride has no meaning, and the product could overflow.
            let steps = sizes.iter().zip(factors).zip(&layout.strides()[2..]);
            strides
                .extend(steps.map(|((&size, &factor), &stride)| if size > 1 { stride * factor as isize } else { 0 }));
        }
        Ok(Readable { given: x, copy, dtype, layout: Layout::new(OP, &shape, &strides, layout.offset())? })
    }

    /// Adds the windows of `conv_transpose` to the elements of `x` that they cover.
    fn put_back(&self, windows: &B::Storage, x: &Layout, out: &mut B::Storage) -> Result<()> {
        let (plan, options, dtype) = (self.plan, &self.plan.options, widened(self.plan.dtype));
        let (kernel, steps) = (&plan.weight.shape()[2..], &plan.y.shape()[2..]);
        let whole = contiguous(&[&x.shape()[..2], kernel, steps].concat())?;
        let axes = kernel.len();
        for mut tap in 0..kernel.iter().product::<usize>() {
            let (mut from, mut to, mut reaches) = (whole, *x, true);
            for axis in (0..axes).rev() {
                let k = tap % kernel[axis];
                tap /= kernel[axis];
                from = cut(&from, 2 + axis, k..k + 1, 1)?;
                // Positions o with 0 ≤ s·o + d·k − p < size.
                let (stride, [before, _]) = (options.stride[axis], options.padding[axis]);
                let (ahead, size) = (options.dilation[axis] * k, x.shape()[2 + axis]);
                let first = before.saturating_sub(ahead).div_ceil(stride);
                let end = size.saturating_add(before).saturating_sub(ahead).div_ceil(stride).min(steps[axis]);
                reaches &= first < end;
                if reaches {
                    from = cut(&from, 2 + axes + axis, first..end, 1)?;
                    let start = stride * first + ahead - before;
                    to = cut(&to, 2 + axis, start..start + stride * (end - first - 1) + 1, stride)?;
                }
            }
            if reaches {
                for _ in 0..axes {
                    from = from.squeeze(2)?;
                }
                let source = Source::View(View { dtype, layout: &from });
                let add = Binary::new(BinaryOp::Add, Source::Output, source, View { dtype, layout: &to })?;
                self.backend.binary(&add, None, Some(windows), out)?;
            }
        }
        Ok(())
    }

    /// A view in another shape and dtype: itself where strides allow it, else a contiguous copy.
    fn readable<'s>(
        &self,
        given: &'s B::Storage,
        dtype: DType,
        layout: &Layout,
        to: DType,
        shape: &[usize],
    ) -> Result<Readable<'s, B::Storage>> {
        if let Some(layout) = layout.reshape(shape)?.filter(|_| dtype == to) {
            return Ok(Readable { given, copy: None, dtype, layout });
        }
        let compact = contiguous(layout.shape())?;
        let mut copy = self.backend.alloc(to, compact.count())?;
        self.copy((given, View { dtype, layout }), &mut copy, View { dtype: to, layout: &compact })?;
        Ok(Readable { given, copy: Some(copy), dtype: to, layout: contiguous(shape)? })
    }

    /// `out = a @ b + beta · out`
    fn product(
        &self,
        beta: f64,
        a: &Readable<'_, B::Storage>,
        (b, b_view): (&B::Storage, View<'_>),
        out: &mut B::Storage,
        out_view: View<'_>,
    ) -> Result<()> {
        let plan = Matmul::new(a.view(), b_view, Scalar::Float(1.0), Scalar::Float(beta), out_view)?;
        self.backend.matmul(&plan, a.storage(), b, out)
    }

    /// Writes the bias, if there is one, for a product to begin with; returns the factor of what is there.
    fn bias(&self, dtype: DType, layout: &Layout, bias: Option<&B::Storage>, out: &mut B::Storage) -> Result<f64> {
        let (Some(bias), Some(mut channels)) = (bias, self.plan.bias) else { return Ok(0.0) };
        for _ in 2..layout.rank() {
            channels = channels.unsqueeze(-1)?;
        }
        self.copy((bias, View { dtype: self.plan.dtype, layout: &channels }), out, View { dtype, layout })?;
        Ok(1.0)
    }

    /// Writes the bias, or zeros.
    fn begin(&self, dtype: DType, layout: &Layout, bias: Option<&B::Storage>, out: &mut B::Storage) -> Result<()> {
        if self.bias(dtype, layout, bias, out)? == 0.0 { self.fill(View { dtype, layout }, out) } else { Ok(()) }
    }

    fn fill(&self, view: View<'_>, out: &mut B::Storage) -> Result<()> {
        self.backend.fill(&Fill::new(Scalar::Float(0.0), view)?, out)
    }

    fn copy(&self, (x, view): (&B::Storage, View<'_>), out: &mut B::Storage, out_view: View<'_>) -> Result<()> {
        self.backend.copy(&Copy::new(view, out_view)?, x, out)
    }
}

fn widened(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

fn contiguous(sizes: &[usize]) -> Result<Layout> {
    Shape::new(OP, sizes).map(Layout::contiguous)
}

/// The number of positions of a kernel.
fn positions(y: &Layout) -> usize {
    y.shape()[2..].iter().product()
}

/// Part of an axis.
fn cut(layout: &Layout, axis: usize, range: Range<usize>, step: usize) -> Result<Layout> {
    let slice = Slice { start: Some(range.start as isize), stop: Some(range.end as isize), step: step as isize };
    layout.slice(axis as isize, slice)
}

fn of_batch(layout: &Layout, part: Range<usize>) -> Result<Layout> {
    cut(layout, 0, part, 1)
}

/// The layout with its first axis moved back past `count` others.
fn batch_after(layout: &Layout, count: usize) -> Result<Layout> {
    let axes: Vec<isize> = (1..=count).chain([0]).chain(count + 1..layout.rank()).map(|axis| axis as isize).collect();
    layout.permute(&axes)
}
