//! The main job: run the rows with a progress bar, print the table, write the report and the failing cases.

use std::fs;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use congruent_backend_api::{DType, Op};
use congruent_conformance::ops::{Row, rows};
use congruent_conformance::report::{Document, Report};
use congruent_conformance::suite::{Candidate, Profile, check, check_laws, check_recorded, selected};
use congruent_conformance::values::hash;
use indicatif::{ProgressBar, ProgressStyle};

use super::{CheckArgs, Tier, candidates, exhaustive, faults, print, report};

/// Checks what the arguments select; whether all agree.
pub(super) fn run(args: &CheckArgs) -> Result<bool, String> {
    let candidates = candidates(&args.backend)?;
    known(&args.op)?;
    let rows: Vec<_> = rows().filter(|&row| selected(row, &args.op, &args.dtype)).collect();
    if rows.is_empty() {
        return Err("no row is selected: the op is not defined for this dtype".to_owned());
    }
    if args.exhaustive {
        return exhaustive::run(&candidates, &rows);
    }
    let default = if args.tier == Tier::Full { Profile::full() } else { Profile::default() };
    let mut profile =
        Profile { seed: args.seed.unwrap_or(default.seed), cases: args.cases.unwrap_or(default.cases), ..default };
    let names: Vec<_> = candidates.iter().map(|candidate| candidate.name()).collect();
    eprintln!("{} rows (op × dtype) of {} cases on {}", rows.len(), profile.cases, names.join(", "));
    let start = Instant::now();
    let mut report = round(&candidates, &rows, &profile)?;
    while args.tier == Tier::Soak && report.agrees() && start.elapsed() < Duration::from_secs(60 * args.minutes) {
        profile.seed = hash(profile.seed, 1);
        eprintln!("{}", report.summary());
        report.add(round(&candidates, &rows, &profile)?);
    }
    // A selection of rows leaves the laws and the recorded cases out: they cross families.
    if args.op.is_empty() && args.dtype.is_empty() {
        report.laws = check_laws(&candidates, profile.seed).map_err(|error| error.to_string())?;
        report.recorded = check_recorded(&candidates).map_err(|error| error.to_string())?;
    }
    report.tier = args.tier.to_possible_value().map(|tier| tier.get_name().to_owned());
    if args.faults {
        report.faults = faults::records(&candidates[0])?;
    }
    let document = report.document();
    let replays = write(&document, &args.out)?;
    let mut lines = report::terminal(&document, args.long);
    lines.extend(replays.iter().map(|path| format!("again: conformance replay {path}")));
    lines.push(format!("{}: report.html, report.json, junit.xml", args.out.display()));
    lines.push(verdict(&document));
    print(&lines.join("\n"))?;
    Ok(document.agrees && document.faults.iter().all(|fault| fault.caught))
}

/// Runs every row once, with a progress bar.
fn round(candidates: &[Candidate], rows: &[Row], profile: &Profile) -> Result<Report, String> {
    let bar = progress(rows.len());
    let report = check(candidates, rows, profile, |(op, dtype)| {
        bar.set_message(format!("{} {dtype}", op.name()));
        bar.inc(1);
    });
    bar.finish_and_clear();
    report.map_err(|error| error.to_string())
}

fn known(ops: &[String]) -> Result<(), String> {
    let names = |op: Op| [op.name(), op.family()];
    match ops.iter().find(|name| !Op::all().any(|op| names(op).contains(&name.as_str()) || is_cast(op, name))) {
        None => Ok(()),
        Some(name) => {
            let mut known: Vec<_> = Op::all().flat_map(names).collect();
            known.sort_unstable();
            known.dedup();
            Err(format!("no op or family is called `{name}`; there are {}", known.join(" ")))
        }
    }
}

fn is_cast(op: Op, name: &str) -> bool {
    matches!(op, Op::Cast(to) if name.strip_prefix("cast_").is_some_and(|name| name.parse::<DType>().is_ok_and(|dtype| dtype == to)))
}

pub(super) fn progress(rows: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed} {msg}");
    let bar = ProgressBar::new(rows as u64);
    if let Ok(style) = style { bar.with_style(style) } else { bar }
}

/// Writes the report in every form, and one replay file for each failing cell; returns the paths of the latter.
fn write(document: &Document, out: &Path) -> Result<Vec<String>, String> {
    let failures = out.join("failures");
    if failures.exists() {
        fs::remove_dir_all(&failures).map_err(|error| format!("{}: {error}", failures.display()))?;
    }
    report::write(&out.join("report.json"), &document.to_json().map_err(|error| error.to_string())?)?;
    report::write(&out.join("report.html"), &document.to_html())?;
    report::write(&out.join("junit.xml"), &document.to_junit()?)?;
    let mut paths = Vec::new();
    for cell in document.failures() {
        if let Some(replay) = cell.failure.as_ref().and_then(|failure| failure.replay.as_ref()) {
            let path = failures.join(cell.replay_file());
            report::write(&path, &format!("{replay:#}\n"))?;
            paths.push(path.display().to_string());
        }
    }
    Ok(paths)
}

fn verdict(document: &Document) -> String {
    let names: Vec<_> = document.backends.iter().map(|column| column.name.as_str()).collect();
    let names = names.join(", ");
    match (document.agrees, document.backends.len()) {
        (true, 1) => format!("{names} agrees with the oracle."),
        (true, _) => format!("{names} agree with the oracle and with each other."),
        (false, _) => "Not all agree.".to_owned(),
    }
}
