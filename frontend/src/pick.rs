//! Indexing with tensors, as in NumPy.
//!
//! Whatever the indices are, one gather or scatter along one axis does it: the axes that tensors stand for become
//! neighbours and are merged into one, and the tensors into one tensor of positions on it. Several are merged as
//! Σ stride·position, where each product is looked up in a table of the multiples of its stride, so that a position
//! outside its own axis is found out although the sum may be inside.

use std::sync::Arc;

use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter, ScatterOp};
use congruent_backend_api::{
    BinaryOps, CompareOps, CopyOps, DType, Error, ErrorKind, IndexOps, Layout, ReduceOps, Result, Shape, View,
};

use crate::index::{Index, Picker, Subscript, index};
use crate::operand::{Operand, no_value, same_backend};
use crate::tensor::Tensor;

/// The elements that the indices, tensors among them, name.
pub(crate) fn take<B>(x: &Tensor<B>, indices: &[Subscript<'_, B>]) -> Result<Tensor<B>>
where
    B: IndexOps + BinaryOps + CompareOps + CopyOps + ReduceOps + ?Sized,
{
    const OP: &str = "i";
    let picked = Picked::new(OP, x, indices)?;
    let part = x.with_layout(picked.part).reshape(picked.merged())?;
    let positions = picked.positions(x.backend(), part.rank())?;
    let shape = Gather::shape(part.shape(), picked.at as isize, positions.shape())?;
    let taken = Tensor::produce(
        x.backend(),
        x.dtype(),
        shape,
        |out| Gather::new(part.view(), picked.at as isize, positions.view(), out),
        |plan, out| x.backend().gather(plan, part.storage(), positions.storage(), out),
    )?;
    taken.reshape(picked.shape())
}

/// Writes a value to the elements that the indices, tensors among them, name.
pub(crate) fn assign<B>(x: &mut Tensor<B>, indices: &[Subscript<'_, B>], value: Operand<'_, B>) -> Result<()>
where
    B: IndexOps + BinaryOps + CompareOps + CopyOps + ReduceOps + ?Sized,
{
    const OP: &str = "assign";
    if let (&[Subscript::Tensor(Picker { tensor: mask, .. })], Operand::Scalar(_)) = (indices, value)
        && mask.dtype() == DType::Bool
    {
        // Known without a count of the true elements.
        check_mask(OP, mask, x.shape(), 0)?;
        let trailing = vec![1; x.rank() - mask.rank()];
        return mask.reshape([mask.shape(), &trailing].concat())?.where_cond_into(value, Operand::Output, x);
    }
    let picked = Picked::new(OP, x, indices)?;
    let merged = picked.merged();
    // Where another tensor shares the elements, a row-major copy is written.
    for layout in [*x.layout(), Layout::contiguous(*x.layout().shape())] {
        let (part, axes) = index(OP, &layout, indices)?;
        if arrange(&part, &picked.axes(&axes), picked.at)?.reshape(&merged)?.is_none() {
            return assign_apart(x, indices, value);
        }
    }
    let source = picked.source(x, value)?;
    let positions = picked.positions(x.backend(), merged.len())?;
    let backend = x.backend().clone();
    x.modify(
        |out| {
            let (part, axes) = index(OP, out.layout, indices)?;
            let part = arrange(&part, &picked.axes(&axes), picked.at)?;
            let merged = part.reshape(&merged)?.ok_or_else(|| {
                Error::new(ErrorKind::Shape, OP, format!("the axes of {part:?} do not merge; copy the tensor first"))
            })?;
            Scatter::new(
                ScatterOp::Set,
                picked.at as isize,
                positions.view(),
                source.view(),
                View { layout: &merged, ..out },
            )
        },
        |plan, out| backend.scatter(plan, positions.storage(), source.storage(), out),
    )
}

/// As [`assign`] where the axes do not lie side by side: by the positions of the elements in the whole tensor.
fn assign_apart<B>(x: &mut Tensor<B>, indices: &[Subscript<'_, B>], value: Operand<'_, B>) -> Result<()>
where
    B: IndexOps + BinaryOps + CompareOps + CopyOps + ReduceOps + ?Sized,
{
    let shape = x.shape().to_vec();
    let count = i64::try_from(x.count()).unwrap_or(i64::MAX);
    let whole = Tensor::arange(x.backend(), 0..count, DType::I64)?.reshape(&shape)?;
    let positions = take(&whole, indices)?;
    let target = positions.shape().to_vec();
    let source = source(x, value, &target)?.reshape([positions.count()])?;
    let positions = positions.flatten()?;
    if !x.is_contiguous() {
        *x = x.copy()?;
    }
    let backend = x.backend().clone();
    x.modify(
        |out| {
            let flat = Layout::new("assign", &[out.layout.count()], &[1], out.layout.offset())?;
            Scatter::new(ScatterOp::Set, 0, positions.view(), source.view(), View { layout: &flat, ..out })
        },
        |plan, out| backend.scatter(plan, positions.storage(), source.storage(), out),
    )
}

/// The value as a tensor of the dtype that broadcasts to `shape`.
fn source<B: CopyOps + ?Sized>(x: &Tensor<B>, value: Operand<'_, B>, shape: &[usize]) -> Result<Tensor<B>> {
    match value {
        Operand::Tensor(value) => value.cast(x.dtype())?.expand(shape),
        Operand::Scalar(value) => Tensor::filled(x.backend(), value, Shape::SCALAR, x.dtype())?.expand(shape),
        Operand::Output => Err(no_value()),
    }
}

/// What indices with tensors among them name.
struct Picked<B: CopyOps + ?Sized> {
    /// The part that the other indices take, with the axes of the tensors side by side.
    part: Layout,
    /// Where those axes are, and how many each tensor has.
    at: usize,
    widths: Vec<usize>,
    /// The positions that each tensor names, on its axes as one of this size.
    tensors: Vec<(Tensor<B>, usize)>,
    /// The shape to which the positions broadcast.
    named: Shape,
}

impl<B: IndexOps + BinaryOps + CompareOps + CopyOps + ReduceOps + ?Sized> Picked<B> {
    fn new(op: &'static str, x: &Tensor<B>, indices: &[Subscript<'_, B>]) -> Result<Self> {
        let (part, axes) = index(op, x.layout(), indices)?;
        let pickers: Vec<Picker<'_, B>> = indices
            .iter()
            .filter_map(|index| match index {
                Subscript::Tensor(picker) => Some(*picker),
                Subscript::View(_) => None,
            })
            .collect();
        for picker in &pickers {
            same_backend(op, x.backend(), &[Operand::Tensor(picker.tensor)])?;
        }
        let widths: Vec<usize> = pickers.iter().map(Picker::axes).collect();
        let mut tensors = Vec::new();
        for (picker, &axis) in pickers.iter().zip(&axes) {
            tensors.push(positions(op, picker.tensor, part.shape(), axis)?);
        }
        let shapes: Vec<&[usize]> = tensors.iter().map(Tensor::shape).collect();
        let named = Shape::broadcast(op, &shapes)?;
        let sizes =
            axes.iter().zip(&widths).map(|(&axis, &width)| part.shape()[axis..axis + width].iter().product::<usize>());
        let tensors = tensors.into_iter().zip(sizes).collect();
        let at = if scattered(indices) { 0 } else { axes.first().copied().unwrap_or(0) };
        let mut picked = Self { part, at, widths, tensors, named };
        picked.part = arrange(&part, &picked.axes(&axes), at)?;
        Ok(picked)
    }

    /// The axes that tensors stand for, given the first of each.
    fn axes(&self, first: &[usize]) -> Vec<usize> {
        first.iter().zip(&self.widths).flat_map(|(&axis, &width)| axis..axis + width).collect()
    }

    /// The shape of the part with the axes of the tensors as one.
    fn merged(&self) -> Vec<usize> {
        let (shape, width) = (self.part.shape(), self.widths.iter().sum::<usize>());
        let mut merged = shape.to_vec();
        merged.splice(self.at..self.at + width, [shape[self.at..self.at + width].iter().product()]);
        merged
    }

    /// The shape of what is named.
    fn shape(&self) -> Vec<usize> {
        let mut shape = self.merged();
        shape.splice(self.at..=self.at, self.named.iter().copied());
        shape
    }

    /// The positions as an index that broadcasts along the other axes. What they are is looked up here, after all shapes
    /// were checked.
    fn positions(&self, backend: &Arc<B>, rank: usize) -> Result<Tensor<B>> {
        let mut shape = vec![1; rank];
        shape[self.at] = self.named.count();
        merge(backend, &self.tensors)?.expand(&*self.named)?.reshape(shape)
    }

    /// The value in the shape of the merged part, with as many positions as are named.
    fn source(&self, x: &Tensor<B>, value: Operand<'_, B>) -> Result<Tensor<B>> {
        let mut shape = self.merged();
        shape[self.at] = self.named.count();
        source(x, value, &self.shape())?.reshape(shape)
    }
}

/// Whether something that is neither a tensor nor a position stands between two of them.
fn scattered<B: CopyOps + ?Sized>(indices: &[Subscript<'_, B>]) -> bool {
    let names = |index: &Subscript<'_, B>| matches!(index, Subscript::Tensor(_) | Subscript::View(Index::At(_)));
    let first = indices.iter().position(names).unwrap_or(0);
    let last = indices.iter().rposition(names).unwrap_or(0);
    !indices[first..=last].iter().all(names)
}

/// The layout with `axes` side by side from `at` on, in this order.
fn arrange(part: &Layout, axes: &[usize], at: usize) -> Result<Layout> {
    let mut order: Vec<isize> =
        (0..part.rank()).filter(|axis| !axes.contains(axis)).map(|axis| axis as isize).collect();
    order.splice(at..at, axes.iter().map(|&axis| axis as isize));
    part.permute(&order)
}

fn check_mask<B: CopyOps + ?Sized>(op: &'static str, mask: &Tensor<B>, shape: &[usize], axis: usize) -> Result<()> {
    let covered = shape.get(axis..axis + mask.rank());
    if mask.rank() > 0 && covered == Some(mask.shape()) {
        return Ok(());
    }
    let message =
        format!("a mask of shape {:?} needs axes of just these sizes from axis {axis} on, in {shape:?}", mask.shape());
    Err(Error::new(ErrorKind::Shape, op, message))
}

/// The positions that a tensor names on the axes from `axis` on, as one.
fn positions<B>(op: &'static str, tensor: &Tensor<B>, shape: &[usize], axis: usize) -> Result<Tensor<B>>
where
    B: IndexOps + CopyOps + ReduceOps + ?Sized,
{
    match tensor.dtype() {
        DType::Bool => {
            check_mask(op, tensor, shape, axis)?;
            Tensor::produce(
                tensor.backend(),
                DType::I64,
                Shape::new(op, &[tensor.count_true()?])?,
                |out| Nonzero::new(tensor.view(), out),
                |plan, out| tensor.backend().nonzero(plan, tensor.storage(), out),
            )
        }
        dtype if dtype.is_int() => Ok(tensor.clone()),
        dtype => {
            let message =
                format!("an index of {dtype} names no positions; `cast` it to an integer, or compare it to get a mask");
            Err(Error::new(ErrorKind::DType, op, message))
        }
    }
}

/// Positions on several axes as positions on all of them merged.
fn merge<B>(backend: &Arc<B>, tensors: &[(Tensor<B>, usize)]) -> Result<Tensor<B>>
where
    B: IndexOps + BinaryOps + CopyOps + ?Sized,
{
    if let [(tensor, _)] = tensors {
        return Ok(tensor.clone());
    }
    let mut flat = Tensor::zeros(backend, [], DType::I64)?;
    let mut stride = 1;
    for &(ref tensor, size) in tensors.iter().rev() {
        // `Shape` keeps products of sizes in the range of i64; of an axis without positions every one is outside.
        let table = Tensor::arange_step(backend, 0, size as i64 * stride, stride.max(1), DType::I64)?;
        let index = tensor.flatten()?;
        let products = Tensor::produce(
            backend,
            DType::I64,
            *index.layout().shape(),
            |out| Gather::new(table.view(), 0, index.view(), out),
            |plan, out| backend.gather(plan, table.storage(), index.storage(), out),
        )?;
        flat = flat.add(&products.reshape(tensor.shape())?)?;
        stride *= size as i64;
    }
    Ok(flat)
}
