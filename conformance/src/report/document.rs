//! The report as data: what `report.json` holds, and what everything else is rendered from. The README describes it.

use std::fmt::Write as _;

use congruent_backend_api::DType;
use serde::{Deserialize, Serialize};

use super::{CellRecord, Column, Environment, FaultRecord, LawRecord, Mark, RecordedResult, Report};

/// A report as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The version of the format, [`Document::VERSION`].
    #[serde(rename = "congruent_report")]
    pub version: u32,
    /// Whether no cell and no recorded case failed, and no law is broken.
    pub agrees: bool,
    /// The seed in hexadecimal, since readers of JSON may keep 53 bits of a number; of several rounds that of the last.
    pub seed: String,
    /// How much was run, when it was one of the program's tiers.
    pub tier: Option<String>,
    /// Cases asked for in each cell.
    pub cases_per_cell: u32,
    /// How long the run took.
    pub seconds: f64,
    /// Where it ran.
    pub environment: Environment,
    /// The backends, in the order of columns.
    pub backends: Vec<Column>,
    /// A cell for each op, dtype and backend, row by row.
    pub cells: Vec<CellRecord>,
    /// The laws; empty when they were not tested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub laws: Vec<LawRecord>,
    /// The cases that come with the kit; empty when they were not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<RecordedResult>,
    /// Seeded faults; empty when they were not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultRecord>,
}

/// The numbers of a headline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cells with each verdict, in the order of [`Mark::ALL`].
    pub marks: [usize; Mark::ALL.len()],
    /// Cases run.
    pub cases: usize,
    /// Elements judged.
    pub elements: usize,
    /// Elements of which nothing was known.
    pub indeterminate: usize,
    /// Laws that hold.
    pub laws: usize,
    /// Recorded cases that pass.
    pub recorded: usize,
    /// Seeded faults that were caught.
    pub faults: usize,
}

impl Counts {
    /// Cells with a verdict.
    #[must_use]
    pub fn of(&self, mark: Mark) -> usize {
        Mark::ALL.iter().zip(self.marks).filter(|(other, _)| **other == mark).map(|(_, count)| count).sum()
    }
}

impl Document {
    /// The version of the format that this crate writes and reads.
    pub const VERSION: u32 = 1;

    pub(super) fn new(report: &Report) -> Self {
        let laws = report.laws.iter().map(|law| LawRecord {
            backend: law.backend.clone(),
            law: law.law.to_owned(),
            broken: law.broken.clone(),
        });
        Self {
            version: Self::VERSION,
            agrees: report.agrees(),
            seed: format!("{:#x}", report.seed),
            tier: report.tier.clone(),
            cases_per_cell: report.cases_per_cell,
            seconds: report.elapsed.as_secs_f64(),
            environment: Environment::of_this_process(report.threads, report.time),
            backends: report.backends.clone(),
            cells: report.cells.iter().map(CellRecord::new).collect(),
            laws: laws.collect(),
            recorded: report.recorded.clone(),
            faults: report.faults.clone(),
        }
    }

    /// The text of `report.json`.
    ///
    /// # Errors
    /// None in practice: every field has a form in JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// Reads the text of a `report.json`.
    ///
    /// # Errors
    /// In words, when it is no report, of another version, or malformed.
    pub fn from_json(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            congruent_report: Option<u32>,
        }
        let head: Head = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match head.congruent_report {
            Some(Self::VERSION) => serde_json::from_str(text).map_err(|error| error.to_string()),
            Some(version) => {
                Err(format!("congruent_report: version {version}; this program reads version {}", Self::VERSION))
            }
            None => Err("the field `congruent_report` is missing: this is no report of `conformance`".to_owned()),
        }
    }

    /// The numbers of the headline.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let total = |field: fn(&CellRecord) -> usize| self.cells.iter().map(field).sum();
        Counts {
            marks: Mark::ALL.map(|mark| self.cells.iter().filter(|cell| cell.verdict == mark).count()),
            cases: total(|cell| cell.cases),
            elements: total(|cell| cell.elements),
            indeterminate: total(|cell| cell.indeterminate),
            laws: self.laws.iter().filter(|law| law.broken.is_none()).count(),
            recorded: self.recorded.iter().filter(|case| case.verdict == Mark::Pass).count(),
            faults: self.faults.iter().filter(|fault| fault.caught).count(),
        }
    }

    /// One line: cells, cases, elements, failures, seed, time.
    #[must_use]
    pub fn summary(&self) -> String {
        let counts = self.counts();
        let mut line = format!("{} of {} cells pass", counts.of(Mark::Pass), self.cells.len());
        // Writing to a string does not fail.
        for mark in [Mark::Fail, Mark::Loose, Mark::Unsupported, Mark::Indeterminate] {
            let _ = write!(line, " · {} {mark}", counts.of(mark));
        }
        if !self.laws.is_empty() {
            let _ = write!(line, " · {} of {} laws hold", counts.laws, self.laws.len());
        }
        if !self.recorded.is_empty() {
            let _ = write!(line, " · {} of {} recorded cases pass", counts.recorded, self.recorded.len());
        }
        if !self.faults.is_empty() {
            let _ = write!(line, " · {} of {} faults caught", counts.faults, self.faults.len());
        }
        let _ = write!(
            line,
            " · {} cases · {} elements ({:.2} % indeterminate) · seed {} · {:.1} s",
            counts.cases,
            counts.elements,
            100.0 * counts.indeterminate as f64 / counts.elements.max(1) as f64,
            self.seed,
            self.seconds
        );
        line
    }

    /// The cells that failed.
    pub fn failures(&self) -> impl Iterator<Item = &CellRecord> {
        self.cells.iter().filter(|cell| cell.verdict == Mark::Fail)
    }

    /// The ops with their families, in the order of rows.
    #[must_use]
    pub fn ops(&self) -> Vec<(&str, &str)> {
        let mut ops: Vec<_> = self.cells.iter().map(|cell| (cell.family.as_str(), cell.op.as_str())).collect();
        ops.dedup();
        ops
    }

    /// The dtypes that occur, in the order of [`DType::ALL`].
    #[must_use]
    pub fn dtypes(&self) -> Vec<&'static str> {
        let occurs = |name: &&str| self.cells.iter().any(|cell| cell.dtype == *name);
        DType::ALL.iter().map(|dtype| dtype.name()).filter(occurs).collect()
    }
}
