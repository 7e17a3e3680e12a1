//! Random numbers: blocks of Philox words, then what a distribution makes of them.
//!
//! Sixteen counters go through the rounds side by side, in loops that the compiler turns into SIMD. An output that is not
//! row-major is filled by way of a row-major buffer.

use congruent_backend_api::ops::random::{Draw, Permutation, Random, philox};
use congruent_backend_api::{DType, Error, ErrorKind, RandomOps, Result, bf16, f16, match_float};

use crate::backend::Cpu;
use crate::lane::{Int, Lane};
use crate::loops::{GRAIN, join, view, view_mut};
use crate::math::Real;
use crate::storage::CpuStorage;

/// Words that are made at once.
const WORDS: usize = 1024;
/// Counters that go through the rounds side by side.
const SIDE: usize = 16;

#[deny(clippy::missing_trait_methods)]
impl RandomOps for Cpu {
    fn random(&self, plan: &Random, out: &mut CpuStorage) -> Result<()> {
        plan.check(out)?;
        match (plan.draw(), plan.dtype()) {
            (Draw::Bernoulli { threshold }, DType::Bool) => {
                each::<u8, 1>(plan, out, |[word]| u8::from(u64::from(word) < threshold))
            }
            (Draw::Bits, DType::U32) => each::<u32, 1>(plan, out, |[word]| word),
            (Draw::Integer { low, span }, DType::I64) => integers::<i64>(plan, out, low, span),
            (Draw::Integer { low, span }, DType::I32) => integers::<i32>(plan, out, low, span),
            (Draw::Integer { low, span }, DType::U32) => integers::<u32>(plan, out, low, span),
            (Draw::Integer { low, span }, DType::U8) => integers::<u8>(plan, out, low, span),
            (Draw::Normal, DType::F64) => each::<f64, 2>(plan, out, |words| quantile(fraction(long(words) >> 12, 52))),
            (Draw::Normal, dtype) => match_float!(dtype, T => each::<T, 1>(plan, out, |[word]| {
                // Not the type's own conversion, which cuts bits off before it rounds.
                <T as Lane>::from_f64(quantile(fraction(word.into(), 32)))
            }), else => Err(Error::unsupported("cpu", plan.op().name(), dtype))),
            (Draw::Permutation, DType::I64) => permutation(plan, out),
            (Draw::Uniform, DType::F64) => {
                each::<f64, 2>(plan, out, |words| (long(words) >> 11) as f64 * f64::EPSILON / 2.0)
            }
            (Draw::Uniform, DType::F32) => {
                // Through i32, for which there is a vector instruction.
                each::<f32, 1>(plan, out, |[word]| (word >> 8).cast_signed() as f32 * (f32::EPSILON / 2.0))
            }
            (Draw::Uniform, DType::F16) => {
                each::<f16, 1>(plan, out, |[word]| f16::from_f32((word >> 21) as f32 / 2048.0))
            }
            (Draw::Uniform, DType::BF16) => {
                each::<bf16, 1>(plan, out, |[word]| bf16::from_f32((word >> 24) as f32 / 256.0))
            }
            (_, dtype) => Err(Error::unsupported("cpu", plan.op().name(), dtype)),
        }
    }
}

fn integers<T: Int>(plan: &Random, out: &mut CpuStorage, low: i64, span: u64) -> Result<()> {
    each::<T, 2>(plan, out, |words| {
        let above = (u128::from(long(words)) * u128::from(span)) >> 64;
        T::from_i64(low.wrapping_add_unsigned(above as u64))
    })
}

fn permutation(plan: &Random, out: &mut CpuStorage) -> Result<()> {
    fn fill(permutation: &Permutation, first: usize, out: &mut [i64]) {
        if out.len() > GRAIN / 16 {
            let half = out.len() / 2;
            let (left, right) = out.split_at_mut(half);
            return join((first, left), (first + half, right), |(first, out)| fill(permutation, first, out));
        }
        for (index, out) in (first as u64..).zip(out) {
            *out = permutation.at(index).cast_signed();
        }
    }
    let permutation = plan.permutation();
    row_major(plan, out, |out| fill(&permutation, 0, out))
}

/// 64 bits of two words.
fn long(words: [u32; 2]) -> u64 {
    u64::from(words[0]) | u64::from(words[1]) << 32
}

/// (v + ½)·2⁻ᵇ, exactly.
fn fraction(v: u64, bits: i32) -> f64 {
    (v as f64 + 0.5) * f64::from_bits(((1023 - bits) as u64) << 52)
}

/// Fills the output with a function of each element's words.
fn each<T: Lane, const N: usize>(
    plan: &Random,
    out: &mut CpuStorage,
    element: impl Fn([u32; N]) -> T + Copy + Sync,
) -> Result<()> {
    row_major(plan, out, |out| spread(plan.seed(), plan.offset(), out, element))
}

/// Lets `fill` write the elements in row-major order.
fn row_major<T: Lane>(plan: &Random, out: &mut CpuStorage, fill: impl FnOnce(&mut [T])) -> Result<()> {
    let (nest, count) = (plan.nest(), plan.count());
    if count == 0 {
        return Ok(());
    }
    let out = out.as_mut_slice::<T>();
    if plan.out().is_contiguous() {
        let start = plan.out().offset();
        fill(&mut out[start..start + count]);
        return Ok(());
    }
    let mut buffer = bytemuck::allocation::try_zeroed_vec(count).map_err(|()| {
        let message = format!("a temporary of {count} elements could not be allocated");
        Error::new(ErrorKind::OutOfMemory, plan.op().name(), message)
    })?;
    fill(&mut buffer);
    view_mut(&nest, 0, out)?.assign(&view(&nest, 1, &buffer)?);
    Ok(())
}

/// Fills elements whose words begin at word `first` of a stream.
fn spread<T: Lane, const N: usize>(
    seed: u64,
    first: u64,
    out: &mut [T],
    element: impl Fn([u32; N]) -> T + Copy + Sync,
) {
    if out.len() > GRAIN {
        let half = out.len() / 2 / WORDS * WORDS;
        let (left, right) = out.split_at_mut(half);
        let middle = first.wrapping_add((half * N) as u64);
        return join((first, left), (middle, right), |(first, out)| spread(seed, first, out, element));
    }
    let mut words = [0; WORDS + 4];
    for (index, out) in out.chunks_mut(WORDS / N).enumerate() {
        let first = first.wrapping_add((index * WORDS) as u64);
        // Whole blocks, of which the first may begin before the first word.
        let skipped = (first % 4) as usize;
        stream(seed, first / 4, &mut words[..(skipped + out.len() * N).next_multiple_of(4)]);
        let (words, _) = words[skipped..skipped + out.len() * N].as_chunks::<N>();
        for (out, &words) in out.iter_mut().zip(words) {
            *out = element(words);
        }
    }
}

/// The words of a stream from a block on.
fn stream(seed: u64, block: u64, words: &mut [u32]) {
    // The word after the last one of a stream is its first.
    let counter = |block: u64| block & (u64::MAX >> 2);
    let (whole, rest) = words.as_chunks_mut::<{ 4 * SIDE }>();
    for (index, words) in whole.iter_mut().enumerate() {
        let block = block.wrapping_add((index * SIDE) as u64);
        *words = blocks(seed, std::array::from_fn(|side| counter(block.wrapping_add(side as u64))));
    }
    let block = block.wrapping_add((whole.len() * SIDE) as u64);
    for (index, words) in rest.chunks_mut(4).enumerate() {
        let at = counter(block.wrapping_add(index as u64));
        words.copy_from_slice(&philox([at as u32, (at >> 32) as u32, 0, 0], seed));
    }
}

/// [`philox`] of several counters side by side.
fn blocks(seed: u64, counters: [u64; SIDE]) -> [u32; 4 * SIDE] {
    let [mut a, mut b] = [counters.map(|at| at as u32), counters.map(|at| (at >> 32) as u32)];
    let [mut c, mut d] = [[0_u32; SIDE]; 2];
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        for (((a, b), c), d) in a.iter_mut().zip(&mut b).zip(&mut c).zip(&mut d) {
            let [first, second] = [0xd251_1f53 * u64::from(*a), 0xcd9e_8d57 * u64::from(*c)];
            (*a, *b) = ((second >> 32) as u32 ^ *b ^ key[0], second as u32);
            (*c, *d) = ((first >> 32) as u32 ^ *d ^ key[1], first as u32);
        }
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    let lanes = [a, b, c, d];
    std::array::from_fn(|word| lanes[word % 4][word / 4])
}

/// Φ⁻¹(p) for 0 < p < 1, to about 10⁻¹⁶ (Wichura, "Algorithm AS 241: the percentage points of the normal distribution",
/// 1988).
fn quantile(p: f64) -> f64 {
    let polynomial = |coefficients: [f64; 8], r: f64| coefficients.iter().fold(0.0, |sum, &c| sum * r + c);
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180_625 - q * q;
        return q * polynomial(CENTRE[0], r) / polynomial(CENTRE[1], r);
    }
    let tail = if q < 0.0 { p } else { 1.0 - p };
    let r = Real::sqrt(-Real::ln(tail));
    let z = if r <= 5.0 {
        polynomial(MIDDLE[0], r - 1.6) / polynomial(MIDDLE[1], r - 1.6)
    } else {
        polynomial(FAR[0], r - 5.0) / polynomial(FAR[1], r - 5.0)
    };
    if q < 0.0 { -z } else { z }
}

/// The algorithm's rational functions, the highest power first: numerator, denominator.
const CENTRE: [[f64; 8]; 2] = [
    [
        2_509.080_928_730_122_7,
        33_430.575_583_588_13,
        67_265.770_927_008_7,
        45_921.953_931_549_87,
        13_731.693_765_509_46,
        1_971.590_950_306_551_3,
        133.141_667_891_784_38,
        3.387_132_872_796_366_5,
    ],
    [
        5_226.495_278_852_854,
        28_729.085_735_721_943,
        39_307.895_800_092_71,
        21_213.794_301_586_597,
        5_394.196_021_424_751,
        687.187_007_492_057_9,
        42.313_330_701_600_91,
        1.0,
    ],
];
const MIDDLE: [[f64; 8]; 2] = [
    [
        0.000_774_545_014_278_341_4,
        0.022_723_844_989_269_184,
        0.241_780_725_177_450_6,
        1.270_458_252_452_368_4,
        3.647_848_324_763_204_5,
        5.769_497_221_460_691,
        4.630_337_846_156_546,
        1.423_437_110_749_683_5,
    ],
    [
        1.050_750_071_644_416_9e-09,
        0.000_547_593_808_499_534_5,
        0.015_198_666_563_616_457,
        0.148_103_976_427_480_08,
        0.689_767_334_985_1,
        1.676_384_830_183_803_8,
        2.053_191_626_637_759,
        1.0,
    ],
];
const FAR: [[f64; 8]; 2] = [
    [
        2.010_334_399_292_288_1e-07,
        2.711_555_568_743_487_6e-05,
        0.001_242_660_947_388_078_4,
        0.026_532_189_526_576_124,
        0.296_560_571_828_504_87,
        1.784_826_539_917_291_3,
        5.463_784_911_164_114,
        6.657_904_643_501_103,
    ],
    [
        2.044_263_103_389_939_7e-15,
        1.421_511_758_316_446e-07,
        1.846_318_317_510_054_8e-05,
        0.000_786_869_131_145_613_3,
        0.014_875_361_290_850_615,
        0.136_929_880_922_735_8,
        0.599_832_206_555_888,
        1.0,
    ],
];

#[cfg(test)]
mod tests {
    use congruent_backend_api::Element;
    use congruent_backend_api::ops::random::Distribution;

    use super::*;
    use crate::testing::{Tensor, on_any_threads, output};

    fn fill(distribution: Distribution, seed: u64, offset: u64, out: &mut Tensor) {
        let plan = Random::new(distribution, seed, offset, out.view()).unwrap();
        Cpu::new().random(&plan, &mut out.storage).unwrap();
    }

    fn draw<T: Element>(distribution: Distribution, seed: u64, offset: u64, count: usize) -> Vec<T> {
        let mut out = output(T::DTYPE, &[count]);
        fill(distribution, seed, offset, &mut out);
        out.elements()
    }

    #[test]
    fn the_words_are_those_of_the_stream() {
        // The first block is a known answer of Random123.
        let known = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
        assert_eq!(draw::<u32>(Distribution::Bits, 0, 0, 4), known);
        for offset in [0, 1, 2, 3, (1 << 34) - 70, u64::MAX - 69] {
            let words = on_any_threads(|| draw::<u32>(Distribution::Bits, 0x0123_4567_89ab_cdef, offset, 200_003));
            for (index, &word) in words.iter().enumerate().filter(|(index, _)| index % 97 < 3) {
                let at = offset.wrapping_add(index as u64);
                let block = philox([(at / 4) as u32, (at >> 34) as u32, 0, 0], 0x0123_4567_89ab_cdef);
                assert_eq!(word, block[(at % 4) as usize], "{offset} {index}");
            }
        }
    }

    #[test]
    fn elements_are_what_the_table_says() {
        let words = draw::<u32>(Distribution::Bits, 9, 5, 2000);
        let longs = |at: usize| u64::from(words[2 * at]) | u64::from(words[2 * at + 1]) << 32;
        let uniform = draw::<f32>(Distribution::Uniform, 9, 5, 1000);
        let double = draw::<f64>(Distribution::Uniform, 9, 5, 1000);
        let half = draw::<f16>(Distribution::Uniform, 9, 5, 1000);
        let dice = draw::<u8>(Distribution::Integer { low: 1, high: 7 }, 9, 5, 1000);
        let truths = draw::<bool>(Distribution::Bernoulli { probability: 0.25 }, 9, 5, 1000);
        for at in 0..1000 {
            assert_eq!(f64::from(uniform[at]), f64::from(words[at] >> 8) / 16_777_216.0);
            assert_eq!(double[at], (longs(at) >> 11) as f64 / (1_u64 << 53) as f64);
            assert_eq!(half[at].to_f64(), f64::from(words[at] >> 21) / 2048.0);
            assert_eq!(u128::from(dice[at]), 1 + ((u128::from(longs(at)) * 6) >> 64));
            assert_eq!(truths[at], words[at] < 1 << 30);
        }
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.9, 1.281_551_565_544_600_4),
            (0.999_999_9, 5.199_337_582_290_661),
            (1e-10, -6.361_340_902_404_056),
            (1e-15, -7.941_345_326_170_997),
        ] {
            assert!((quantile(p) - z).abs() <= 4.0 * f64::EPSILON * z.abs(), "{p}: {}", quantile(p));
        }
        let normal = draw::<f64>(Distribution::Normal, 1, 0, 100_000);
        let mean = |f: fn(f64) -> f64| normal.iter().map(|&x| f(x)).sum::<f64>() / 1e5;
        // Six standard deviations of each moment.
        assert!(mean(|x| x).abs() < 6.0 / 316.0 && (mean(|x| x * x) - 1.0).abs() < 6.0 * 1.42 / 316.0);
        assert!((mean(|x| x * x * x * x) - 3.0).abs() < 6.0 * 9.8 / 316.0);
    }

    #[test]
    fn the_layout_has_no_say() {
        let plain = draw::<i64>(Distribution::Integer { low: i64::MIN, high: i64::MAX }, 3, 1, 12);
        let mut turned = output(DType::I64, &[4, 3]).with(|x| x.permute(&[1, 0])?.flip(&[0]));
        fill(Distribution::Integer { low: i64::MIN, high: i64::MAX }, 3, 1, &mut turned);
        assert_eq!(turned.elements::<i64>(), plain);
        let mut order = draw::<i64>(Distribution::Permutation, 3, 1, 10_000);
        assert!(order.iter().enumerate().filter(|(at, x)| *at as i64 == **x).count() < 20);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..10_000));
    }
}
