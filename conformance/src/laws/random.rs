//! Random numbers: what a stream has to do with its parts, and distributions with each other.

use congruent::ops::Distribution;
use congruent::{AnyBackend, DType, Generator, Result, Tensor};

use super::{Backend, FLOATS, bits, differ};

const DRAWS: [(Distribution, DType); 8] = [
    (Distribution::Bits, DType::U32),
    (Distribution::Uniform, DType::F64),
    (Distribution::Uniform, DType::F32),
    (Distribution::Uniform, DType::BF16),
    (Distribution::Normal, DType::F32),
    (Distribution::Normal, DType::F64),
    (Distribution::Integer { low: -3, high: 1000 }, DType::I32),
    (Distribution::Bernoulli { probability: 0.3 }, DType::Bool),
];

fn draw(
    backend: &Backend,
    (distribution, dtype): (Distribution, DType),
    shape: &[usize],
    generator: &Generator,
) -> Result<Tensor<AnyBackend>> {
    Tensor::random(backend, distribution, shape, dtype, generator)
}

pub(super) fn parts(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for kind in DRAWS {
        for start in [0, 3, (1 << 34) - 1000] {
            let whole = draw(backend, kind, &[70_000], &Generator::at(seed, start))?;
            for cut in [1_usize, 1024, 33_333] {
                let generator = Generator::at(seed, start);
                let head = draw(backend, kind, &[cut], &generator)?;
                let tail = draw(backend, kind, &[70_000 - cut], &generator)?;
                if let Some(found) = differ(&Tensor::cat(&[&head, &tail], 0)?, &whole, false)? {
                    return Ok(Some(format!("{:?} {}, cut at {cut}: {found}", kind.0, kind.1)));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn layouts(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for kind in DRAWS.into_iter().chain([(Distribution::Permutation, DType::I64)]) {
        let plain = draw(backend, kind, &[33, 70], &Generator::at(seed, 5))?;
        let mut turned = Tensor::zeros(backend, [70, 33], kind.1)?.t()?.flip([0])?;
        turned.fill_random(kind.0, &Generator::at(seed, 5))?;
        if let Some(found) = differ(&turned.contiguous()?, &plain, false)? {
            return Ok(Some(format!("{:?} {}: {found}", kind.0, kind.1)));
        }
    }
    Ok(None)
}

pub(super) fn seeds(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for kind in DRAWS.into_iter().chain([(Distribution::Permutation, DType::I64)]) {
        let of = |seed: u64, offset: u64| bits(&draw(backend, kind, &[4096], &Generator::at(seed, offset))?);
        let plain = of(seed, 0)?;
        for (what, other) in [
            ("the lowest bit of the seed", of(seed ^ 1, 0)?),
            ("the highest bit of the seed", of(seed ^ 1 << 63, 0)?),
            ("an offset of 8192", of(seed, 8192)?),
            ("an offset of 2³⁴", of(seed, 1 << 34)?),
            ("an offset of 2⁶³", of(seed, 1 << 63)?),
        ] {
            if other == plain {
                return Ok(Some(format!("{:?} {}: {what} changes nothing", kind.0, kind.1)));
            }
        }
    }
    Ok(None)
}

/// The same words: a truth is a uniform number below its probability, a double the sum of its parts.
pub(super) fn related(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let generator = || Generator::at(seed, 1);
    let uniform = draw(backend, (Distribution::Uniform, DType::F32), &[10_000], &generator())?;
    for probability in [0.25, 0.5, 1.0] {
        let truths = draw(backend, (Distribution::Bernoulli { probability }, DType::Bool), &[10_000], &generator())?;
        if let Some(found) = differ(&truths, &uniform.lt(probability)?, false)? {
            return Ok(Some(format!("a truth of {probability} and a uniform number: {found}")));
        }
    }
    let words = draw(backend, (Distribution::Bits, DType::U32), &[10_000], &generator())?;
    let top = words.shr(8)?.cast(DType::F32)?.mul(f64::from(f32::EPSILON) / 2.0)?;
    if let Some(found) = differ(&uniform, &top, false)? {
        return Ok(Some(format!("a uniform number and its word: {found}")));
    }
    let bytes = draw(backend, (Distribution::Integer { low: 0, high: 256 }, DType::U8), &[5000], &generator())?;
    let upper = words.reshape([5000, 2])?.i((.., 1))?.shr(24)?.cast(DType::U8)?;
    Ok(differ(&bytes, &upper, false)?.map(|found| format!("a random byte and its words: {found}")))
}

/// Six standard deviations from each moment, of which about one sample in 10⁸ is further away.
pub(super) fn moments(backend: &Backend, seed: u64) -> Result<Option<String>> {
    const COUNT: usize = 1 << 16;
    for dtype in FLOATS {
        for (distribution, mean, square, deviations) in
            [(Distribution::Uniform, 0.5, 1.0 / 3.0, (0.2887, 0.2982)), (Distribution::Normal, 0.0, 1.0, (1.0, 1.4143))]
        {
            let x = draw(backend, (distribution, dtype), &[COUNT], &Generator::new(seed))?.cast(DType::F64)?;
            // Half a unit by which f16 and bf16 round down.
            let shift = if dtype == DType::BF16 { 1.0 / 256.0 } else { 1.0 / 2048.0 };
            let limit = |deviation: f64| 6.0 * deviation / (COUNT as f64).sqrt() + shift;
            let found = (x.mean((), false)?.item::<f64>()?, x.square()?.mean((), false)?.item::<f64>()?);
            if (found.0 - mean).abs() > limit(deviations.0) || (found.1 - square).abs() > limit(deviations.1) {
                return Ok(Some(format!("{distribution:?} {dtype}: mean and mean square are {found:?}")));
            }
            let (least, greatest) = (x.min((), false)?.item::<f64>()?, x.max((), false)?.item::<f64>()?);
            if distribution == Distribution::Uniform && (least < 0.0 || greatest >= 1.0) {
                return Ok(Some(format!("{dtype}: uniform numbers from {least} to {greatest}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn permutation(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for count in [1_usize, 2, 33, 64, 5000] {
        let mut order = Tensor::randperm(backend, count, &Generator::new(seed))?.to_vec::<i64>()?;
        order.sort_unstable();
        if let Some(at) = (0..count).find(|&at| order[at] != at as i64) {
            return Ok(Some(format!("of {count} numbers, {at} is missing")));
        }
    }
    Ok(None)
}
