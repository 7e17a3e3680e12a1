//! Tensors for the tests: a storage with a layout, and one call per op.

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::compare::{Clamp, Compare, CompareOp, Where};
use congruent_backend_api::ops::copy::Copy;
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::reduce::{ArgReduce, ArgReduceOp, Reduce, ReduceOp};
use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::*;

use crate::{Cpu, CpuStorage};

/// A storage and a view of it.
pub(crate) struct Tensor {
    pub(crate) storage: CpuStorage,
    pub(crate) layout: Layout,
}

/// An operand of a call.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Tensor(&'a Tensor),
    Scalar(Scalar),
    Output,
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl<'a> Arg<'a> {
    fn parts(self) -> (Source<'a>, Option<&'a CpuStorage>) {
        match self {
            Self::Tensor(tensor) => (Source::View(tensor.view()), Some(&tensor.storage)),
            Self::Scalar(scalar) => (Source::Scalar(scalar), None),
            Self::Output => (Source::Output, None),
        }
    }
}

pub(crate) fn tensor<T: Element>(shape: &[usize], elements: &[T]) -> Tensor {
    let layout = Layout::contiguous(Shape::new("test", shape).unwrap());
    assert_eq!(layout.count(), elements.len());
    let cpu = Cpu::new();
    let mut storage = cpu.alloc(T::DTYPE, elements.len()).unwrap();
    cpu.write(T::as_bytes(elements), &mut storage, 0).unwrap();
    Tensor { storage, layout }
}

pub(crate) fn vector<T: Element>(elements: &[T]) -> Tensor {
    tensor(&[elements.len()], elements)
}

/// A contiguous output whose memory is not zero.
pub(crate) fn output(dtype: DType, shape: &[usize]) -> Tensor {
    let layout = Layout::contiguous(Shape::new("test", shape).unwrap());
    let mut storage = Cpu::new().alloc(dtype, layout.count()).unwrap();
    storage.write(&vec![0x5a; layout.count() * dtype.size()], 0);
    Tensor { storage, layout }
}

impl Tensor {
    pub(crate) fn view(&self) -> View<'_> {
        View { dtype: self.storage.dtype(), layout: &self.layout }
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        self.layout.shape().to_vec()
    }

    pub(crate) fn with(mut self, layout: impl FnOnce(&Layout) -> Result<Layout>) -> Self {
        self.layout = layout(&self.layout).unwrap();
        self
    }

    /// The elements of the view in row-major order.
    pub(crate) fn elements<T: Element>(&self) -> Vec<T> {
        let mut memory =
            T::read(self.storage.len(), &mut |bytes| Cpu::new().download(&self.storage, 0, bytes)).unwrap();
        let all = std::mem::take(&mut memory);
        (0..self.layout.count())
            .map(|mut index| {
                let mut at = self.layout.offset();
                for (&size, &stride) in self.layout.shape().iter().zip(self.layout.strides()).rev() {
                    at = at.wrapping_add_signed((index % size) as isize * stride);
                    index /= size;
                }
                all[at]
            })
            .collect()
    }
}

pub(crate) fn unary_into<'a>(op: UnaryOp, x: impl Into<Arg<'a>>, out: &mut Tensor) {
    let (source, storage) = x.into().parts();
    let plan = Unary::new(op, source, out.view()).unwrap();
    Cpu::new().unary(&plan, storage, &mut out.storage).unwrap();
}

pub(crate) fn unary(op: UnaryOp, x: &Tensor) -> Tensor {
    let mut out = output(op.out_dtype(x.storage.dtype()), &x.shape());
    unary_into(op, x, &mut out);
    out
}

pub(crate) fn binary_into<'a>(cpu: &Cpu, op: BinaryOp, a: impl Into<Arg<'a>>, b: impl Into<Arg<'a>>, out: &mut Tensor) {
    let ((a, a_storage), (b, b_storage)) = (a.into().parts(), b.into().parts());
    let plan = Binary::new(op, a, b, out.view()).unwrap();
    cpu.binary(&plan, a_storage, b_storage, &mut out.storage).unwrap();
}

/// `op(a, b)` of vectors.
pub(crate) fn binary<T: Element>(op: BinaryOp, a: &[T], b: &[T]) -> Vec<T> {
    let mut out = output(T::DTYPE, &[a.len()]);
    binary_into(&Cpu::new(), op, &vector(a), &vector(b), &mut out);
    out.elements()
}

pub(crate) fn compare<T: Element>(op: CompareOp, a: &[T], b: &[T]) -> Vec<bool> {
    let mut out = output(DType::Bool, &[a.len()]);
    let (a, b) = (vector(a), vector(b));
    let plan = Compare::new(op, T::DTYPE, Source::View(a.view()), Source::View(b.view()), out.view()).unwrap();
    Cpu::new().compare(&plan, Some(&a.storage), Some(&b.storage), &mut out.storage).unwrap();
    out.elements()
}

pub(crate) fn choose_into<'a>(
    condition: impl Into<Arg<'a>>,
    a: impl Into<Arg<'a>>,
    b: impl Into<Arg<'a>>,
    out: &mut Tensor,
) {
    let ((condition, mask), (a, a_storage), (b, b_storage)) =
        (condition.into().parts(), a.into().parts(), b.into().parts());
    let plan = Where::new(condition, a, b, out.view()).unwrap();
    Cpu::new().choose(&plan, mask, a_storage, b_storage, &mut out.storage).unwrap();
}

pub(crate) fn clamp<T: Element>(x: &[T], min: Option<Scalar>, max: Option<Scalar>) -> Vec<T> {
    let (x, mut out) = (vector(x), output(T::DTYPE, &[x.len()]));
    let plan = Clamp::new(min, max, Source::View(x.view()), out.view()).unwrap();
    Cpu::new().clamp(&plan, Some(&x.storage), &mut out.storage).unwrap();
    out.elements()
}

pub(crate) fn copy_into(x: &Tensor, out: &mut Tensor) {
    let plan = Copy::new(x.view(), out.view()).unwrap();
    Cpu::new().copy(&plan, &x.storage, &mut out.storage).unwrap();
}

pub(crate) fn cast<T: Element, R: Element>(x: &[T]) -> Vec<R> {
    let mut out = output(R::DTYPE, &[x.len()]);
    copy_into(&vector(x), &mut out);
    out.elements()
}

pub(crate) fn reduce_into(op: ReduceOp, x: &Tensor, axes: Option<&[isize]>, out: &mut Tensor) {
    let plan = Reduce::new(op, x.view(), axes, out.view()).unwrap();
    Cpu::new().reduce(&plan, &x.storage, &mut out.storage).unwrap();
}

pub(crate) fn reduce(op: ReduceOp, x: &Tensor, axes: Option<&[isize]>) -> Tensor {
    let shape = Reduce::shape(op, &x.shape(), axes, false).unwrap();
    let mut out = output(op.out_dtype(x.storage.dtype()), &shape);
    reduce_into(op, x, axes, &mut out);
    out
}

pub(crate) fn arg_reduce(op: ArgReduceOp, x: &Tensor, along: isize) -> Vec<i64> {
    let shape = Reduce::shape(ReduceOp::Max, &x.shape(), Some(&[along]), true).unwrap();
    let mut out = output(DType::I64, &shape);
    let plan = ArgReduce::new(op, x.view(), along, out.view()).unwrap();
    Cpu::new().arg_reduce(&plan, &x.storage, &mut out.storage).unwrap();
    out.elements()
}

pub(crate) fn matmul_into(a: &Tensor, b: &Tensor, alpha: Scalar, beta: Scalar, out: &mut Tensor) {
    let plan = Matmul::new(a.view(), b.view(), alpha, beta, out.view()).unwrap();
    Cpu::new().matmul(&plan, &a.storage, &b.storage, &mut out.storage).unwrap();
}

pub(crate) fn matmul(a: &Tensor, b: &Tensor) -> Tensor {
    let mut out = output(a.storage.dtype(), &Matmul::shape(&a.shape(), &b.shape()).unwrap());
    matmul_into(a, b, 1.into(), 0.into(), &mut out);
    out
}

/// Runs `f` on pools of 1 and 3 threads and demands equal results.
pub(crate) fn on_any_threads<R: PartialEq + std::fmt::Debug + Send>(f: impl Fn() -> R + Sync) -> R {
    let [one, three] =
        [1, 3].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(&f));
    assert_eq!(one, three);
    one
}
