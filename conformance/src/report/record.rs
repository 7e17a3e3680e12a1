//! The entries of a report: cells, failures, laws, seeded faults.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Cell, Mark};
use crate::faults::Score;
use crate::ops::model;
use crate::replay::to_json;

/// What is known of an op for a dtype on a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// The backend's name.
    pub backend: String,
    /// The op's family.
    pub family: String,
    /// The op; a cast also says to what.
    pub op: String,
    /// The dtype of its inputs.
    pub dtype: String,
    /// What bounds its error; see [`ErrorModel`](crate::model::ErrorModel).
    #[serde(default)]
    pub model: String,
    /// The verdict.
    pub verdict: Mark,
    /// Cases run.
    pub cases: usize,
    /// Elements judged.
    pub elements: usize,
    /// Elements of which nothing was known.
    pub indeterminate: usize,
    /// Elements inside their bound whose error is above what is likely.
    pub loose: usize,
    /// Whether errors were seen, and none came near the bound.
    pub vacuous: bool,
    /// Elements with an error: entry i counts error ÷ bound in (2^-(i+1), 2^-i], the last one also what is smaller.
    pub histogram: Vec<usize>,
    /// Cases with each kind of layout.
    pub layouts: BTreeMap<String, usize>,
    /// Cases with each feature of values.
    pub values: BTreeMap<String, usize>,
    /// The greatest error in units in the last place among accepted elements; absent when it is infinite.
    pub worst_ulp: Option<f64>,
    /// The greatest error over its bound among accepted elements.
    pub worst_error_over_bound: f64,
    /// Seconds spent, oracle included.
    pub seconds: f64,
    /// The first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureRecord>,
}

/// A failure of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// What is wrong.
    pub reason: String,
    /// Elements that are wrong in the shrunk case; 0 where no element is.
    #[serde(default)]
    pub wrong: usize,
    /// The first of them but for the one in `reason`.
    #[serde(default)]
    pub more: Vec<String>,
    /// Seeded faults that make the same of the case.
    #[serde(default)]
    pub resembles: Vec<String>,
    /// The shrunk case as a replay file.
    pub replay: Option<Value>,
}

impl FailureRecord {
    /// Lines under the reason: more wrong elements, and what the failure looks like.
    #[must_use]
    pub fn details(&self) -> Vec<String> {
        let mut lines = self.more.clone();
        let rest = self.wrong.saturating_sub(1 + lines.len());
        if rest > 0 {
            lines.push(format!("and {rest} more; {} elements are wrong", self.wrong));
        }
        if !self.resembles.is_empty() {
            let count = self.resembles.len();
            let others = if count > NAMED { format!(" and {} others", count - NAMED) } else { String::new() };
            let named: Vec<_> = self.resembles.iter().take(NAMED).map(|fault| format!("“{fault}”")).collect();
            lines.push(format!("looks like the seeded fault {}{others}", named.join(" or ")));
        }
        lines
    }
}

/// Faults that are named, of those that a failure looks like.
const NAMED: usize = 3;

/// What became of a case that comes with the kit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedResult {
    /// The backend's name.
    pub backend: String,
    /// What is tested.
    pub name: String,
    /// The op.
    pub op: String,
    /// Where the case is from.
    pub source: String,
    /// Pass, fail or unsupported.
    pub verdict: Mark,
    /// Why, when it did not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of a law on a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LawRecord {
    /// The backend's name.
    pub backend: String,
    /// What should hold.
    pub law: String,
    /// What was found when it does not.
    pub broken: Option<String>,
}

/// What became of a seeded fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Its number in the catalogue, if it is listed there.
    pub number: Option<u8>,
    /// What is wrong.
    pub fault: String,
    /// Whether a row or a law caught it.
    pub caught: bool,
    /// The cases that the row needed that caught it soonest.
    pub cases: Option<usize>,
    /// Rows that caught it.
    pub rows_caught: usize,
    /// Rows that were run.
    pub rows: usize,
    /// Laws that it breaks.
    pub laws: Vec<String>,
}

impl From<&Score> for FaultRecord {
    fn from(score: &Score) -> Self {
        Self {
            number: score.fault.number,
            fault: score.fault.name.to_owned(),
            caught: score.caught(),
            cases: score.cases,
            rows_caught: score.rows.0,
            rows: score.rows.1,
            laws: score.laws.iter().map(|&law| law.to_owned()).collect(),
        }
    }
}

impl CellRecord {
    pub(super) fn new(cell: &Cell) -> Self {
        let name = cell.op_name();
        let failure = cell.failure.as_ref().map(|failure| FailureRecord {
            reason: failure.reason.clone(),
            wrong: failure.wrong,
            more: failure.more.clone(),
            resembles: failure.resembles.iter().map(|&fault| fault.to_owned()).collect(),
            replay: failure.case.as_ref().map(|case| to_json(case, &format!("{name} {}", cell.dtype), &failure.reason)),
        });
        Self {
            backend: cell.backend.clone(),
            family: cell.op.family().to_owned(),
            op: name,
            dtype: cell.dtype.name().to_owned(),
            model: model((cell.op, cell.dtype)).to_string(),
            verdict: cell.mark(),
            cases: cell.cases,
            elements: cell.elements,
            indeterminate: cell.indeterminate,
            loose: cell.loose,
            vacuous: cell.is_vacuous(),
            histogram: cell.histogram.to_vec(),
            layouts: cell.coverage.layouts().map(|(kind, count)| (words(&kind), count)).collect(),
            values: cell.coverage.features().map(|(feature, count)| (words(&feature), count)).collect(),
            worst_ulp: Some(cell.ulps).filter(|ulps| ulps.is_finite()),
            worst_error_over_bound: cell.ratio,
            seconds: cell.seconds,
            failure,
        }
    }

    /// Which cell it is: op, dtype and backend.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {} on {}", self.op, self.dtype, self.backend)
    }

    /// The name of the replay file of its failure.
    #[must_use]
    pub fn replay_file(&self) -> String {
        self.name().replace(|letter: char| !letter.is_alphanumeric() && letter != '_', "-") + ".json"
    }
}

/// A variant's name in lower case, with spaces between its words.
fn words(variant: &impl Debug) -> String {
    let mut words = String::new();
    for letter in format!("{variant:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}
