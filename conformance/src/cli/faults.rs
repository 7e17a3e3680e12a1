//! The score of the kit: which seeded faults it catches, with how many cases, and which laws see them.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use congruent_conformance::faults::{Fault, Score, faults, score_all};
use congruent_conformance::laws::LAWS;
use congruent_conformance::report::FaultRecord;
use congruent_conformance::suite::{Candidate, Profile};
use indicatif::ProgressBar;

use super::{FaultsArgs, candidates, print};

/// Runs the faults; whether all were caught.
pub(super) fn run(args: &FaultsArgs) -> Result<bool, String> {
    let candidate = candidates(std::slice::from_ref(&args.backend))?.pop();
    let candidate = candidate.ok_or_else(|| format!("no backend is called `{}`", args.backend))?;
    let profile = Profile { cases: args.cases, ..Profile::default() };
    let faults: Vec<Fault> = faults().filter(|fault| fault.name.contains(&args.only)).collect();
    if faults.is_empty() {
        return Err(format!("no fault's description contains `{}`", args.only));
    }
    let scores = scored(&candidate, &faults, &profile)?;
    let caught = scores.iter().filter(|score| score.caught()).count();
    let numbers: BTreeSet<_> = faults.iter().filter_map(|fault| fault.number).collect();
    let mut lines = vec![
        table(&scores).trim_fmt(),
        format!(
            "{caught} of {} faults caught, forms of {} known mistakes and others (seed {:#x})",
            scores.len(),
            numbers.len(),
            profile.seed
        ),
    ];
    if args.only.is_empty() {
        let unbroken = |law: &&'static str| !scores.iter().any(|score| score.laws.contains(law));
        lines.extend(
            LAWS.iter().map(|law| law.name).filter(unbroken).map(|law| format!("no fault shows in the law: {law}")),
        );
    }
    print(&lines.join("\n"))?;
    Ok(caught == scores.len())
}

/// What became of every fault on a correct backend, for a report.
pub(super) fn records(candidate: &Candidate) -> Result<Vec<FaultRecord>, String> {
    let faults: Vec<Fault> = faults().collect();
    let profile = Profile { cases: FaultsArgs::CASES, ..Profile::default() };
    let scores = scored(candidate, &faults, &profile)?;
    Ok(scores.iter().map(FaultRecord::from).collect())
}

fn scored(candidate: &Candidate, faults: &[Fault], profile: &Profile) -> Result<Vec<Score>, String> {
    let hidden = !std::io::stderr().is_terminal();
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(faults.len() as u64) };
    let scores = score_all(|| candidate.make(), faults, profile, |_| bar.inc(1));
    bar.finish_and_clear();
    scores.map_err(|error| error.to_string())
}

fn table(scores: &[Score]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["no.", "fault", "families", "rows", "fewest cases", "laws"]);
    for score in scores {
        let fault = score.fault;
        let rows = if score.rows.1 == 0 { "–".to_owned() } else { format!("{} of {}", score.rows.0, score.rows.1) };
        table.add_row([
            fault.number.map_or(String::new(), |number| number.to_string()),
            fault.name.to_owned(),
            match fault.families.len() {
                0 => "transfer".to_owned(),
                1..=3 => fault.families.join(" "),
                count => format!("{count} families"),
            },
            rows,
            match score.cases {
                Some(cases) => cases.to_string(),
                None if score.caught() => "–".to_owned(),
                None => "NOT CAUGHT".to_owned(),
            },
            (score.laws.len() + score.refused_laws.len()).to_string(),
        ]);
    }
    for column in [0, 3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
