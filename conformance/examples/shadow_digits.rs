//! Finds the op at which a training run goes wrong: a perceptron learns handwritten digits under a [`Shadow`], once on
//! two backends that are right, and then with one that has a bug planted deep inside.
//!
//! `cargo run --release -p congruent-conformance --example shadow_digits [FILE]`
//!
//! The call that went wrong is written to FILE, by default `shadow-divergence.json` in the folder for temporary files;
//! `conformance replay FILE` runs it alone. The exit code is 0 when the run without a bug completes, and the
//! planted bug is found at its op and nowhere else.

#[path = "minimal/arithmetic.rs"]
mod arithmetic;
#[path = "minimal/backend.rs"]
mod backend;

use std::error::Error as StdError;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use congruent::{AllOps, AnyBackend, DType, Result, Tensor};
use congruent_backend_api::erase::Erase;
use congruent_backend_cpu::Cpu;
use congruent_conformance::case::Call;
use congruent_conformance::replay::{Outcome, read};
use congruent_conformance::shadow::{Divergence, Shadow, Wrong};

use backend::Minimal;

const PIXELS: usize = 64;
const HIDDEN: usize = 48;
const CLASSES: usize = 10;
const BATCH: usize = 32;
const RATE: f64 = 0.2;

type Failure = Box<dyn StdError>;

fn main() -> ExitCode {
    let path =
        std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("shadow-divergence.json"), PathBuf::from);
    match run(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn cpu() -> Arc<AnyBackend> {
    Arc::new(Erase(Cpu::new()))
}

fn run(path: &Path) -> Result<(), Failure> {
    let (pixels, labels) = digits()?;

    let device = Arc::new(Shadow::new(cpu(), Arc::new(Erase(Minimal::new(false)))).replay_file(path));
    let loss = train(&device, &pixels, &labels)?;
    println!("without a bug: an epoch of {} ops, all compared, mean loss {loss:.4}", device.checked());

    // Its f32 products ignore β, which only the update of the weights uses: W ← W − rate·xᵀ·g.
    let broken: Arc<AnyBackend> = Arc::new(Erase(Minimal::new(true)));
    let device = Arc::new(Shadow::new(cpu(), Arc::clone(&broken)).replay_file(path));
    let Err(error) = train(&device, &pixels, &labels) else { return Err("the planted bug was not found".into()) };
    println!("with a bug:    {error}");
    let Some(found) = error.source().and_then(|source| source.downcast_ref::<Divergence>()) else {
        return Err("the training failed for another reason".into());
    };
    let at_its_op = matches!(found.case.call, Call::Matmul { beta, .. } if beta.to_f64() == 1.0);
    if !at_its_op || found.wrong != Wrong::Second || found.call != device.calls() {
        return Err("the planted bug was found at the wrong op, or blamed on the wrong backend".into());
    }

    for (name, backend, right) in [("cpu", cpu(), true), ("minimal", broken, false)] {
        let outcome = read(path)?.first().map(|replay| replay.run(&backend));
        println!("the file alone on {name}: {}", if outcome == Some(Outcome::Pass) { "pass" } else { "FAIL" });
        if (outcome == Some(Outcome::Pass)) != right {
            return Err(format!("the replay file does not reproduce what was found: {outcome:?}").into());
        }
    }
    println!("run it again with: conformance replay {}", path.display());
    Ok(())
}

/// One epoch of gradient descent on a perceptron with a hidden layer of tanh; the mean loss.
fn train<B: AllOps + ?Sized>(device: &Arc<B>, pixels: &[f32], labels: &[i64]) -> Result<f64> {
    let images = Tensor::from_slice(device, pixels, [labels.len(), PIXELS])?;
    let classes = Tensor::arange(device, 0..CLASSES as i64, DType::I64)?;
    let targets = Tensor::from_slice(device, labels, [labels.len(), 1])?.eq(&classes)?.cast(DType::F32)?;
    let (mut hidden, mut last) = (weights(device, PIXELS, HIDDEN)?, weights(device, HIDDEN, CLASSES)?);
    let mut total = 0.0;
    let starts = (0..labels.len() - BATCH).step_by(BATCH);
    let count = starts.len() * BATCH;
    for start in starts {
        let (x, target) = (images.narrow(0, start, BATCH)?, targets.narrow(0, start, BATCH)?);
        let features = x.matmul(&hidden)?.tanh()?;
        let logits = features.matmul(&last)?;
        let log_probabilities = (&logits - logits.logsumexp(-1, true)?)?;
        total -= f64::from((&target * &log_probabilities)?.sum((), false)?.item::<f32>()?);
        let gradient = ((log_probabilities.exp()? - &target)? / BATCH as f64)?;
        let inner = (gradient.matmul(&last.t()?)? * (1.0 - features.square()?)?)?;
        Tensor::matmul_into(&x.t()?, &inner, -RATE, 1, &mut hidden)?;
        Tensor::matmul_into(&features.t()?, &gradient, -RATE, 1, &mut last)?;
    }
    Ok(total / count as f64)
}

/// Weights in ±√(6 / (inputs + outputs)), spread by the fractional parts of the golden ratio's multiples.
fn weights<B: AllOps + ?Sized>(device: &Arc<B>, inputs: usize, outputs: usize) -> Result<Tensor<B>> {
    let limit = (6.0 / (inputs + outputs) as f64).sqrt();
    let golden = 1.0 / std::f64::consts::GOLDEN_RATIO;
    let values: Vec<f32> =
        (1..=inputs * outputs).map(|index| (limit * (2.0 * (index as f64 * golden).fract() - 1.0)) as f32).collect();
    Tensor::from_slice(device, &values, [inputs, outputs])
}

/// Scans of 8 × 8 pixels in 0..=1, and what they show.
fn digits() -> Result<(Vec<f32>, Vec<i64>), Failure> {
    let packed = include_bytes!("../../frontend/examples/data/digits.csv.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text)?;
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let numbers: Vec<u8> = line.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let (&label, scan) = numbers.split_last().ok_or("a line of the data is empty")?;
        labels.push(label.into());
        pixels.extend(scan.iter().map(|&pixel| f32::from(pixel) / 16.0));
    }
    Ok((pixels, labels))
}
