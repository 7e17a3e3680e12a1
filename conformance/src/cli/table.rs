//! The tables of the terminal: a line for each op and backend with a column for each dtype, or every cell on a line.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use congruent_backend_api::{DType, Op};
use congruent_conformance::ops::model;
use congruent_conformance::report::{CellRecord, Document, Mark};

/// One line for each op and backend: worst ULP, and in each dtype's column the worst error ÷ bound.
pub(super) fn matrix(document: &Document) -> Table {
    let dtypes = document.dtypes();
    let several = document.backends.len() > 1;
    let header = ["op"].into_iter().chain(several.then_some("backend")).chain(["ULP"]);
    let mut table = plain(header.chain(dtypes.iter().copied()));
    for (_, op) in document.ops() {
        for (line, backend) in document.backends.iter().enumerate() {
            let cells: Vec<_> =
                document.cells.iter().filter(|cell| cell.op == op && cell.backend == backend.name).collect();
            let mut row = vec![Cell::new(if line == 0 { op } else { "" })];
            row.extend(several.then(|| Cell::new(&backend.name)));
            row.push(right(ulps(cells.iter().map(|cell| cell.worst_ulp.unwrap_or(f64::INFINITY)).fold(0.0, f64::max))));
            row.extend(dtypes.iter().map(|dtype| match cells.iter().find(|cell| cell.dtype == *dtype) {
                Some(cell) => mark(cell),
                None => right("·".to_owned()).fg(Color::DarkGrey),
            }));
            table.add_row(row);
        }
    }
    pack(&mut table);
    table
}

/// One line for each op, dtype and backend.
pub(super) fn long(document: &Document) -> Table {
    let mut table =
        plain(["op", "dtype", "backend", "bound", "cases", "elements", "ULP", "error ÷ bound", "seconds"].into_iter());
    for cell in &document.cells {
        table.add_row([
            Cell::new(&cell.op),
            Cell::new(&cell.dtype),
            Cell::new(&cell.backend),
            Cell::new(&cell.model),
            right(cell.cases.to_string()),
            right(cell.elements.to_string()),
            right(ulps(cell.worst_ulp.unwrap_or(f64::INFINITY))),
            mark(cell),
            right(format!("{:.2}", cell.seconds)),
        ]);
    }
    pack(&mut table);
    table
}

/// The error model of each op, a column for each dtype.
pub(super) fn bounds() -> Table {
    let mut table = plain(["op"].into_iter().chain(DType::ALL.iter().map(|dtype| dtype.name())));
    for op in Op::all() {
        let name = match op {
            Op::Cast(to) => format!("cast to {to}"),
            op => op.name().to_owned(),
        };
        let models = DType::ALL.map(|dtype| match op.accepts(dtype) {
            true => right(model((op, dtype)).to_string()),
            false => right("·".to_owned()).fg(Color::DarkGrey),
        });
        table.add_row(std::iter::once(Cell::new(name)).chain(models));
    }
    pack(&mut table);
    table
}

/// What the marks mean.
pub(super) const LEGEND: &str = "\
Columns: worst error ÷ bound; = exact; FAIL outside; ! inside, but unlikely; n/a not implemented;
? mostly unknown; · undefined. ULP: worst error in units in the last place.";

fn plain<'a>(header: impl Iterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    // The convention of no-color.org; a pipe is recognised without it.
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        table.force_no_tty();
    }
    table.set_header(header.map(|name| {
        let alignment = if ["op", "dtype", "backend", "bound"].contains(&name) {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        };
        Cell::new(name).add_attribute(Attribute::Bold).set_alignment(alignment)
    }));
    table
}

/// One space between columns.
fn pack(table: &mut Table) {
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 1));
    });
}

fn mark(cell: &CellRecord) -> Cell {
    let ratio = cell.worst_error_over_bound;
    match cell.verdict {
        Mark::Fail => right("FAIL".to_owned()).fg(Color::Red).add_attribute(Attribute::Bold),
        Mark::Unsupported => right("n/a".to_owned()).fg(Color::Yellow),
        Mark::Indeterminate => right("?".to_owned()).fg(Color::Yellow),
        Mark::Loose => right(format!("{ratio:.2}!")).fg(Color::Yellow),
        Mark::Pass if ratio == 0.0 => right("=".to_owned()).fg(Color::Green),
        Mark::Pass => right(format!("{ratio:.2}")).fg(Color::Green),
    }
}

fn ulps(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..100.0 => format!("{value:.2}"),
        ..1e5 => format!("{value:.0}"),
        _ => format!("{value:.0e}"),
    }
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
