//! Tables for a README: for each backend, how many ops of a family work for each dtype.
//!
//! A table stands between `<!-- support NAME -->` and `<!-- /support NAME -->`, where NAME is the backend without the
//! number of a device. It holds no measured number, so that every machine with the backend generates the same text.

use super::{CellRecord, Document, Mark};
use crate::ops::rows;

/// A table in Markdown for each backend of a report, with the name of its block.
///
/// # Errors
/// When the report holds a selection of rows.
pub fn tables(document: &Document) -> Result<Vec<(String, String)>, String> {
    let expected = rows().count();
    let mut tables: Vec<(String, String)> = Vec::new();
    for column in &document.backends {
        let cells: Vec<_> = document.cells.iter().filter(|cell| cell.backend == column.name).collect();
        if cells.len() != expected {
            let found = cells.len();
            return Err(format!(
                "the report holds {found} of the {expected} rows of {}; run `conformance` without --op and --dtype",
                column.name
            ));
        }
        let block = column.name.split(':').next().unwrap_or(&column.name);
        // Devices of one kind run the same code; the first one speaks for it.
        if tables.iter().all(|(name, _)| name != block) {
            tables.push((block.to_owned(), table(document, &cells)));
        }
    }
    Ok(tables)
}

/// The text of a README with a table in its block.
///
/// # Errors
/// When the block is not there.
pub fn place(readme: &str, block: &str, table: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- support {block} -->"), format!("<!-- /support {block} -->"));
    let missing = || format!("there is no block for {block}: add the lines\n{begin}\n{end}");
    let (before, rest) = readme.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n\n{table}\n{end}{after}"))
}

fn table(document: &Document, cells: &[&CellRecord]) -> String {
    let dtypes = document.dtypes();
    let mut families: Vec<&str> = document.ops().into_iter().map(|(family, _)| family).collect();
    families.dedup();
    let mut lines = vec![format!("| ops | {} |", dtypes.join(" | ")), format!("|---|{}", "--:|".repeat(dtypes.len()))];
    for family in families {
        let entries: Vec<_> = dtypes
            .iter()
            .map(|dtype| {
                let of = || cells.iter().filter(|cell| cell.family == family && cell.dtype == *dtype);
                let works = of().filter(|cell| !matches!(cell.verdict, Mark::Fail | Mark::Unsupported)).count();
                match of().count() {
                    0 => "–".to_owned(),
                    all if all == works => format!("✓ {all}"),
                    all => format!("{works} of {all}"),
                }
            })
            .collect();
        lines.push(format!("| {family} | {} |", entries.join(" | ")));
    }
    lines.join("\n") + "\n"
}
