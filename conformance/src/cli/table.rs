//! The tables of the terminal: a line for each op and backend with a column for each dtype, or every cell on a line.

use comfy_table::{Attribute, Cell as TableCell, CellAlignment, Color, ContentArrangement, Table, presets};
use congruent_backend_api::DType;
use congruent_conformance::report::{Cell, Mark, Report};

/// One line for each op and backend: cases, worst ULP, and in each dtype's column the worst error ÷ bound.
pub(super) fn matrix(report: &Report) -> Table {
    let header = ["op", "backend", "cases", "worst ULP"].into_iter().chain(DType::ALL.map(DType::name));
    let mut table = plain(header);
    let mut ops: Vec<String> = report.cells.iter().map(Cell::op_name).collect();
    ops.dedup();
    for op in ops {
        for (line, backend) in report.backends.iter().enumerate() {
            let cells: Vec<_> =
                report.cells.iter().filter(|cell| cell.op_name() == op && cell.backend == backend.name).collect();
            let cases = cells.iter().map(|cell| cell.cases).sum::<usize>();
            let ulps = cells.iter().map(|cell| cell.ulps).fold(0.0, f64::max);
            let mut row = vec![
                TableCell::new(if line == 0 { op.as_str() } else { "" }),
                TableCell::new(&backend.name),
                right(cases.to_string()),
                right(number(ulps)),
            ];
            row.extend(DType::ALL.map(|dtype| match cells.iter().find(|cell| cell.dtype == dtype) {
                Some(cell) => mark(cell),
                None => right("·".to_owned()).fg(Color::DarkGrey),
            }));
            table.add_row(row);
        }
    }
    table
}

/// One line for each op, dtype and backend.
pub(super) fn long(report: &Report) -> Table {
    let mut table =
        plain(["op", "dtype", "backend", "cases", "elements", "worst ULP", "error ÷ bound", "seconds"].into_iter());
    for cell in &report.cells {
        table.add_row([
            TableCell::new(cell.op_name()),
            TableCell::new(cell.dtype.name()),
            TableCell::new(&cell.backend),
            right(cell.cases.to_string()),
            right(cell.elements.to_string()),
            right(number(cell.ulps)),
            mark(cell),
            right(format!("{:.2}", cell.seconds)),
        ]);
    }
    table
}

/// What the marks mean.
pub(super) const LEGEND: &str = "Columns: worst error ÷ bound; = exact; FAIL outside; loose: inside, but unlikely; n/a not implemented; ? unknown; · undefined.";

fn plain<'a>(header: impl Iterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.map(|name| TableCell::new(name).add_attribute(Attribute::Bold)));
    table
}

fn mark(cell: &Cell) -> TableCell {
    match cell.mark() {
        Mark::Fail => right("FAIL".to_owned()).fg(Color::Red).add_attribute(Attribute::Bold),
        Mark::Unsupported => right("n/a".to_owned()).fg(Color::Yellow),
        Mark::Indeterminate => right("?".to_owned()).fg(Color::Yellow),
        Mark::Loose => right(format!("{} loose", number(cell.ratio))).fg(Color::Yellow),
        Mark::Pass if cell.ratio == 0.0 => right("=".to_owned()).fg(Color::Green),
        Mark::Pass => right(number(cell.ratio)).fg(Color::Green),
    }
}

fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..1e4 => format!("{value:.2}"),
        _ => format!("{value:.0e}"),
    }
}

fn right(text: String) -> TableCell {
    TableCell::new(text).set_alignment(CellAlignment::Right)
}
