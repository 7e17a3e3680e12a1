//! The second minimisation: after sizes have shrunk, values. What is left is a tensor one can read.

use congruent_backend_api::DType;
use congruent_backend_api::erase::AnyBackend;

use crate::arithmetic::Arithmetic;
use crate::case::{Case, Input};
use crate::host::{decode, encode_float, encode_int, positions};
use crate::suite::run_case;

/// How many runs it may take.
const RUNS: usize = 400;

/// A case that still fails, with as many zeros and small integers as could be put in (Zeller's ddmin, on blocks of values).
#[must_use]
pub fn minimise(backend: &AnyBackend, case: Case, arithmetic: Arithmetic) -> Case {
    let mut search = Search { backend, case, arithmetic, runs: 0 };
    for input in 0..search.case.inputs.len() {
        search.zero_blocks(input);
        search.round(input);
    }
    search.case
}

struct Search<'a> {
    backend: &'a AnyBackend,
    case: Case,
    arithmetic: Arithmetic,
    runs: usize,
}

impl Search<'_> {
    /// Replaces ever smaller blocks of values by zeros.
    fn zero_blocks(&mut self, input: usize) {
        let positions = self.positions(input);
        let mut size = positions.len();
        while size > 0 {
            for block in positions.chunks(size) {
                self.attempt(input, block, |_, _| Some(0));
            }
            size /= 2;
        }
    }

    /// Rounds what is left to integers: all at once, then one by one.
    fn round(&mut self, input: usize) {
        let positions = self.positions(input);
        let rounded = |dtype: DType, bits: u64| match decode(dtype, bits).to_f64() {
            _ if !dtype.is_float() => {
                Some(encode_int(dtype, i128::from(decode(dtype, bits).to_i64().clamp(-3, 3).max(0))))
            }
            value if value.is_finite() => Some(encode_float(dtype, value.round_ties_even().clamp(-1e3, 1e3))),
            _ => None,
        };
        if !self.attempt(input, &positions, rounded) {
            for at in &positions {
                self.attempt(input, std::slice::from_ref(at), rounded);
            }
        }
    }

    fn positions(&self, input: usize) -> Vec<usize> {
        match &self.case.inputs[input] {
            Input::Tensor(tensor) => {
                let mut positions = positions(&tensor.layout);
                positions.sort_unstable();
                positions.dedup();
                positions
            }
            Input::Scalar(_) | Input::InPlace => Vec::new(),
        }
    }

    /// Changes some values and keeps that if the case still fails.
    fn attempt(&mut self, input: usize, at: &[usize], change: impl Fn(DType, u64) -> Option<u64>) -> bool {
        let mut changed = self.case.clone();
        let Input::Tensor(tensor) = &mut changed.inputs[input] else { return false };
        for &at in at {
            if let Some(bits) = change(tensor.dtype, tensor.bits(at)) {
                tensor.set_bits(at, bits);
            }
        }
        if self.runs >= RUNS || changed == self.case {
            return false;
        }
        self.runs += 1;
        let fails = run_case(self.backend, &changed, self.arithmetic).failure.is_some();
        if fails {
            self.case = changed;
        }
        fails
    }
}
