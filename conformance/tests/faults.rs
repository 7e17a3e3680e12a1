//! The kit catches every seeded fault, by rows of its families or by laws, and nothing where there is none.
#![cfg(feature = "cli")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use congruent_backend_api::erase::{AnyBackend, Erase};
use congruent_backend_api::{DType, Result};
use congruent_backend_cpu::Cpu;
use congruent_conformance::faults::{Fault, Faulty, faults, score};
use congruent_conformance::laws::{LAWS, Law};
use congruent_conformance::ops::rows;
use congruent_conformance::suite::{Candidate, Profile, check};

const DTYPES: [DType; 6] = [DType::F64, DType::F32, DType::BF16, DType::I64, DType::U8, DType::Bool];

fn cpu() -> Result<Arc<AnyBackend>> {
    Ok(Arc::new(Erase(Cpu::new())))
}

fn profile() -> Profile {
    Profile { cases: 24, limit: 256, ..Profile::default() }
}

/// Runs `test` on every fault, on two threads; returns the faults for which it says no.
fn failing(test: impl Fn(Fault) -> bool + Sync) -> Vec<&'static str> {
    let (faults, next) = (faults().collect::<Vec<_>>(), AtomicUsize::new(0));
    let work = || {
        std::iter::from_fn(|| faults.get(next.fetch_add(1, Ordering::Relaxed)))
            .filter(|&&fault| !test(fault))
            .map(|fault| fault.name)
            .collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.into_iter().flat_map(|worker| worker.join().expect("a fault must not make the kit panic")).collect()
    })
}

#[test]
fn every_fault_is_caught() {
    let more = Profile { cases: 84, limit: 1024, ..profile() };
    let missed = failing(|fault| {
        let caught = |dtypes: &[DType], laws: &[Law], profile: &Profile| {
            score(cpu, fault, dtypes, laws, profile).unwrap().caught()
        };
        // Most faults show at once; the others get more cases, and where rows see nothing, the laws.
        caught(&DTYPES, &[], &profile())
            || caught(&DType::ALL, &[], &more)
            || LAWS.iter().any(|law| caught(&[], &[*law], &more))
    });
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}

#[test]
fn a_backend_without_a_fault_passes_rows_and_laws() {
    let score = score(cpu, Fault::NONE, &DType::ALL, LAWS, &profile()).unwrap();
    assert!(!score.caught(), "{score:?}");
}

#[test]
fn a_fault_shows_only_in_its_families() {
    let profile = Profile { cases: 1, limit: 64, threads: 1, ..Profile::default() };
    let strays = failing(|fault| {
        let others: Vec<_> =
            rows().filter(|(op, dtype)| *dtype == DType::F32 && !fault.families.contains(&op.family())).collect();
        let make = move || Ok(Arc::new(Erase(Faulty::new(cpu()?, fault))) as Arc<AnyBackend>);
        let report = check(&[Candidate::new(fault.name, make)], &others, &profile, |_| {}).unwrap();
        report.failures().count() == 0
    });
    assert!(strays.is_empty(), "caught by rows of other families: {strays:#?}");
}
