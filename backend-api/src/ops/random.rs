//! Random numbers: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011),
//! evaluated at each element's own position.
//!
//! A seed is a stream of 2⁶⁴ words of 32 bits. Word w is word w mod 4 of the block that Philox makes of the counter
//! (⌊w/4⌋ mod 2³², ⌊w/4⌋ / 2³², 0, 0) and the key (seed mod 2³², seed / 2³²). A call takes words from `offset` on, modulo 2⁶⁴:
//! element i, counted in row-major order, takes words `offset + i·k …`, with k = [`Distribution::words`]. So the elements depend
//! neither on the layout nor on the threads, and n elements are k elements and then n − k at the offset behind them.
//!
//! | [`Distribution`] | k | element |
//! |---|---|---|
//! | `Bits` | 1 | the word |
//! | `Uniform` | 1, f64 2 | the top 24 bits of the word · 2⁻²⁴; f16 11 bits, bf16 8, f64 53 of w₀ + 2³²·w₁ |
//! | `Normal` | 1, f64 2 | Φ⁻¹((w + ½)·2⁻³²); f64 Φ⁻¹((v + ½)·2⁻⁵²), v the top 52 bits of w₀ + 2³²·w₁ |
//! | `Integer` | 2 | low + ⌊(w₀ + 2³²·w₁)·(high − low) / 2⁶⁴⌋ |
//! | `Bernoulli` | 1 | w < p·2³², rounded to a whole number |
//! | `Permutation` | 1 | π(i), see [`Permutation`]; the words are reserved, and not used |
//!
//! cuRAND's `CURAND_RNG_PSEUDO_PHILOX4_32_10` makes the same blocks of the same keys, but takes turns among 65536 counters:
//! word w of a stream is number 2¹⁸·⌊w/4⌋ + w mod 4 of its host API, without an offset and in the default order (seen
//! for the first four blocks; `tests/gpu/curand.rs` of the CUDA backend compares twelve).
//!
//! `Integer` is biased by at most (high − low)/2⁶⁴ of a probability.

use crate::backend::{Backend, Storage};
use crate::dtype::DType;
use crate::elementwise::{View, check_domain, check_output, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::nest::Nest;
use crate::ops::Op;

/// A kind of random numbers, which an op is asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RandomOp {
    /// Truths.
    Bernoulli,
    /// Normally distributed floats.
    Normal,
    /// Words of the stream.
    Philox,
    /// Integers of a range.
    Randint,
    /// A permutation.
    Randperm,
    /// Floats in [0, 1).
    Uniform,
}

impl RandomOp {
    /// Every op of the family.
    pub const ALL: &[Self] =
        &[Self::Bernoulli, Self::Normal, Self::Philox, Self::Randint, Self::Randperm, Self::Uniform];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bernoulli => "bernoulli",
            Self::Normal => "normal",
            Self::Philox => "philox",
            Self::Randint => "randint",
            Self::Randperm => "randperm",
            Self::Uniform => "uniform",
        }
    }

    /// Whether the op makes elements of `dtype`.
    #[must_use]
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Bernoulli => dtype == DType::Bool,
            Self::Normal | Self::Uniform => dtype.is_float(),
            Self::Philox => dtype == DType::U32,
            Self::Randint => dtype.is_int(),
            Self::Randperm => dtype == DType::I64,
        }
    }
}

/// What the elements of a random tensor are distributed like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// True with this probability; bool.
    Bernoulli {
        /// From 0 to 1.
        probability: f64,
    },
    /// The 32 bits of a word; u32.
    Bits,
    /// Each integer of low..high with equal probability; i64, i32, u32, u8.
    Integer {
        /// The least.
        low: i64,
        /// One more than the greatest.
        high: i64,
    },
    /// The standard normal distribution; floats.
    Normal,
    /// The numbers 0..n in a random order, n the number of elements; i64.
    Permutation,
    /// Uniform in [0, 1), every multiple of a power of two with equal probability; floats.
    Uniform,
}

impl Distribution {
    /// The op that makes such elements.
    #[must_use]
    pub fn op(self) -> RandomOp {
        match self {
            Self::Bernoulli { .. } => RandomOp::Bernoulli,
            Self::Bits => RandomOp::Philox,
            Self::Integer { .. } => RandomOp::Randint,
            Self::Normal => RandomOp::Normal,
            Self::Permutation => RandomOp::Randperm,
            Self::Uniform => RandomOp::Uniform,
        }
    }

    /// The words that an element of `dtype` takes.
    #[must_use]
    pub fn words(self, dtype: DType) -> u64 {
        match self {
            Self::Integer { .. } => 2,
            Self::Normal | Self::Uniform if dtype == DType::F64 => 2,
            _ => 1,
        }
    }

    fn draw(self, dtype: DType) -> Result<Draw> {
        Ok(match self {
            Self::Bernoulli { probability } if (0.0..=1.0).contains(&probability) => {
                // A power of two scales exactly.
                Draw::Bernoulli { threshold: (probability * 4_294_967_296.0).round_ties_even() as u64 }
            }
            Self::Bernoulli { probability } => {
                let message = format!("the probability {probability} is not one: it must lie in 0 to 1");
                return Err(Error::new(ErrorKind::Argument, self.op().name(), message));
            }
            Self::Bits => Draw::Bits,
            Self::Integer { low, high } => {
                let (least, greatest) = range(dtype);
                if low >= high || i128::from(low) < least || i128::from(high) > greatest + 1 {
                    let message = format!(
                        "the range {low}..{high} must not be empty, and lie in that of {dtype}, {least} to {greatest}"
                    );
                    return Err(Error::new(ErrorKind::Argument, self.op().name(), message));
                }
                Draw::Integer { low, span: high.wrapping_sub(low).cast_unsigned() }
            }
            Self::Normal => Draw::Normal,
            Self::Permutation => Draw::Permutation,
            Self::Uniform => Draw::Uniform,
        })
    }
}

/// The least and the greatest value of an integer dtype.
fn range(dtype: DType) -> (i128, i128) {
    match dtype {
        DType::I64 => (i64::MIN.into(), i64::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        _ => (0, u8::MAX.into()),
    }
}

/// How an element is made of its words: a [`Distribution`], checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Draw {
    /// Whether the word is less than the threshold, which is 2³² at most.
    Bernoulli {
        /// p·2³².
        threshold: u64,
    },
    /// The word.
    Bits,
    /// `low` plus the upper 64 bits of the product of 64 random bits and `span`.
    Integer {
        /// The least integer.
        low: i64,
        /// How many there are.
        span: u64,
    },
    /// The normal quantile.
    Normal,
    /// The permuted index.
    Permutation,
    /// The top bits as a fraction.
    Uniform,
}

/// A validated call: random elements for an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Random {
    op: RandomOp,
    draw: Draw,
    dtype: DType,
    words: u64,
    seed: u64,
    offset: u64,
    out: Layout,
}

impl Random {
    /// Plans elements of a distribution from word `offset` of the stream `seed` on.
    ///
    /// # Errors
    /// `DType` when the distribution has no elements of the output's dtype; `Argument` for a probability outside 0 to 1, a
    /// range that is empty or outside the dtype's, or when `out` overlaps itself.
    pub fn new(distribution: Distribution, seed: u64, offset: u64, out: View<'_>) -> Result<Self> {
        let op = distribution.op();
        check_domain(Op::Random(op), out.dtype)?;
        check_output(op.name(), out.layout)?;
        let (draw, words) = (distribution.draw(out.dtype)?, distribution.words(out.dtype));
        Ok(Self { op, draw, dtype: out.dtype, words, seed, offset, out: *out.layout })
    }

    /// Which op.
    #[must_use]
    pub fn op(&self) -> RandomOp {
        self.op
    }

    /// How an element is made of its words.
    #[must_use]
    pub fn draw(&self) -> Draw {
        self.draw
    }

    /// The distribution, as one that makes this plan again.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        match self.draw {
            Draw::Bernoulli { threshold } => {
                Distribution::Bernoulli { probability: threshold as f64 / 4_294_967_296.0 }
            }
            Draw::Bits => Distribution::Bits,
            Draw::Integer { low, span } => Distribution::Integer { low, high: low.wrapping_add_unsigned(span) },
            Draw::Normal => Distribution::Normal,
            Draw::Permutation => Distribution::Permutation,
            Draw::Uniform => Distribution::Uniform,
        }
    }

    /// The dtype of the output.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The words that an element takes.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.words
    }

    /// The stream.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The word with which element 0 begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where the output's elements lie.
    #[must_use]
    pub fn out(&self) -> &Layout {
        &self.out
    }

    /// The number of elements.
    #[must_use]
    pub fn count(&self) -> usize {
        self.out.count()
    }

    /// The loop nest: operand 0 is the output, operand 1 the number of the element in row-major order.
    #[must_use]
    pub fn nest(&self) -> Nest<2> {
        Nest::new([&self.out, &Layout::contiguous(*self.out.shape())])
    }

    /// The permutation of which this plan wants the first elements, by seed and offset.
    #[must_use]
    pub fn permutation(&self) -> Permutation {
        Permutation::new(self.seed, self.offset, self.count() as u64)
    }

    /// Checks the storage of a call.
    ///
    /// # Errors
    /// `Argument` when the storage does not fit the plan.
    pub fn check<S: Storage>(&self, out: &S) -> Result<()> {
        check_storage(self.op.name(), "the output", self.dtype, self.out.min_len(), out)
    }
}

/// A keyed bijection of 0..n, evaluated at any position without the others.
///
/// A Feistel network of 24 rounds permutes 0..2ᵇ, b = max(6, ⌊log₂ n⌋ + 1). An index is permuted again until it lies below n,
/// at most 2.0 times on average from n = 32 on. The index is split into a lower half of ⌊b/2⌋ bits and the upper one. Rounds
/// 0, 2 … change the upper half, 1, 3 … the lower one: the half is combined by ⊻ with F of the other half h, the low bits of
/// lo ⊻ hi, the words of the product 0xD2511F53 · (h ⊻ key). The keys are the words of the blocks with the counters
/// (offset mod 2³², offset / 2³², j, 1), j = 0 … 5, which no other draw uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Permutation {
    /// n.
    pub count: u64,
    /// b.
    pub bits: u32,
    /// The keys of the rounds.
    pub keys: [u32; 24],
}

impl Permutation {
    fn new(seed: u64, offset: u64, count: u64) -> Self {
        let mut keys = [0; 24];
        for (block, keys) in keys.chunks_exact_mut(4).enumerate() {
            keys.copy_from_slice(&philox([offset as u32, (offset >> 32) as u32, block as u32, 1], seed));
        }
        Self { count, bits: (64 - count.leading_zeros()).max(6), keys }
    }

    /// Where index `index`, which is below n, goes.
    #[must_use]
    pub fn at(&self, index: u64) -> u64 {
        let low_bits = self.bits / 2;
        let (low_mask, high_mask) = ((1_u64 << low_bits) - 1, (1_u64 << (self.bits - low_bits)) - 1);
        let round = |half: u64, key: u32| {
            let product = u64::from(MULTIPLIERS[0]) * (half ^ u64::from(key));
            (product ^ (product >> 32)) & 0xffff_ffff
        };
        let mut index = index;
        loop {
            let (mut low, mut high) = (index & low_mask, index >> low_bits);
            for keys in self.keys.chunks_exact(2) {
                high ^= round(low, keys[0]) & high_mask;
                low ^= round(high, keys[1]) & low_mask;
            }
            index = high << low_bits | low;
            if index < self.count {
                return index;
            }
        }
    }
}

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// The block that Philox4x32-10 makes of a counter and the key `seed`.
#[must_use]
pub fn philox(counter: [u32; 4], seed: u64) -> [u32; 4] {
    let (mut c, mut key) = (counter, [seed as u32, (seed >> 32) as u32]);
    for _ in 0..10 {
        let [first, second] = [0, 1].map(|lane| u64::from(MULTIPLIERS[lane]) * u64::from(c[2 * lane]));
        c = [(second >> 32) as u32 ^ c[1] ^ key[0], second as u32, (first >> 32) as u32 ^ c[3] ^ key[1], first as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    c
}

/// Random numbers.
pub trait RandomOps: Backend {
    /// Writes random elements into `out`.
    ///
    /// # Contract
    /// - The elements are those of the [stream convention](crate::ops::random), bit for bit, whatever the layout and the
    ///   number of threads; normal ones are within 4 ULP of f32 before the final rounding, of f64 within 8.
    /// - Every element of the planned output view is written, nothing else.
    ///
    /// # Errors
    /// `Argument` when the storage does not fit the plan, `Unsupported`, and what the device reports.
    fn random(&self, plan: &Random, out: &mut Self::Storage) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    /// The known answers of Random123, kat_vectors.
    #[test]
    fn known_answers() {
        assert_eq!(philox([0; 4], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(philox(pi, 0x299f_31d0_a409_3822), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn permutations_are_bijections_that_depend_on_their_keys() {
        for count in [1, 2, 3, 5, 31, 32, 33, 64, 1000] {
            let images = |seed, offset| -> Vec<u64> {
                let permutation = Permutation::new(seed, offset, count);
                (0..count).map(|index| permutation.at(index)).collect()
            };
            let mut sorted = images(7, 0);
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..count), "{count}");
            assert!(count < 31 || (images(7, 0) != images(8, 0) && images(7, 0) != images(7, 1)));
        }
        // Every order of three comes up about equally often: χ² of 5 degrees of freedom, 25.7 is exceeded once in 10⁴.
        let mut counts = [0_u32; 27];
        for seed in 0..6000 {
            let permutation = Permutation::new(seed, 0, 3);
            counts[[0, 1, 2].iter().fold(0, |at, &index| 3 * at + permutation.at(index) as usize)] += 1;
        }
        let seen: Vec<f64> = counts.iter().filter(|&&count| count > 0).map(|&count| f64::from(count)).collect();
        let deviation: f64 = seen.iter().map(|count| (count - 1000.0) * (count - 1000.0) / 1000.0).sum();
        assert!(seen.len() == 6 && deviation < 25.7, "{seen:?}");
    }

    #[test]
    fn errors_name_the_rule() {
        let layout = Layout::contiguous(Shape::new("test", &[3]).unwrap());
        let kind = |distribution, dtype| {
            Random::new(distribution, 0, 0, View { dtype, layout: &layout }).map_err(|error| error.kind())
        };
        assert!(matches!(kind(Distribution::Uniform, DType::I32), Err(ErrorKind::DType)));
        for probability in [-0.1, 1.5, f64::NAN] {
            assert!(matches!(kind(Distribution::Bernoulli { probability }, DType::Bool), Err(ErrorKind::Argument)));
        }
        for (low, high) in [(3, 3), (4, 3), (-1, 3), (0, 257)] {
            assert!(matches!(kind(Distribution::Integer { low, high }, DType::U8), Err(ErrorKind::Argument)));
        }
        let all = kind(Distribution::Integer { low: 0, high: 256 }, DType::U8).unwrap();
        assert_eq!(all.distribution(), Distribution::Integer { low: 0, high: 256 });
        let often = kind(Distribution::Bernoulli { probability: 1.0 }, DType::Bool).unwrap();
        assert_eq!(often.draw(), Draw::Bernoulli { threshold: 1 << 32 });
    }
}
