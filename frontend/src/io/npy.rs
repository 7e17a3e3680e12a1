//! NumPy's `.npy` format: a magic number, a header that is a Python dict, and the memory of one array.
//!
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use congruent_backend_api::{Backend, CopyOps, DType, Result, Shape};

use super::fail;
use crate::tensor::Tensor;

const MAGIC: &[u8] = b"\x93NUMPY";

impl<B: CopyOps + ?Sized> Tensor<B> {
    /// Writes the elements to a `.npy` file, which `numpy.load` reads. Synchronises.
    ///
    /// # Errors
    /// `Io`, with the file's name: for bf16, which NumPy lacks, and for what the system reports; otherwise as
    /// [`to_vec`](Self::to_vec).
    pub fn save_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        const OP: &str = "save_npy";
        let path = path.as_ref();
        let code = code(self.dtype()).ok_or_else(|| {
            fail(OP, path, format!("NumPy has no {}; `cast` to f32, or use `save_safetensors`", self.dtype()))
        })?;
        let order = match (self.dtype().size(), cfg!(target_endian = "big")) {
            (1, _) => '|',
            (_, false) => '<',
            (_, true) => '>',
        };
        let sizes: String = self.shape().iter().map(|size| format!("{size}, ")).collect();
        // A tuple of one element keeps its comma.
        let sizes = if self.rank() == 1 { sizes.trim_end() } else { sizes.trim_end_matches(", ") };
        let dict = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({sizes}), }}");
        // The elements start at a multiple of 64 bytes; a header ends with a new line.
        let length = (MAGIC.len() + 4 + dict.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
        let bytes = self.to_bytes()?;
        let write = || {
            let mut file = fs::File::create(path)?;
            file.write_all(MAGIC)?;
            file.write_all(&[1, 0])?;
            // At most eight sizes of 20 digits.
            file.write_all(&(length as u16).to_le_bytes())?;
            file.write_all(format!("{dict:<width$}\n", width = length - 1).as_bytes())?;
            file.write_all(&bytes)
        };
        write().map_err(|error| fail(OP, path, "cannot be written").with_source(error))
    }
}

impl<B: Backend + ?Sized> Tensor<B> {
    /// The array in a `.npy` file of format 1, 2 or 3, in either byte order. One in column-major order is a transposed
    /// view.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let path = std::env::temp_dir().join("congruent-doc.npy");
    /// Tensor::arange(&device, 0..6, DType::F32)?.reshape([2, 3])?.save_npy(&path)?;
    /// let x = Tensor::load_npy(&device, &path)?;
    /// assert_eq!((x.shape(), x.to_vec::<f32>()?), (&[2, 3][..], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    /// # std::fs::remove_file(path).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Io`, with the file's name: for what the system reports, a file that is not of this format or cut short, and an
    /// element type that is no [`DType`]; `Shape` for more than eight axes; `OutOfMemory`.
    pub fn load_npy(backend: &Arc<B>, path: impl AsRef<Path>) -> Result<Self> {
        const OP: &str = "load_npy";
        let path = path.as_ref();
        let mut file = fs::read(path).map_err(|error| fail(OP, path, "cannot be read").with_source(error))?;
        let (header, start) = Header::parse(&file).map_err(|message| fail(OP, path, message))?;
        let elements = &mut file[start..];
        let mut sizes = header.shape;
        if header.columns_first {
            sizes.reverse();
        }
        let shape = Shape::new(OP, &sizes)?;
        let wanted = shape.count().checked_mul(header.dtype.size());
        if wanted != Some(elements.len()) {
            let message = format!(
                "{} bytes of elements, but {shape:?} of {} needs {}; the file was cut short or appended to",
                elements.len(),
                header.dtype,
                wanted.map_or("more than there can be".to_owned(), |bytes| bytes.to_string())
            );
            return Err(fail(OP, path, message));
        }
        if header.big_endian != cfg!(target_endian = "big") {
            elements.chunks_exact_mut(header.dtype.size()).for_each(<[u8]>::reverse);
        }
        let x = Self::from_bytes(backend, header.dtype, shape, elements)?;
        if header.columns_first { x.permute((0..x.rank() as isize).rev().collect::<Vec<_>>()) } else { Ok(x) }
    }
}

/// NumPy's type code, without the byte order.
fn code(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F64 => Some("f8"),
        DType::F32 => Some("f4"),
        DType::F16 => Some("f2"),
        DType::BF16 => None,
        DType::I64 => Some("i8"),
        DType::I32 => Some("i4"),
        DType::U32 => Some("u4"),
        DType::U8 => Some("u1"),
        DType::Bool => Some("b1"),
    }
}

#[derive(Debug, PartialEq)]
struct Header {
    dtype: DType,
    big_endian: bool,
    columns_first: bool,
    shape: Vec<usize>,
}

impl Header {
    /// The header of a file, and where the elements start.
    fn parse(file: &[u8]) -> Result<(Self, usize), String> {
        let rest = file.strip_prefix(MAGIC).ok_or("is no .npy file: it does not start with `\\x93NUMPY`")?;
        let version = rest.first().copied().ok_or("is cut short")?;
        // The length of the header has two bytes in version 1, else four.
        let (length, start) = match (version, rest) {
            (1, [_, _, a, b, ..]) => (u16::from_le_bytes([*a, *b]).into(), 4),
            (2 | 3, [_, _, a, b, c, d, ..]) => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 6),
            (1..=3, _) => return Err("is cut short".to_owned()),
            _ => return Err(format!("has version {version} of the format; known are 1 to 3")),
        };
        let dict = rest.get(start..).and_then(|rest| rest.get(..length)).ok_or("is cut short")?;
        let dict = str::from_utf8(dict).map_err(|_| "has a header that is not UTF-8")?;
        Ok((Self::read(dict)?, MAGIC.len() + start + length))
    }

    /// The header in Python's `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
    fn read(dict: &str) -> Result<Self, String> {
        let value = |key: &str| {
            let after = dict.split_once(&format!("'{key}':")).map(|(_, after)| after.trim_start());
            after.ok_or_else(|| format!("has a header without `{key}`: {}", dict.trim()))
        };
        let text = value("descr")?;
        let descr = text.strip_prefix('\'').and_then(|text| text.split_once('\'')).map(|(descr, _)| descr);
        let descr = descr.ok_or("holds a structured array; save each field on its own")?;
        let (order, name) = descr.split_at_checked(1).unwrap_or_default();
        let known = DType::ALL.into_iter().find(|&dtype| code(dtype) == Some(name));
        let dtype = known.filter(|_| matches!(order, "<" | ">" | "|" | "=")).ok_or_else(|| {
            let names: Vec<_> = DType::ALL.into_iter().filter_map(code).collect();
            format!("holds elements of type `{descr}`; known are {}: convert it with NumPy's `astype`", names.join(" "))
        })?;
        let columns_first = value("fortran_order")?.starts_with("True");
        let shape = value("shape")?;
        let sizes = shape.strip_prefix('(').and_then(|shape| shape.split_once(')')).map(|(sizes, _)| sizes);
        let sizes = sizes.map(|sizes| sizes.split(',').map(str::trim).filter(|size| !size.is_empty()));
        let sizes = sizes.and_then(|sizes| sizes.map(|size| size.parse().ok()).collect::<Option<_>>());
        let shape = sizes.ok_or_else(|| format!("has a header with a shape that is none: {}", dict.trim()))?;
        let big_endian = match order {
            ">" => true,
            "=" => cfg!(target_endian = "big"),
            _ => false,
        };
        Ok(Self { dtype, big_endian, columns_first, shape })
    }
}
