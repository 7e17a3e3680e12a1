//! A case as a worker reads it, and its inputs in memory.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What is timed; it drops what it made.
pub(crate) type Call = Box<dyn FnMut() -> Result<(), Refusal>>;

/// Why there is no time.
#[derive(Debug)]
pub(crate) enum Refusal {
    Unsupported(String),
    Failed(String),
}

pub(crate) fn unsupported(what: impl Into<String>) -> Refusal {
    Refusal::Unsupported(what.into())
}

#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) op: String,
    pub(crate) dtype: String,
    pub(crate) inputs: Vec<Input>,
    pub(crate) args: BTreeMap<String, usize>,
}

impl Case {
    /// The refusal of an op that the library does not have.
    pub(crate) fn missing(&self) -> Refusal {
        unsupported(format!("no {} of {}", self.op, self.dtype))
    }

    pub(crate) fn arg(&self, name: &str) -> usize {
        self.args.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn input(&self, at: usize) -> Result<&Input, Refusal> {
        self.inputs.get(at).ok_or_else(|| Refusal::Failed(format!("{} has no input {at}", self.op)))
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    pub(crate) kind: Kind,
    pub(crate) shape: Vec<usize>,
    #[serde(default)]
    below: usize,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Data,
    Uniform,
    Sorted,
    Index,
    Mask,
}

impl Input {
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Rows of the last axis, and its width.
    pub(crate) fn rows(&self) -> [usize; 2] {
        let width = self.shape.last().copied().unwrap_or(1).max(1);
        [self.count() / width, width]
    }

    /// Random bits, the same each time.
    fn bits(&self) -> impl Iterator<Item = u32> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..self.count()).map(move |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        })
    }

    /// The elements of `data`, `uniform` and `sorted`.
    pub(crate) fn floats(&self) -> Vec<f32> {
        let uniform = |bits: u32| (bits >> 8) as f32 / (1 << 24) as f32;
        let signed = |bits: u32| {
            let magnitude = 0.1 + 0.9 * uniform(bits);
            if bits & 1 == 0 { magnitude } else { -magnitude }
        };
        let mut values: Vec<f32> = match self.kind {
            Kind::Data => self.bits().map(signed).collect(),
            _ => self.bits().map(uniform).collect(),
        };
        if self.kind == Kind::Sorted {
            values.sort_by(f32::total_cmp);
        }
        values
    }

    /// The elements of `index`, and of `data` as integers.
    pub(crate) fn integers(&self) -> Vec<i64> {
        let below = if self.kind == Kind::Index { self.below.max(1) } else { 100 };
        self.bits().map(|bits| ((u64::from(bits) * below as u64) >> 32) as i64).collect()
    }

    /// The elements of `mask`.
    pub(crate) fn bools(&self) -> Vec<bool> {
        self.bits().map(|bits| bits >> 31 == 0).collect()
    }
}
