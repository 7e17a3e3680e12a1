//! cuRAND's own Philox beside ours, on one stream and in one storage: an example of another CUDA library at work among the
//! backend's ops.

use congruent_backend_api::Result;
use congruent_backend_api::ops::random::{Distribution, Random};
use congruent_backend_api::{Backend, DType, RandomOps};
use congruent_backend_cuda::Cuda;
use cudarc::curand::result;
use cudarc::curand::sys::curandRngType_t::CURAND_RNG_PSEUDO_PHILOX4_32_10;

use crate::support::{Tensor, cuda, get};

const SEED: u64 = 0x0123_4567_89ab_cdef;
/// cuRAND takes turns among this many counters, a block of four words each.
const TURN: usize = 4 << 16;

/// The first words that cuRAND makes of a seed, from `offset` on.
fn curand(cuda: &Cuda, offset: u64, count: usize) -> Result<Vec<u32>> {
    let mut out = cuda.alloc(DType::U32, count)?;
    cuda.make_current()?;
    let generator = result::create_generator_kind(CURAND_RNG_PSEUDO_PHILOX4_32_10).unwrap();
    // SAFETY: the generator was made above.
    unsafe { result::set_seed(generator, SEED) }.unwrap();
    // SAFETY: the generator was made above.
    unsafe { result::set_offset(generator, offset) }.unwrap();
    // SAFETY: the generator was made above; the backend's stream outlives it.
    unsafe { result::set_stream(generator, cuda.raw_stream().cast()) }.unwrap();
    let address = out.device_address_mut() as *mut u32;
    // SAFETY: `out` holds `count` words, is ours alone, and the work is on the stream of the backend that frees it.
    unsafe { result::generate::uniform_u32(generator, address, count) }.unwrap();
    let words = get(cuda, &out);
    // SAFETY: the last use of the generator; the read above waited for its work.
    unsafe { result::destroy_generator(generator) }.unwrap();
    words
}

#[test]
fn the_words_are_those_of_curand_in_another_order() {
    let Some(cuda) = cuda() else { return };
    // SAFETY: looks for the library, and does nothing else.
    if !unsafe { cudarc::curand::sys::is_culib_present() } {
        println!("skipped: no cuRAND");
        return;
    }
    const BLOCKS: usize = 12;
    let mut ours = Tensor::zeros::<u32>(cuda, &[4 * BLOCKS]);
    let plan = Random::new(Distribution::Bits, SEED, 0, ours.view()).unwrap();
    cuda.random(&plan, &mut ours.storage).unwrap();
    let ours = ours.to_vec::<u32>(cuda);
    let theirs = curand(cuda, 0, TURN * (BLOCKS - 1) + 4).unwrap();
    for (word, &value) in ours.iter().enumerate() {
        assert_eq!(theirs[TURN * (word / 4) + word % 4], value, "word {word}");
    }
}
