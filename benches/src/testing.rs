//! A small report, for tests.

use std::collections::BTreeMap;

use crate::case::{Spec, data};
use crate::document::{Document, Row, SCHEMA, Time};
use crate::environment::Environment;
use crate::runner::{Identity, Refusal};

fn identity(name: &str) -> Identity {
    let (library, device) = name.split_once(' ').unwrap();
    let text = |text: &str| text.to_owned();
    Identity { library: text(library), device: text(device), version: text("1.0"), note: String::new() }
}

/// A row, with the seconds of runners in three repetitions.
pub(crate) fn row(name: &str, bytes: Option<usize>, flops: Option<usize>, times: &[(&str, f64)]) -> Row {
    let parts: Vec<&str> = name.split('/').collect();
    let [family, op, dtype, shape] = parts[..] else { panic!("{name}") };
    let text = |text: &str| text.to_owned();
    let spec = Spec {
        family: text(family),
        op: text(op),
        dtype: text(dtype),
        shape: text(shape),
        inputs: vec![data(&[4])],
        args: BTreeMap::new(),
    };
    let times = times.iter().map(|&(runner, seconds)| {
        let mut time = Time::new(&identity(runner));
        if seconds > 0.0 {
            time.seconds = vec![seconds; 3];
            time.returned = vec![seconds; 3];
        } else {
            time.refusal = Some(Refusal::Failed("out of <memory>".to_owned()));
        }
        time
    });
    Row { spec, bytes, flops, elements: bytes.or(flops).unwrap_or(4), times: times.collect() }
}

/// Two backends, the machine, and a peer that fails once.
pub(crate) fn document() -> Document {
    let runners = ["congruent cpu", "congruent cuda:0", "machine cpu", "torch cpu"].map(identity).to_vec();
    let mega = Some(8_000_000);
    let rows = vec![
        row(
            "limit/copy_into/f32/1M",
            mega,
            None,
            &[("congruent cpu", 2e-3), ("congruent cuda:0", 1e-6), ("machine cpu", 1e-3)],
        ),
        row("limit/add/f32/4", None, None, &[("congruent cpu", 1e-7), ("congruent cuda:0", 4e-6), ("torch cpu", 2e-6)]),
        row(
            "unary/exp/f32/1M",
            mega,
            None,
            &[("congruent cpu", 1e-3), ("congruent cuda:0", 5e-6), ("torch cpu", 2e-3)],
        ),
        row("unary/exp/f32/4M", Some(32_000_000), None, &[("congruent cpu", 4e-3), ("torch cpu", 0.0)]),
        row(
            "sort/sort/f32/1M",
            None,
            None,
            &[("congruent cpu", 3e-2), ("congruent cuda:0", 3e-4), ("torch cpu", 1e-2)],
        ),
    ];
    let environment = Environment {
        version: "1.0".to_owned(),
        rustc: "rustc 1".to_owned(),
        platform: "linux x86_64".to_owned(),
        cpu: Some("A CPU & more".to_owned()),
        threads: 2,
        gpus: vec!["NVIDIA H200, driver 1".to_owned()],
        load: Some(0.1),
    };
    Document { schema: SCHEMA, command: "report".to_owned(), environment, runners, rows }
}
