//! What a case is: a call on inputs that are there already, its result included, and what it costs at the least.
//!
//! The [`Spec`] says it in words that a worker process in any language understands; `call` is the same for Congruent.

use std::collections::BTreeMap;
use std::sync::Arc;

use congruent::{AnyBackend, DType, Generator, Result, Tensor};
use serde::{Deserialize, Serialize};

/// A tensor of the backends that are timed.
pub type T = Tensor<AnyBackend>;

/// What is timed, without the call itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The family, as the op traits are called.
    pub family: String,
    /// The call, as `torch_worker.py` and the other workers know it.
    pub op: String,
    /// The dtype of the inputs.
    pub dtype: String,
    /// The sizes for people: `64M`, `1024x8192`.
    pub shape: String,
    /// What to make before the clock starts.
    pub inputs: Vec<Input>,
    /// Numbers that the call needs besides: a stride, an axis, a count.
    pub args: BTreeMap<String, usize>,
}

impl Spec {
    /// `family/op/dtype/shape`, which names one case.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}", self.family, self.op, self.dtype, self.shape)
    }

    /// An argument; 0 where it is not given.
    #[must_use]
    pub fn arg(&self, name: &str) -> usize {
        self.args.get(name).copied().unwrap_or(0)
    }
}

/// One input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Input {
    /// Numbers in (−1, 1), nowhere zero or subnormal, so that no shortcut applies; integers are below 100.
    Data {
        /// The sizes.
        shape: Vec<usize>,
    },
    /// Numbers in [0, 1), hardly two of them equal.
    Uniform {
        /// The sizes.
        shape: Vec<usize>,
    },
    /// Numbers as `uniform`, in ascending order along the last axis.
    Sorted {
        /// The sizes.
        shape: Vec<usize>,
    },
    /// i64 without a pattern, below a bound.
    Index {
        /// The sizes.
        shape: Vec<usize>,
        /// The bound.
        below: usize,
    },
    /// Bools without a pattern, half of them true.
    Mask {
        /// The sizes.
        shape: Vec<usize>,
    },
}

impl Input {
    /// Its sizes.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Data { shape }
            | Self::Uniform { shape }
            | Self::Sorted { shape }
            | Self::Index { shape, .. }
            | Self::Mask { shape } => shape,
        }
    }

    /// Puts it on a backend.
    ///
    /// # Errors
    /// What the backend returns.
    pub fn make(&self, backend: &Arc<AnyBackend>, dtype: DType) -> Result<T> {
        let generator = Generator::new(2);
        match self {
            Self::Data { shape } if dtype.is_float() => spread(backend, dtype, shape),
            Self::Data { shape } => Tensor::randint(backend, 1..100, shape, dtype, &generator),
            Self::Uniform { shape } => Tensor::rand(backend, shape, dtype, &generator),
            Self::Sorted { shape } => Tensor::rand(backend, shape, dtype, &generator)?.sort(-1, false),
            Self::Index { shape, below } => Tensor::randint(backend, 0..*below as i64, shape, DType::I64, &generator),
            Self::Mask { shape } => spread(backend, DType::F32, shape)?.gt(0.0),
        }
    }
}

/// `Input::Data` of a shape.
#[must_use]
pub fn data(shape: &[usize]) -> Input {
    Input::Data { shape: shape.to_vec() }
}

/// The inputs of a case on one backend.
#[derive(Debug)]
pub struct Inputs {
    /// Where they are.
    pub backend: Arc<AnyBackend>,
    /// One tensor for each input of the spec.
    pub x: Vec<T>,
    /// For calls that draw.
    pub generator: Generator,
}

type Call = Box<dyn Fn(&mut Inputs) -> Result<()>>;

/// A case.
pub struct Case {
    /// What it is.
    pub spec: Spec,
    /// What it reads and writes at least once.
    pub bytes: Option<usize>,
    /// Additions and multiplications, where they may be the limit.
    pub flops: Option<usize>,
    /// Elements of the largest operand: where plots put it.
    pub elements: usize,
    /// So large that a CPU needs seconds for it, and that only a GPU is timed on it.
    pub huge: bool,
    prepare: Option<Call>,
    call: Call,
}

impl Case {
    /// A case of a call that returns a tensor; name the sizes with the inputs' unless [`named`](Self::named) follows.
    pub fn new(
        (family, op): (&str, &str),
        dtype: DType,
        inputs: impl Into<Vec<Input>>,
        call: impl Fn(&mut Inputs) -> Result<T> + 'static,
    ) -> Self {
        let inputs = inputs.into();
        let elements = inputs.iter().map(|input| input.shape().iter().product()).max().unwrap_or(0);
        let shape = inputs.first().map_or_else(String::new, |input| sizes(input.shape()));
        let (family, op, dtype) = (family.to_owned(), op.to_owned(), dtype.name().to_owned());
        let spec = Spec { family, op, dtype, shape, inputs, args: BTreeMap::new() };
        let call = Box::new(move |inputs: &mut Inputs| call(inputs).map(drop));
        Self { spec, bytes: None, flops: None, elements, huge: false, prepare: None, call }
    }

    /// A case of a call that writes into its last input.
    pub fn into_last(
        name: (&str, &str),
        dtype: DType,
        inputs: impl Into<Vec<Input>>,
        call: impl Fn(&[T], &mut T) -> Result<()> + 'static,
    ) -> Self {
        let mut case = Self::new(name, dtype, inputs, |inputs| Ok(inputs.x[0].clone()));
        case.call = Box::new(move |inputs| match inputs.x.split_last_mut() {
            Some((out, x)) => call(x, out),
            None => Ok(()),
        });
        case
    }

    /// Other sizes for people.
    #[must_use]
    pub fn named(mut self, shape: impl Into<String>) -> Self {
        self.spec.shape = shape.into();
        self
    }

    /// Bytes at the least.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Additions and multiplications.
    #[must_use]
    pub fn flops(mut self, flops: usize) -> Self {
        self.flops = Some(flops);
        self
    }

    /// The number of elements of a case without inputs.
    #[must_use]
    pub fn count(mut self, count: usize) -> Self {
        self.elements = count;
        self.spec.shape = size(count);
        self.arg("count", count)
    }

    /// An argument for the workers.
    #[must_use]
    pub fn arg(mut self, name: &str, value: usize) -> Self {
        self.spec.args.insert(name.to_owned(), value);
        self
    }

    /// A case for GPUs.
    #[must_use]
    pub fn huge(mut self, huge: bool) -> Self {
        self.huge = huge;
        self
    }

    /// What happens to the inputs before the clock starts.
    #[must_use]
    pub fn prepared(mut self, prepare: impl Fn(&mut Inputs) -> Result<()> + 'static) -> Self {
        self.prepare = Some(Box::new(prepare));
        self
    }

    /// The inputs on a backend.
    ///
    /// # Errors
    /// What the backend returns.
    pub fn make(&self, backend: &Arc<AnyBackend>) -> Result<Inputs> {
        let dtype: DType = self.spec.dtype.parse()?;
        let x = self.spec.inputs.iter().map(|input| input.make(backend, dtype)).collect::<Result<_>>()?;
        let mut inputs = Inputs { backend: Arc::clone(backend), x, generator: Generator::new(3) };
        self.prepare.iter().try_for_each(|prepare| prepare(&mut inputs))?;
        Ok(inputs)
    }

    /// One call.
    ///
    /// # Errors
    /// What the backend returns.
    pub fn call(&self, inputs: &mut Inputs) -> Result<()> {
        (self.call)(inputs)
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// `1024x8192`; one axis as a [`size`].
#[must_use]
pub fn sizes(shape: &[usize]) -> String {
    match shape {
        [one] => size(*one),
        _ => shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x"),
    }
}

/// `64K` and `16M` in powers of two; other numbers as they are.
#[must_use]
pub fn size(count: usize) -> String {
    for (shift, unit) in [(20, "M"), (10, "K")] {
        if count >> shift > 0 && count.is_multiple_of(1 << shift) {
            return format!("{}{unit}", count >> shift);
        }
    }
    count.to_string()
}

/// Random data; a large tensor repeats a run of it, which no cache can hold on to.
fn spread(backend: &Arc<AnyBackend>, dtype: DType, shape: &[usize]) -> Result<T> {
    const RUN: usize = 1 << 20;
    let count: usize = shape.iter().product();
    let mut state = 0x9e37_79b9_u32;
    let values: Vec<f32> = (0..count.min(RUN))
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let magnitude = 0.1 + 0.9 * (state >> 9) as f32 / (1 << 23) as f32;
            if state & 256 == 0 { magnitude } else { -magnitude }
        })
        .collect();
    let run = Tensor::from_slice(backend, &values, [values.len()])?.cast(dtype)?;
    let runs = count.div_ceil(RUN).max(1);
    run.expand([runs, values.len()])?.copy()?.flatten()?.narrow(0, 0, count)?.copy()?.reshape(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_for_people() {
        assert_eq!(size(64 << 20), "64M");
        assert_eq!(size(1 << 16), "64K");
        assert_eq!(size(1000), "1000");
        assert_eq!(sizes(&[1024, 8192]), "1024x8192");
        assert_eq!(sizes(&[4]), "4");
    }

    #[test]
    fn data_is_nowhere_zero() {
        let backend = congruent::backend("cpu").unwrap();
        let x = data(&[3, 700_000]).make(&backend, DType::F32).unwrap();
        assert_eq!(x.shape(), [3, 700_000]);
        let values = x.to_vec::<f32>().unwrap();
        assert!(values.iter().all(|x| (0.1..1.0).contains(&x.abs())));
        assert!(values.iter().any(|&x| x < 0.0) && values.iter().any(|&x| x > 0.0));
    }

    #[test]
    fn specs_survive_json() {
        let case = Case::new(("sort", "topk"), DType::F32, [Input::Uniform { shape: vec![4] }], |i| Ok(i.x[0].clone()));
        let spec = case.arg("k", 2).spec;
        let text = serde_json::to_string(&spec).unwrap();
        assert!(text.contains(r#"{"kind":"uniform","shape":[4]}"#), "{text}");
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
    }
}
