//! Comparing two reports.

use congruent_conformance::report::diff::Diff;

use super::report::read;
use super::{DiffArgs, print};

/// Prints what changed; whether nothing became worse.
pub(super) fn run(args: &DiffArgs) -> Result<bool, String> {
    let diff = Diff::new(&read(&args.before)?, &read(&args.after)?);
    let mut lines: Vec<_> = diff.notes.iter().map(|note| format!("note: {note}")).collect();
    lines.extend(diff.changes.iter().map(ToString::to_string));
    let worse = diff.changes.iter().filter(|change| change.is_worse()).count();
    lines.push(format!("{} changes, {worse} for the worse", diff.changes.len()));
    print(&lines.join("\n"))?;
    Ok(!diff.is_worse())
}
