//! Reading and writing files.

mod npy;
#[cfg(feature = "safetensors")]
mod safetensors;

use std::path::Path;

use congruent_backend_api::{Error, ErrorKind};

#[cfg(feature = "safetensors")]
pub use safetensors::{load_safetensors, save_safetensors};

/// An error of an op on a file: names the file, what is wrong and the cure.
fn fail(op: &'static str, path: &Path, message: impl AsRef<str>) -> Error {
    Error::new(ErrorKind::Io, op, format!("`{}`: {}", path.display(), message.as_ref()))
}
