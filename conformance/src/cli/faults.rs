//! The score of the kit: which seeded faults it catches, and with how many cases.

use std::sync::Arc;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use congruent_backend_api::DType;
use congruent_conformance::faults::{FAULTS, score};
use congruent_conformance::suite::Profile;

use super::{FaultsArgs, candidates, print};

/// Runs the faults; whether all were caught.
pub(super) fn run(args: &FaultsArgs) -> Result<bool, String> {
    let candidate = candidates(std::slice::from_ref(&args.backend))?.pop().map(Arc::new);
    let candidate = candidate.ok_or_else(|| format!("no backend is called `{}`", args.backend))?;
    let profile = Profile { cases: args.cases, ..Profile::default() };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["fault", "families", "rows that caught it", "fewest cases"]);
    let (mut caught, mut all) = (0, 0);
    for fault in FAULTS.iter().filter(|fault| fault.name.contains(&args.only)) {
        let maker = Arc::clone(&candidate);
        let score = score(move || maker.make(), fault, &DType::ALL, &profile).map_err(|error| error.to_string())?;
        all += 1;
        caught += usize::from(score.cases.is_some());
        table.add_row([
            fault.name.to_owned(),
            if fault.families.len() > 3 {
                format!("{} families", fault.families.len())
            } else {
                fault.families.join(" ")
            },
            format!("{} of {}", score.rows.0, score.rows.1),
            score.cases.map_or("NOT CAUGHT".to_owned(), |cases| cases.to_string()),
        ]);
    }
    for column in [2, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if all == 0 {
        return Err(format!("no fault's description contains `{}`", args.only));
    }
    print(&format!("{}\n{caught} of {all} faults caught (seed {:#x})", table.trim_fmt(), profile.seed))?;
    Ok(caught == all)
}
