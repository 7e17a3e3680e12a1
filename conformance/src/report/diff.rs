//! What became better or worse from one report to another.

use std::fmt;

use super::{CellRecord, Document, Mark};

/// What changed between two reports.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// Why the two are not quite comparable.
    pub notes: Vec<String>,
    /// What changed, in the order of rows.
    pub changes: Vec<Change>,
}

/// A change of one cell, law or recorded case.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Which one.
    pub name: String,
    /// How.
    pub kind: Kind,
}

/// How something changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The verdict is another one.
    Verdict(Mark, Mark),
    /// The worst error ÷ bound is another one.
    Ratio(f64, f64),
    /// Only the second report has it.
    Added(Mark),
    /// Only the first report has it.
    Removed(Mark),
}

/// A worst error ÷ bound changed when it did by more than this share of the old one …
const RELATIVE: f64 = 0.1;
/// … and by more than this.
const ABSOLUTE: f64 = 0.01;

impl Diff {
    /// Compares two reports.
    #[must_use]
    pub fn new(before: &Document, after: &Document) -> Self {
        let mut diff = Self { notes: notes(before, after), changes: Vec::new() };
        // Backends that only one report has are a note, not a change of each of their cells.
        let shared =
            |name: &str| [before, after].iter().all(|one| one.backends.iter().any(|column| column.name == name));
        let cells = |document: &Document| -> Vec<(String, Mark, f64)> {
            let cells = document.cells.iter().filter(|cell| shared(&cell.backend));
            let cells = cells.map(|cell: &CellRecord| (cell.name(), cell.verdict, cell.worst_error_over_bound));
            let laws = document.laws.iter().filter(|law| shared(&law.backend)).map(|law| {
                let mark = if law.broken.is_none() { Mark::Pass } else { Mark::Fail };
                (format!("law “{}” on {}", law.law, law.backend), mark, 0.0)
            });
            let recorded = document.recorded.iter().filter(|case| shared(&case.backend));
            let recorded = recorded.map(|case| {
                (format!("recorded case “{}” ({}) on {}", case.name, case.source, case.backend), case.verdict, 0.0)
            });
            cells.chain(laws).chain(recorded).collect()
        };
        let (old, new) = (cells(before), cells(after));
        for (name, mark, ratio) in &new {
            let kind = match old.iter().find(|(other, ..)| other == name) {
                None => Kind::Added(*mark),
                Some((_, was, _)) if was != mark => Kind::Verdict(*was, *mark),
                Some((_, _, was)) if (ratio - was).abs() > ABSOLUTE.max(RELATIVE * was) => Kind::Ratio(*was, *ratio),
                Some(_) => continue,
            };
            diff.changes.push(Change { name: name.clone(), kind });
        }
        let removed = old.iter().filter(|(name, ..)| new.iter().all(|(other, ..)| other != name));
        diff.changes.extend(removed.map(|(name, mark, _)| Change { name: name.clone(), kind: Kind::Removed(*mark) }));
        diff
    }

    /// Whether something became worse.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.changes.iter().any(Change::is_worse)
    }
}

impl Change {
    /// Whether it is for the worse: a worse verdict, a larger error, a new failure, or something no longer tested.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        match self.kind {
            Kind::Verdict(before, after) => after > before,
            Kind::Ratio(before, after) => after > before,
            Kind::Added(mark) => mark == Mark::Fail,
            Kind::Removed(_) => true,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", if self.is_worse() { "worse " } else { "      " }, self.name)?;
        match self.kind {
            Kind::Verdict(before, after) => write!(f, "{before} → {after}"),
            Kind::Ratio(before, after) => write!(f, "worst error ÷ bound {before:.3} → {after:.3}"),
            Kind::Added(mark) => write!(f, "new, {mark}"),
            Kind::Removed(mark) => write!(f, "no longer tested, was {mark}"),
        }
    }
}

fn notes(before: &Document, after: &Document) -> Vec<String> {
    let names = |document: &Document| document.backends.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    let only = |these: Vec<String>, those: &[String]| these.into_iter().filter(|name| !those.contains(name)).collect();
    let (first, second): (Vec<String>, Vec<String>) =
        (only(names(before), &names(after)), only(names(after), &names(before)));
    let mut notes = Vec::new();
    for (which, names) in [("first", first), ("second", second)] {
        if !names.is_empty() {
            notes.push(format!("only the {which} report has {}", names.join(", ")));
        }
    }
    for (what, old, new) in [
        ("seed", before.seed.clone(), after.seed.clone()),
        ("cases for each cell", before.cases_per_cell.to_string(), after.cases_per_cell.to_string()),
        ("version", before.environment.version.clone(), after.environment.version.clone()),
    ] {
        if old != new {
            notes.push(format!("{what}: {old} → {new}"));
        }
    }
    notes
}
