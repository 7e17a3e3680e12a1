//! The report as a table: in Markdown with every runner, on the terminal with what matters.

use std::fmt::Write as _;

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};

use crate::document::Document;
use crate::figures::{Figures, duration, percent, rate};
use crate::limits::Limits;
use crate::runner::{Identity, Refusal};

/// What the columns mean.
pub const LEGEND: &str = "Times are medians for a call, results allocated. A limit is the longest of: copying the case's bytes \
at the rate of a copy of that size, its arithmetic at the peak of its dtype, the cheapest call; all measured in the same run, \
by whoever is fastest. The share is limit ÷ time. Ratios to the best peer on the same device are above 1 where ours is slower.";

/// The text of `report.md`.
#[must_use]
pub fn markdown(document: &Document) -> String {
    let figures = Figures::new(document);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# {}\n\n`{}`\n", document.environment.machine(), document.command);
    let _ = writeln!(text, "{}.\n", runners(document).join(", "));
    let _ = writeln!(text, "{LEGEND}\n");
    for line in limits(&figures) {
        let _ = writeln!(text, "- {line}");
    }
    let peers: Vec<&Identity> = document.runners.iter().filter(|runner| runner.is_peer()).collect();
    let mut header = vec!["case".to_owned()];
    for (backend, _) in &figures.backends {
        let device = &backend.device;
        header.extend([format!("limit {device}"), device.clone(), "share".to_owned()]);
        header.extend(document.peers(device).next().map(|_| "÷ best peer".to_owned()));
    }
    if figures.has_speed_up() {
        header.push("CPU ÷ CUDA".to_owned());
    }
    header.extend(peers.iter().map(|peer| peer.name()));
    let _ = writeln!(text, "\n| {} |\n|---|{}", header.join(" | "), "--:|".repeat(header.len() - 1));
    for row in document.cases() {
        let mut cells = vec![row.spec.name()];
        for ((backend, _), figure) in figures.backends.iter().zip(figures.of(row)) {
            let failed = row.time(backend).and_then(|time| time.refusal.as_ref()).map(mark);
            let ours = figure.seconds.map(duration).or_else(|| failed.map(str::to_owned));
            cells
                .extend([figure.limit.map(duration), ours, figure.share().map(percent)].map(Option::unwrap_or_default));
            if document.peers(&backend.device).next().is_some() {
                cells.push(figure.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default());
            }
        }
        if figures.has_speed_up() {
            cells.push(figures.speed_up(row).map(|ratio| format!("{ratio:.1}")).unwrap_or_default());
        }
        cells.extend(peers.iter().map(|peer| row.seconds(peer).map(duration).unwrap_or_default()));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    for line in summary(&figures) {
        let _ = writeln!(text, "\n{line}");
    }
    text
}

/// The table for a terminal, without escapes where the output is none or `NO_COLOR` is set.
#[must_use]
pub fn terminal(document: &Document) -> String {
    let figures = Figures::new(document);
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    // The convention of no-color.org; a pipe is recognised without it.
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        table.force_no_tty();
    }
    let mut header = vec![Cell::new("case")];
    for (backend, _) in &figures.backends {
        header.extend([&backend.device, "share"].map(right));
        if document.peers(&backend.device).next().is_some() {
            header.extend(["best peer", "÷"].map(right));
        }
    }
    if figures.has_speed_up() {
        header.push(right("CPU ÷ CUDA"));
    }
    table.set_header(header.into_iter().map(|cell| cell.add_attribute(Attribute::Bold)));
    for row in document.cases() {
        let mut cells = vec![Cell::new(row.spec.name())];
        for ((backend, _), figure) in figures.backends.iter().zip(figures.of(row)) {
            let refusal = row.time(backend).and_then(|time| time.refusal.as_ref());
            cells.push(match (figure.seconds, refusal) {
                (Some(seconds), _) => right(duration(seconds)),
                (None, Some(refusal)) => right(mark(refusal)).fg(Color::Red),
                (None, None) => right(""),
            });
            cells.push(right(figure.share().map(percent).unwrap_or_default()));
            if document.peers(&backend.device).next().is_some() {
                cells.push(right(figure.peer.map(|(peer, _)| peer.library.as_str()).unwrap_or_default()));
                cells.push(match figure.ratio() {
                    Some(ratio) if ratio > 1.0 => right(format!("{ratio:.2}")).fg(Color::Yellow),
                    Some(ratio) => right(format!("{ratio:.2}")).fg(Color::Green),
                    None => right(""),
                });
            }
        }
        if figures.has_speed_up() {
            cells.push(right(figures.speed_up(row).map(|ratio| format!("{ratio:.1}")).unwrap_or_default()));
        }
        table.add_row(cells);
    }
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    let lines = [vec![table.trim_fmt()], limits(&figures), summary(&figures), failures(document)];
    lines.concat().join("\n")
}

fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

fn mark(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Failed(_) => "FAILED",
        Refusal::Unsupported(_) => "n/a",
    }
}

/// Each library with its version, once, and where it ran.
#[must_use]
pub fn runners(document: &Document) -> Vec<String> {
    let line = |runner: &Identity| {
        let note = if runner.note.is_empty() { String::new() } else { format!(" ({})", runner.note) };
        format!("{} {}{note}", runner.name(), runner.version)
    };
    let environment = &document.environment;
    let load = environment.load.map(|load| format!("load before the run {load:.2}"));
    document.runners.iter().map(line).chain([environment.rustc.clone()]).chain(load).collect()
}

/// The limits of each device in a line.
#[must_use]
pub fn limits(figures: &Figures<'_>) -> Vec<String> {
    let line = |(backend, limits): &(&Identity, Limits)| {
        let best = limits.copy.iter().map(|&(_, rate)| rate).max_by(f64::total_cmp);
        let copy = limits.copy.last().map(|&(_, largest)| {
            let cached = best.map(|best| rate(best, "B")).unwrap_or_default();
            format!("copies {} from memory, {cached} at the best", rate(largest, "B"))
        });
        let peak = limits.peak.iter().map(|(dtype, &peak)| format!("{dtype} {}", rate(peak, "FLOP")));
        let calls = figures.document.rows.iter().filter(|row| row.spec.family == "limit" && row.elements == 4);
        let calls = calls.filter_map(|row| {
            let time = row.time(backend)?;
            let returned = crate::stats::median(&time.returned);
            let returned = (backend.device != "cpu").then(|| format!(" ({} until it returns)", duration(returned)));
            Some(format!(
                "{} of {} elements {}{}",
                row.spec.op,
                row.spec.shape,
                duration(row.seconds(backend)?),
                returned.unwrap_or_default()
            ))
        });
        let parts: Vec<String> = copy.into_iter().chain(peak).chain(calls).collect();
        format!("{}: {}", backend.device, parts.join("; "))
    };
    figures.backends.iter().map(line).collect()
}

/// How each backend stands beside the others.
#[must_use]
pub fn summary(figures: &Figures<'_>) -> Vec<String> {
    let line = |(at, (backend, _)): (usize, &(&Identity, Limits))| {
        let (mean, rows) = figures.against_peers(at, None)?;
        let slower =
            figures.document.cases().filter(|row| figures.of(row)[at].ratio().is_some_and(|ratio| ratio > 1.0));
        let slower = slower.count();
        Some(format!(
            "{}: {mean:.2} of the best peer's time on average (geometric mean of {rows} cases), slower than it in {slower}",
            backend.name()
        ))
    };
    figures.backends.iter().enumerate().filter_map(line).collect()
}

/// A line for each failure.
#[must_use]
pub fn failures(document: &Document) -> Vec<String> {
    let line = |(row, time, why): (&crate::document::Row, &crate::document::Time, &str)| {
        format!("FAILED {} on {} {}: {why}", row.spec.name(), time.library, time.device)
    };
    document.failures().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::document;

    #[test]
    fn markdown_has_every_case_and_runner() {
        let document = document();
        let text = markdown(&document);
        let header = text.lines().find(|line| line.starts_with("| case")).unwrap();
        for row in document.cases() {
            let line = text.lines().find(|line| line.contains(&row.spec.name())).unwrap();
            assert_eq!(line.matches('|').count(), header.matches('|').count(), "{line}");
        }
        assert!(header.contains("torch cpu") && !header.contains("machine"), "{header}");
        assert!(text.contains("A CPU & more (2 threads)"));
        assert!(
            text.contains(
                "| unary/exp/f32/1M | 1.00 ms | 1.00 ms | 100 % | 0.50 | 4.00 µs | 5.00 µs | 80 % | 200.0 | 2.00 ms |"
            ),
            "{text}"
        );
    }

    #[test]
    fn the_terminal_lists_failures() {
        let text = terminal(&document());
        assert!(text.contains("FAILED unary/exp/f32/4M on torch cpu: out of <memory>"), "{text}");
        assert!(text.contains("congruent cpu: 1.22 of the best peer's time"), "{text}");
        assert!(text.contains("slower than it in 1"), "{text}");
    }
}
