//! A card for each failing cell, broken law and failing recorded case: what is wrong, on which data, and how to see it again.

use maud::{Markup, html};
use serde_json::Value;

use super::super::{CellRecord, Document, FailureRecord, Mark};

pub(super) fn section(document: &Document) -> Markup {
    html! {
        @if !document.agrees {
            h2 #failures { "Failures" }
            @for (index, cell) in document.failures().enumerate() { (card(document, cell, index < OPEN)) }
            @for law in &document.laws {
                @if let Some(found) = &law.broken {
                    div.card {
                        h3 { "Law: " (law.law) " on " (law.backend) }
                        p.reason { (found) }
                    }
                }
            }
            @for case in document.recorded.iter().filter(|case| case.verdict == Mark::Fail) {
                div.card {
                    h3 { "Recorded case: " (case.op) ", " (case.name) " on " (case.backend) }
                    p.reason { (case.reason.as_deref().unwrap_or_default()) }
                    p.soft { (case.source) }
                }
            }
        }
    }
}

/// The name of a cell's card in links.
pub(super) fn anchor(cell: &CellRecord) -> String {
    cell.name().replace([' ', ':'], "-")
}

/// Cards that show all from the start.
const OPEN: usize = 6;

fn card(document: &Document, cell: &CellRecord, open: bool) -> Markup {
    let failure = cell.failure.as_ref();
    let replay = failure.and_then(|failure| failure.replay.as_ref());
    html! {
        div.card #(anchor(cell)) {
            h3 { (cell.name()) }
            p.reason { (failure.map_or("", |failure| &failure.reason)) }
            @if let Some(details) = failure.map(FailureRecord::details).filter(|details| !details.is_empty()) {
                ul { @for detail in details { li { (detail) } } }
            }
            details open[open] {
                summary { @if replay.is_some() { "Data and commands" } @else { "Command" } }
                @if let Some(replay) = replay { (data(replay)) }
                p.soft { "Run it again (a click selects the line; the folder " code { "failures" } " is beside this page):" }
                @if replay.is_some() {
                    pre.command { "conformance replay failures/" (cell.replay_file()) " --backend " (cell.backend) }
                }
                pre.command { (again(document, cell)) }
                @if let Some(replay) = replay {
                    details { summary { "Replay file" } pre { (format!("{replay:#}")) } }
                }
            }
        }
    }
}

fn again(document: &Document, cell: &CellRecord) -> String {
    let tier = document.tier.as_ref().filter(|tier| *tier == "full").map_or("", |_| " --tier full");
    format!(
        "conformance --backend {} --op {} --dtype {} --seed {} --cases {}{tier}",
        cell.backend,
        cell.op.replace("cast to ", "cast_"),
        cell.dtype,
        document.seed,
        document.cases_per_cell
    )
}

/// The operands and options of a replay file.
fn data(replay: &Value) -> Markup {
    let inputs = replay["inputs"].as_array().map_or(&[][..], Vec::as_slice);
    let options = replay["args"].as_object().filter(|args| !args.is_empty());
    html! {
        dl.data {
            @for (index, input) in inputs.iter().enumerate() {
                dt { "input " (index) }
                dd { (operand(input)) }
            }
            dt { "output" }
            dd { (view(&replay["into"])) }
            @if let Some(options) = options {
                dt { "arguments" }
                dd {
                    code { (options.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")) }
                }
            }
        }
    }
}

fn operand(input: &Value) -> Markup {
    match input.get("scalar") {
        _ if input.is_null() => html! { "the output itself" },
        Some(scalar) => html! { "scalar " code { (plain(scalar)) } },
        None => html! { (view(input)) br; code { (elements(input)) } },
    }
}

/// Dtype, shape, and what is unusual about the layout.
fn view(tensor: &Value) -> Markup {
    let unusual = ["strides", "offset"].into_iter().filter(|field| !tensor[*field].is_null());
    html! {
        (plain(&tensor["dtype"])) " " (tensor["shape"].to_string().replace(',', ", "))
        @for field in unusual { span.soft { ", " (field) " " (tensor[field].to_string().replace(',', ", ")) } }
    }
}

/// The elements of a view in brackets for each axis, or in words where the file does not list them.
fn elements(tensor: &Value) -> String {
    let sizes = |field: &str| -> Option<Vec<i64>> { tensor[field].as_array()?.iter().map(Value::as_i64).collect() };
    let storage = &tensor["data"];
    let (Some(shape), Some(list)) = (sizes("shape"), storage.as_array()) else {
        return match storage.get("full") {
            Some(value) => format!("every element is {}", plain(value)),
            None => "too many elements to list; the replay file has them".to_owned(),
        };
    };
    let strides =
        sizes("strides").unwrap_or_else(|| (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect());
    let mut text = String::new();
    nested(&mut text, list, &shape, &strides, tensor["offset"].as_i64().unwrap_or(0));
    text
}

fn nested(text: &mut String, list: &[Value], shape: &[i64], strides: &[i64], at: i64) {
    let ([size, shape @ ..], [stride, strides @ ..]) = (shape, strides) else {
        let element = usize::try_from(at).ok().and_then(|at| list.get(at));
        text.push_str(&element.map_or_else(|| "?".to_owned(), plain));
        return;
    };
    text.push('[');
    for index in 0..*size {
        // A view may repeat few elements very often.
        if text.len() > 2000 {
            text.push('…');
            break;
        }
        text.push_str(if index > 0 { ", " } else { "" });
        nested(text, list, shape, strides, at + index * stride);
    }
    text.push(']');
}

/// A string without its quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
