//! A small GPT-style transformer, written once and run on any backend: embedding, rotary attention with grouped heads and
//! a cache of keys and values, RMS norm, gated MLP, cross entropy.
//!
//! `cargo run --release --example transformer -- --backend all`

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use congruent::ops::{Activation, AttentionOptions, CrossEntropy, Pairing};
use congruent::{AllOps, AnyBackend, DType, Generator, KvCache, Result, Tensor, backend, backends};

const BLOCKS: usize = 3;
const VOCABULARY: usize = 61;
const CHANNELS: usize = 64;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HIDDEN: usize = 176;
const FEATURES: usize = CHANNELS / HEADS;
const POSITIONS: usize = 48;
/// Of these, the cache is filled at once; the others come one by one.
const PROMPT: usize = 32;
const EPSILON: f64 = 1e-6;

/// A block is nine steps whose values are about 1, none a longer sum than `HIDDEN`; each step adds at most γ of that to the
/// error and the norms keep it from growing. Below 1e-3, it is far below what a wrong step would do.
const BOUND: f64 = (BLOCKS * 9 * HIDDEN) as f64 * (f32::EPSILON as f64 / 2.0);

/// Runs a small transformer on one or several backends in f32, and compares its logits and its loss with those in f64.
///
/// Exits with 0 when all are inside the bound, with 1 when not, and with 2 when a backend cannot be used.
#[derive(Parser)]
struct Options {
    /// Where to run: `cpu`, `cuda:0`, several separated by commas, or `all` that are present
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    backend: Vec<String>,
    /// Seed of the weights and of the tokens
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut chosen = Vec::new();
    for name in &options.backend {
        match backend(name) {
            _ if name == "all" => chosen.extend(backends()),
            Ok(backend) => chosen.push(backend),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        }
    }
    match run(&chosen, options.seed) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every backend is inside the bound.
fn run(backends: &[Arc<AnyBackend>], seed: u64) -> Result<bool> {
    let mut passed = true;
    for backend in backends {
        let truth = forward(backend, DType::F64, seed)?;
        let got = forward(backend, DType::F32, seed)?;
        for (what, got, truth) in [
            ("logits of all positions at once", &got.logits, &truth.logits),
            ("logits through the cache", &got.cached, &truth.logits),
            ("loss", &got.loss, &truth.loss),
            ("gradient of the loss by the logits", &got.gradient, &truth.gradient),
        ] {
            let gaps = got.iter().zip(truth).map(|(x, y)| (x - y).abs());
            // `f64::max` would drop a NaN, which must fail the comparison.
            let worst = gaps.fold(0.0, |worst, gap| if gap <= worst { worst } else { gap });
            let holds = worst <= BOUND;
            println!(
                "{}: {what}: largest difference of f32 from f64 {worst:.2e}, bound {BOUND:.2e}: {}",
                backend.name(),
                if holds { "ok" } else { "FAILED" }
            );
            passed &= holds;
        }
    }
    // The same tokens and weights everywhere: the backends' own results can be compared too.
    let all = backends.iter().map(|backend| forward(backend, DType::F32, seed)).collect::<Result<Vec<_>>>()?;
    if let [first, others @ ..] = &all[..]
        && !others.is_empty()
    {
        let gaps = others.iter().flat_map(|other| other.logits.iter().zip(&first.logits)).map(|(x, y)| (x - y).abs());
        let worst = gaps.fold(0.0, |worst, gap| if gap <= worst { worst } else { gap });
        println!("largest difference between backends {worst:.2e}, bound {:.2e}", 2.0 * BOUND);
        passed &= worst <= 2.0 * BOUND;
    }
    Ok(passed)
}

/// What a model makes of its tokens.
struct Results {
    logits: Vec<f64>,
    cached: Vec<f64>,
    loss: Vec<f64>,
    gradient: Vec<f64>,
}

fn forward<B: AllOps + ?Sized>(backend: &Arc<B>, dtype: DType, seed: u64) -> Result<Results> {
    let generator = Generator::new(seed);
    let tokens = Tensor::randint(backend, 0..VOCABULARY as i64, [1, POSITIONS + 1], DType::I64, &generator)?;
    let model = Model::new(backend, dtype, &generator)?;
    let (inputs, targets) = (tokens.narrow(1, 0, POSITIONS)?, tokens.narrow(1, 1, POSITIONS)?);
    let logits = model.logits(&inputs, &mut model.caches()?)?;

    // A prompt, then one token after another.
    let mut caches = model.caches()?;
    let mut parts = vec![model.logits(&inputs.narrow(1, 0, PROMPT)?, &mut caches)?];
    for position in PROMPT..POSITIONS {
        parts.push(model.logits(&inputs.narrow(1, position, 1)?, &mut caches)?);
    }
    let cached = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1)?;

    let options = CrossEntropy::default();
    let loss = logits.cross_entropy(&targets, options)?;
    let gradient = logits.cross_entropy_grad(&targets, &Tensor::ones(backend, [0_usize; 0], dtype)?, options)?;
    let numbers = |x: &Tensor<B>| x.cast(DType::F64)?.to_vec::<f64>();
    Ok(Results {
        logits: numbers(&logits)?,
        cached: numbers(&cached)?,
        loss: numbers(&loss)?,
        gradient: numbers(&gradient)?,
    })
}

struct Model<B: AllOps + ?Sized> {
    embedding: Tensor<B>,
    blocks: Vec<Block<B>>,
    norm: Tensor<B>,
    cos: Tensor<B>,
    sin: Tensor<B>,
}

struct Block<B: AllOps + ?Sized> {
    norms: [Tensor<B>; 2],
    query: Tensor<B>,
    key: Tensor<B>,
    value: Tensor<B>,
    output: Tensor<B>,
    gate: Tensor<B>,
    up: Tensor<B>,
    down: Tensor<B>,
}

/// Uniform numbers with the variance 1 / `inputs`, the same on every backend and exact in every dtype from f32 on.
fn weights<B: AllOps + ?Sized>(
    backend: &Arc<B>,
    [outputs, inputs]: [usize; 2],
    dtype: DType,
    generator: &Generator,
) -> Result<Tensor<B>> {
    let uniform = Tensor::rand(backend, [outputs, inputs], DType::F32, generator)?;
    ((uniform - 0.5)? * (12.0 / inputs as f64).sqrt())?.cast(dtype)
}

impl<B: AllOps + ?Sized> Model<B> {
    fn new(backend: &Arc<B>, dtype: DType, generator: &Generator) -> Result<Self> {
        let (cos, sin) = Tensor::rotary_angles(backend, 0..POSITIONS, FEATURES, 1e4, DType::F32)?;
        Ok(Self {
            embedding: weights(backend, [VOCABULARY, CHANNELS], dtype, generator)?,
            blocks: (0..BLOCKS).map(|_| Block::new(backend, dtype, generator)).collect::<Result<_>>()?,
            norm: Tensor::ones(backend, [CHANNELS], dtype)?,
            cos: cos.cast(dtype)?,
            sin: sin.cast(dtype)?,
        })
    }

    fn caches(&self) -> Result<Vec<KvCache<B>>> {
        let cache = || {
            let sizes = [1, KV_HEADS, POSITIONS, FEATURES];
            KvCache::new(self.embedding.backend(), sizes, FEATURES, self.embedding.dtype())
        };
        (0..BLOCKS).map(|_| cache()).collect()
    }

    /// [batch, positions] to [batch, positions, vocabulary]; the positions stand behind those in the caches.
    fn logits(&self, tokens: &Tensor<B>, caches: &mut [KvCache<B>]) -> Result<Tensor<B>> {
        let mut x = self.embedding.embedding(tokens)?;
        let start = caches.first().map_or(0, KvCache::len);
        let [cos, sin] = [&self.cos, &self.sin].map(|angles| angles.narrow(0, start, tokens.shape()[1]));
        let angles = [cos?, sin?];
        for (block, cache) in self.blocks.iter().zip(caches) {
            x = block.forward(&x, &angles, cache)?;
        }
        x.rms_norm(-1, EPSILON, Some(&self.norm))?.linear(&self.embedding, None, Activation::Identity)
    }
}

impl<B: AllOps + ?Sized> Block<B> {
    fn new(backend: &Arc<B>, dtype: DType, generator: &Generator) -> Result<Self> {
        let weights = |outputs, inputs| weights(backend, [outputs, inputs], dtype, generator);
        let ones = || Tensor::ones(backend, [CHANNELS], dtype);
        Ok(Self {
            norms: [ones()?, ones()?],
            query: weights(CHANNELS, CHANNELS)?,
            key: weights(KV_HEADS * FEATURES, CHANNELS)?,
            value: weights(KV_HEADS * FEATURES, CHANNELS)?,
            output: weights(CHANNELS, CHANNELS)?,
            gate: weights(HIDDEN, CHANNELS)?,
            up: weights(HIDDEN, CHANNELS)?,
            down: weights(CHANNELS, HIDDEN)?,
        })
    }

    fn forward(&self, x: &Tensor<B>, angles: &[Tensor<B>; 2], cache: &mut KvCache<B>) -> Result<Tensor<B>> {
        let x = (x + self.attention(&x.rms_norm(-1, EPSILON, Some(&self.norms[0]))?, angles, cache)?)?;
        let y = x.rms_norm(-1, EPSILON, Some(&self.norms[1]))?;
        let gate = y.linear(&self.gate, None, Activation::Identity)?.silu()?;
        let hidden = (gate * y.linear(&self.up, None, Activation::Identity)?)?;
        x + hidden.linear(&self.down, None, Activation::Identity)?
    }

    fn attention(&self, x: &Tensor<B>, [cos, sin]: &[Tensor<B>; 2], cache: &mut KvCache<B>) -> Result<Tensor<B>> {
        let (batch, positions) = (x.shape()[0], x.shape()[1]);
        let heads = |weight: &Tensor<B>, heads: usize| {
            let y = x.linear(weight, None, Activation::Identity)?;
            y.reshape([batch, positions, heads, FEATURES])?.permute([0, 2, 1, 3])
        };
        let q = heads(&self.query, HEADS)?.rotary(cos, sin, Pairing::Halves)?;
        let k = heads(&self.key, KV_HEADS)?.rotary(cos, sin, Pairing::Halves)?;
        cache.append(&k, &heads(&self.value, KV_HEADS)?)?;
        let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
        let y = q.attention(&cache.keys()?, &cache.values()?, None, options)?;
        let y = y.permute([0, 2, 1, 3])?.reshape([batch, positions, CHANNELS])?;
        y.linear(&self.output, None, Activation::Identity)
    }
}
