//! Random tensors, and the generators that number them.
//!
//! A [`Generator`] is a seed and a position in that seed's stream of words. Each call takes as many words as its elements
//! need, so that no two calls of one generator share any, from however many threads. Elements depend only on the seed and the
//! position: the same on every backend (normal ones within their bound), whatever the layout and the number of threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use congruent_backend_api::ops::random::{Distribution, Random};
use congruent_backend_api::{
    BinaryOps, CompareOps, CopyOps, DType, Error, ErrorKind, RandomOps, ReduceOps, Result, Shape,
};

use crate::tensor::Tensor;

/// A seed and a position in its stream: what random tensors are made of.
///
/// ```
/// # fn main() -> congruent::Result<()> {
/// use congruent::{DType, Generator, Tensor};
///
/// # let device = congruent::backend("cpu")?;
/// let generator = Generator::new(42);
/// let x = Tensor::rand(&device, [2, 3], DType::F32, &generator)?;
/// let y = Tensor::rand(&device, [2, 3], DType::F32, &generator)?; // other numbers
/// let again = Tensor::rand(&device, [2, 3], DType::F32, &Generator::new(42))?;
/// assert_eq!(x.to_vec::<f32>()?, again.to_vec::<f32>()?);
/// assert_ne!(x.to_vec::<f32>()?, y.to_vec::<f32>()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Generator {
    seed: u64,
    offset: AtomicU64,
}

impl Generator {
    /// The beginning of the stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::at(seed, 0)
    }

    /// Word `offset` of the stream of a seed: where [`offset`](Self::offset) of another generator said it was.
    #[must_use]
    pub fn at(seed: u64, offset: u64) -> Self {
        Self { seed, offset: AtomicU64::new(offset) }
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The next word.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Takes words of the stream, and returns the first one's number; nobody else gets them.
    pub fn take(&self, words: u64) -> u64 {
        self.offset.fetch_add(words, Ordering::Relaxed)
    }
}

impl Clone for Generator {
    /// A generator that gives the same numbers from here on.
    fn clone(&self) -> Self {
        Self::at(self.seed, self.offset())
    }
}

impl<B: RandomOps + ?Sized> Tensor<B> {
    /// A tensor of elements of a distribution.
    ///
    /// # Errors
    /// `DType` when the distribution has no elements of `dtype`; `Argument` for a probability outside 0 to 1, or a range
    /// that is empty or outside that of the dtype; `Shape`; `Unsupported`; `OutOfMemory`.
    pub fn random(
        backend: &Arc<B>,
        distribution: Distribution,
        shape: impl AsRef<[usize]>,
        dtype: DType,
        generator: &Generator,
    ) -> Result<Self> {
        let shape = Shape::new(distribution.op().name(), shape.as_ref())?;
        Self::produce(
            backend,
            dtype,
            shape,
            |out| {
                // A call that fails takes no words.
                let plan = Random::new(distribution, generator.seed(), 0, out)?;
                let words = (shape.count() as u64).wrapping_mul(plan.words());
                Random::new(distribution, generator.seed(), generator.take(words), out)
            },
            |plan, out| backend.random(plan, out),
        )
    }

    /// Overwrites every element by one of a distribution.
    ///
    /// # Errors
    /// As [`random`](Self::random).
    pub fn fill_random(&mut self, distribution: Distribution, generator: &Generator) -> Result<()> {
        let backend = Arc::clone(self.backend());
        let words = (self.count() as u64).wrapping_mul(distribution.words(self.dtype()));
        self.overwrite(
            |_, out| {
                Random::new(distribution, generator.seed(), 0, out)?;
                Random::new(distribution, generator.seed(), generator.take(words), out)
            },
            |plan, _, out| backend.random(plan, out),
        )
    }

    /// Uniform in [0, 1): multiples of 2⁻²⁴ (f64 2⁻⁵³, f16 2⁻¹¹, bf16 2⁻⁸).
    ///
    /// # Errors
    /// As [`random`](Self::random).
    pub fn rand(backend: &Arc<B>, shape: impl AsRef<[usize]>, dtype: DType, generator: &Generator) -> Result<Self> {
        Self::random(backend, Distribution::Uniform, shape, dtype, generator)
    }

    /// Of the standard normal distribution.
    ///
    /// # Errors
    /// As [`random`](Self::random).
    pub fn randn(backend: &Arc<B>, shape: impl AsRef<[usize]>, dtype: DType, generator: &Generator) -> Result<Self> {
        Self::random(backend, Distribution::Normal, shape, dtype, generator)
    }

    /// Integers of `low..high`.
    ///
    /// # Errors
    /// As [`random`](Self::random).
    pub fn randint(
        backend: &Arc<B>,
        range: std::ops::Range<i64>,
        shape: impl AsRef<[usize]>,
        dtype: DType,
        generator: &Generator,
    ) -> Result<Self> {
        let distribution = Distribution::Integer { low: range.start, high: range.end };
        Self::random(backend, distribution, shape, dtype, generator)
    }

    /// Truths, each with a probability.
    ///
    /// # Errors
    /// As [`random`](Self::random).
    pub fn bernoulli(
        backend: &Arc<B>,
        probability: f64,
        shape: impl AsRef<[usize]>,
        generator: &Generator,
    ) -> Result<Self> {
        Self::random(backend, Distribution::Bernoulli { probability }, shape, DType::Bool, generator)
    }

    /// The numbers 0..count in a random order, as i64.
    ///
    /// # Errors
    /// As [`random`](Self::random).
    pub fn randperm(backend: &Arc<B>, count: usize, generator: &Generator) -> Result<Self> {
        Self::random(backend, Distribution::Permutation, [count], DType::I64, generator)
    }
}

impl<B: RandomOps + CopyOps + CompareOps + ReduceOps + ?Sized> Tensor<B> {
    /// Of the standard normal distribution, on condition of lying in `low..=high`: where an element does not, it is drawn
    /// again.
    ///
    /// # Errors
    /// As [`random`](Self::random); `Argument` unless at least about one number in a hundred lies in the range.
    pub fn truncated_normal(
        backend: &Arc<B>,
        (low, high): (f64, f64),
        shape: impl AsRef<[usize]>,
        dtype: DType,
        generator: &Generator,
    ) -> Result<Self> {
        // With one in a hundred, 4096 rounds leave one element in 10¹⁷ outside.
        const ROUNDS: usize = 4096;
        let mut x = Self::randn(backend, shape, dtype, generator)?;
        for _ in 0..ROUNDS {
            let inside = x.ge(low)?.logical_and(&x.le(high)?)?;
            if inside.all((), false)?.item::<bool>()? {
                return Ok(x);
            }
            let again = Self::randn(backend, x.shape(), dtype, generator)?;
            x = inside.where_cond(&x, &again)?;
        }
        let message = format!("hardly any normal number lies in {low}..={high}; widen the range");
        Err(Error::new(ErrorKind::Argument, "truncated_normal", message))
    }
}

impl<B: RandomOps + CompareOps + BinaryOps + ?Sized> Tensor<B> {
    /// Each element is 0 with a probability, and otherwise divided by the probability of that, which keeps the mean. The mask
    /// that [`bernoulli`](Self::bernoulli) draws comes as the second result.
    ///
    /// # Errors
    /// As [`random`](Self::random); `DType` unless this tensor is a float; `Argument` when the probability is 1.
    pub fn dropout(&self, probability: f64, generator: &Generator) -> Result<(Self, Self)> {
        const OP: &str = "dropout";
        if !(0.0..1.0).contains(&probability) {
            let message = format!("the probability {probability} must be at least 0 and less than 1");
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        let kept = Self::bernoulli(self.backend(), 1.0 - probability, self.shape(), generator)?;
        let scaled = self.mul(1.0 / (1.0 - probability))?;
        Ok((kept.where_cond(&scaled, 0.0)?, kept))
    }
}
