//! Replay files: reading, judging, writing, and the cases that come with the kit.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test itself does")]

mod frontend;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use congruent_backend_api::erase::{AnyBackend, Erase};
use congruent_backend_cpu::Cpu;
use congruent_conformance::ops::{cases, expect, rows};
use congruent_conformance::replay::{Outcome, Replay, command, read, recorded, to_json};
use congruent_conformance::spec::Draw;
use congruent_conformance::suite::Candidate;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

fn cpu() -> Arc<AnyBackend> {
    Arc::new(Erase(Cpu::new()))
}

fn run(case: Value) -> Outcome {
    Replay::from_json(case).unwrap().run(&cpu())
}

fn base(op: &str, inputs: Value, expect: Value) -> Value {
    json!({"congruent_replay": 1, "name": "test", "op": op, "inputs": inputs, "expect": expect})
}

/// A case with more fields.
fn with(mut case: Value, fields: Value) -> Value {
    case.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    case
}

fn f32s(values: Value) -> Value {
    json!({"dtype": "f32", "shape": [values.as_array().unwrap().len()], "data": values})
}

fn outputs(tensor: Value) -> Value {
    json!({"outputs": [tensor]})
}

#[track_caller]
fn fails(case: Value, word: &str) {
    match run(case) {
        Outcome::Fail(reason) => assert!(reason.contains(word), "{reason}"),
        outcome => panic!("{outcome:?} instead of a failure that says `{word}`"),
    }
}

/// A fresh folder for the files of a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("deep")).unwrap();
    folder
}

#[test]
fn the_cases_of_the_kit_pass_on_the_cpu() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let candidates = [Candidate::new("cpu", || Ok(cpu()))];
    let mut out = Vec::new();
    let passed = command(&[folder], &candidates, true, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(passed && !out.contains("not covered") && !out.contains("unsupported"), "{out}");
    // Those that every check runs are the same.
    assert!(out.contains(&format!("{} cases on cpu", recorded().len())), "{out}");
}

#[test]
fn every_check_fails_on_a_wrong_expectation() {
    let exp = |wanted: Value, check: Value| {
        with(base("exp", json!([f32s(json!([1.0]))]), outputs(f32s(json!([wanted])))), json!({"check": check}))
    };
    let e = std::f32::consts::E;
    assert_eq!(run(exp(json!(e), json!("bound"))), Outcome::Pass);
    fails(exp(json!(e + 1e-5), json!("bound")), "contradicts the oracle");
    fails(exp(json!(e + 1e-5), json!("bits")), "contradicts the oracle");
    fails(exp(json!(e + 1e-5), json!({"ulp": 2})), "contradicts the oracle");
    fails(exp(json!(e + 1e-2), json!({"abs": 1e-3, "rel": 1e-4, "reason": "test"})), "contradicts the oracle");
    for check in [json!({"ulp": 100}), json!({"abs": 1e-4, "rel": 0, "reason": "test"})] {
        assert_eq!(run(exp(json!(e + 1e-5), check)), Outcome::Pass);
    }
    // The oracle admits a last digit that this backend need not have, so that `bits` fails on one of the neighbours.
    let bits = |steps: i32| run(exp(json!(format!("0x{:08x}", e.to_bits().wrapping_add_signed(steps))), json!("bits")));
    let passed = (-2..=2).filter(|&steps| bits(steps) == Outcome::Pass).count();
    assert_eq!(passed, 1);

    let add = |wanted: Value, check: Value| {
        let inputs = json!([f32s(json!([1.0, "nan"])), f32s(json!([-1.0, 2.0]))]);
        with(base("add", inputs, outputs(f32s(wanted))), json!({"check": check}))
    };
    for check in [json!("bound"), json!("bits"), json!({"ulp": 1})] {
        assert_eq!(run(add(json!([0.0, "nan"]), check.clone())), Outcome::Pass);
        fails(add(json!([0.0, 1.0]), check.clone()), "element [1] of [2]");
        fails(add(json!(["inf", "nan"]), check), "element [0] of [2]");
    }
    fails(add(json!(["-0", "nan"]), json!("bits")), "-0.0");
    fails(add(json!([0.0, "nan", 1.0]), json!("bound")), "f32 [2], expected f32 [3]");
}

#[test]
fn a_nan_given_as_bits_means_that_nan() {
    let copy = |given: &str, wanted: &str| {
        let case = base("contiguous", json!([f32s(json!([given]))]), outputs(f32s(json!([wanted]))));
        run(with(case, json!({"check": "bits"})))
    };
    assert_eq!(copy("0x7fc00123", "0x7fc00123"), Outcome::Pass);
    assert_eq!(copy("0x7fc00123", "nan"), Outcome::Pass);
    assert!(matches!(copy("0x7fc00123", "0x7fc00124"), Outcome::Fail(_)));
}

#[test]
fn errors_are_expected_by_kind() {
    let x = json!({"dtype": "i32", "shape": [2], "data": [1, 2]});
    let sum = |axis: i32, expect: Value| with(base("sum", json!([x]), expect), json!({"args": {"axes": [axis]}}));
    assert_eq!(run(sum(3, json!({"error": "axis"}))), Outcome::Pass);
    fails(sum(3, json!({"error": "shape"})), "expected an error of kind shape, got: sum: axis 3");
    fails(sum(3, json!({"oracle": true})), "returned an error");
    fails(sum(0, json!({"error": "axis"})), "succeeded, expected an error");
    let divide = |by: i32, expect: Value| with(base("div", json!([x]), expect), json!({"args": {"scalar": by}}));
    assert_eq!(run(divide(0, json!({"error": "division_by_zero"}))), Outcome::Pass);
    fails(divide(1, json!({"error": "division_by_zero"})), "succeeded");
    let zeros = json!({"dtype": "i32", "shape": [2], "data": {"full": 0, "len": 2}});
    assert_eq!(run(divide(0, outputs(zeros))), Outcome::Pass);
    let float = with(base("add", json!([x]), json!({"error": "dtype"})), json!({"args": {"scalar": 0.5}}));
    assert_eq!(run(float), Outcome::Pass);
}

#[test]
fn what_is_not_there_is_not_covered() {
    let fft = with(
        base("fft", json!([f32s(json!([1])), null]), outputs(f32s(json!([1])))),
        json!({"args": {"inverse": true}}),
    );
    assert_eq!(run(fft), Outcome::NotCovered("the op `fft`".to_owned()));
    let options =
        with(base("abs", json!([f32s(json!([1]))]), json!({"oracle": true})), json!({"backend_args": {"tf32": true}}));
    assert!(matches!(run(options), Outcome::NotCovered(_)));
}

#[test]
fn every_form_of_data_is_read() {
    let forms = [
        (json!([1, 2, 1, 2]), "list"),
        (json!({"repeat": [1, 2], "len": 4}), "repeat"),
        (json!({"base64": "AACAPwAAAEAAAIA/AAAAQA=="}), "base64"),
        (json!(["0x3f800000", "0x40000000", 1.0, 2.0]), "hex"),
    ];
    for (data, form) in forms {
        let x = json!({"dtype": "f32", "shape": [2, 2], "strides": [1, 2], "data": data});
        let wanted = json!({"dtype": "f32", "shape": [2, 2], "data": [1, 1, 2, 2]});
        assert_eq!(run(base("contiguous", json!([x]), outputs(wanted))), Outcome::Pass, "{form}");
    }
    let ramp = json!({"dtype": "f16", "shape": [4], "data": {"arange": [3, -0.5], "len": 4}});
    let wanted = json!({"dtype": "f16", "shape": [4], "data": [3, 2.5, 2, 1.5]});
    assert_eq!(run(base("contiguous", json!([ramp]), outputs(wanted))), Outcome::Pass);
    // Rounded once, to nearest: 2^24 + 1 is a tie, 2^24 + 3 is not representable either.
    let wide = json!({"dtype": "f32", "shape": [2], "data": [16777217, 16777219]});
    assert_eq!(run(base("contiguous", json!([wide]), outputs(f32s(json!([16777216, 16777220]))))), Outcome::Pass);
}

#[test]
fn matmul_takes_the_old_value_as_third_operand() {
    let matrix = |data: Value| json!({"dtype": "f64", "shape": [2, 2], "data": data});
    let product = |beta: f64, wanted: Value, into: bool| {
        let c = json!({"dtype": "f64", "shape": [2, 2], "strides": [1, 2], "data": [1, 2, "nan", 4]});
        let inputs = json!([matrix(json!([1, 0, 0, 1])), matrix(json!([5, 6, 7, 8])), c]);
        let fields = json!({"args": {"alpha": 2.0, "beta": beta}, "into": into});
        run(with(base("matmul", inputs, outputs(matrix(wanted))), fields))
    };
    for into in [false, true] {
        assert_eq!(product(10.0, json!([20, "nan", 34, 56]), into), Outcome::Pass);
        assert_eq!(product(0.0, json!([10, 12, 14, 16]), into), Outcome::Pass);
        assert!(matches!(product(10.0, json!([20, 12, 34, 56]), into), Outcome::Fail(_)));
    }
}

#[test]
fn malformed_cases_say_where_and_why() {
    let good = base("sum", json!([f32s(json!([1]))]), json!({"oracle": true}));
    let broken = [
        (json!({"congruent_replay": 2}), "congruent_replay: version 2"),
        (json!({"inptus": []}), "inptus: unknown field; known are congruent_replay, name"),
        (json!({"args": {"axis": [0]}}), "args.axis: unknown field; known are axes, keepdim"),
        (json!({"args": {"axes": 0}}), "args.axes: expected a list, found 0"),
        (json!({"args": {"axes": [0.5]}}), "args.axes[0]: expected an integer, found 0.5"),
        (json!({"inputs": [null]}), "inputs[0]: this operand must be a tensor"),
        (json!({"inputs": []}), "inputs: `sum` takes 1 operands, not 0"),
        (json!({"inputs": [{"dtype": "f32", "shape": [2]}]}), "inputs[0]: the field `data` is missing"),
        (json!({"inputs": [{"dtype": "f31", "shape": [2], "data": []}]}), "inputs[0].dtype: `f31` is none of"),
        (
            json!({"inputs": [{"dtype": "f32", "shape": [2], "data": [1]}]}),
            "inputs[0].data: the view reaches element 1",
        ),
        (json!({"inputs": [{"dtype": "f32", "shape": [1], "data": ["x"]}]}), "inputs[0].data: element 0: \"x\" is no"),
        (
            json!({"inputs": [{"dtype": "u8", "shape": [1], "data": [256]}]}),
            "element 0: 256 is outside the range 0..=255",
        ),
        (json!({"inputs": [{"dtype": "u8", "shape": [1], "data": ["0x100"]}]}), "at most 2 hexadecimal digits"),
        (json!({"inputs": [{"dtype": "f32", "shape": [1], "data": {"full": 1}}]}), "the field `len` is missing"),
        (json!({"inputs": [{"dtype": "f32", "shape": [1], "data": {"base64": "AA=="}}]}), "not a whole number of f32"),
        (
            json!({"inputs": [{"dtype": "f32", "shape": [2], "strides": [-1], "data": [1, 2]}]}),
            "inputs[0].shape: shape [2]",
        ),
        (json!({"expect": {"oracle": true, "error": "axis"}}), "expect: give exactly one of"),
        (json!({"expect": {"error": "bad"}}), "expect.error: \"bad\" is none of argument"),
        (json!({"expect": {"outputs": []}}), "expect.outputs: `sum` has one output, not 0"),
        (json!({"check": "exact"}), "check: expected \"bound\""),
        (json!({"check": {"ulp": -1}}), "check.ulp: expected a number that is not negative"),
        (json!({"into": 1}), "into: expected an object"),
    ];
    for (fields, message) in broken {
        let error = Replay::from_json(with(good.clone(), fields.clone())).unwrap_err();
        assert!(error.contains(message), "{fields}: {error}");
    }
}

#[test]
fn files_and_folders_are_read_in_order() {
    let folder = folder("replay-read");
    let case =
        |name: &str| with(base("abs", json!([f32s(json!([-1]))]), json!({"oracle": true})), json!({"name": name}));
    let gzip = |path: &Path, text: &str| {
        let mut writer =
            flate2::write::GzEncoder::new(std::fs::File::create(path).unwrap(), flate2::Compression::fast());
        writer.write_all(text.as_bytes()).unwrap();
        writer.finish().unwrap();
    };
    std::fs::write(folder.join("a.json"), format!("{:#}", case("a"))).unwrap();
    std::fs::write(folder.join("b.jsonl"), format!("{}\n\n{}\n", case("b1"), case("b2"))).unwrap();
    gzip(&folder.join("c.json.gz"), &case("c").to_string());
    gzip(&folder.join("deep/d.jsonl.gz"), &format!("{}\n", case("d")));
    std::fs::write(folder.join("README.md"), "not a case").unwrap();
    let names: Vec<_> = read(&folder).unwrap().iter().map(|replay| replay.name().to_owned()).collect();
    assert_eq!(names, ["a", "b1", "b2", "c", "d"]);

    let bad = folder.join("bad.jsonl");
    std::fs::write(&bad, format!("{}\n{}\n", case("good"), with(case("bad"), json!({"check": 3})))).unwrap();
    let error = read(&folder).unwrap_err().to_string();
    assert!(error.contains("bad.jsonl:2: check: expected an object, found 3"), "{error}");
    std::fs::write(&bad, "\n{\"name\": }").unwrap();
    let error = read(&bad).unwrap_err().to_string();
    assert!(error.contains("bad.jsonl:2: column 10: expected value"), "{error}");
    assert!(read(&folder.join("README.md")).unwrap_err().to_string().contains("replay files end in"));
    assert!(read(&folder.join("none.json")).unwrap_err().to_string().contains("none.json: No such file"));
}

#[test]
fn the_command_counts_and_names() {
    let folder = folder("replay-command");
    let abs = |wanted: i32| base("abs", json!([f32s(json!([-1]))]), outputs(f32s(json!([wanted]))));
    let lines = [abs(1), abs(2), base("fft", json!([]), json!({"oracle": true}))].map(|case| case.to_string());
    std::fs::write(folder.join("x.jsonl"), lines.join("\n")).unwrap();
    let candidates = [Candidate::new("cpu", || Ok(cpu())), Candidate::new("again", || Ok(cpu()))];
    let run = |quiet| {
        let mut out = Vec::new();
        let passed = command(std::slice::from_ref(&folder), &candidates, quiet, &mut out).unwrap();
        (passed, String::from_utf8(out).unwrap())
    };
    let (passed, out) = run(false);
    assert!(!passed && out.lines().count() == 8, "{out}");
    assert!(out.contains("not covered  cpu  fft  test: the op `fft`"), "{out}");
    assert!(out.contains("3 cases on again: 1 pass · 1 fail · 1 not covered"), "{out}");
    let (_, out) = run(true);
    assert!(out.contains("FAIL         cpu  abs  test: the expectation contradicts the oracle"), "{out}");
    assert!(out.contains("abs  cpu: 1 pass · 1 fail\n") && !out.contains("pass  "), "{out}");
}

/// A case that is written and read again is the same case with the same expectations.
#[test]
fn generated_cases_survive_writing() {
    let mut runner = TestRunner::deterministic();
    for row in rows() {
        let strategy = cases(row, Draw::any(64)).no_shrink();
        for _ in 0..4 {
            let case = strategy.new_tree(&mut runner).unwrap().current();
            let text = to_json(&case, "written", "by a test").to_string();
            let replay = Replay::from_json(serde_json::from_str(&text).unwrap())
                .unwrap_or_else(|error| panic!("{error}: {text}"));
            let read = replay.case().unwrap_or_else(|| panic!("{row:?} is not read as a call: {text}"));
            assert_eq!(*read, case, "{text}");
            assert_eq!(expect(read), expect(&case));
        }
    }
}
