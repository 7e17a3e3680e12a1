//! The report as one page of HTML that needs nothing else: style, plots and data are in it.

mod coverage;
mod failures;
mod histogram;
mod matrix;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Document, Mark};

impl Document {
    /// The text of `report.html`.
    #[must_use]
    pub fn to_html(&self) -> String {
        page(self).into_string()
    }
}

fn page(document: &Document) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Conformance: " (if document.agrees { "all agree" } else { "not all agree" }) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                (headline(document))
                main {
                    (failures::section(document))
                    (matrix::section(document))
                    (laws(document))
                    (recorded(document))
                    (histogram::section(document))
                    (coverage::section(document))
                    (vacuous(document))
                    (faults(document))
                    (environment(document))
                }
            }
        }
    }
}

/// What a verdict looks like: a class for its colour, and a sign for those who do not see the colour.
fn look(mark: Mark) -> (&'static str, &'static str) {
    match mark {
        Mark::Pass => ("pass", "✓"),
        Mark::Loose => ("warn", "!"),
        Mark::Indeterminate => ("warn", "?"),
        Mark::Unsupported => ("none", "∅"),
        Mark::Fail => ("fail", "✗"),
    }
}

fn headline(document: &Document) -> Markup {
    let counts = document.counts();
    let names: Vec<_> = document.backends.iter().map(|column| column.name.as_str()).collect();
    let broken = document.laws.len() - counts.laws;
    let share = 100.0 * counts.indeterminate as f64 / counts.elements.max(1) as f64;
    let quiet = |count: usize, class: &'static str| if count == 0 { "" } else { class };
    html! {
        header {
            h1 {
                @if document.agrees {
                    span.verdict.pass { "✓ agree" }
                } @else {
                    span.verdict.fail { "✗ not all agree" }
                }
                (names.join(", "))
            }
            p.soft {
                "Every backend is held against one oracle, element by element, inside error bounds that are derived from the data. "
                span style="white-space:nowrap" { (document.environment.time) }
            }
            div.tiles {
                (tile("good", counts.of(Mark::Pass), "✓ cells pass"))
                (tile(quiet(counts.of(Mark::Fail), "bad"), counts.of(Mark::Fail), "✗ fail"))
                (tile(quiet(counts.of(Mark::Loose), "warn"), counts.of(Mark::Loose), "! loose"))
                (tile("", counts.of(Mark::Unsupported), "∅ unsupported"))
                (tile(quiet(counts.of(Mark::Indeterminate), "warn"), counts.of(Mark::Indeterminate), "? indeterminate"))
                @if !document.laws.is_empty() {
                    (tile(quiet(broken, "bad"), format!("{} of {}", counts.laws, document.laws.len()), "laws hold"))
                }
                @if !document.recorded.is_empty() {
                    @let other = document.recorded.iter().any(|case| case.verdict == Mark::Fail);
                    (tile(if other { "bad" } else { "" }, format!("{} of {}", counts.recorded, document.recorded.len()), "recorded cases pass"))
                }
                @if !document.faults.is_empty() {
                    @let missed = document.faults.len() - counts.faults;
                    (tile(quiet(missed, "bad"), format!("{} of {}", counts.faults, document.faults.len()), "seeded faults caught"))
                }
                (tile("", thousands(counts.cases), "cases"))
                (tile("", thousands(counts.elements), &format!("elements, {share:.2}\u{a0}% unknown")))
                (tile("", &document.seed, "seed"))
                (tile("", format!("{:.1} s", document.seconds), document.tier.as_deref().unwrap_or("time")))
            }
            nav {
                @if !document.agrees { a href="#failures" { "Failures" } }
                a href="#matrix" { "Ops × dtypes" }
                @if !document.laws.is_empty() { a href="#laws" { "Laws" } }
                @if !document.recorded.is_empty() { a href="#recorded" { "Recorded cases" } }
                a href="#histograms" { "Errors" }
                a href="#coverage" { "What was tested" }
                @if !document.faults.is_empty() { a href="#faults" { "Seeded faults" } }
                a href="#environment" { "Environment" }
            }
        }
    }
}

fn tile(class: &str, value: impl ToString, label: &str) -> Markup {
    html! { div class={ "tile " (class) } { b.number { (value.to_string()) } (label) } }
}

/// A number with thin spaces between groups of three digits.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push('\u{2009}');
        }
        grouped.push(digit);
    }
    grouped
}

fn laws(document: &Document) -> Markup {
    let mut names: Vec<&str> = Vec::new();
    for law in &document.laws {
        if !names.contains(&law.law.as_str()) {
            names.push(&law.law);
        }
    }
    let find = |name: &str, backend: &str| document.laws.iter().find(|law| law.law == name && law.backend == backend);
    html! {
        @if !names.is_empty() {
            h2 #laws { "Laws" }
            p.soft { "Equalities between results of one backend that need no oracle." }
            div.scroll.tall {
                table.matrix {
                    thead { tr { th { "law" } @for column in &document.backends { th { (column.name) } } } }
                    tbody {
                        @for name in names {
                            tr {
                                th.wrap.plain scope="row" { (name) }
                                @for column in &document.backends {
                                    @match find(name, &column.name) {
                                        Some(law) if law.broken.is_none() => td.pass { "✓ holds" },
                                        Some(_) => td.fail { "✗ broken" },
                                        None => td.none { "not tested" },
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn recorded(document: &Document) -> Markup {
    html! {
        @if !document.recorded.is_empty() {
            h2 #recorded { "Recorded cases" }
            p.soft { "Bugs of other libraries, and what this kit found before, as single calls." }
            details {
                summary { (document.recorded.len()) " cases" }
                table.matrix {
                    thead { tr { th { "case" } th { "source" } th { "backend" } th { "" } } }
                    tbody {
                        @for case in &document.recorded {
                            @let (class, sign) = look(case.verdict);
                            tr {
                                th.wrap.plain scope="row" { (case.op) ": " (case.name) }
                                td.text { (case.source) }
                                td.text { (case.backend) }
                                td class=(class) title=(case.reason.as_deref().unwrap_or_default()) { (sign) " " (case.verdict) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn vacuous(document: &Document) -> Markup {
    let cells: Vec<_> = document.cells.iter().filter(|cell| cell.vacuous).collect();
    html! {
        @if !cells.is_empty() {
            h2 #vacuous { "Bounds that may say nothing" }
            p.soft { "Errors were seen, and none was larger than a millionth of its bound: a wrong result might pass here." }
            ul { @for cell in cells { li { (cell.name()) ": worst error ÷ bound " (format!("{:.1e}", cell.worst_error_over_bound)) } } }
        }
    }
}

fn faults(document: &Document) -> Markup {
    html! {
        @if !document.faults.is_empty() {
            h2 #faults { "Seeded faults" }
            p.soft { "Backends that are wrong on purpose: what the kit must catch, and how soon it did." }
            div.scroll.tall {
                table.matrix {
                    thead { tr { th { "fault" } th { "" } th { "fewest cases" } th { "rows" } th { "laws" } } }
                    tbody {
                        @for fault in &document.faults {
                            tr {
                                td.text.wrap { @if let Some(number) = fault.number { span.soft { (number) " " } } (fault.fault) }
                                @if fault.caught { td.pass { "✓ caught" } } @else { td.fail { "✗ NOT CAUGHT" } }
                                td { (fault.cases.map_or("–".to_owned(), |cases| cases.to_string())) }
                                td { @if fault.rows == 0 { "–" } @else { (fault.rows_caught) " of " (fault.rows) } }
                                td title=(fault.laws.join("; ")) { (fault.laws.len()) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn environment(document: &Document) -> Markup {
    let environment = &document.environment;
    let mut entries = vec![
        ("kit", format!("congruent-conformance {}", environment.version)),
        ("compiler", environment.rustc.clone()),
        ("system", format!("{} on {}", environment.os, environment.arch)),
        ("processor", environment.cpu.clone().unwrap_or_else(|| "unknown".to_owned())),
        ("instruction sets", environment.cpu_features.join(" ")),
        ("threads", environment.threads.to_string()),
        ("peak memory", environment.peak_memory_mib.map_or("unknown".to_owned(), |mib| format!("{mib} MiB"))),
        ("GPUs", if environment.gpus.is_empty() { "none".to_owned() } else { environment.gpus.join(", ") }),
        ("seed", document.seed.clone()),
        ("cases for each cell", document.cases_per_cell.to_string()),
        ("tier", document.tier.clone().unwrap_or_else(|| "none".to_owned())),
        ("time", environment.time.clone()),
    ];
    for column in &document.backends {
        entries.push(("backend", format!("{}; declared arithmetic: {}", column.name, column.declared)));
    }
    html! {
        h2 #environment { "Environment" }
        dl { @for (name, value) in entries { dt { (name) } dd { (value) } } }
    }
}
