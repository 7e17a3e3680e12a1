//! Node tests of ONNX: some that are vendored in `data/onnx`, as they are and spoiled.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test itself does")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use congruent_backend_api::erase::Erase;
use congruent_backend_cpu::Cpu;
use congruent_conformance::arithmetic::Arithmetic;
use congruent_conformance::faults::{Faulty, faults};
use congruent_conformance::onnx::{Basis, Detail, Outcome, Verdict, command, read};
use congruent_conformance::suite::Candidate;

const EXP: &str = "test_exp_example";
const TRANSPOSE: &str = "test_transpose_default";
const SOFTPLUS: &str = "test_softplus_example_expanded_ver18";

fn vendored() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/onnx")
}

/// What the CPU backend makes of a test in a folder.
fn outcome(folder: &Path, name: &str) -> Outcome {
    let tests = read(folder).unwrap();
    let test = tests.iter().find(|test| test.name() == name).unwrap();
    test.run(&(Arc::new(Erase(Cpu::new())) as _), Arithmetic::default())
}

/// A copy of a test in a folder of its own, with one of its files changed.
fn spoiled(name: &str, file: &str, spoil: impl Fn(&mut Vec<u8>)) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("onnx-{name}-{}", file.replace('/', "-")));
    let (from, to) = (vendored().join(name), folder.join(name));
    fs::create_dir_all(to.join("test_data_set_0")).unwrap();
    for path in ["model.onnx", "test_data_set_0/input_0.pb", "test_data_set_0/output_0.pb"] {
        let mut bytes = fs::read(from.join(path)).unwrap();
        if path == file {
            spoil(&mut bytes);
        }
        fs::write(to.join(path), bytes).unwrap();
    }
    folder
}

/// Flips the highest bit of the exponent of the last element, with which a tensor's message ends.
fn last_element(bytes: &mut [u8]) {
    *bytes.last_mut().unwrap() ^= 0x40;
}

fn run(folder: &Path, detail: Detail) -> (bool, String) {
    let cpu = Candidate::new("cpu", || Ok(Arc::new(Erase(Cpu::new()))));
    let mut lines = Vec::new();
    let agrees = command(folder, &[cpu], detail, &mut lines).unwrap();
    (agrees, String::from_utf8(lines).unwrap())
}

#[test]
fn each_test_passes_on_its_evidence() {
    for (name, basis, oracle) in
        [(EXP, Basis::Oracle, Some(Ok(()))), (TRANSPOSE, Basis::Bits, None), (SOFTPLUS, Basis::Tolerance, None)]
    {
        assert_eq!(outcome(&vendored(), name), Outcome { verdict: Verdict::Pass(basis), oracle }, "{name}");
    }
}

#[test]
fn what_is_not_covered_says_why() {
    for (name, reason) in [("test_add_int16", "dtype INT16"), ("test_ai_onnx_ml_binarizer", "op ai.onnx.ml.Binarizer")]
    {
        assert_eq!(outcome(&vendored(), name).verdict, Verdict::NotCovered(reason.to_owned()));
    }
    // An attribute that no lowering reads must not be passed over: `perm` becomes `pErm`.
    let folder = spoiled("test_transpose_all_permutations_1", "model.onnx", |bytes| {
        let at = bytes.windows(4).position(|window| window == b"perm").unwrap();
        bytes[at + 1] = b'E';
    });
    let verdict = outcome(&folder, "test_transpose_all_permutations_1").verdict;
    assert_eq!(verdict, Verdict::NotCovered("Transpose with `pErm`".to_owned()));
}

#[test]
fn a_wrong_output_fails() {
    let output = "test_data_set_0/output_0.pb";
    // The oracle rejects what is stored; the backend is right.
    let exp = outcome(&spoiled(EXP, output, |bytes| last_element(bytes)), EXP);
    assert_eq!(exp.verdict, Verdict::Pass(Basis::Oracle));
    let reason = exp.oracle.unwrap().unwrap_err();
    assert!(reason.starts_with("element [2] of [3]") && reason.contains("it must be"), "{reason}");
    for (name, start) in [(TRANSPOSE, "output 0, element [3, 2, 1] of"), (SOFTPLUS, "output 0, element [2] of [3] is")]
    {
        let Verdict::Fail(reason) = outcome(&spoiled(name, output, |bytes| last_element(bytes)), name).verdict else {
            panic!("{name}")
        };
        assert!(reason.starts_with(start) && reason.contains("; expected"), "{reason}");
    }
    let Verdict::Fail(reason) =
        outcome(&spoiled(EXP, "test_data_set_0/input_0.pb", |bytes| bytes.truncate(9)), EXP).verdict
    else {
        panic!("a cut-off operand was read")
    };
    assert!(reason.contains("malformed"), "{reason}");
}

#[test]
fn a_wrong_backend_fails_inside_onnx_s_tolerance() {
    let fault = faults().find(|fault| fault.name == "results keep 20 bits of significand").unwrap();
    let backend = Arc::new(Erase(Faulty::new(Arc::new(Erase(Cpu::new())), fault)));
    for test in read(&vendored()).unwrap().iter().filter(|test| [EXP, SOFTPLUS].contains(&test.name())) {
        let Outcome { verdict: Verdict::Fail(reason), .. } = test.run(&(backend.clone() as _), Arithmetic::default())
        else {
            panic!("{}", test.name())
        };
        assert!(reason.starts_with("exp: element [2] of [3]") && reason.contains("it must be"), "{reason}");
    }
}

#[test]
fn the_command_counts_and_names() {
    let (agrees, lines) = run(&vendored(), Detail::Tests);
    assert!(agrees, "{lines}");
    for line in [
        "pass         cpu  test_exp_example: by the oracle",
        "not covered  cpu  test_add_int16: dtype INT16",
        "not covered     1  op ai.onnx.ml.Binarizer",
        "6 node tests of ONNX",
        "cpu: 4 passed (1 by the oracle · 2 bit for bit · 1 within ONNX's tolerance) · 0 failed · 2 not covered",
        "oracle: 1 stored outputs accepted · 0 rejected (of those that one call makes)",
    ] {
        assert!(lines.contains(line), "{line}\n{lines}");
    }
    let (agrees, lines) = run(&spoiled(EXP, "test_data_set_0/output_0.pb", |bytes| last_element(bytes)), Detail::Quiet);
    assert!(!agrees && lines.starts_with("FAIL         oracle  test_exp_example: element [2]"), "{lines}");
}

#[test]
fn a_folder_without_tests_says_how_to_get_them() {
    for folder in [vendored().join(EXP), vendored().join("missing")] {
        let error = read(&folder).unwrap_err();
        assert!(error.contains("pip download onnx==1.22.0") && error.contains(&*folder.to_string_lossy()), "{error}");
    }
    let cut = spoiled(EXP, "model.onnx", |bytes| bytes.truncate(20));
    assert!(read(&cut).unwrap_err().contains("model.onnx"));
}
