//! What a backend outside this repository gets from the kit: a whole small backend passes every trial, planted bugs fail
//! exactly their own, a backend with two families is judged by those, and expected failures are strict.

#[path = "../examples/minimal/arithmetic.rs"]
mod arithmetic;
#[path = "../examples/minimal/backend.rs"]
mod backend;
#[expect(unreachable_pub, reason = "in the guide it is a crate of its own")]
#[path = "../examples/first/backend.rs"]
mod first;

use congruent_backend_api::{DType, Op};
use congruent_conformance::ops::rows;
use congruent_conformance::partial::Partial;
use congruent_conformance::trials::{Harness, trial_name};
use libtest_mimic::Arguments;

use backend::Minimal;

/// The number of trials, and of those that failed.
fn run(harness: Harness, filter: &str) -> (u64, u64) {
    // Failures of these trials are what is tested, and would read as failures of the tests.
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let log = format!("{}/trials-{process}-{thread:?}.log", env!("CARGO_TARGET_TMPDIR"));
    let filter = (!filter.is_empty()).then(|| filter.to_owned());
    let arguments = Arguments { quiet: true, filter, logfile: Some(log), ..Arguments::default() };
    let conclusion = libtest_mimic::run(&arguments, harness.cases(16).trials());
    (conclusion.num_passed + conclusion.num_failed, conclusion.num_failed)
}

fn minimal(broken: bool) -> Harness {
    Harness::new("minimal", move || Ok(Minimal::new(broken)))
}

/// The trials that the planted bugs must fail: a convolution with a bias is a product with β.
fn planted() -> impl Iterator<Item = String> {
    rows().map(trial_name).filter(|name| {
        name.starts_with("reduce::argmax::") || name == "matmul::matmul::f32" || name == "conv::conv::f32"
    })
}

#[test]
fn a_whole_backend_passes_every_trial() {
    assert_eq!(run(minimal(false), ""), (rows().count() as u64, 0));
}

#[test]
fn planted_bugs_fail_their_own_trials_and_no_others() {
    assert_eq!(planted().count(), 10);
    // Strict: this fails where an expected failure passes, and where another trial fails.
    let harness = planted().fold(minimal(true), |harness, trial| harness.expect_failure(&trial, "planted"));
    assert_eq!(run(harness, ""), (rows().count() as u64, 0));
}

#[test]
fn an_expected_failure_that_passes_is_a_failure() {
    let harness = minimal(false).expect_failure("reduce::argmax::f32", "was once wrong");
    assert_eq!(run(harness, "reduce::arg"), (16, 1));
}

#[test]
fn a_backend_with_two_families_is_judged_by_those() {
    let partial = |broken| Partial::new(Minimal::new(broken)).reduce().copy();
    let harness = Harness::new("partial", move || Ok(partial(false)));
    assert_eq!(run(harness, ""), (rows().count() as u64, 0));
    // What it has is tested, what it has not named is not: of the two bugs one shows.
    let harness = Harness::new("partial", move || Ok(partial(true))).expect_failure("reduce::argmax::f32", "planted");
    assert_eq!(run(harness, "::f32").1, 0);
    let backend = partial(false);
    assert!(congruent_backend_api::Backend::supports(&backend, Op::Copy, DType::F32));
    assert!(!congruent_backend_api::Backend::supports(&backend, Op::Matmul, DType::F32));
}

#[test]
fn the_backend_of_the_guide_has_the_one_failure_that_the_guide_explains() {
    let harness = Harness::new("plain", || Ok(Partial::new(first::Plain).copy().binary()));
    assert_eq!(run(harness.expect_failure("binary::maximum::f32", "drops NaN"), "f32").1, 0);
}

#[test]
fn the_guide_shows_the_code_that_is_tested() {
    let guide = include_str!("../docs/write-a-backend.md");
    assert!(guide.contains(include_str!("../examples/first/backend.rs")));
    let body = include_str!("../examples/first/main.rs").split_once("fn main").map(|(_, body)| body);
    assert!(body.is_some_and(|body| guide.contains(body)));
}
