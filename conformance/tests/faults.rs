//! The kit catches every seeded fault, and nothing where there is none.
#![cfg(feature = "cli")]

use std::sync::Arc;

use congruent_backend_api::erase::{AnyBackend, Erase};
use congruent_backend_api::{DType, Result};
use congruent_backend_cpu::Cpu;
use congruent_conformance::faults::{FAULTS, Fault, score};
use congruent_conformance::suite::Profile;

const DTYPES: [DType; 5] = [DType::F32, DType::BF16, DType::I64, DType::U8, DType::Bool];

fn cpu() -> Result<Arc<AnyBackend>> {
    Ok(Arc::new(Erase(Cpu::new())))
}

#[test]
fn every_fault_is_caught() {
    let profile = Profile { cases: 16, limit: 256, ..Profile::default() };
    let missed: Vec<_> = FAULTS
        .iter()
        .filter(|fault| score(cpu, fault, &DTYPES, &profile).unwrap().cases.is_none())
        .map(|fault| fault.name)
        .collect();
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}

#[test]
fn a_backend_without_a_fault_passes() {
    let profile = Profile { cases: 16, limit: 256, ..Profile::default() };
    let score = score(cpu, &Fault::NONE, &DType::ALL, &profile).unwrap();
    assert_eq!(score.rows.0, 0, "{score:?}");
}
