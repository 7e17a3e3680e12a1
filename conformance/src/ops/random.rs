//! Random numbers, from the stream convention of the contract: all exact but normal ones, whose quantiles are found by
//! Newton's method on correctly rounded error functions.

use congruent_backend_api::DType;
use congruent_backend_api::ops::random::{Distribution, RandomOp};
use core_math as cr;
use proptest::prelude::*;
use proptest::sample::select;

use crate::case::{Call, Case, poisoned};
use crate::expect::Expect;
use crate::host::{encode_float, encode_int};
use crate::ops::layout;
use crate::round::{Format, exp2};
use crate::spec::{Draw, placement, shape};

/// Generated calls: seeds and offsets with high bits, offsets within a block and around the ends of counters.
pub fn cases(op: RandomOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let word = || prop_oneof![Just(0_u64), 1..9_u64, any::<u64>(), (32..64_u32).prop_map(|bit| 1 << bit)];
    let ends = [(1_u64 << 34) - 9, (1 << 32) - 3, u64::MAX - 20];
    let offset = prop_oneof![2 => word(), 1 => select(ends.to_vec())];
    (shape(draw.scaled(2), 5), placement(), distribution(op, dtype), word(), offset, any::<u64>().no_shrink())
        .prop_map(move |(shape, placement, distribution, seed, offset, poison)| {
            let out = poisoned(dtype, layout(&placement, &shape), poison);
            Case { call: Call::Random { distribution, seed, offset }, inputs: Vec::new(), out }
        })
        .boxed()
}

fn distribution(op: RandomOp, dtype: DType) -> BoxedStrategy<Distribution> {
    let (least, greatest) = match dtype {
        DType::I64 => (i64::MIN, i64::MAX),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        _ => (0, u8::MAX.into()),
    };
    match op {
        RandomOp::Bernoulli => prop_oneof![Just(0.5), Just(0.0), Just(1.0), 0.0..1.0_f64]
            .prop_map(|probability| Distribution::Bernoulli { probability })
            .boxed(),
        RandomOp::Normal => Just(Distribution::Normal).boxed(),
        RandomOp::Philox => Just(Distribution::Bits).boxed(),
        RandomOp::Randint => {
            let ends = prop_oneof![
                3 => (least..greatest, 1..300_i64).prop_map(move |(low, span)| (low, low.saturating_add(span).min(greatest))),
                1 => Just((least, greatest)),
                1 => (least..greatest, least..greatest).prop_map(|(a, b)| (a.min(b), a.max(b).max(a.min(b) + 1))),
            ];
            ends.prop_map(|(low, high)| Distribution::Integer { low, high }).boxed()
        }
        RandomOp::Randperm => Just(Distribution::Permutation).boxed(),
        RandomOp::Uniform => Just(Distribution::Uniform).boxed(),
    }
}

/// What each element may be.
#[must_use]
pub fn expect(distribution: Distribution, seed: u64, offset: u64, case: &Case) -> Vec<Expect> {
    let (dtype, count) = (case.out.dtype, case.out.layout.count() as u64);
    (0..count)
        .map(|index| match distribution {
            Distribution::Permutation => Expect::Bits(permuted(seed, offset, index, count)),
            _ => {
                let words = if needs_two(distribution, dtype) { 2 } else { 1 };
                let first = offset.wrapping_add(index.wrapping_mul(words));
                element(distribution, dtype, word(seed, first), word(seed, first.wrapping_add(1)))
            }
        })
        .collect()
}

fn needs_two(distribution: Distribution, dtype: DType) -> bool {
    match distribution {
        Distribution::Integer { .. } => true,
        Distribution::Normal | Distribution::Uniform => dtype == DType::F64,
        _ => false,
    }
}

fn element(distribution: Distribution, dtype: DType, word: u32, next: u32) -> Expect {
    let both = u64::from(word) + (u64::from(next) << 32);
    match distribution {
        Distribution::Bernoulli { probability } => {
            Expect::Bits((f64::from(word) < (probability * exp2(32)).round_ties_even()).into())
        }
        Distribution::Bits | Distribution::Permutation => Expect::Bits(word.into()),
        Distribution::Integer { low, high } => {
            let span = (i128::from(high) - i128::from(low)) as u128;
            Expect::Bits(encode_int(dtype, i128::from(low) + ((u128::from(both) * span) >> 64) as i128))
        }
        Distribution::Normal if dtype == DType::F64 => normal(dtype, (both >> 12) as f64, 52),
        Distribution::Normal => normal(dtype, word.into(), 32),
        Distribution::Uniform => {
            let precision = Format::of(dtype).map_or(24, |format| format.precision);
            let (bits, width) = if dtype == DType::F64 { (both, 64) } else { (word.into(), 32) };
            let top = bits >> (width - precision);
            Expect::Bits(encode_float(dtype, top as f64 * exp2(-precision)))
        }
    }
}

/// Φ⁻¹((v + ½)·2^−bits), within the contract's units and two more of f64 for the oracle's own roundings.
fn normal(dtype: DType, v: f64, bits: i32) -> Expect {
    let p = (v + 0.5) * exp2(-bits);
    // By symmetry in the lower half, where small p are exact.
    let (tail, sign) = if p < 0.5 { (p, -1.0) } else { (1.0 - p, 1.0) };
    let z = upper_quantile(tail);
    let format = Format::of(dtype).map_or(Format::F64, Format::accumulator);
    let units = if format.precision == Format::F64.precision { 8.0 } else { 4.0 };
    Expect::near((sign * z).into(), units * format.ulp(z) + 4.0 * exp2(-52) * z)
}

/// The z ≥ 0 that a standard normal variable exceeds with probability `tail` ≤ ½.
fn upper_quantile(tail: f64) -> f64 {
    let density = |z: f64| cr::exp(-z * z / 2.0) / (2.0 * std::f64::consts::PI).sqrt();
    let root = std::f64::consts::SQRT_2;
    // Q(z) − tail, near zero by way of erf, which is small there.
    let excess = |z: f64| {
        if z < 0.5 { (0.5 - tail) - cr::erf(z / root) / 2.0 } else { cr::erfc(z / root) / 2.0 - tail }
    };
    let mut z = if tail > 0.3 { (0.5 - tail) * 2.5 } else { (-2.0 * cr::log(tail)).sqrt() };
    for _ in 0..60 {
        let (step, slope) = (excess(z) / density(z), z / 2.0);
        // Halley's correction makes the first steps safe in the tail.
        let next = z + step / (1.0 + step * slope).max(0.5);
        if (next - z).abs() <= 1e-17 * z.abs() {
            break;
        }
        z = next.max(0.0);
    }
    z
}

/// Word `at` of a stream.
fn word(seed: u64, at: u64) -> u32 {
    philox([(at / 4) & 0xffff_ffff, (at / 4) >> 32, 0, 0], seed)[(at % 4) as usize] as u32
}

/// Philox4x32-10 in 64-bit arithmetic, as in the paper's table 2.
fn philox(counter: [u64; 4], seed: u64) -> [u64; 4] {
    const LOW: u64 = 0xffff_ffff;
    let (mut c, mut keys) = (counter, [seed & LOW, seed >> 32]);
    for _ in 0..10 {
        let (a, b) = (0xd251_1f53 * c[0], 0xcd9e_8d57 * c[2]);
        c = [(b >> 32) ^ c[1] ^ keys[0], b & LOW, (a >> 32) ^ c[3] ^ keys[1], a & LOW];
        keys = [(keys[0] + 0x9e37_79b9) & LOW, (keys[1] + 0xbb67_ae85) & LOW];
    }
    c
}

/// Where `index` goes among `count`.
fn permuted(seed: u64, offset: u64, index: u64, count: u64) -> u64 {
    let mut bits = 6;
    while bits < 64 && count >> bits != 0 {
        bits += 1;
    }
    let lower = bits / 2;
    let key = |round: u64| philox([offset & 0xffff_ffff, offset >> 32, round / 4, 1], seed)[(round % 4) as usize];
    let mix = |half: u64, key: u64, width: u64| {
        let product = u128::from(half ^ key) * 0xd251_1f53;
        ((product as u64) ^ (product >> 32) as u64) & ((1 << width) - 1) & 0xffff_ffff
    };
    let keys: Vec<u64> = (0..24).map(key).collect();
    let mut image = index;
    loop {
        let (mut low, mut high) = (image % (1 << lower), image >> lower);
        for (round, &key) in keys.iter().enumerate() {
            if round % 2 == 0 {
                high ^= mix(low, key, bits - lower);
            } else {
                low ^= mix(high, key, lower);
            }
        }
        image = (high << lower) + low;
        if image < count {
            return image;
        }
    }
}

/// The call that gives one element of a case alone; a permutation has none.
pub(crate) fn single(call: &Call, dtype: DType, index: usize) -> Option<Call> {
    match *call {
        Call::Random { distribution: Distribution::Permutation, .. } => None,
        Call::Random { distribution, seed, offset } => {
            let words = distribution.words(dtype).wrapping_mul(index as u64);
            Some(Call::Random { distribution, seed, offset: offset.wrapping_add(words) })
        }
        ref other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::judge;

    #[test]
    fn known_answers_and_quantiles() {
        assert_eq!(philox([0; 4], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox([0xffff_ffff; 4], u64::MAX);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        for (tail, z) in
            [(0.025, 1.959_963_984_540_054), (1e-10, 6.361_340_902_404_056), (0.499, 0.002_506_630_899_571_766_6)]
        {
            assert!((upper_quantile(tail) - z).abs() < 3e-16 * z.max(1.0), "{tail} {}", upper_quantile(tail));
        }
        let expect = normal(DType::F32, 0.0, 32);
        assert!(judge(DType::F32, (-6.337_958_f32).to_bits().into(), &expect).accepted, "{expect:?}");
        assert!(!judge(DType::F32, (-6.337_98_f32).to_bits().into(), &expect).accepted);
    }

    #[test]
    fn permutations_reach_every_place() {
        let mut images: Vec<_> = (0..100).map(|index| permuted(3, 1 << 40, index, 100)).collect();
        images.sort_unstable();
        assert!(images.into_iter().eq(0..100));
    }
}
