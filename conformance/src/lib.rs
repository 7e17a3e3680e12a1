//! The proof that tensor backends agree.
//!
//! Backends are not compared with each other under a tolerance. Each is held against one oracle, element by element,
//! inside an interval that contains every value which the declared arithmetic can produce in any order of evaluation:
//! what lies outside is wrong, what lies inside was not shown to be. Agreement of any two backends follows.
//!
//! - [`ops`]: a row for each op family, with the generated cases and the oracle (plain loops in f64, double-double
//!   and i128, which share no code with any backend).
//! - [`expect`]: error bounds as data, and the judge. Bounds are derived: exact bits, one rounding, units in the last
//!   place per function, γₙ·Σ|a||b| for accumulations with n the terms that can round at all, and compositions of these.
//! - [`model`]: which of these an op has, as a table.
//! - [`ball`]: values with error bounds that are carried through the steps of a composed op.
//! - [`spec`] and [`values`]: descriptions of cases that proptest generates and shrinks; values are a function of the
//!   seed and the coordinates, so that shrinking keeps them.
//! - [`case`]: a concrete call, run with guarded buffers, poisoned outputs and inputs that must not change.
//! - [`laws`]: bit-for-bit equalities that need no oracle.
//! - [`faults`]: backends that are wrong on purpose, which the kit must catch.
//! - [`suite`] and [`report`]: running rows on several backends, and what was found.
//! - [`replay`]: single cases as JSON files.
//! - [`shadow`]: a backend that runs a program on two others and stops at the op where they differ.
//! - `onnx` (feature `onnx`): the node tests of ONNX, evidence of a third party.
//! - [`trials`]: all of it as the `tests/conformance.rs` of a backend, also one outside this repository;
//!   [`partial`] for one with some op families only.

#![forbid(unsafe_code)]

pub mod arithmetic;
pub mod ball;
pub mod case;
pub mod coverage;
pub mod dd;
pub mod expect;
pub mod faults;
pub mod host;
pub mod laws;
pub mod minimise;
pub mod model;
#[cfg(feature = "onnx")]
pub mod onnx;
pub mod ops;
pub mod partial;
pub mod replay;
pub mod report;
pub mod round;
pub mod shadow;
pub mod spec;
pub mod suite;
pub mod trials;
pub mod values;
