//! Writing a report in every form, and rendering one again from its JSON.

use std::fs;
use std::path::Path;

use congruent_conformance::report::{Document, FailureRecord, Mark, support};

use super::{ReportArgs, SupportArgs, print, table};

/// Reads a `report.json`.
pub(super) fn read(path: &Path) -> Result<Document, String> {
    let named = |error: String| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    Document::from_json(&text).map_err(named)
}

/// Writes text into a file, making its folder.
pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| fs::write(path, text)).map_err(|error| format!("{}: {error}", path.display()))
}

/// Renders a report; whether its backends agree.
pub(super) fn render(args: &ReportArgs) -> Result<bool, String> {
    let document = read(&args.file)?;
    if let Some(path) = &args.html {
        write(path, &document.to_html())?;
    }
    if let Some(path) = &args.junit {
        write(path, &document.to_junit()?)?;
    }
    if args.html.is_none() && args.junit.is_none() {
        print(&terminal(&document, args.long).join("\n"))?;
    }
    Ok(document.agrees)
}

/// The table, the failures, and the summary.
pub(super) fn terminal(document: &Document, long: bool) -> Vec<String> {
    let table = if long { table::long(document) } else { table::matrix(document) };
    let mut lines = vec![table.trim_fmt(), table::LEGEND.to_owned()];
    for cell in document.failures() {
        let reason = cell.failure.as_ref().map_or("", |failure| &failure.reason);
        lines.push(format!("FAIL {}: {reason}", cell.name()));
        lines.extend(cell.failure.iter().flat_map(FailureRecord::details).map(|detail| format!("     {detail}")));
    }
    lines.extend(
        document.laws.iter().filter_map(|law| {
            law.broken.as_ref().map(|broken| format!("LAW  {} on {}: {broken}", law.law, law.backend))
        }),
    );
    lines.extend(document.recorded.iter().filter(|case| case.verdict == Mark::Fail).map(|case| {
        let reason = case.reason.as_deref().unwrap_or_default();
        format!("CASE {} on {}, {} ({}): {reason}", case.op, case.backend, case.name, case.source)
    }));
    lines.extend(
        document.faults.iter().filter(|fault| !fault.caught).map(|fault| format!("NOT CAUGHT {}", fault.fault)),
    );
    lines.push(document.summary());
    lines
}

/// Prints, writes or checks the tables of a README; whether they are as they should be.
pub(super) fn support(args: &SupportArgs) -> Result<bool, String> {
    let document = read(&args.file)?;
    let tables = support::tables(&document).map_err(|error| format!("{}: {error}", args.file.display()))?;
    let Some(path) = args.write.as_ref().or(args.check.as_ref()) else {
        let texts: Vec<_> = tables.iter().map(|(block, table)| format!("{block}\n\n{table}")).collect();
        return print(texts.join("\n").trim_end()).map(|()| true);
    };
    let old = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let new = tables.iter().try_fold(old.clone(), |text, (block, table)| {
        support::place(&text, block, table).map_err(|error| format!("{}: {error}", path.display()))
    })?;
    if args.write.is_some() {
        return write(path, &new).map(|()| true);
    }
    if old != new {
        let (file, path) = (args.file.display(), path.display());
        eprintln!("{path}: the table of support is stale; run `conformance support {file} --write {path}`");
    }
    Ok(old == new)
}
