//! Who can run a case: a backend of this process, the machine itself, a worker process.

use std::sync::Arc;
use std::time::Instant;

use congruent::{AnyBackend, ErrorKind};
use serde::{Deserialize, Serialize};

use crate::case::{Case, Inputs};

/// The library whose backends are compared with the others.
pub const OURS: &str = "congruent";
/// The runner that measures the machine by loops of its own.
pub const MACHINE: &str = "machine";

/// What a runner is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The library: `congruent`, `torch`.
    pub library: String,
    /// Where it computes, as Congruent's backends are named.
    pub device: String,
    /// Its version.
    pub version: String,
    /// What else matters: threads, options.
    #[serde(default)]
    pub note: String,
}

impl Identity {
    /// Library and device.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.library, self.device)
    }

    /// Whether it is a backend of Congruent.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.library == OURS
    }

    /// Whether it is another library.
    #[must_use]
    pub fn is_peer(&self) -> bool {
        !self.is_ours() && self.library != MACHINE
    }
}

/// Why a case has no time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "why", rename_all = "lowercase")]
pub enum Refusal {
    /// The runner has no such op.
    Unsupported(String),
    /// It has, and failed.
    Failed(String),
}

/// The time of some calls.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Batch {
    /// Seconds until the device had finished all of them.
    pub seconds: f64,
    /// Seconds until the last of them had returned.
    pub returned: f64,
}

/// Runs cases, one at a time.
pub trait Runner {
    /// What it is.
    fn identity(&self) -> &Identity;

    /// Makes the inputs of a case, and drops those of the last one.
    ///
    /// # Errors
    /// The case cannot be run.
    fn prepare(&mut self, case: &Case) -> Result<(), Refusal>;

    /// Calls the prepared case so many times, and waits once.
    ///
    /// # Errors
    /// A call failed.
    fn run(&mut self, case: &Case, calls: u32) -> Result<Batch, Refusal>;

    /// Drops the inputs.
    fn release(&mut self);
}

/// A backend of Congruent.
#[derive(Debug)]
pub struct Ours {
    identity: Identity,
    backend: Arc<AnyBackend>,
    inputs: Option<Inputs>,
}

impl Ours {
    /// A runner on a backend.
    #[must_use]
    pub fn new(backend: Arc<AnyBackend>) -> Self {
        let identity = Identity {
            library: OURS.to_owned(),
            device: backend.name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            note: String::new(),
        };
        Self { identity, backend, inputs: None }
    }
}

fn refusal(error: &congruent::Error) -> Refusal {
    match error.kind() {
        ErrorKind::Unsupported => Refusal::Unsupported(error.to_string()),
        _ => Refusal::Failed(error.to_string()),
    }
}

impl Runner for Ours {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn prepare(&mut self, case: &Case) -> Result<(), Refusal> {
        self.inputs = None;
        self.inputs = Some(case.make(&self.backend).map_err(|error| refusal(&error))?);
        Ok(())
    }

    fn run(&mut self, case: &Case, calls: u32) -> Result<Batch, Refusal> {
        let inputs = self.inputs.as_mut().ok_or_else(|| Refusal::Failed("no inputs were made".to_owned()))?;
        let mut batch = || -> congruent::Result<Batch> {
            self.backend.synchronize()?;
            let start = Instant::now();
            for _ in 0..calls {
                case.call(inputs)?;
            }
            let returned = start.elapsed().as_secs_f64();
            self.backend.synchronize()?;
            Ok(Batch { seconds: start.elapsed().as_secs_f64(), returned })
        };
        batch().map_err(|error| refusal(&error))
    }

    fn release(&mut self) {
        self.inputs = None;
    }
}
