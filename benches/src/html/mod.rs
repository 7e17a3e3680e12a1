//! The report as one page of HTML that needs nothing else: style and plots are in it.

mod plot;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::document::{Document, Row};
use crate::figures::{Figures, duration, percent, rate};
use crate::limits::Limits;
use crate::runner::Identity;
use crate::stats::geometric_mean;
use crate::table::{LEGEND, failures, runners};
use plot::{Scale, Series, Strip};

/// The text of `report.html`.
#[must_use]
pub fn page(document: &Document) -> String {
    let figures = Figures::new(document);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Benchmarks: " (document.environment.machine()) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                (headline(&figures))
                main {
                    (limits(&figures))
                    (shares_of_families(&figures))
                    (peers(&figures))
                    (speed_up(&figures))
                    @for family in document.families() { (plots(&figures, family)) }
                    (table(&figures))
                    (environment(document))
                }
            }
        }
    };
    page.into_string()
}

fn headline(figures: &Figures<'_>) -> Markup {
    let document = figures.document;
    let failed = document.failures().count();
    html! {
        header {
            h1 { (document.ours().map(|backend| backend.device.as_str()).collect::<Vec<_>>().join(", ")) ": time for a call" }
            p.soft { (document.environment.machine()) }
            div.tiles {
                (tile("", document.cases().count(), "cases"))
                @for (at, (backend, _)) in figures.backends.iter().enumerate() {
                    @if let Some((mean, rows)) = figures.against_peers(at, None) {
                        (tile(if mean <= 1.0 { "good" } else { "warn" }, format!("{mean:.2}"),
                            &format!("× the best peer's time on {}, {rows} cases", backend.device)))
                    }
                }
                @if failed > 0 { (tile("warn", failed, "failed")) }
            }
            nav {
                a href="#limits" { "Limits" }
                a href="#shares" { "Share of the limit" }
                @if figures.has_peers() { a href="#peers" { "Beside others" } }
                @if figures.has_speed_up() { a href="#speed-up" { "CPU ÷ CUDA" } }
                @for family in document.families() { a href={ "#family-" (family) } { (family) } }
                a href="#table" { "Table" }
                a href="#environment" { "Environment" }
            }
        }
    }
}

fn tile(class: &str, value: impl ToString, label: &str) -> Markup {
    html! { div class={ "tile " (class) } { b { (value.to_string()) } (label) } }
}

fn limits(figures: &Figures<'_>) -> Markup {
    let mut dtypes: Vec<&String> = figures.backends.iter().flat_map(|(_, limits)| limits.peak.keys()).collect();
    dtypes.sort();
    dtypes.dedup();
    let copies = |(at, (backend, limits)): (usize, &(&Identity, Limits))| Series {
        name: backend.device.clone(),
        class: class(figures.document, backend, at),
        points: limits
            .copy
            .iter()
            .map(|&(bytes, speed)| (bytes, speed, format!("{bytes} bytes at {}", rate(speed, "B"))))
            .collect(),
    };
    let copies: Vec<Series> = figures.backends.iter().enumerate().map(copies).collect();
    html! {
        h2 #limits { "Limits" }
        p.soft { (LEGEND) }
        div.pair {
            div.scroll {
                table {
                    thead {
                        tr {
                            th { "device" } th { "copy from memory" }
                            @for dtype in &dtypes { th { "peak " (dtype) } }
                            th { "cheapest call" }
                        }
                    }
                    tbody {
                        @for (backend, limits) in &figures.backends {
                            tr {
                                th { (backend.device) }
                                td { (limits.copy.last().map(|&(_, speed)| rate(speed, "B")).unwrap_or_default()) }
                                @for dtype in &dtypes {
                                    td { (limits.peak.get(*dtype).map(|&peak| rate(peak, "FLOP")).unwrap_or_default()) }
                                }
                                td { (limits.launch.map(duration).unwrap_or_default()) }
                            }
                        }
                    }
                }
            }
            (plot::chart("Copies: bytes per second against bytes", Scale::Rate, &copies, &[]))
        }
    }
}

fn shares_of_families(figures: &Figures<'_>) -> Markup {
    let strip = |at: usize, family: &str| {
        let rows = figures.document.cases().filter(|row| row.spec.family == family);
        let points: Vec<_> = rows
            .filter_map(|row| {
                let share = figures.of(row)[at].share()?;
                Some((share, format!("{}: {}", row.spec.name(), percent(share))))
            })
            .collect();
        let mean = geometric_mean(&points.iter().map(|(share, _)| *share).collect::<Vec<_>>());
        Strip { label: family.to_owned(), mean: percent(mean), points }
    };
    html! {
        h2 #shares { "Share of the limit" }
        p.soft { "Each dot is a case; the line is the limit. The number is the geometric mean of the family." }
        @for (at, (backend, _)) in figures.backends.iter().enumerate() {
            h3 { (backend.device) }
            (plot::strips("Shares of the limit by family", &strips(figures, |family| strip(at, family))))
        }
    }
}

/// One for each family.
fn strips(figures: &Figures<'_>, strip: impl Fn(&str) -> Strip) -> Vec<Strip> {
    figures.document.families().into_iter().map(strip).collect()
}

fn peers(figures: &Figures<'_>) -> Markup {
    let strip = |at: usize, family: &str| {
        let rows = figures.document.cases().filter(|row| row.spec.family == family);
        let points: Vec<_> = rows
            .filter_map(|row| {
                let figure = figures.of(row)[at].clone();
                let (ratio, (peer, _)) = (figure.ratio()?, figure.peer?);
                Some((ratio, format!("{}: {ratio:.2} of {}", row.spec.name(), peer.library)))
            })
            .collect();
        let mean = figures.against_peers(at, Some(family)).map(|(mean, _)| format!("{mean:.2}"));
        Strip { label: family.to_owned(), mean: mean.unwrap_or_default(), points }
    };
    html! {
        @if figures.has_peers() {
            h2 #peers { "Time ÷ that of the best other library" }
            p.soft { "Each dot is a case; left of the line ours is faster. The number is the geometric mean of the family." }
            @for (at, (backend, _)) in figures.backends.iter().enumerate() {
                @if figures.against_peers(at, None).is_some() {
                    h3 { (backend.device) }
                    (plot::strips("Ratios by family", &strips(figures, |family| strip(at, family))))
                }
            }
        }
    }
}

fn speed_up(figures: &Figures<'_>) -> Markup {
    let strip = |family: &str| {
        let rows = figures.document.cases().filter(|row| row.spec.family == family);
        let points: Vec<_> = rows
            .filter_map(|row| {
                let ratio = figures.speed_up(row)?;
                Some((ratio, format!("{}: {ratio:.1}", row.spec.name())))
            })
            .collect();
        let mean = geometric_mean(&points.iter().map(|(ratio, _)| *ratio).collect::<Vec<_>>());
        Strip { label: family.to_owned(), mean: format!("{mean:.0}"), points }
    };
    html! {
        @if figures.has_speed_up() {
            h2 #speed-up { "Speed-up from the CPU to CUDA" }
            p.soft { "Each dot is a case; right of the line the GPU is faster." }
            (plot::strips("Speed-up by family", &strips(figures, strip)))
        }
    }
}

/// Time and share of the limit against size, for each op and dtype of a family.
fn plots(figures: &Figures<'_>, family: &str) -> Markup {
    let rows: Vec<&Row> = figures.document.cases().filter(|row| row.spec.family == family).collect();
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for row in &rows {
        let kind = (row.spec.op.as_str(), row.spec.dtype.as_str());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    html! {
        h2 id={ "family-" (family) } { (family) }
        (legend(figures.document))
        div.grid {
            @for (op, dtype) in kinds {
                @let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.spec.op == op && row.spec.dtype == dtype).collect();
                figure {
                    figcaption { b { (op) } " " (dtype) }
                    (plot::chart(&format!("Time of {op} {dtype} against size"), Scale::Time, &times(figures, &rows), &floors(figures, &rows)))
                    @let shares = shares(figures, &rows);
                    @if shares.iter().any(|series| !series.points.is_empty()) {
                        (plot::chart(&format!("Share of the limit of {op} {dtype} against size"), Scale::Share, &shares, &[]))
                    }
                }
            }
        }
    }
}

/// The colour of a runner: its place among those that are shown.
fn class(document: &Document, runner: &Identity, or: usize) -> usize {
    shown(document).position(|shown| shown == runner).unwrap_or(or)
}

fn shown(document: &Document) -> impl Iterator<Item = &Identity> {
    document.runners.iter().filter(|runner| runner.is_ours() || runner.is_peer())
}

fn legend(document: &Document) -> Markup {
    html! {
        p.legend {
            @for (at, runner) in shown(document).enumerate() {
                span { i class={ "key k" (at) } {} (runner.name()) }
            }
            span { i.key.floor {} "limit" }
        }
    }
}

fn times(figures: &Figures<'_>, rows: &[&Row]) -> Vec<Series> {
    let document = figures.document;
    let series = |(at, runner): (usize, &Identity)| {
        let point = |row: &&Row| {
            let seconds = row.seconds(runner)?;
            let title = format!("{} on {}: {}", row.spec.name(), runner.name(), duration(seconds));
            Some((row.elements as f64, seconds, title))
        };
        Series { name: runner.name(), class: at, points: rows.iter().filter_map(point).collect() }
    };
    shown(document).enumerate().map(series).collect()
}

/// The limit of each device, as a line that nobody should cross.
fn floors(figures: &Figures<'_>, rows: &[&Row]) -> Vec<Series> {
    let series = |(backend, limits): &(&Identity, Limits)| {
        let point = |row: &&Row| {
            let seconds = limits.seconds(row)?;
            row.seconds(backend)?;
            Some((row.elements as f64, seconds, format!("limit of {}: {}", backend.device, duration(seconds))))
        };
        Series { name: backend.device.clone(), class: 0, points: rows.iter().filter_map(point).collect() }
    };
    figures.backends.iter().map(series).collect()
}

fn shares(figures: &Figures<'_>, rows: &[&Row]) -> Vec<Series> {
    let series = |(at, (backend, _)): (usize, &(&Identity, Limits))| {
        let point = |row: &&Row| {
            let share = figures.of(row)[at].share()?;
            let title = format!("{} on {}: {}", row.spec.name(), backend.device, percent(share));
            Some((row.elements as f64, share, title))
        };
        let points = rows.iter().filter_map(point).collect();
        Series { name: backend.name(), class: class(figures.document, backend, at), points }
    };
    figures.backends.iter().enumerate().map(series).collect()
}

fn table(figures: &Figures<'_>) -> Markup {
    let document = figures.document;
    let peers: Vec<&Identity> = document.runners.iter().filter(|runner| runner.is_peer()).collect();
    html! {
        h2 #table { "Every case" }
        div.scroll.tall {
            table.sticky {
                thead {
                    tr {
                        th { "case" }
                        @for (backend, _) in &figures.backends {
                            th { "limit" } th { (backend.device) } th { "share" } th { "÷ best peer" }
                        }
                        @if figures.has_speed_up() { th { "CPU ÷ CUDA" } }
                        @for peer in &peers { th { (peer.name()) } }
                    }
                }
                tbody {
                    @for row in document.cases() {
                        tr {
                            th { (row.spec.name()) }
                            @for figure in figures.of(row) {
                                td.soft { (figure.limit.map(duration).unwrap_or_default()) }
                                td { (figure.seconds.map(duration).unwrap_or_default()) }
                                td { (figure.share().map(percent).unwrap_or_default()) }
                                @match figure.ratio() {
                                    Some(ratio) => td.warn[ratio > 1.0].good[ratio <= 1.0] { (format!("{ratio:.2}")) },
                                    None => td {},
                                }
                            }
                            @if figures.has_speed_up() {
                                td { (figures.speed_up(row).map(|ratio| format!("{ratio:.1}")).unwrap_or_default()) }
                            }
                            @for peer in &peers { td { (row.seconds(peer).map(duration).unwrap_or_default()) } }
                        }
                    }
                }
            }
        }
    }
}

fn environment(document: &Document) -> Markup {
    let failures = failures(document);
    html! {
        h2 #environment { "Environment" }
        pre { (document.command) }
        ul { @for runner in runners(document) { li { (runner) } } }
        @if !failures.is_empty() {
            h3 { "Failures" }
            ul { @for failure in failures { li { (failure) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::document;

    /// Elements that are opened are closed in order.
    fn check(page: &str) {
        const VOID: [&str; 9] = ["!DOCTYPE", "meta", "line", "circle", "polyline", "rect", "path", "br", "hr"];
        let body = page.split_once("<style>").map(|(head, rest)| (head, rest.split_once("</style>").unwrap().1));
        let (head, rest) = body.unwrap();
        let mut open: Vec<&str> = Vec::new();
        for part in head.split('<').skip(1).chain(rest.split('<').skip(1)) {
            let tag = part.split('>').next().unwrap();
            assert!(part.contains('>'), "a `<` of text is not escaped: {part}");
            match tag.strip_prefix('/') {
                Some(name) if VOID.contains(&name) => {}
                Some(name) => assert_eq!(open.pop(), Some(name), "closed in the wrong order"),
                None => {
                    let name = tag.split(' ').next().unwrap();
                    if !VOID.contains(&name) {
                        open.push(name);
                    }
                }
            }
        }
        assert!(open.is_empty(), "left open: {open:?}");
    }

    #[test]
    fn the_page_is_well_formed_and_whole() {
        let document = document();
        let page = page(&document);
        check(&page);
        for row in document.cases() {
            assert!(page.contains(&row.spec.name()), "{} is missing", row.spec.name());
        }
        for part in ["A CPU &amp; more", "out of &lt;memory&gt;", "prefers-color-scheme: dark", "<svg", "CPU ÷ CUDA"] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert!(!page.contains("<script") && !page.contains("http"), "the page needs something else");
        assert!(!page.contains("NaN") && !page.contains("inf"), "a number is none");
    }

    #[test]
    fn a_page_without_peers_or_gpu_leaves_their_sections_out() {
        let mut document = document();
        document.runners.retain(|runner| runner.name() == "congruent cpu");
        let page = page(&document);
        check(&page);
        assert!(!page.contains("id=\"peers\"") && !page.contains("id=\"speed-up\""));
    }
}
