//! Finding where a program diverges: [`Shadow`] is a backend that runs every op on two backends and stops at the first
//! one whose results differ by more than the op's bound.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use congruent::{AnyBackend, DType, Result, Tensor};
//! use congruent_conformance::shadow::Shadow;
//!
//! # fn run(trusted: Arc<AnyBackend>, suspect: Arc<AnyBackend>) -> Result<()> {
//! let device = Arc::new(Shadow::new(trusted, suspect));
//! let x = Tensor::ones(&device, [32, 64], DType::F32)?;
//! let y = x.tanh()?; // an error, if the two disagree about tanh
//! # Ok(())
//! # }
//! ```
//!
//! - Both outputs are downloaded after each op. Equal bits are accepted as they are. Where bits differ, the call becomes
//!   a [`Case`], and each element that differs must lie inside the oracle's bound, on both backends.
//! - The first backend is the truth that the program goes on with: after an accepted op, its result overwrites the second
//!   backend's. Differences therefore do not accumulate, each op is judged on equal inputs, and the op that is reported
//!   is the one that is wrong, not a later one that met the consequences.
//! - A divergence is an error of kind [`Native`](ErrorKind::Native) whose [source](std::error::Error::source) is a
//!   [`Divergence`]. The case is written as a [replay file](crate::replay), which runs the op alone.
//!
//! Plans keep the canonical loops, not the shapes that the program wrote, so that the case of a contiguous `[32, 64]` may
//! say `[2048]`. With `RUST_BACKTRACE=1`, the divergence's [backtrace](Divergence::backtrace) has the line of the program.

mod call;
mod divergence;
mod families;
mod judge;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use congruent_backend_api::erase::{AnyBackend, Erased};
use congruent_backend_api::{Backend, DType, Error, ErrorKind, Op, Result, Storage};

use crate::case::Case;
use call::Planned;
use judge::{Finding, Ran};

pub use divergence::{Divergence, Wrong};

/// Two backends run side by side. See the [module](self).
#[derive(Debug)]
pub struct Shadow {
    backends: [Arc<AnyBackend>; 2],
    name: String,
    every: usize,
    limit: usize,
    path: PathBuf,
    calls: AtomicUsize,
    checked: AtomicUsize,
    written: AtomicBool,
    // An error that the data of an op caused on both backends, for the program's next synchronising call.
    pending: Mutex<Option<Error>>,
}

/// A storage on each of the two backends.
#[derive(Debug)]
pub struct Pair {
    first: Erased,
    second: Erased,
    // Whether the second holds what the first does.
    synced: bool,
}

impl Shadow {
    /// Runs every op on both backends; the program goes on with the results of the first.
    #[must_use]
    pub fn new(first: Arc<AnyBackend>, second: Arc<AnyBackend>) -> Self {
        Self {
            name: format!("shadow({}, {})", first.name(), second.name()),
            backends: [first, second],
            every: 1,
            limit: 1 << 18,
            path: PathBuf::from("shadow-divergence.json"),
            calls: AtomicUsize::new(0),
            checked: AtomicUsize::new(0),
            written: AtomicBool::new(false),
            pending: Mutex::new(None),
        }
    }

    /// Checks every n-th op only; the others run on the first backend alone.
    #[must_use]
    pub fn every(mut self, n: usize) -> Self {
        self.every = n.max(1);
        self
    }

    /// The most products, sums or elements that the oracle computes for one op whose results differ in some bit, 2¹⁸
    /// by default. Above it, only the 32 elements that differ most are judged.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Where to write the case of the first divergence, by default `shadow-divergence.json` in the current directory.
    #[must_use]
    pub fn replay_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = path.into();
        self
    }

    /// How many ops were called.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// How many ops were compared.
    #[must_use]
    pub fn checked(&self) -> usize {
        self.checked.load(Ordering::Relaxed)
    }

    /// Runs one op, on both backends if it is to be checked. `run` is given the inputs of the backend that it runs on.
    fn step(
        &self,
        planned: &Planned,
        inputs: &[Option<&Pair>],
        out: &mut Pair,
        run: impl Fn(&AnyBackend, &[Option<&Erased>], &mut Erased) -> Result<()>,
    ) -> Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let (first, second) = (self.backends[0].as_ref(), self.backends[1].as_ref());
        let truth: Vec<_> = inputs.iter().map(|input| input.map(|pair| &pair.first)).collect();
        if !call.is_multiple_of(self.every) || !second.supports(planned.op, planned.dtype) {
            out.synced = false;
            return run(first, &truth, &mut out.first);
        }
        self.checked.fetch_add(1, Ordering::Relaxed);
        // What earlier ops left behind is theirs.
        self.keep(settle(first)?);
        if !out.synced && planned.out.count() < out.len() {
            refresh(first, second, &out.first, &mut out.second)?;
        }
        let before = planned.before(first, &out.first)?;
        let stale: Vec<_> = inputs.iter().map(|input| self.stale(*input)).collect::<Result<_>>()?;
        let copies: Vec<_> =
            inputs.iter().zip(&stale).map(|(input, stale)| stale.as_ref().or(input.map(|pair| &pair.second))).collect();
        out.synced = false;
        run(first, &truth, &mut out.first)?;
        let left = settle(first)?;
        run(second, &copies, &mut out.second)?;
        let right = settle(second)?;
        let window = planned.window(out.len());
        let (a, b) = (window.read(first, &out.first)?, window.read(second, &out.second)?);
        let agree = left.as_ref().map(Error::kind) == right.as_ref().map(Error::kind) && a == b;
        if !agree {
            let case = planned.case(first, &truth, before)?;
            let ran = [Ran { bytes: &a, error: left.as_ref() }, Ran { bytes: &b, error: right.as_ref() }];
            if let Some(finding) = judge::compare(&case, &ran, self.limit) {
                return Err(self.diverge(call, planned.op, case, finding));
            }
            second.write(&a, &mut out.second, window.start)?;
        }
        out.synced = true;
        self.keep(left);
        Ok(())
    }

    /// The input on the second backend, when what it holds is out of date.
    fn stale(&self, input: Option<&Pair>) -> Result<Option<Erased>> {
        let Some(pair) = input.filter(|pair| !pair.synced) else { return Ok(None) };
        let mut copy = self.backends[1].alloc(pair.dtype(), pair.len())?;
        refresh(&*self.backends[0], &*self.backends[1], &pair.first, &mut copy)?;
        Ok(Some(copy))
    }

    fn keep(&self, error: Option<Error>) {
        if error.is_some() {
            *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = error;
        }
    }

    fn take(&self) -> Result<()> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    fn diverge(&self, call: usize, op: Op, case: Case, finding: Finding) -> Error {
        let names = [0, 1].map(|side| self.backends[side].name());
        // Later divergences may be consequences of the first.
        let path = (!self.written.swap(true, Ordering::Relaxed)).then_some(self.path.as_path());
        let divergence = Divergence::new(call, case, finding, names, path);
        Error::new(ErrorKind::Native, op.name(), divergence.to_string()).with_source(divergence)
    }
}

impl Storage for Pair {
    fn dtype(&self) -> DType {
        self.first.dtype()
    }

    fn len(&self) -> usize {
        self.first.len()
    }
}

impl Backend for Shadow {
    type Storage = Pair;

    fn name(&self) -> &str {
        &self.name
    }

    /// What the first backend supports; what the second lacks runs on the first alone.
    fn supports(&self, op: Op, dtype: DType) -> bool {
        self.backends[0].supports(op, dtype)
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Pair> {
        let [first, second] = [self.backends[0].alloc(dtype, len)?, self.backends[1].alloc(dtype, len)?];
        Ok(Pair { first, second, synced: false })
    }

    fn write(&self, bytes: &[u8], storage: &mut Pair, start: usize) -> Result<()> {
        self.backends[0].write(bytes, &mut storage.first, start)?;
        self.backends[1].write(bytes, &mut storage.second, start)?;
        storage.synced |= bytes.len() == storage.len() * storage.dtype().size();
        Ok(())
    }

    fn download(&self, storage: &Pair, start: usize, bytes: &mut [u8]) -> Result<()> {
        self.take()?;
        self.backends[0].download(&storage.first, start, bytes)
    }

    fn synchronize(&self) -> Result<()> {
        self.take()?;
        self.backends[0].synchronize()
    }
}

/// Waits for a backend. What the data of an op caused is returned; anything else is an error.
fn settle(backend: &AnyBackend) -> Result<Option<Error>> {
    match backend.synchronize() {
        Ok(()) => Ok(None),
        Err(error) if matches!(error.kind(), ErrorKind::DivisionByZero | ErrorKind::IndexOutOfRange) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Copies a whole storage from one backend to another.
fn refresh(from: &AnyBackend, to: &AnyBackend, storage: &Erased, copy: &mut Erased) -> Result<()> {
    let mut bytes = vec![0; storage.len() * storage.dtype().size()];
    from.download(storage, 0, &mut bytes)?;
    to.write(&bytes, copy, 0)
}
