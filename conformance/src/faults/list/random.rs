//! Wrong random numbers.

use congruent_backend_api::ops::random::{Distribution, RandomOp};
use congruent_backend_api::{Op, Scalar};

use super::map;
use crate::faults::{Fault, Kind};

const RANDOM: &[&str] = &["random"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::asked("the seed is ignored", |_, seed, _| *seed = 0),
    Fault::asked("the upper half of the seed is dropped", |_, seed, _| *seed &= 0xffff_ffff),
    Fault::asked("the offset is ignored", |_, _, offset| *offset = 0),
    Fault::asked("the counter has 32 bits", |_, _, offset| *offset &= (1 << 34) - 1),
    Fault::asked("the offset counts blocks", |_, _, offset| *offset = offset.wrapping_mul(4)),
    Fault::asked("the offset is rounded down to a block", |_, _, offset| *offset &= !3),
    Fault::asked("randint includes its upper end", |distribution, _, _| {
        if let Distribution::Integer { high, .. } = distribution {
            *high = high.saturating_add(1);
        }
    })
    .on(|op, _| op == Op::Random(RandomOp::Randint)),
    Fault::asked("bernoulli is true with the probability of false", |distribution, _, _| {
        if let Distribution::Bernoulli { probability } = distribution {
            *probability = 1.0 - *probability;
        }
    })
    .on(|op, _| op == Op::Random(RandomOp::Bernoulli)),
    Fault::output("uniform numbers lie in (0, 1]", RANDOM, |written| map(written, |_, new| 1.0 - new))
        .on(|op, _| op == Op::Random(RandomOp::Uniform)),
    Fault::output("normal numbers end at ±3", RANDOM, |written| map(written, |_, new| new.clamp(-3.0, 3.0)))
        .on(|op, _| op == Op::Random(RandomOp::Normal)),
    Fault::output("the numbers repeat after 256", RANDOM, |written| {
        for index in 256..written.walked.len() {
            written.after.set_bits(written.walked[index], written.after.bits(written.walked[index % 256]));
        }
    }),
    Fault::output("the numbers follow the memory, not the index", RANDOM, |written| {
        let bits: Vec<u64> = written.walked.iter().map(|&at| written.after.bits(at)).collect();
        for (&at, bits) in written.positions.iter().zip(bits) {
            written.after.set_bits(at, bits);
        }
    }),
    Fault::function(
        "a permutation takes numbers twice",
        RANDOM,
        |op, _| op == Op::Random(RandomOp::Randperm),
        |element| Some(Scalar::Int(element.new.to_i64() & !1)),
    ),
];

impl Fault {
    /// Another distribution, seed or offset than was asked for.
    const fn asked(name: &'static str, change: fn(&mut Distribution, &mut u64, &mut u64)) -> Self {
        Self::new(name, RANDOM, Kind::Random(change))
    }
}
