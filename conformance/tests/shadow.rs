//! A shadow is itself a backend that passes the kit, and it finds what one of its two backends does wrong.
#![cfg(feature = "cli")]

#[path = "../examples/minimal/arithmetic.rs"]
mod arithmetic;
#[path = "../examples/minimal/backend.rs"]
mod backend;

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;

use congruent::{AnyBackend, DType, Error, ErrorKind, Tensor};
use congruent_backend_api::erase::Erase;
use congruent_backend_cpu::Cpu;
use congruent_conformance::ops::rows;
use congruent_conformance::replay::{Outcome, read};
use congruent_conformance::shadow::{Divergence, Shadow, Wrong};
use congruent_conformance::suite::{Candidate, Profile, check};

use backend::Minimal;

fn cpu() -> Arc<AnyBackend> {
    Arc::new(Erase(Cpu::new()))
}

fn minimal(broken: bool) -> Arc<AnyBackend> {
    Arc::new(Erase(Minimal::new(broken)))
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("congruent-{}-{name}.json", std::process::id()))
}

fn divergence(error: &Error) -> &Divergence {
    assert_eq!(error.kind(), ErrorKind::Native, "{error}");
    error.source().and_then(|source| source.downcast_ref()).expect("the source is a divergence")
}

/// Two right backends that round differently never diverge, whatever the op, the dtype and the layout.
fn passes(name: &str, wrap: fn(Shadow) -> Shadow) {
    let candidate = Candidate::new(name, move || {
        let shadow = Shadow::new(cpu(), minimal(false)).replay_file(file("unexpected"));
        Ok(Arc::new(Erase(wrap(shadow))) as Arc<AnyBackend>)
    });
    let profile = Profile { cases: 12, limit: 256, ..Profile::default() };
    let report = check(&[candidate], &rows().collect::<Vec<_>>(), &profile, |_| {}).expect("the backends can be made");
    let failures: Vec<_> =
        report.failures().map(|cell| (cell.op, cell.dtype, cell.failure.as_ref().map(|f| &f.reason))).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn right_backends_never_diverge() {
    passes("whole", |shadow| shadow);
}

#[test]
fn nor_where_only_the_farthest_elements_are_judged() {
    passes("elements", |shadow| shadow.limit(0));
}

#[test]
fn nor_where_every_other_op_is_checked() {
    passes("sampled", |shadow| shadow.every(2));
}

#[test]
fn the_wrong_op_is_found_and_its_file_reproduces_it() {
    // The broken one ignores β in f32.
    for (first, second, wrong) in [(false, true, Wrong::Second), (true, false, Wrong::First)] {
        for limit in [0, 1 << 18] {
            let path = file(&format!("wrong-{second}-{limit}"));
            let shadow = Shadow::new(minimal(first), minimal(second)).limit(limit).replay_file(&path);
            let device = Arc::new(shadow);
            let x = Tensor::from_slice(&device, &[1.0_f32, 2.0, 3.0, 4.0], [2, 2]).unwrap();
            let mut out = Tensor::ones(&device, [2, 2], DType::F32).unwrap();
            let y = x.matmul(&x).unwrap();
            let error = Tensor::matmul_into(&x, &y, 1, 1, &mut out).unwrap_err();
            let found = divergence(&error);
            assert_eq!((error.op(), found.wrong, found.call), ("matmul", wrong, device.calls()), "{error}");
            assert!(error.message().contains("f32 with a result of shape [2, 2]"), "{error}");
            assert_eq!(found.replay.as_deref(), Some(path.as_path()), "{error}");
            let replay = read(&path).unwrap().remove(0);
            assert_eq!(replay.case(), Some(&*found.case));
            assert_eq!(replay.run(&cpu()), Outcome::Pass);
            assert!(matches!(replay.run(&minimal(true)), Outcome::Fail(_)));
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn what_the_data_causes_reaches_the_program_once() {
    let device = Arc::new(Shadow::new(cpu(), minimal(false)));
    let x = Tensor::from_slice(&device, &[7_i32, 8], [2]).unwrap();
    let quotient = x.div(&Tensor::from_slice(&device, &[0_i32, 2], [2]).unwrap()).unwrap();
    assert_eq!(quotient.to_vec::<i32>().unwrap_err().kind(), ErrorKind::DivisionByZero);
    assert_eq!(quotient.to_vec::<i32>().unwrap(), [0, 4]);
}

#[test]
fn only_every_nth_op_is_compared() {
    let device = Arc::new(Shadow::new(cpu(), minimal(false)).every(3));
    let mut x = Tensor::from_slice(&device, &[0.5_f32; 8], [8]).unwrap();
    for _ in 0..9 {
        x = x.tanh().unwrap();
    }
    assert_eq!((device.calls(), device.checked()), (9, 3));
}
