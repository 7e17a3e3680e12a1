//! What a run of the suite found: a cell for each op, dtype and backend.
//!
//! [`Report`] holds what is known while the suite runs. [`Document`] is the same as JSON, from which every other form is
//! rendered: the terminal's table, a page of HTML, JUnit's XML, the comparison of two runs, and tables for a README.

mod describe;
pub mod diff;
mod document;
mod environment;
#[cfg(feature = "render")]
mod html;
#[cfg(feature = "render")]
mod junit;
mod record;
pub mod support;

use std::fmt;
use std::time::{Duration, SystemTime};

use congruent_backend_api::{DType, Op};
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::coverage::Coverage;
use crate::suite::{BUCKETS, Profile, Verdict};

pub use describe::describe;
pub(crate) use describe::{coordinates, describe_briefly};
pub use document::{Counts, Document};
pub use environment::Environment;
pub use record::{CellRecord, FailureRecord, FaultRecord, LawRecord, RecordedResult};

/// What is known of an op for a dtype on a backend.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The backend's name.
    pub backend: String,
    /// The op.
    pub op: Op,
    /// The dtype of its inputs.
    pub dtype: DType,
    /// Cases run.
    pub cases: usize,
    /// Elements judged.
    pub elements: usize,
    /// Elements of which nothing was known, since partial sums may overflow.
    pub indeterminate: usize,
    /// Elements inside their bound whose error is above what is likely.
    pub loose: usize,
    /// Elements by the power of two of their error over its bound; see [`Verdict::histogram`].
    pub histogram: [usize; BUCKETS],
    /// Layouts and values seen.
    pub coverage: Coverage,
    /// Cases in which the backend said that it lacks the op.
    pub unsupported: usize,
    /// The greatest error in units in the last place.
    pub ulps: f64,
    /// The greatest error over its bound.
    pub ratio: f64,
    /// Seconds spent, oracle included.
    pub seconds: f64,
    /// The first failure, shrunk.
    pub failure: Option<Failure>,
}

/// A failure of a cell.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong.
    pub reason: String,
    /// Elements that are wrong in the shrunk case.
    pub wrong: usize,
    /// The first of them but for the one in `reason`.
    pub more: Vec<String>,
    /// Seeded faults that make the same of the case; see [`resembling`](crate::faults::resembling).
    pub resembles: Vec<&'static str>,
    /// The shrunk case.
    pub case: Option<Box<Case>>,
}

impl Failure {
    /// A failure of which only the reason is known.
    pub(crate) fn new(reason: &str) -> Self {
        Self { reason: reason.to_owned(), wrong: 0, more: Vec::new(), resembles: Vec::new(), case: None }
    }
}

/// The verdict of a cell; the later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// Every element of every case was inside its bound.
    Pass,
    /// Every element was inside its bound, but some error is larger than is likely: look at the accumulation.
    Loose,
    /// Of most elements nothing was known.
    Indeterminate,
    /// The backend says that it lacks the op.
    Unsupported,
    /// Some case was wrong.
    Fail,
}

impl Mark {
    /// Every verdict, from the best to the worst.
    pub const ALL: [Self; 5] = [Self::Pass, Self::Loose, Self::Indeterminate, Self::Unsupported, Self::Fail];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unsupported => "unsupported",
            Self::Loose => "loose",
            Self::Indeterminate => "indeterminate",
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Cell {
    pub(crate) fn new(backend: &str, op: Op, dtype: DType) -> Self {
        Self {
            backend: backend.to_owned(),
            op,
            dtype,
            cases: 0,
            elements: 0,
            indeterminate: 0,
            loose: 0,
            histogram: [0; BUCKETS],
            coverage: Coverage::default(),
            unsupported: 0,
            ulps: 0.0,
            ratio: 0.0,
            seconds: 0.0,
            failure: None,
        }
    }

    pub(crate) fn record(&mut self, case: &Case, verdict: &Verdict) {
        self.cases += 1;
        self.coverage.record(case);
        self.loose += verdict.loose;
        self.histogram.iter_mut().zip(verdict.histogram).for_each(|(count, more)| *count += more);
        self.elements += verdict.elements;
        self.indeterminate += verdict.indeterminate;
        self.unsupported += usize::from(verdict.unsupported);
        self.ulps = self.ulps.max(verdict.ulps);
        self.ratio = self.ratio.max(verdict.ratio);
        if let Some(reason) = &verdict.failure {
            self.failure = Some(Failure::new(reason));
        }
    }

    fn add(&mut self, more: Self) {
        self.cases += more.cases;
        self.elements += more.elements;
        self.indeterminate += more.indeterminate;
        self.loose += more.loose;
        self.unsupported += more.unsupported;
        self.histogram.iter_mut().zip(more.histogram).for_each(|(count, more)| *count += more);
        self.coverage.add(&more.coverage);
        self.ulps = self.ulps.max(more.ulps);
        self.ratio = self.ratio.max(more.ratio);
        self.seconds += more.seconds;
        self.failure = self.failure.take().or(more.failure);
    }

    pub(crate) fn failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The verdict.
    #[must_use]
    pub fn mark(&self) -> Mark {
        match self.failure {
            Some(_) => Mark::Fail,
            None if self.unsupported > 0 => Mark::Unsupported,
            None if 2 * self.indeterminate > self.elements => Mark::Indeterminate,
            None if self.loose > 0 => Mark::Loose,
            None => Mark::Pass,
        }
    }

    /// Whether the bound may be empty talk: errors were seen, and none came near it.
    #[must_use]
    pub fn is_vacuous(&self) -> bool {
        self.ratio < 1e-6 && self.histogram.iter().sum::<usize>() > 0
    }

    /// The op's name; a cast also says to what.
    #[must_use]
    pub fn op_name(&self) -> String {
        match self.op {
            Op::Cast(to) => format!("cast to {to}"),
            op => op.name().to_owned(),
        }
    }
}

/// A backend in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it declares about its arithmetic.
    pub declared: String,
}

/// What became of a law on a backend.
#[derive(Clone, Debug, Serialize)]
pub struct LawResult {
    /// The backend's name.
    pub backend: String,
    /// What should hold.
    pub law: &'static str,
    /// What was found when it does not.
    pub broken: Option<String>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed; of several rounds that of the last.
    pub seed: u64,
    /// How much was run, when it was one of the program's tiers.
    pub tier: Option<String>,
    /// Cases asked for in each cell.
    pub cases_per_cell: u32,
    /// Threads that ran rows.
    pub threads: usize,
    /// The backends, in the order of the columns.
    pub backends: Vec<Column>,
    /// The cells, row by row.
    pub cells: Vec<Cell>,
    /// The laws, empty when they were not tested.
    pub laws: Vec<LawResult>,
    /// The cases that come with the kit, empty when they were not run.
    pub recorded: Vec<RecordedResult>,
    /// Seeded faults and whether the kit caught them, empty when they were not run.
    pub faults: Vec<FaultRecord>,
    /// When the run ended.
    pub time: SystemTime,
    /// How long the run took.
    pub elapsed: Duration,
}

impl Report {
    pub(crate) fn new(profile: &Profile, backends: Vec<Column>, cells: Vec<Cell>, elapsed: Duration) -> Self {
        Self {
            seed: profile.seed,
            tier: None,
            cases_per_cell: profile.cases,
            threads: profile.threads,
            backends,
            cells,
            laws: Vec::new(),
            recorded: Vec::new(),
            faults: Vec::new(),
            time: SystemTime::now(),
            elapsed,
        }
    }

    /// Adds another round over the same rows and backends.
    pub fn add(&mut self, other: Self) {
        for (cell, more) in self.cells.iter_mut().zip(other.cells) {
            cell.add(more);
        }
        // Rounds end with the first that fails, so that the last seed is the one that shows the failure again.
        self.seed = other.seed;
        self.time = other.time;
        self.elapsed += other.elapsed;
    }

    /// Whether no cell and no recorded case failed, and no law is broken.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.failures().next().is_none()
            && self.laws.iter().all(|law| law.broken.is_none())
            && self.recorded.iter().all(|case| case.verdict != Mark::Fail)
    }

    /// The cells that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| cell.mark() == Mark::Fail)
    }

    /// The report as data, with the environment of this process.
    #[must_use]
    pub fn document(&self) -> Document {
        Document::new(self)
    }

    /// One line: cells, cases, elements, failures, seed, time.
    #[must_use]
    pub fn summary(&self) -> String {
        self.document().summary()
    }
}
