//! The verdict and the worst error ÷ bound for each op, dtype and backend.

use maud::{Markup, html};

use super::super::{CellRecord, Document, Mark};
use super::look;

pub(super) fn section(document: &Document) -> Markup {
    let dtypes = document.dtypes();
    let several = document.backends.len() > 1;
    let mut family = "";
    html! {
        h2 #matrix { "Ops × dtypes" }
        p.soft {
            "Worst error ÷ bound of accepted elements, also as the bar below the number. ✓ = every result is exact; ✓ inside the bound; "
            "! inside, but larger than is likely; ✗ outside; ? mostly unknown; ∅ the backend lacks it; · the op is not "
            "defined for the dtype. Hover for the kind of bound and for counts."
        }
        div.scroll.tall {
            table.matrix {
                thead {
                    tr { th { "op" } @if several { th.text { "backend" } } @for dtype in &dtypes { th scope="col" { (dtype) } } }
                }
                tbody {
                    @for (of, op) in document.ops() {
                        @if std::mem::replace(&mut family, of) != of {
                            tr.family { th colspan=(dtypes.len() + 1 + usize::from(several)) { (of) } }
                        }
                        @for (line, column) in document.backends.iter().enumerate() {
                            tr {
                                @if line == 0 { th rowspan=(document.backends.len()) scope="row" { (op) } }
                                @if several { td.text.soft { (column.name) } }
                                @for dtype in &dtypes {
                                    (entry(document.cells.iter().find(|cell| {
                                        cell.op == op && cell.backend == column.name && cell.dtype == *dtype
                                    })))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn entry(cell: Option<&CellRecord>) -> Markup {
    let Some(cell) = cell else { return html! { td.void { "·" } } };
    let (class, sign) = look(cell.verdict);
    let ratio = cell.worst_error_over_bound;
    let text = match cell.verdict {
        Mark::Pass if ratio == 0.0 => "=".to_owned(),
        Mark::Pass | Mark::Loose if ratio < 0.005 => "<0.01".to_owned(),
        Mark::Pass | Mark::Loose => format!("{ratio:.2}"),
        Mark::Fail | Mark::Unsupported | Mark::Indeterminate => String::new(),
    };
    let ulps = cell.worst_ulp.map_or("infinite".to_owned(), |ulps| format!("{ulps:.3}"));
    let title = format!(
        "{}: bound {}; {}, {} cases, {} elements, {} unknown, {} loose, worst {ulps} ULP, {:.2} s",
        cell.name(),
        cell.model,
        cell.verdict,
        cell.cases,
        cell.elements,
        cell.indeterminate,
        cell.loose,
        cell.seconds
    );
    html! {
        td class=(class) style=[(cell.verdict == Mark::Pass && ratio > 0.0).then(|| format!("--r:{ratio:.3}"))] title=(title) {
            @if cell.verdict == Mark::Fail {
                a href={ "#" (super::failures::anchor(cell)) } { (sign) " FAIL" }
            } @else {
                (sign) " " (text)
            }
        }
    }
}
