//! Tensors as a storage and a layout, and the ops on them.

use std::process::Command;
use std::sync::OnceLock;

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::copy::Copy;
use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{
    Backend, BinaryOps, CopyOps, DType, Element, Layout, Result, Scalar, Shape, Source, Storage, UnaryOps, View,
};
use congruent_backend_cuda::{Cuda, CudaStorage};

/// The device, or a note that there is none.
pub(crate) fn cuda() -> Option<&'static Cuda> {
    static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();
    let cuda = CUDA.get_or_init(|| Cuda::new(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok());
    if cuda.is_none() {
        println!("skipped: no CUDA device");
    }
    cuda.as_ref()
}

const ALONE: &str = "CONGRUENT_TEST_ALONE";

/// Whether this process was started for this one test (`module::name`). If not, starts it and asserts that it succeeds;
/// `change` may set its environment. For what concerns a whole process: its memory, its context, its libraries.
pub(crate) fn alone_with(test: &str, change: impl FnOnce(&mut Command)) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--include-ignored", "--test-threads=1"]).env(ALONE, "1");
    change(&mut command);
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    print!("{out}");
    assert!(output.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", output.status);
    false
}

pub(crate) fn alone(test: &str) -> bool {
    alone_with(test, |_| ())
}

/// Adds 1 to each element.
pub(crate) fn increment(cuda: &Cuda, x: &mut Tensor) {
    let plan = Binary::new(BinaryOp::Add, Source::Output, Source::Scalar(Scalar::Int(1)), x.view()).unwrap();
    cuda.binary(&plan, None, None, &mut x.storage).unwrap();
}

/// Copies a tensor by a kernel of this backend.
pub(crate) fn copy(cuda: &Cuda, x: &Tensor) -> Tensor {
    let storage = cuda.alloc(x.dtype(), x.layout.count()).unwrap();
    let mut out = Tensor { storage, layout: layout(x.layout.shape()) };
    cuda.copy(&Copy::new(x.view(), out.view()).unwrap(), &x.storage, &mut out.storage).unwrap();
    out
}

pub(crate) struct Tensor {
    pub(crate) storage: CudaStorage,
    pub(crate) layout: Layout,
}

pub(crate) fn layout(shape: &[usize]) -> Layout {
    Layout::contiguous(Shape::new("test", shape).unwrap())
}

pub(crate) fn put<T: Element>(cuda: &Cuda, elements: &[T]) -> CudaStorage {
    let mut storage = cuda.alloc(T::DTYPE, elements.len()).unwrap();
    cuda.write(T::as_bytes(elements), &mut storage, 0).unwrap();
    storage
}

pub(crate) fn get<T: Element>(cuda: &Cuda, storage: &CudaStorage) -> Result<Vec<T>> {
    assert_eq!(storage.dtype(), T::DTYPE);
    T::read(storage.len(), &mut |bytes| cuda.download(storage, 0, bytes))
}

impl Tensor {
    pub(crate) fn new<T: Element>(cuda: &Cuda, shape: &[usize], elements: &[T]) -> Self {
        Self { storage: put(cuda, elements), layout: layout(shape) }
    }

    /// A row-major tensor whose elements are those of `element`.
    pub(crate) fn from_fn<T: Element>(cuda: &Cuda, shape: &[usize], element: impl Fn(usize) -> T) -> Self {
        let elements: Vec<T> = (0..layout(shape).count()).map(element).collect();
        Self::new(cuda, shape, &elements)
    }

    pub(crate) fn zeros<T: Element>(cuda: &Cuda, shape: &[usize]) -> Self {
        Self::from_fn(cuda, shape, |_| T::default())
    }

    pub(crate) fn with(self, change: impl FnOnce(&Layout) -> Layout) -> Self {
        Self { layout: change(&self.layout), ..self }
    }

    pub(crate) fn dtype(&self) -> DType {
        self.storage.dtype()
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { dtype: self.dtype(), layout: &self.layout }
    }

    /// The elements of the view in row-major order, gathered by the host.
    pub(crate) fn to_vec<T: Element>(&self, cuda: &Cuda) -> Vec<T> {
        let all = get::<T>(cuda, &self.storage).unwrap();
        elements(&self.layout).into_iter().map(|at| all[at]).collect()
    }
}

/// The storage elements of a view in row-major order.
pub(crate) fn elements(layout: &Layout) -> Vec<usize> {
    (0..layout.count())
        .map(|mut index| {
            let mut at = layout.offset() as isize;
            for (&size, &stride) in layout.shape().iter().zip(layout.strides()).rev() {
                at += (index % size) as isize * stride;
                index /= size;
            }
            at as usize
        })
        .collect()
}

pub(crate) fn unary<T: Element, O: Element>(cuda: &Cuda, op: UnaryOp, x: &[T]) -> Vec<O> {
    let x = Tensor::new(cuda, &[x.len()], x);
    let mut out = Tensor::zeros::<O>(cuda, x.layout.shape());
    let plan = Unary::new(op, Source::View(x.view()), out.view()).unwrap();
    cuda.unary(&plan, Some(&x.storage), &mut out.storage).unwrap();
    get(cuda, &out.storage).unwrap()
}

/// The result before it is downloaded, so that the error flag is seen by the caller.
pub(crate) fn binary<T: Element>(cuda: &Cuda, op: BinaryOp, a: &[T], b: &[T]) -> CudaStorage {
    let (a, b) = (Tensor::new(cuda, &[a.len()], a), Tensor::new(cuda, &[b.len()], b));
    let mut out = Tensor::zeros::<T>(cuda, a.layout.shape());
    let plan = Binary::new(op, Source::View(a.view()), Source::View(b.view()), out.view()).unwrap();
    cuda.binary(&plan, Some(&a.storage), Some(&b.storage), &mut out.storage).unwrap();
    out.storage
}

pub(crate) fn cast<T: Element, O: Element>(cuda: &Cuda, x: &[T]) -> Vec<O> {
    let x = Tensor::new(cuda, &[x.len()], x);
    let mut out = Tensor::zeros::<O>(cuda, x.layout.shape());
    let plan = Copy::new(x.view(), out.view()).unwrap();
    cuda.copy(&plan, &x.storage, &mut out.storage).unwrap();
    get(cuda, &out.storage).unwrap()
}

/// Layouts of one shape over a storage of 4096 elements that a backend may meet.
pub(crate) fn odd_layouts() -> Vec<Layout> {
    use congruent_backend_api::Slice;
    let step = |layout: Layout, axis, step| layout.slice(axis, Slice { step, ..Slice::FULL }).unwrap();
    let skip =
        |layout: Layout, axis, start| layout.slice(axis, Slice { start: Some(start), stop: None, step: 1 }).unwrap();
    vec![
        layout(&[4, 5, 6]),
        layout(&[6, 5, 4]).permute(&[2, 1, 0]).unwrap(),
        layout(&[4, 6, 5]).permute(&[0, 2, 1]).unwrap(),
        layout(&[4, 5, 6]).flip(&[0, 2]).unwrap(),
        skip(layout(&[5, 5, 6]), 0, 1),
        step(layout(&[4, 5, 12]), 2, 2),
        step(layout(&[4, 5, 12]), 2, -2),
        Layout::new("test", &[4, 5, 6], &[40, 7, 1], 3).unwrap(),
    ]
}
