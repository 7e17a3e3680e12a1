//! `report.json`: what was measured, where and how. Everything else is computed from it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::case::Spec;
use crate::environment::Environment;
use crate::runner::{Identity, Refusal};
use crate::stats::median;

/// The version of the form; a reader refuses others.
pub const SCHEMA: u32 = 1;

/// A report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What made it.
    pub command: String,
    /// Where.
    pub environment: Environment,
    /// Who ran cases.
    pub runners: Vec<Identity>,
    /// The cases of the family `limit` first.
    pub rows: Vec<Row>,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is.
    #[serde(flatten)]
    pub spec: Spec,
    /// What it reads and writes at least once.
    pub bytes: Option<usize>,
    /// Additions and multiplications.
    pub flops: Option<usize>,
    /// Elements of the largest operand.
    pub elements: usize,
    /// One entry for each runner that was asked.
    pub times: Vec<Time>,
}

/// What one runner took for one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// The runner's library.
    pub library: String,
    /// The runner's device.
    pub device: String,
    /// Seconds for a call, one entry for each batch.
    pub seconds: Vec<f64>,
    /// Seconds until a call returns, likewise.
    pub returned: Vec<f64>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}

impl Time {
    /// No time yet.
    #[must_use]
    pub fn new(runner: &Identity) -> Self {
        let (library, device) = (runner.library.clone(), runner.device.clone());
        Self { library, device, seconds: Vec::new(), returned: Vec::new(), refusal: None }
    }
}

impl Row {
    /// The entry of a runner.
    #[must_use]
    pub fn time(&self, runner: &Identity) -> Option<&Time> {
        self.times.iter().find(|time| time.library == runner.library && time.device == runner.device)
    }

    /// Adds the repetitions of another pass; a runner that failed in either has failed.
    pub fn extend(&mut self, pass: Self) {
        for more in pass.times {
            match self.times.iter_mut().find(|time| time.library == more.library && time.device == more.device) {
                Some(time) if time.refusal.is_none() && more.refusal.is_none() => {
                    time.seconds.extend(more.seconds);
                    time.returned.extend(more.returned);
                }
                Some(time) if time.refusal.is_none() => *time = more,
                Some(_) => {}
                None => self.times.push(more),
            }
        }
    }

    /// The median of a runner, in seconds.
    #[must_use]
    pub fn seconds(&self, runner: &Identity) -> Option<f64> {
        self.time(runner).map(|time| median(&time.seconds)).filter(|seconds| seconds.is_finite())
    }
}

impl Document {
    /// Backends of Congruent.
    pub fn ours(&self) -> impl Iterator<Item = &Identity> {
        self.runners.iter().filter(|runner| runner.is_ours())
    }

    /// Other libraries on a device.
    pub fn peers(&self, device: &str) -> impl Iterator<Item = &Identity> {
        self.runners.iter().filter(move |runner| runner.is_peer() && runner.device == device)
    }

    /// The fastest of the others on a device.
    #[must_use]
    pub fn best_peer(&self, row: &Row, device: &str) -> Option<(&Identity, f64)> {
        let times = self.peers(device).filter_map(|peer| Some((peer, row.seconds(peer)?)));
        times.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// Rows other than those that measure the machine.
    pub fn cases(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.spec.family != "limit")
    }

    /// What failed: case, runner, reason.
    pub fn failures(&self) -> impl Iterator<Item = (&Row, &Time, &str)> {
        self.rows.iter().flat_map(|row| {
            row.times.iter().filter_map(move |time| match &time.refusal {
                Some(Refusal::Failed(why)) => Some((row, time, why.as_str())),
                _ => None,
            })
        })
    }

    /// The families in the order of the rows.
    #[must_use]
    pub fn families(&self) -> Vec<&str> {
        let mut families: Vec<&str> = Vec::new();
        for row in self.cases() {
            if !families.contains(&row.spec.family.as_str()) {
                families.push(&row.spec.family);
            }
        }
        families
    }

    /// The text of `report.json`.
    ///
    /// # Errors
    /// A number that JSON does not have.
    pub fn to_json(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }

    /// Reads the text of a `report.json`.
    ///
    /// # Errors
    /// It is none, or one of another form.
    pub fn from_json(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            schema: u32,
        }
        let wrong = |error: serde_json::Error| format!("not a report of the benchmarks: {error}");
        let form: Form = serde_json::from_str(text).map_err(wrong)?;
        if form.schema != SCHEMA {
            let schema = form.schema;
            return Err(format!(
                "a report of schema {schema}; this program reads {SCHEMA}: make it again with `report`"
            ));
        }
        serde_json::from_str(text).map_err(wrong)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no report; with its path.
    pub fn read(path: &Path) -> Result<Self, String> {
        let named = |error: String| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        Self::from_json(&text).map_err(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::document;

    #[test]
    fn reports_survive_json() {
        let document = document();
        assert_eq!(Document::from_json(&document.to_json().unwrap()).unwrap(), document);
    }

    #[test]
    fn other_forms_are_refused() {
        let other = document().to_json().unwrap().replacen("\"schema\":1", "\"schema\":7", 1);
        assert!(Document::from_json(&other).unwrap_err().contains("schema 7"));
        assert!(Document::from_json("{}").unwrap_err().contains("not a report"));
        let missing = Document::read(Path::new("no/such/report.json")).unwrap_err();
        assert!(missing.starts_with("no/such/report.json: "), "{missing}");
    }

    #[test]
    fn the_best_peer_is_on_the_same_device() {
        let document = document();
        let row = document.cases().next().unwrap();
        let (peer, seconds) = document.best_peer(row, "cpu").unwrap();
        assert_eq!((peer.name().as_str(), seconds), ("torch cpu", 2e-3));
        assert!(document.best_peer(row, "cuda:0").is_none());
    }
}
