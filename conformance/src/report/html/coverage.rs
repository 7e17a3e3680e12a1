//! How many cases of each op had each kind of layout and each feature of values; zero is shown as what it is.

use std::collections::{BTreeMap, BTreeSet};

use congruent_backend_api::DType;
use maud::{Markup, html};

use super::super::{CellRecord, Document, Mark};
use super::thousands;

type Count = fn(&CellRecord) -> &BTreeMap<String, usize>;

pub(super) fn section(document: &Document) -> Markup {
    html! {
        h2 #coverage { "What was tested" }
        p.soft {
            "Cases of each op over all dtypes; of several backends the one with the fewest, and a cell that fails stops there. "
            "“not tested” is never a pass; “none” means that no dtype of the op has such values."
        }
        h3 { "Ops × layouts" }
        (matrix(document, |cell| &cell.layouts))
        h3 { "Ops × values" }
        (matrix(document, |cell| &cell.values))
    }
}

fn matrix(document: &Document, count: Count) -> Markup {
    let columns: BTreeSet<&String> = document.cells.iter().flat_map(|cell| count(cell).keys()).collect();
    html! {
        div.scroll.tall {
            table.matrix {
                thead { tr { th { "op" } @for column in &columns { th scope="col" { (column) } } } }
                tbody {
                    @for (_, op) in document.ops() {
                        tr {
                            th scope="row" { (op) }
                            @for column in &columns { (entry(document, op, column, count)) }
                        }
                    }
                }
            }
        }
    }
}

fn entry(document: &Document, op: &str, column: &str, count: Count) -> Markup {
    let has = |backend: &str| {
        let cells = document.cells.iter().filter(|cell| cell.op == op && cell.backend == backend);
        let cells: Vec<_> = cells.filter(|cell| cell.verdict != Mark::Unsupported).collect();
        (!cells.is_empty()).then(|| cells.iter().filter_map(|cell| count(cell).get(column)).sum::<usize>())
    };
    let dtypes = || document.cells.iter().filter(|cell| cell.op == op).filter_map(|cell| cell.dtype.parse().ok());
    match document.backends.iter().filter_map(|backend| has(&backend.name)).min() {
        None => html! { td.none { "∅" } },
        Some(0) if !dtypes().any(|dtype| may_hold(dtype, column)) => html! { td.void { "none" } },
        Some(0) => html! { td.warn { "not tested" } },
        Some(cases) => html! { td { (thousands(cases)) } },
    }
}

/// Whether a dtype has values with a feature.
fn may_hold(dtype: DType, feature: &str) -> bool {
    match feature {
        "nan" | "infinite" | "negative zero" | "subnormal" => dtype.is_float(),
        "extreme" => dtype != DType::Bool,
        "signs" => dtype.is_float() || matches!(dtype, DType::I64 | DType::I32),
        _ => true,
    }
}
