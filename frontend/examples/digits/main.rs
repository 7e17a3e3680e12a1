//! Learns to read handwritten digits: 1,797 real scans, a softmax classifier and a two-layer perceptron, or a small
//! convolutional network, gradients written by hand, on one backend or on several side by side.
//!
//! `cargo run --release --example digits -- --backend all --model cnn`

mod cnn;
mod models;
mod scans;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use congruent::{AllOps, AnyBackend, DType, Error, ErrorKind, Result, Tensor, backend, backends};

use cnn::Network;
use models::{Model, Perceptron};
use scans::{CLASSES, Digits, PIXELS, TEST_SAMPLES};

/// Learns to read handwritten digits on one or several backends, and compares the loss curves.
///
/// Exits with 0 when the perceptron reads at least 95 % of the test scans, or the network 98 %, and the backends agree, with 1 when not, and
/// with 2 when a backend cannot be used.
#[derive(Parser)]
struct Options {
    /// Where to run: `cpu`, `cuda:0`, several separated by commas, or `all` that are present
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    backend: Vec<String>,
    /// What to train
    #[arg(long, value_enum, default_value_t = Kind::Mlp)]
    model: Kind,
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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A softmax classifier, and a two-layer perceptron
    Mlp,
    /// A convolutional network
    Cnn,
}

impl Kind {
    /// How far curves of backends that only round differently may part.
    fn tolerance(self) -> f64 {
        match self {
            // Over 20 epochs the curves in f32 stay within 3e-7 of those in f64; a wrong gradient is far above.
            Self::Mlp => 1e-5,
            // A rounding may let another element of a window be the greatest: a rate changed by 1e-7 of itself moves the
            // curve by 4e-5.
            Self::Cnn => 2e-4,
        }
    }
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
    let hidden = Some(options.hidden as usize);
    let models = match options.model {
        Kind::Mlp => vec![("softmax classifier", None, None), ("two-layer perceptron", hidden, Some(0.95))],
        Kind::Cnn => vec![("convolutional network", None, Some(0.98))],
    };
    let (tolerance, mut passed) = (options.model.tolerance(), true);
    for (title, hidden, wanted) in models {
        let curve = |device: &Arc<AnyBackend>| match options.model {
            Kind::Mlp => train(device, &digits, Perceptron::new(device, hidden, options.seed)?, options),
            Kind::Cnn => train(device, &digits, Network::new(device, options.seed)?, options),
        };
        let curves: Vec<_> = backends.iter().map(curve).collect::<Result<_>>()?;
        print_curves(title, backends, &curves);
        if let Some(wanted) = wanted {
            let worst = curves.iter().filter_map(|curve| curve.last()).map(|epoch| epoch.accuracy).fold(1.0, f64::min);
            println!("test accuracy {worst:.4}, wanted {wanted}: {}", verdict(worst >= wanted));
            passed &= worst >= wanted;
        }
        if let [first, others @ ..] = &curves[..]
            && !others.is_empty()
        {
            let gaps = others.iter().flat_map(|other| other.iter().zip(first)).map(|(a, b)| (a.loss - b.loss).abs());
            // `f64::max` would drop a NaN, which must fail the comparison.
            let worst = gaps.fold(0.0, |worst, gap| if gap <= worst { worst } else { gap });
            println!(
                "largest difference of the losses {worst:.2e}, tolerance {tolerance:.0e}: {}",
                verdict(worst <= tolerance)
            );
            passed &= worst <= tolerance;
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

fn train<B: AllOps + ?Sized>(
    device: &Arc<B>,
    digits: &Digits,
    mut model: impl Model<B>,
    options: &Options,
) -> Result<Vec<Epoch>> {
    let images = Tensor::from_slice(device, &digits.pixels, [digits.labels.len(), PIXELS])?;
    let labels = Tensor::from_slice(device, &digits.labels, [digits.labels.len()])?;
    let classes = Tensor::arange(device, 0..CLASSES as i64, DType::I64)?;
    let targets = labels.unsqueeze(-1)?.eq(&classes)?.cast(DType::F32)?;
    let samples = digits.labels.len() - TEST_SAMPLES;
    let (test_images, test_labels) = (images.i(samples..)?, labels.i(samples..)?);

    let mut curve = Vec::new();
    for _ in 0..options.epochs {
        // Summed on the device, so that the host waits for it once an epoch, not once a step.
        let mut total = Tensor::zeros(device, [], DType::F32)?;
        for start in (0..samples).step_by(options.batch as usize) {
            let length = samples.min(start + options.batch as usize) - start;
            let (x, target) = (images.narrow(0, start, length)?, targets.narrow(0, start, length)?);
            let (logits, seen) = model.forward(&x)?;
            let log_probabilities = (&logits - logits.logsumexp(-1, true)?)?;
            total.sub_assign(&(&target * &log_probabilities)?.sum((), false)?)?;

            // The loss is the mean of −ln p over the batch; its gradient in the logits is (p − target) / length.
            let gradient = ((log_probabilities.exp()? - &target)? / length as f64)?;
            model.step(&x, &seen, &gradient, options.rate)?;
        }
        let (logits, _) = model.forward(&test_images)?;
        let correct = logits.argmax(-1, false)?.eq(&test_labels)?.cast(DType::F64)?;
        let loss = f64::from(total.item::<f32>()?) / samples as f64;
        curve.push(Epoch { loss, accuracy: correct.mean((), false)?.item()? });
    }
    Ok(curve)
}
