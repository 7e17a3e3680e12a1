//! [`Tensor`]: a view of a storage of a backend; access and transfer.
//!
//! Sharing and writing: a tensor shares its storage with its clones and views. Whatever writes (`_assign`, `_into`,
//! `fill`) does so in place when the storage belongs to this tensor alone, and into a fresh buffer otherwise, so no
//! other tensor ever changes. The old storage is let go only once the op has succeeded.

use std::fmt;
use std::sync::Arc;

use congruent_backend_api::ops::copy::Copy;
use congruent_backend_api::{
    Backend, CopyOps, DType, Element, Error, ErrorKind, Layout, Result, Shape, Source, Storage, View,
};

/// An n-dimensional array on a backend. Cloning shares the elements; see [the crate docs](crate) for an example.
///
/// `B` is a backend known at compile time, or [`AnyBackend`](crate::AnyBackend) for one chosen at run time.
pub struct Tensor<B: Backend + ?Sized> {
    backend: Arc<B>,
    storage: Arc<B::Storage>,
    layout: Layout,
}

impl<B: Backend + ?Sized> Tensor<B> {
    /// A tensor of these elements in row-major order.
    ///
    /// # Errors
    /// `Argument` when the number of elements is not that of `shape`; `Shape`; `OutOfMemory`.
    pub fn from_slice<T: Element>(backend: &Arc<B>, elements: &[T], shape: impl AsRef<[usize]>) -> Result<Self> {
        const OP: &str = "from_slice";
        let shape = Shape::new(OP, shape.as_ref())?;
        if shape.count() != elements.len() {
            let message = format!("{} elements given, shape {shape:?} needs {}", elements.len(), shape.count());
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        Self::from_bytes(backend, T::DTYPE, shape, T::as_bytes(elements))
    }

    /// A view of an existing storage.
    ///
    /// # Errors
    /// `Shape` when `layout` reaches past the end of the storage.
    pub fn from_parts(backend: &Arc<B>, storage: Arc<B::Storage>, layout: Layout) -> Result<Self> {
        if layout.min_len() > storage.len() {
            let message = format!(
                "the layout needs a storage of {} elements, this one has {}: {layout:?}",
                layout.min_len(),
                storage.len()
            );
            return Err(Error::new(ErrorKind::Shape, "from_parts", message));
        }
        Ok(Self { backend: Arc::clone(backend), storage, layout })
    }

    /// The backend that owns the storage.
    #[must_use]
    pub fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    /// The storage, shared with clones and views.
    #[must_use]
    pub fn storage(&self) -> &Arc<B::Storage> {
        &self.storage
    }

    /// The storage for writing, when no clone or view shares it; a `copy` always has its own. What is written
    /// outside of [`layout`](Self::layout) is not seen through this tensor.
    #[must_use]
    pub fn storage_mut(&mut self) -> Option<&mut B::Storage> {
        Arc::get_mut(&mut self.storage)
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.storage.dtype()
    }

    /// Where the elements lie in the storage.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The sizes of the axes.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// The number of elements.
    #[must_use]
    pub fn count(&self) -> usize {
        self.layout.count()
    }

    /// Whether the elements lie one after another in row-major order.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// Waits for every op of the backend.
    ///
    /// # Errors
    /// What the data of an earlier op caused, such as `DivisionByZero`; `DeviceLost`.
    pub fn synchronize(&self) -> Result<()> {
        self.backend.synchronize()
    }

    pub(crate) fn from_bytes(backend: &Arc<B>, dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Self> {
        let mut storage = backend.alloc(dtype, shape.count())?;
        backend.write(bytes, &mut storage, 0)?;
        Ok(Self { backend: Arc::clone(backend), storage: Arc::new(storage), layout: Layout::contiguous(shape) })
    }

    /// The same storage in another layout, which the caller derived from this one's.
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        Self { backend: Arc::clone(&self.backend), storage: Arc::clone(&self.storage), layout }
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { dtype: self.dtype(), layout: &self.layout }
    }

    /// A new contiguous tensor that `run` fills. Planning comes first: an invalid call allocates nothing.
    pub(crate) fn produce<P>(
        backend: &Arc<B>,
        dtype: DType,
        shape: Shape,
        plan: impl FnOnce(View<'_>) -> Result<P>,
        run: impl FnOnce(&P, &mut B::Storage) -> Result<()>,
    ) -> Result<Self> {
        Self::produce_in(backend, dtype, Layout::contiguous(shape), plan, run)
    }

    /// As [`produce`](Self::produce), in a layout that reaches each element of a packed storage once.
    pub(crate) fn produce_in<P>(
        backend: &Arc<B>,
        dtype: DType,
        layout: Layout,
        plan: impl FnOnce(View<'_>) -> Result<P>,
        run: impl FnOnce(&P, &mut B::Storage) -> Result<()>,
    ) -> Result<Self> {
        let plan = plan(View { dtype, layout: &layout })?;
        let mut storage = backend.alloc(dtype, layout.count())?;
        run(&plan, &mut storage)?;
        Ok(Self { backend: Arc::clone(backend), storage: Arc::new(storage), layout })
    }

    /// Writes this tensor: in place when nobody else can see it, else into a fresh buffer that replaces the old one.
    ///
    /// `plan` receives how the old value is read; `run` receives the old storage unless the op works in place.
    pub(crate) fn overwrite<P>(
        &mut self,
        plan: impl FnOnce(Source<'_>, View<'_>) -> Result<P>,
        run: impl FnOnce(&P, Option<&B::Storage>, &mut B::Storage) -> Result<()>,
    ) -> Result<()> {
        let dtype = self.dtype();
        if let Some(storage) = exclusive(&mut self.storage, &self.layout) {
            let plan = plan(Source::Output, View { dtype, layout: &self.layout })?;
            return run(&plan, None, storage);
        }
        let layout = Layout::contiguous(*self.layout.shape());
        let plan = plan(Source::View(self.view()), View { dtype, layout: &layout })?;
        let mut storage = self.backend.alloc(dtype, layout.count())?;
        run(&plan, Some(&self.storage), &mut storage)?;
        (self.storage, self.layout) = (Arc::new(storage), layout);
        Ok(())
    }
}

impl<B: CopyOps + ?Sized> Tensor<B> {
    /// As [`overwrite`](Self::overwrite) for ops that keep or read what they write over: the fresh buffer starts as a
    /// copy of the old one.
    pub(crate) fn modify<P>(
        &mut self,
        plan: impl FnOnce(View<'_>) -> Result<P>,
        run: impl FnOnce(&P, &mut B::Storage) -> Result<()>,
    ) -> Result<()> {
        let dtype = self.dtype();
        if let Some(storage) = exclusive(&mut self.storage, &self.layout) {
            return run(&plan(View { dtype, layout: &self.layout })?, storage);
        }
        let layout = Layout::contiguous(*self.layout.shape());
        let out = View { dtype, layout: &layout };
        let (plan, copy) = (plan(out)?, Copy::new(self.view(), out)?);
        let mut storage = self.backend.alloc(dtype, layout.count())?;
        self.backend.copy(&copy, &self.storage, &mut storage)?;
        run(&plan, &mut storage)?;
        (self.storage, self.layout) = (Arc::new(storage), layout);
        Ok(())
    }

    /// The elements in row-major order. Synchronises.
    ///
    /// # Errors
    /// `DType` when `T` is not the element type; what the data of an earlier op caused; `OutOfMemory`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            let message = format!("the tensor is {0}, not {1}; read it as {0} or `cast` it", self.dtype(), T::DTYPE);
            return Err(Error::new(ErrorKind::DType, "to_vec", message));
        }
        let x = self.contiguous()?;
        T::read(x.count(), &mut |bytes| x.download(bytes))
    }

    /// The only element. Synchronises.
    ///
    /// # Errors
    /// `Shape` unless there is exactly one element; otherwise as [`to_vec`](Self::to_vec).
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.count() {
            1 => Ok(self.to_vec()?[0]),
            count => {
                let message =
                    format!("shape {:?} has {count} elements, not one; select one, or use `to_vec`", self.shape());
                Err(Error::new(ErrorKind::Shape, "item", message))
            }
        }
    }

    /// The tensor on another backend. Between two CUDA devices, or streams of one, the elements are copied directly;
    /// otherwise they pass through the host, which synchronises.
    ///
    /// # Errors
    /// `OutOfMemory`; through the host, what the data of an earlier op caused.
    pub fn to_backend<C: Backend + ?Sized>(&self, backend: &Arc<C>) -> Result<Tensor<C>> {
        let x = self.contiguous()?;
        let mut storage = backend.alloc(x.dtype(), x.count())?;
        let received = x.count() > 0 && backend.receive(&*x.storage, x.layout.offset(), &mut storage)?;
        if !received {
            backend.write(&x.to_bytes()?, &mut storage, 0)?;
        }
        Tensor::from_parts(backend, Arc::new(storage), Layout::contiguous(*x.layout.shape()))
    }

    /// The memory of the elements in row-major order.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let x = self.contiguous()?;
        u8::read(x.count() * x.dtype().size(), &mut |bytes| x.download(bytes))
    }

    /// The memory of a contiguous tensor.
    fn download(&self, bytes: &mut [u8]) -> Result<()> {
        match self.count() {
            // The offset of an empty view may lie past the end, but errors of earlier ops must come out all the same.
            0 => self.synchronize(),
            _ => self.backend.download(&self.storage, self.layout.offset(), bytes),
        }
    }
}

/// The storage when no other tensor can see it and the view reaches each element once (a broadcast view does not).
fn exclusive<'s, S>(storage: &'s mut Arc<S>, layout: &Layout) -> Option<&'s mut S> {
    Arc::get_mut(storage).filter(|_| layout.is_contiguous() || layout.is_injective())
}

impl<B: Backend + ?Sized> Clone for Tensor<B> {
    fn clone(&self) -> Self {
        self.with_layout(self.layout)
    }
}

impl<B: Backend + ?Sized> fmt::Debug for Tensor<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("dtype", &format_args!("{}", self.dtype()))
            .field("shape", &self.shape())
            .field("strides", &self.layout.strides())
            .field("offset", &self.layout.offset())
            .field("backend", &self.backend.name())
            .finish_non_exhaustive()
    }
}
