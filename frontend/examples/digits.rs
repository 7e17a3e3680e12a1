//! Learns to read handwritten digits: 1,797 real scans, a softmax classifier and a two-layer perceptron, gradients
//! written by hand, on one backend or on several side by side.
//!
//! `cargo run --release --example digits -- --backend all`

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use congruent::{AllOps, AnyBackend, DType, Error, ErrorKind, Result, Tensor, backend, backends};

const PIXELS: usize = 64;
const CLASSES: usize = 10;
const TEST_SAMPLES: usize = 360;
const WANTED_ACCURACY: f64 = 0.95;
/// Over 20 epochs the curves in f32 stay within 3e-7 of those in f64, so backends that only round differently stay far
/// below this, and a wrong gradient far above.
const TOLERANCE: f64 = 1e-5;

/// Learns to read handwritten digits on one or several backends, and compares the loss curves.
///
/// Exits with 0 when the perceptron reads at least 95 % of the test scans and the backends agree, with 1 when not, and
/// with 2 when a backend cannot be used.
#[derive(Parser)]
struct Options {
    /// Where to run: `cpu`, `cuda:0`, several separated by commas, or `all` that are present
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    backend: Vec<String>,
    /// Passes over the training scans
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Scans per step
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Width of the perceptron's hidden layer
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    hidden: u32,
    /// Learning rate
    #[arg(long, default_value_t = 0.2)]
    rate: f64,
    /// Seed of the split and of the initial weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let backends = match chosen(&options.backend) {
        Ok(backends) => backends,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    match run(&options, &backends) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn chosen(names: &[String]) -> Result<Vec<Arc<AnyBackend>>> {
    let mut chosen: Vec<Arc<AnyBackend>> = Vec::new();
    for name in names {
        let found = if name == "all" { backends() } else { vec![backend(name)?] };
        for backend in found {
            if chosen.iter().all(|known| known.name() != backend.name()) {
                chosen.push(backend);
            }
        }
    }
    if chosen.is_empty() {
        return Err(Error::new(ErrorKind::Argument, "digits", "this build contains no backend; enable a feature"));
    }
    Ok(chosen)
}

/// Trains each model on each backend; whether the accuracy was reached and the curves agree.
fn run(options: &Options, backends: &[Arc<AnyBackend>]) -> Result<bool> {
    let digits = Digits::read(options.seed)?;
    let mut passed = true;
    for (title, hidden) in [("softmax classifier", None), ("two-layer perceptron", Some(options.hidden as usize))] {
        let curves: Vec<_> =
            backends.iter().map(|backend| train(backend, &digits, hidden, options)).collect::<Result<_>>()?;
        print_curves(title, backends, &curves);
        if hidden.is_some() {
            let worst = curves.iter().filter_map(|curve| curve.last()).map(|epoch| epoch.accuracy).fold(1.0, f64::min);
            println!("test accuracy {worst:.4}, wanted {WANTED_ACCURACY}: {}", verdict(worst >= WANTED_ACCURACY));
            passed &= worst >= WANTED_ACCURACY;
        }
        if let [first, others @ ..] = &curves[..]
            && !others.is_empty()
        {
            let gaps = others.iter().flat_map(|other| other.iter().zip(first)).map(|(a, b)| (a.loss - b.loss).abs());
            // `f64::max` would drop a NaN, which must fail the comparison.
            let worst = gaps.fold(0.0, |worst, gap| if gap <= worst { worst } else { gap });
            println!(
                "largest difference of the losses {worst:.2e}, tolerance {TOLERANCE:.0e}: {}",
                verdict(worst <= TOLERANCE)
            );
            passed &= worst <= TOLERANCE;
        }
        println!();
    }
    Ok(passed)
}

fn verdict(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

fn print_curves(title: &str, backends: &[Arc<AnyBackend>], curves: &[Vec<Epoch>]) {
    println!("{title}");
    print!("{:>5}", "");
    backends.iter().for_each(|backend| print!("  {:>19}", backend.name()));
    print!("\n{:>5}", "epoch");
    backends.iter().for_each(|_| print!("  {:>10} {:>8}", "loss", "accuracy"));
    println!();
    for epoch in 0..curves[0].len() {
        print!("{:>5}", epoch + 1);
        curves.iter().for_each(|curve| print!("  {:>10.6} {:>8.4}", curve[epoch].loss, curve[epoch].accuracy));
        println!();
    }
}

/// Mean loss over an epoch's training scans, and the share of test scans read correctly after it.
struct Epoch {
    loss: f64,
    accuracy: f64,
}

/// A layer x·W + b.
struct Layer<B: AllOps + ?Sized> {
    weight: Tensor<B>,
    bias: Tensor<B>,
}

impl<B: AllOps + ?Sized> Layer<B> {
    /// Weights uniform in ±√(6 / (inputs + outputs)) (Glorot and Bengio, 2010).
    fn new(device: &Arc<B>, inputs: usize, outputs: usize, seed: u64) -> Result<Self> {
        let limit = (6.0 / (inputs + outputs) as f64).sqrt();
        let weights: Vec<f32> = (0..inputs * outputs)
            .map(|index| {
                let unit = (hash(seed, index as u64) >> 11) as f64 / (1_u64 << 53) as f64;
                (limit * (2.0 * unit - 1.0)) as f32
            })
            .collect();
        let weight = Tensor::from_slice(device, &weights, [inputs, outputs])?;
        Ok(Self { weight, bias: Tensor::zeros(device, [outputs], DType::F32)? })
    }

    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.matmul(&self.weight)? + &self.bias
    }

    /// The gradient with respect to the input, given that of the output.
    fn backward(&self, gradient: &Tensor<B>) -> Result<Tensor<B>> {
        gradient.matmul(&self.weight.t()?)
    }

    /// A step of gradient descent, added to the weights by the product itself.
    fn step(&mut self, x: &Tensor<B>, gradient: &Tensor<B>, rate: f64) -> Result<()> {
        Tensor::matmul_into(&x.t()?, gradient, -rate, 1, &mut self.weight)?;
        self.bias.sub_assign(&(gradient.sum(0, false)? * rate)?)
    }
}

fn train<B: AllOps + ?Sized>(
    device: &Arc<B>,
    digits: &Digits,
    hidden: Option<usize>,
    options: &Options,
) -> Result<Vec<Epoch>> {
    let images = Tensor::from_slice(device, &digits.pixels, [digits.labels.len(), PIXELS])?;
    let labels = Tensor::from_slice(device, &digits.labels, [digits.labels.len()])?;
    let classes = Tensor::arange(device, 0..CLASSES as i64, DType::I64)?;
    let targets = labels.unsqueeze(-1)?.eq(&classes)?.cast(DType::F32)?;
    let samples = digits.labels.len() - TEST_SAMPLES;
    let (test_images, test_labels) = (images.i(samples..)?, labels.i(samples..)?);

    let mut first = hidden.map(|hidden| Layer::new(device, PIXELS, hidden, options.seed)).transpose()?;
    let mut last = Layer::new(device, hidden.unwrap_or(PIXELS), CLASSES, options.seed + 1)?;
    let mut curve = Vec::new();
    for _ in 0..options.epochs {
        // Summed on the device, so that the host waits for it once an epoch, not once a step.
        let mut total = Tensor::zeros(device, [], DType::F32)?;
        for start in (0..samples).step_by(options.batch as usize) {
            let length = samples.min(start + options.batch as usize) - start;
            let (x, target) = (images.narrow(0, start, length)?, targets.narrow(0, start, length)?);
            let hidden = first.as_ref().map(|layer| layer.forward(&x)?.relu()).transpose()?;
            let features = hidden.as_ref().unwrap_or(&x);
            let logits = last.forward(features)?;
            let log_probabilities = (&logits - logits.logsumexp(-1, true)?)?;
            total.sub_assign(&(&target * &log_probabilities)?.sum((), false)?)?;

            // The loss is the mean of −ln p over the batch; its gradient in the logits is (p − target) / length.
            let gradient = ((log_probabilities.exp()? - &target)? / length as f64)?;
            if let (Some(first), Some(hidden)) = (&mut first, &hidden) {
                let inner = (last.backward(&gradient)? * hidden.gt(0.0)?.cast(DType::F32)?)?;
                first.step(&x, &inner, options.rate)?;
            }
            last.step(features, &gradient, options.rate)?;
        }
        let hidden = first.as_ref().map(|layer| layer.forward(&test_images)?.relu()).transpose()?;
        let logits = last.forward(hidden.as_ref().unwrap_or(&test_images))?;
        let correct = logits.argmax(-1, false)?.eq(&test_labels)?.cast(DType::F64)?;
        let loss = f64::from(total.item::<f32>()?) / samples as f64;
        curve.push(Epoch { loss, accuracy: correct.mean((), false)?.item()? });
    }
    Ok(curve)
}

/// The scans with pixels in 0..=1, shuffled; the last [`TEST_SAMPLES`] are for testing.
struct Digits {
    pixels: Vec<f32>,
    labels: Vec<i64>,
}

impl Digits {
    fn read(seed: u64) -> Result<Self> {
        let packed = include_bytes!("data/digits.csv.gz");
        let fail = |source: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::Argument, "digits", "examples/data/digits.csv.gz is damaged").with_source(source)
        };
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).map_err(|error| fail(error.into()))?;
        let mut lines: Vec<(u64, &str)> =
            text.lines().enumerate().map(|(index, line)| (hash(seed, index as u64), line)).collect();
        lines.sort_unstable();
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for (_, line) in lines {
            let numbers: Vec<u8> = line
                .split(',')
                .map(str::parse)
                .collect::<Result<_, std::num::ParseIntError>>()
                .map_err(|error| fail(error.into()))?;
            let Some((&label, scan)) = numbers.split_last().filter(|(_, scan)| scan.len() == PIXELS) else {
                return Err(fail("a line has another number of columns than 65".into()));
            };
            labels.push(label.into());
            pixels.extend(scan.iter().map(|&pixel| f32::from(pixel) / 16.0));
        }
        Ok(Self { pixels, labels })
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014) of a counter: the same numbers on every platform.
fn hash(seed: u64, counter: u64) -> u64 {
    let mut x = seed
        .wrapping_add(1)
        .wrapping_mul(0xd134_2543_de82_ef95)
        .wrapping_add(counter)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
