//! Descriptors of cuDNN's graph interface: made, given attributes, finalized, and released once.

use std::ffi::c_void;

use cudarc::cudnn::result::CudnnError;
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Attribute, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Class, cudnnBackendHeurMode_t, cudnnBackendNumericalNote_t as Note,
    cudnnConvolutionMode_t, cudnnDataType_t, cudnnPointwiseMode_t,
};

/// A descriptor.
pub(super) struct Descriptor(sys::cudnnBackendDescriptor_t);

/// The address of a descriptor, as the value of an attribute.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Address(pub(super) *mut c_void);

/// An address of device memory, as the value of an attribute.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Memory(pub(super) *mut c_void);

/// A handle, as the value of an attribute.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Session(pub(super) sys::cudnnHandle_t);

/// A type of attributes' values, as large as cuDNN has it. Implemented in this file only.
pub(super) trait Value: Copy {
    const TYPE: Type;
}

impl Value for i64 {
    const TYPE: Type = Type::CUDNN_TYPE_INT64;
}

impl Value for f32 {
    const TYPE: Type = Type::CUDNN_TYPE_FLOAT;
}

impl Value for f64 {
    const TYPE: Type = Type::CUDNN_TYPE_DOUBLE;
}

impl Value for bool {
    const TYPE: Type = Type::CUDNN_TYPE_BOOLEAN;
}

impl Value for Address {
    const TYPE: Type = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
}

impl Value for Memory {
    const TYPE: Type = Type::CUDNN_TYPE_VOID_PTR;
}

impl Value for Session {
    const TYPE: Type = Type::CUDNN_TYPE_HANDLE;
}

impl Value for cudnnDataType_t {
    const TYPE: Type = Type::CUDNN_TYPE_DATA_TYPE;
}

impl Value for cudnnConvolutionMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_CONVOLUTION_MODE;
}

impl Value for cudnnPointwiseMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_POINTWISE_MODE;
}

impl Value for cudnnBackendHeurMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_HEUR_MODE;
}

// SAFETY: a descriptor is memory of the host that no thread but the one with `&mut Cudnn` touches.
unsafe impl Send for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it came from `new` and is destroyed once. A failure leaks it.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}

impl Descriptor {
    /// An empty one; the library is loaded, since there is a handle.
    pub(super) fn new(class: Class) -> Result<Self, CudnnError> {
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: one pointer is written.
        unsafe { sys::cudnnBackendCreateDescriptor(class, &raw mut descriptor) }.result()?;
        Ok(Self(descriptor))
    }

    pub(super) fn address(&self) -> Address {
        Address(self.0)
    }

    /// Sets an attribute. cuDNN refuses a type or a number of values that the attribute does not have.
    pub(super) fn set<T: Value>(&self, attribute: Attribute, values: &[T]) -> Result<(), CudnnError> {
        let pointer = values.as_ptr().cast();
        // SAFETY: the descriptor is alive, and as many values of this type are read as there are.
        unsafe { sys::cudnnBackendSetAttribute(self.0, attribute, T::TYPE, values.len() as i64, pointer) }.result()
    }

    /// Closes it, after which it may be used.
    pub(super) fn finalize(&self) -> Result<(), CudnnError> {
        // SAFETY: the descriptor is alive.
        unsafe { sys::cudnnBackendFinalize(self.0) }.result()
    }

    /// The descriptor that an attribute is.
    pub(super) fn part(&self, attribute: Attribute, class: Class) -> Result<Self, CudnnError> {
        let part = Self::new(class)?;
        self.get(attribute, Address::TYPE, &mut [part.address()])?;
        Ok(part)
    }

    /// The descriptors that an attribute holds.
    pub(super) fn list(&self, attribute: Attribute, class: Class) -> Result<Vec<Self>, CudnnError> {
        let count = self.get(attribute, Address::TYPE, &mut [] as &mut [Address])?;
        let list = (0..count).map(|_| Self::new(class)).collect::<Result<Vec<_>, _>>()?;
        let mut addresses: Vec<Address> = list.iter().map(Self::address).collect();
        let found = self.get(attribute, Address::TYPE, &mut addresses)?;
        // cuDNN fills those that it was given.
        Ok(list.into_iter().take(found).collect())
    }

    /// The numerical notes that an attribute holds. They are read as integers: a later version may have others.
    pub(super) fn numbers(&self, attribute: Attribute) -> Result<Vec<u32>, CudnnError> {
        let mut notes = vec![0_u32; Note::CUDNN_NUMERICAL_NOTE_TYPE_COUNT as usize];
        let count = self.get(attribute, Type::CUDNN_TYPE_NUMERICAL_NOTE, &mut notes)?;
        notes.truncate(count);
        Ok(notes)
    }

    /// The integer that an attribute is.
    pub(super) fn size(&self, attribute: Attribute) -> Result<i64, CudnnError> {
        let mut size = [0_i64];
        self.get(attribute, Type::CUDNN_TYPE_INT64, &mut size)?;
        Ok(size[0])
    }

    /// Reads an attribute of a type whose values are as large as `T`; returns how many there are.
    fn get<T>(&self, attribute: Attribute, kind: Type, values: &mut [T]) -> Result<usize, CudnnError> {
        let (mut count, room) = (0, values.len() as i64);
        let pointer = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast() };
        // SAFETY: the descriptor is alive, and no more values are written than there is room for.
        unsafe { sys::cudnnBackendGetAttribute(self.0, attribute, kind, room, &raw mut count, pointer) }.result()?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Starts an execution plan on the stream of a handle.
    ///
    /// # Safety
    /// This is a plan of the handle, which is alive, and `pack` has memory for each of its tensors, and a workspace.
    pub(super) unsafe fn execute(&self, handle: sys::cudnnHandle_t, pack: &Self) -> Result<(), CudnnError> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { sys::cudnnBackendExecute(handle, self.0, pack.0) }.result()
    }
}
