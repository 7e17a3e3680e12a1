//! What a run of the suite found: a cell for each op, dtype and backend, with JSON beside the terminal's table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use congruent_backend_api::{DType, Op};
use serde::Serialize;

use crate::case::Case;
use crate::coverage::Coverage;
use crate::expect::{Expect, Judgement, interval};
use crate::host::{decode, positions};
use crate::replay::to_json;
use crate::suite::{BUCKETS, Profile, Verdict};

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
    /// The shrunk case.
    pub case: Option<Box<Case>>,
}

/// The verdict of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// Every element of every case was inside its bound.
    Pass,
    /// Some case was wrong.
    Fail,
    /// The backend says that it lacks the op.
    Unsupported,
    /// Every element was inside its bound, but some error is larger than is likely: look at the accumulation.
    Loose,
    /// Of most elements nothing was known.
    Indeterminate,
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
            self.failure = Some(Failure { reason: reason.clone(), case: None });
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
#[derive(Clone, Debug, Serialize)]
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
    /// The seed.
    pub seed: u64,
    /// Cases asked for in each cell.
    pub cases_per_cell: u32,
    /// The backends, in the order of the columns.
    pub backends: Vec<Column>,
    /// The cells, row by row.
    pub cells: Vec<Cell>,
    /// The laws, empty when they were not tested.
    pub laws: Vec<LawResult>,
    /// How long the run took.
    pub elapsed: Duration,
}

impl Report {
    pub(crate) fn new(profile: &Profile, backends: Vec<Column>, cells: Vec<Cell>, elapsed: Duration) -> Self {
        Self { seed: profile.seed, cases_per_cell: profile.cases, backends, cells, laws: Vec::new(), elapsed }
    }

    /// Adds another round over the same rows and backends.
    pub fn add(&mut self, other: Self) {
        for (cell, more) in self.cells.iter_mut().zip(other.cells) {
            cell.add(more);
        }
        self.elapsed += other.elapsed;
    }

    /// Whether no cell failed and no law is broken.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.cells.iter().all(|cell| cell.mark() != Mark::Fail) && self.laws.iter().all(|law| law.broken.is_none())
    }

    /// The cells that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| cell.mark() == Mark::Fail)
    }

    /// One line: cells, cases, elements, failures, seed, time.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |mark| self.cells.iter().filter(|cell| cell.mark() == mark).count();
        let total = |field: fn(&Cell) -> usize| self.cells.iter().map(field).sum::<usize>();
        let (elements, indeterminate) = (total(|cell| cell.elements), total(|cell| cell.indeterminate));
        // Writing to a string does not fail.
        let mut line = format!(
            "{} of {} cells pass · {} fail · {} loose · {} unsupported · {} indeterminate · {} cases",
            count(Mark::Pass),
            self.cells.len(),
            count(Mark::Fail),
            count(Mark::Loose),
            count(Mark::Unsupported),
            count(Mark::Indeterminate),
            total(|cell| cell.cases),
        );
        if !self.laws.is_empty() {
            let held = self.laws.iter().filter(|law| law.broken.is_none()).count();
            let _ = write!(line, " · {held} of {} laws hold", self.laws.len());
        }
        let _ = write!(
            line,
            " · {elements} elements ({:.2} % indeterminate) · seed {:#x} · {:.1} s",
            100.0 * indeterminate as f64 / elements.max(1) as f64,
            self.seed,
            self.elapsed.as_secs_f64()
        );
        line
    }

    /// The greatest error over its bound for each family and backend.
    #[must_use]
    pub fn families(&self) -> BTreeMap<(&'static str, &str), f64> {
        let mut families = BTreeMap::new();
        for cell in &self.cells {
            let ratio = families.entry((cell.op.family(), cell.backend.as_str())).or_insert(0.0_f64);
            *ratio = ratio.max(cell.ratio);
        }
        families
    }

    /// The report as JSON, version 1.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let cells: Vec<_> = self
            .cells
            .iter()
            .map(|cell| {
                serde_json::json!({
                    "backend": cell.backend,
                    "family": cell.op.family(),
                    "op": cell.op_name(),
                    "dtype": cell.dtype.name(),
                    "verdict": cell.mark(),
                    "cases": cell.cases,
                    "elements": cell.elements,
                    "indeterminate": cell.indeterminate,
                    "loose": cell.loose,
                    "vacuous": cell.is_vacuous(),
                    "histogram": cell.histogram,
                    "layouts": cell.coverage.layouts().map(|(kind, count)| (format!("{kind:?}"), count)).collect::<BTreeMap<_, _>>(),
                    "values": cell.coverage.features().map(|(feature, count)| (format!("{feature:?}"), count)).collect::<BTreeMap<_, _>>(),
                    "worst_ulp": cell.ulps,
                    "worst_error_over_bound": cell.ratio,
                    "seconds": cell.seconds,
                    "failure": cell.failure.as_ref().map(|failure| &failure.reason),
                    "case": cell.failure.as_ref().and_then(|failure| failure.case.as_ref()).map(|case| to_json(case, &cell.op_name(), "")),
                })
            })
            .collect();
        serde_json::json!({
            "congruent_report": 1,
            "agrees": self.agrees(),
            "seed": self.seed,
            "cases_per_cell": self.cases_per_cell,
            "seconds": self.elapsed.as_secs_f64(),
            "backends": self.backends,
            "cells": cells,
            "laws": self.laws,
        })
    }
}

/// What is wrong with an element: where it is, what it was, what it may be.
#[must_use]
pub fn describe(case: &Case, index: usize, bits: u64, expect: &Expect, judged: &Judgement) -> String {
    let (dtype, shape) = (case.out.dtype, case.out.layout.shape());
    let mut rest = index;
    let mut coordinates: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let coordinate = rest % size;
            rest /= size;
            coordinate
        })
        .collect();
    coordinates.reverse();
    let got = decode(dtype, bits);
    let want = match *expect {
        Expect::Bits(bits) => format!("{} exactly", decode(dtype, bits)),
        Expect::Nan => "NaN".to_owned(),
        Expect::Any => "anything".to_owned(),
        Expect::Near { value, bound, signed, .. } => {
            let (low, high) = interval(dtype, value, bound, signed);
            format!("{low:e} to {high:e} (oracle {:e})", value.to_f64())
        }
    };
    let error = if judged.ulps.is_finite() { format!(", {:.3} ULP off", judged.ulps) } else { String::new() };
    let at = positions(&case.out.layout).get(index).copied().unwrap_or(0);
    format!("element {coordinates:?} of {shape:?} (storage element {at}) is {got}{error}; it must be {want}")
}
