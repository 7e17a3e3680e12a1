//! How close errors come to their bounds: a histogram of log₂(error ÷ bound) for each family and backend.

use maud::{Markup, html};

use super::super::Document;
use super::thousands;

const BAR: usize = 10;
const HEIGHT: f64 = 70.0;

pub(super) fn section(document: &Document) -> Markup {
    let mut families: Vec<&str> = document.ops().into_iter().map(|(family, _)| family).collect();
    families.dedup();
    let pairs = families.iter().flat_map(|family| document.backends.iter().map(move |column| (*family, &*column.name)));
    let (exact, plots): (Vec<_>, Vec<_>) = pairs
        .map(|(family, backend)| (family, backend, counts(document, family, backend)))
        .partition(|(.., counts)| counts.iter().all(|&count| count == 0));
    html! {
        h2 #histograms { "Errors" }
        p.soft {
            "Elements by error ÷ bound, in powers of two: the right end is the bound itself, the left end holds all that is smaller. "
            "Only accepted results with an error are counted; heights are logarithmic."
        }
        div.grid { @for (family, backend, counts) in &plots { (plot(family, backend, counts)) } }
        @if !exact.is_empty() {
            p.soft {
                "Every accepted result is exact: "
                (exact.iter().map(|(family, backend, _)| format!("{family} on {backend}")).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

fn counts(document: &Document, family: &str, backend: &str) -> Vec<usize> {
    let mut counts: Vec<usize> = Vec::new();
    for cell in document.cells.iter().filter(|cell| cell.family == family && cell.backend == backend) {
        counts.resize(counts.len().max(cell.histogram.len()), 0);
        counts.iter_mut().zip(&cell.histogram).for_each(|(count, more)| *count += more);
    }
    counts
}

fn plot(family: &str, backend: &str, counts: &[usize]) -> Markup {
    let total: usize = counts.iter().sum();
    let highest = counts.iter().copied().max().unwrap_or(0);
    let width = BAR * counts.len();
    let height = |count: usize| HEIGHT * ((count + 1) as f64).ln() / ((highest + 1) as f64).ln();
    // Entry i lies i powers of two below the bound; the axis rises to the right.
    let left = |index: usize| BAR * (counts.len() - 1 - index);
    html! {
        figure {
            figcaption { b { (family) } " on " (backend) span.soft { " · " (thousands(total)) " elements" } }
            svg viewBox={ "0 0 " (width) " 84" } role="img" aria-label={ "Errors of " (family) " on " (backend) } {
                @for (index, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    rect x=(left(index) + 1) width=(BAR - 2)
                        y=(format!("{:.1}", HEIGHT - height(count))) height=(format!("{:.1}", height(count))) {
                        title { (thousands(count)) " elements in 2^" (format!("-{}", index + 1)) " to 2^-" (index) }
                    }
                }
                line x1="0" x2=(width) y1="70.5" y2="70.5" {}
                @for index in (0..counts.len()).step_by(8) {
                    text x=(left(index) + BAR) y="81" text-anchor="end" { "2" (superscript(index)) }
                }
            }
        }
    }
}

/// The exponent −n.
fn superscript(n: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digits = n.to_string().bytes().map(|byte| DIGITS[usize::from(byte - b'0')]).collect::<String>();
    if n == 0 { digits } else { format!("⁻{digits}") }
}
