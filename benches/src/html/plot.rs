//! Plots as inline SVG: lines against size on logarithmic axes, and strips of dots.

use maud::{Markup, html};

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 150.0;
/// Room for the labels of the axes.
const LEFT: f64 = 44.0;
const BOTTOM: f64 = 18.0;
const TOP: f64 = 6.0;
const RIGHT: f64 = 10.0;

/// What the vertical axis shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Seconds, logarithmic.
    Time,
    /// Per second, logarithmic.
    Rate,
    /// A share of 1, linear from 0.
    Share,
}

/// A line: where, how high, and what a pointer is told.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) class: usize,
    pub(super) points: Vec<(f64, f64, String)>,
}

/// A row of dots: what it is of, what it comes to, and each dot with what a pointer is told.
#[derive(Debug)]
pub(super) struct Strip {
    pub(super) label: String,
    pub(super) mean: String,
    pub(super) points: Vec<(f64, String)>,
}

/// A linear map of an interval, or of its logarithms.
struct Axis {
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Axis {
    /// Whole decades around the values.
    fn decades(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min).log10().floor();
        let most = values.fold(0.0, f64::max).log10().ceil();
        Self { from: least, to: most.max(least + 1.0), logarithmic: true }
    }

    /// Where a value lies between 0 and 1.
    fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.log10() } else { value };
        (value - self.from) / (self.to - self.from)
    }

    /// Values to label: at most five decades, or quarters.
    fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return (0..=(4.0 * self.to) as usize)
                .step_by(if self.to > 1.5 { 4 } else { 2 })
                .map(|i| i as f64 / 4.0)
                .collect();
        }
        let step = (((self.to - self.from) / 5.0).ceil() as usize).max(1);
        (self.from as i32..=self.to as i32).step_by(step).map(|exponent| 10f64.powi(exponent)).collect()
    }
}

/// Lines on axes; `floors` are dashed, without dots.
pub(super) fn chart(label: &str, scale: Scale, lines: &[Series], floors: &[Series]) -> Markup {
    let all = || lines.iter().chain(floors).flat_map(|series| &series.points);
    if all().next().is_none() {
        return html! {};
    }
    let sizes = Axis::decades(all().map(|(x, ..)| *x));
    let heights = match scale {
        Scale::Share => Axis { from: 0.0, to: all().map(|(_, y, _)| *y).fold(1.0, f64::max), logarithmic: false },
        Scale::Time | Scale::Rate => Axis::decades(all().map(|(_, y, _)| *y)),
    };
    let x = |value: f64| format!("{:.1}", LEFT + sizes.at(value) * (WIDTH - LEFT - RIGHT));
    let y = |value: f64| format!("{:.1}", HEIGHT - BOTTOM - heights.at(value) * (HEIGHT - BOTTOM - TOP));
    let path = |series: &Series| {
        let mut points: Vec<_> = series.points.iter().map(|(x, y, _)| (*x, *y)).collect();
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        points.iter().map(|&(a, b)| format!("{},{}", x(a), y(b))).collect::<Vec<_>>().join(" ")
    };
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(label) {
            @for tick in heights.ticks() {
                line x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y(tick)) y2=(y(tick)) {}
                text x=(LEFT - 4.0) y=(y(tick)) dy="3" text-anchor="end" { (name(scale, tick)) }
            }
            @for tick in sizes.ticks() {
                text x=(x(tick)) y=(HEIGHT - 5.0) text-anchor="middle" { (count(tick)) }
            }
            @for series in floors { polyline.floor points=(path(series)) {} }
            @for series in lines {
                polyline class={ "c" (series.class) } points=(path(series)) { title { (series.name) } }
                @for (a, b, title) in &series.points {
                    circle class={ "c" (series.class) } cx=(x(*a)) cy=(y(*b)) r="2.6" { title { (title) } }
                }
            }
        }
    }
}

/// A row of dots for each label, on one logarithmic axis with a line at 1.
pub(super) fn strips(label: &str, rows: &[Strip]) -> Markup {
    let mark = 1.0;
    const WIDE: f64 = 760.0;
    const ROW: f64 = 20.0;
    const LABEL: f64 = 78.0;
    const MEAN: f64 = 52.0;
    let rows: Vec<_> = rows.iter().filter(|strip| !strip.points.is_empty()).collect();
    let values = || rows.iter().flat_map(|strip| strip.points.iter().map(|(value, _)| *value)).chain([mark]);
    let axis = Axis::decades(values());
    let x = |value: f64| format!("{:.1}", LABEL + axis.at(value) * (WIDE - LABEL - MEAN));
    let bottom = TOP + ROW * rows.len() as f64;
    html! {
        div.scroll {
            svg.wide viewBox={ "0 0 " (WIDE) " " (bottom + BOTTOM) } role="img" aria-label=(label) {
                @for tick in axis.ticks() {
                    line x1=(x(tick)) x2=(x(tick)) y1=(TOP) y2=(bottom) {}
                    text x=(x(tick)) y=(bottom + 12.0) text-anchor="middle" { (tick) }
                }
                line.mark x1=(x(mark)) x2=(x(mark)) y1=(TOP) y2=(bottom) {}
                @for (at, Strip { label, mean, points }) in rows.iter().enumerate() {
                    @let middle = TOP + ROW * (at as f64 + 0.5);
                    text x=(LABEL - 8.0) y=(middle) dy="3" text-anchor="end" { (label) }
                    text x=(WIDE - 4.0) y=(middle) dy="3" text-anchor="end" { (mean) }
                    @for (value, title) in points {
                        circle class=(if *value <= mark { "below" } else { "above" }) cx=(x(*value)) cy=(middle) r="3" {
                            title { (title) }
                        }
                    }
                }
            }
        }
    }
}

fn name(scale: Scale, tick: f64) -> String {
    match scale {
        Scale::Share => format!("{:.0} %", 100.0 * tick),
        Scale::Time => {
            let (value, unit) = match tick {
                ..0.9e-6 => (tick * 1e9, "ns"),
                ..0.9e-3 => (tick * 1e6, "µs"),
                ..0.9 => (tick * 1e3, "ms"),
                _ => (tick, "s"),
            };
            format!("{value:.0} {unit}")
        }
        Scale::Rate => format!("{}B/s", count(tick)),
    }
}

/// 10, 1k, 100M.
fn count(tick: f64) -> String {
    let (value, unit) = match tick {
        ..1e3 => (tick, ""),
        ..1e6 => (tick / 1e3, "k"),
        ..1e9 => (tick / 1e6, "M"),
        ..1e12 => (tick / 1e9, "G"),
        _ => (tick / 1e12, "T"),
    };
    format!("{value:.0}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_span_whole_decades() {
        let axis = Axis::decades([3e-6, 2e-3].into_iter());
        assert_eq!((axis.from, axis.to), (-6.0, -2.0));
        assert_eq!(axis.ticks().len(), 5);
        assert!((axis.at(1e-4) - 0.5).abs() < 1e-12);
        let one = Axis::decades([1e3].into_iter());
        assert_eq!((one.from, one.to), (3.0, 4.0));
    }

    #[test]
    fn ticks_have_units() {
        assert_eq!(name(Scale::Time, 1e-6), "1 µs");
        assert_eq!(name(Scale::Time, 1e-4), "100 µs");
        assert_eq!(name(Scale::Share, 0.5), "50 %");
        assert_eq!(name(Scale::Rate, 1e11), "100GB/s");
        assert_eq!(count(1e6), "1M");
    }

    #[test]
    fn a_line_joins_its_points_by_size() {
        let points = vec![(1e4, 1e-4, "b".to_owned()), (1e3, 1e-5, "a".to_owned())];
        let series = Series { name: "cpu".to_owned(), class: 0, points };
        let svg = chart("Time", Scale::Time, &[series], &[]).into_string();
        assert!(svg.contains("points=\"44.0,132.0 290.0,6.0\""), "{svg}");
        assert!(svg.contains("<title>a</title>"), "{svg}");
        assert_eq!(chart("Time", Scale::Time, &[], &[]).into_string(), "");
    }
}
