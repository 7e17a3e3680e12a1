//! The backends that this build contains. The only place in the crate that names one.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use congruent_backend_api::erase::AnyBackend;
#[cfg(any(feature = "cpu", feature = "cuda"))]
use congruent_backend_api::erase::Erase;
use congruent_backend_api::{Error, ErrorKind, Result};

#[cfg(feature = "cpu")]
pub use congruent_backend_cpu::Cpu;
#[cfg(feature = "cuda")]
pub use congruent_backend_cuda::Cuda;

/// Names that `backend` knows, and the feature that each needs.
const KNOWN: &str = "`cpu` (feature `cpu`), `cuda:N` for device N (feature `cuda`)";

/// The backend called `name`: `cpu`, or `cuda:0` for the first CUDA device.
///
/// While a backend of a name is in use, further calls return that same one, so that their tensors can meet.
///
/// ```
/// assert_eq!(congruent::backend("cpu").unwrap().name(), "cpu");
/// let error = congruent::backend("tpu").unwrap_err();
/// assert!(error.message().contains("`cpu`"));
/// ```
///
/// # Errors
/// `Argument` for a name that is not known or a feature that this build lacks, with a list of what there is; what
/// the device reports when it cannot be used.
pub fn backend(name: &str) -> Result<Arc<AnyBackend>> {
    static IN_USE: Mutex<Vec<(String, Weak<AnyBackend>)>> = Mutex::new(Vec::new());
    // Entries are only pushed and dropped whole, so a panic elsewhere leaves the list sound.
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    in_use.retain(|(_, backend)| backend.strong_count() > 0);
    if let Some(backend) = in_use.iter().find(|(given, _)| given == name).and_then(|(_, backend)| backend.upgrade()) {
        return Ok(backend);
    }
    let backend = create(name)?;
    in_use.push((name.to_owned(), Arc::downgrade(&backend)));
    Ok(backend)
}

/// The backends that can be used here: the CPU and each CUDA device, as far as they are compiled in and present.
#[must_use]
pub fn backends() -> Vec<Arc<AnyBackend>> {
    names().iter().filter_map(|name| backend(name).ok()).collect()
}

fn create(name: &str) -> Result<Arc<AnyBackend>> {
    match name.split_once(':') {
        #[cfg(feature = "cpu")]
        None if name == "cpu" => Ok(Arc::new(Erase(Cpu::new()))),
        #[cfg(feature = "cuda")]
        Some(("cuda", ordinal)) => match ordinal.parse() {
            Ok(ordinal) => Ok(Arc::new(Erase(Cuda::new(ordinal)?))),
            Err(_) => Err(unknown(name)),
        },
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    let names = names();
    let present = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let message = format!("no backend `{name}` in this build; present are: {present}; known are: {KNOWN}");
    Error::new(ErrorKind::Argument, "backend", message)
}

/// The names of what is compiled in and present.
fn names() -> Vec<String> {
    #[cfg(feature = "cpu")]
    let cpu = Some("cpu".to_owned());
    #[cfg(not(feature = "cpu"))]
    let cpu = None;
    #[cfg(feature = "cuda")]
    let cuda = Cuda::device_count().unwrap_or(0);
    #[cfg(not(feature = "cuda"))]
    let cuda = 0;
    cpu.into_iter().chain((0..cuda).map(|ordinal| format!("cuda:{ordinal}"))).collect()
}
