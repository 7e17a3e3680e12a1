//! Random numbers: the words of the stream, wherever it is entered and however the output lies.

use congruent_backend_api::ops::random::{Distribution, Random, philox};
use congruent_backend_api::{Element, Layout, RandomOps, f16};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, cuda};

const SEED: u64 = 0x0123_4567_89ab_cdef;

fn draw<T: Element>(cuda: &Cuda, distribution: Distribution, seed: u64, offset: u64, count: usize) -> Vec<T> {
    let mut out = Tensor::zeros::<T>(cuda, &[count]);
    let plan = Random::new(distribution, seed, offset, out.view()).unwrap();
    cuda.random(&plan, &mut out.storage).unwrap();
    out.to_vec(cuda)
}

fn word(at: u64) -> u32 {
    philox([(at / 4) as u32, (at >> 34) as u32, 0, 0], SEED)[(at % 4) as usize]
}

#[test]
fn the_words_are_those_of_the_stream() {
    let Some(cuda) = cuda() else { return };
    // A known answer of Random123.
    let known = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    assert_eq!(draw::<u32>(cuda, Distribution::Bits, 0, 0, 4), known);
    for offset in [0, 1, 2, 3, (1 << 34) - 70, u64::MAX - 69] {
        for count in [1, 2, 3, 4, 5, 1023, 100_001] {
            let words = draw::<u32>(cuda, Distribution::Bits, SEED, offset, count);
            let at = |index: usize| offset.wrapping_add(index as u64);
            let wrong = (0..count).find(|&index| words[index] != word(at(index)));
            assert_eq!(wrong, None, "{offset} {count}");
        }
    }
}

#[test]
fn every_width_of_element_takes_its_words() {
    let Some(cuda) = cuda() else { return };
    for offset in [0, 1, 6, 7] {
        let first = |index: usize, words: u64| offset + index as u64 * words;
        let half = draw::<f16>(cuda, Distribution::Uniform, SEED, offset, 1001);
        let double = draw::<f64>(cuda, Distribution::Uniform, SEED, offset, 1001);
        let bytes = draw::<u8>(cuda, Distribution::Integer { low: 0, high: 256 }, SEED, offset, 1001);
        let truths = draw::<bool>(cuda, Distribution::Bernoulli { probability: 0.25 }, SEED, offset, 1001);
        for index in 0..1001 {
            let long = u64::from(word(first(index, 2))) | u64::from(word(first(index, 2) + 1)) << 32;
            assert_eq!(half[index].to_f64(), f64::from(word(first(index, 1)) >> 21) / 2048.0);
            assert_eq!(double[index], (long >> 11) as f64 / (1_u64 << 53) as f64);
            assert_eq!(bytes[index], (long >> 56) as u8);
            assert_eq!(truths[index], word(first(index, 1)) < 1 << 30);
        }
    }
}

#[test]
fn layouts_and_permutations() {
    let Some(cuda) = cuda() else { return };
    let plain = draw::<u32>(cuda, Distribution::Bits, SEED, 5, 40);
    let gaps = Layout::new("test", &[5, 8], &[-1, 7], 4).unwrap();
    let mut out = Tensor::zeros::<u32>(cuda, &[64]).with(|_| gaps);
    let plan = Random::new(Distribution::Bits, SEED, 5, out.view()).unwrap();
    cuda.random(&plan, &mut out.storage).unwrap();
    assert_eq!(out.to_vec::<u32>(cuda), plain);
    let mut order = draw::<i64>(cuda, Distribution::Permutation, SEED, 0, 100_000);
    order.sort_unstable();
    assert!(order.into_iter().eq(0..100_000));
}
