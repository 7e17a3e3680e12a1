//! Files of named tensors in Hugging Face's safetensors format.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use congruent_backend_api::{Backend, CopyOps, DType, Result, Shape};
use safetensors::tensor::{Dtype, SafeTensors, View, serialize_to_file};

use super::fail;
use crate::tensor::Tensor;

/// Every tensor of a `.safetensors` file, by name. The file is read whole into the host's memory on the way.
///
/// # Errors
/// `Io`, with the file's name: for what the system reports, a file that is not of this format or cut short, and an element
/// type that is no [`DType`], with the tensor's name; `Shape` for more than eight axes; `OutOfMemory`.
pub fn load_safetensors<B: Backend + ?Sized>(
    backend: &Arc<B>,
    path: impl AsRef<Path>,
) -> Result<BTreeMap<String, Tensor<B>>> {
    const OP: &str = "load_safetensors";
    let path = path.as_ref();
    let file = fs::read(path).map_err(|error| fail(OP, path, "cannot be read").with_source(error))?;
    let archive = SafeTensors::deserialize(&file).map_err(|error| {
        fail(OP, path, format!("is no whole .safetensors file ({error}); fetch or save it again")).with_source(error)
    })?;
    let mut tensors = BTreeMap::new();
    for (name, view) in archive.iter() {
        let dtype = DType::ALL.into_iter().find(|&dtype| to_file(dtype) == view.dtype()).ok_or_else(|| {
            let names: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
            let (given, known) = (view.dtype(), names.join(" "));
            fail(
                OP,
                path,
                format!("tensor `{name}` has elements of type {given:?}; known are {known}: convert it before"),
            )
        })?;
        let shape = Shape::new(OP, view.shape())?;
        tensors.insert(name.to_owned(), Tensor::from_bytes(backend, dtype, shape, &native(dtype, view.data()))?);
    }
    Ok(tensors)
}

/// Writes tensors with their names to a `.safetensors` file. Synchronises.
///
/// ```
/// # fn main() -> congruent::Result<()> {
/// # use congruent::{DType, Tensor, io};
/// # let device = congruent::backend("cpu")?;
/// let path = std::env::temp_dir().join("congruent-doc.safetensors");
/// let weight = Tensor::ones(&device, [2, 3], DType::BF16)?;
/// io::save_safetensors([("weight", &weight), ("bias", &weight.i(0)?)], &path)?;
/// let tensors = io::load_safetensors(&device, &path)?;
/// assert_eq!(tensors["bias"].shape(), [3]);
/// # std::fs::remove_file(path).ok();
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Io`, with the file's name, for what the system reports; otherwise as [`Tensor::to_vec`].
pub fn save_safetensors<'a, B: CopyOps + ?Sized + 'a, S: AsRef<str>>(
    tensors: impl IntoIterator<Item = (S, &'a Tensor<B>)>,
    path: impl AsRef<Path>,
) -> Result<()> {
    let path = path.as_ref();
    let mut entries = Vec::new();
    for (name, tensor) in tensors {
        let bytes = native(tensor.dtype(), &tensor.to_bytes()?).into_owned();
        let entry = Entry { dtype: to_file(tensor.dtype()), shape: tensor.shape().to_vec(), bytes };
        entries.push((name.as_ref().to_owned(), entry));
    }
    serialize_to_file(entries, None, path)
        .map_err(|error| fail("save_safetensors", path, format!("cannot be written: {error}")).with_source(error))
}

struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for Entry {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.bytes.as_slice().into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

fn to_file(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

/// The file is little-endian: its elements in this machine's order, and back.
fn native(dtype: DType, bytes: &[u8]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        return bytes.into();
    }
    let mut bytes = bytes.to_vec();
    bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    bytes.into()
}
