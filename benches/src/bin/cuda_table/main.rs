//! One table of the CUDA backend beside PyTorch and the limit of the device's memory, from one run on one GPU:
//!
//! ```sh
//! cargo run --release -p congruent-benches --features cuda --bin cuda_table -- benches/results/h200.md
//! ```
//!
//! A time is the median of batches of calls, each closed by one synchronisation. PyTorch is timed by `torch_cuda.py`, in a
//! process of its own after ours; without Python or PyTorch its column stays empty. The limit is the case's bytes, read
//! once and written once, at the rate of a device-to-device copy in the same run.

mod cases;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;
use std::{env, fs};

use congruent::{AnyBackend, DType, Result, Tensor};
use serde::Deserialize;

use cases::Case;

const TORCH: &str = include_str!("../../../torch_cuda.py");

/// A line of `torch_cuda.py`.
#[derive(Deserialize)]
struct Line {
    op: String,
    dtype: String,
    shape: String,
    /// Milliseconds, or for `version` what ran.
    ms: Option<f64>,
    note: Option<String>,
}

type Times = HashMap<(String, String, String), f64>;

fn main() -> ExitCode {
    match run(env::args().nth(1).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the table, and writes it to `path`.
fn run(path: Option<&str>) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let backend = congruent::backend("cuda:0")?;
    let overheads = overheads(&backend)?;
    let mut ours = Vec::new();
    for case in cases::all() {
        let time = time(&backend, &case);
        match &time {
            Ok(ms) => eprintln!("{} {} {}: {ms:.4} ms", case.op, case.dtype, case.shape),
            Err(error) => eprintln!("{} {} {}: {error}", case.op, case.dtype, case.shape),
        }
        ours.push((case, time.ok()));
    }
    let (torch, note) = torch();
    let text = table(&ours, &overheads, &torch, &note);
    println!("{text}");
    if let Some(path) = path {
        fs::write(path, text)?;
    }
    Ok(())
}

/// The median of five batches, in milliseconds per call.
fn time(backend: &Arc<AnyBackend>, case: &Case) -> Result<f64> {
    let mut call = (case.make)(backend)?;
    let mut batch = |calls: u32| -> Result<f64> {
        backend.synchronize()?;
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        backend.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / f64::from(calls))
    };
    let once = batch(2).and_then(|_| batch(2))?;
    // About ten milliseconds each.
    let calls = (10.0 / once).clamp(3.0, 100.0) as u32;
    median([batch(calls)?, batch(calls)?, batch(calls)?, batch(calls)?, batch(calls)?])
}

fn median(mut times: [f64; 5]) -> Result<f64> {
    times.sort_by(f64::total_cmp);
    Ok(times[2])
}

/// Microseconds per addition of 4 elements in a chain of 1000: until the call returns, and with the device.
fn overheads(backend: &Arc<AnyBackend>) -> Result<Vec<(&'static str, f64)>> {
    let x = Tensor::zeros(backend, [4], DType::F32)?;
    let y = Tensor::ones(backend, [4], DType::F32)?;
    let chain = |in_place: bool| -> Result<[f64; 2]> {
        let (mut host, mut device) = ([0.0; 5], [0.0; 5]);
        for (host, device) in host.iter_mut().zip(&mut device) {
            let mut z = x.add(&y)?;
            backend.synchronize()?;
            let start = Instant::now();
            for _ in 0..1000 {
                if in_place {
                    z.add_assign(&y)?;
                } else {
                    z = z.add(&y)?;
                }
            }
            *host = start.elapsed().as_secs_f64() * 1e3;
            backend.synchronize()?;
            *device = start.elapsed().as_secs_f64() * 1e3;
        }
        Ok([median(host)?, median(device)?])
    };
    let ([host, device], [host_in_place, device_in_place]) = (chain(false)?, chain(true)?);
    Ok(vec![
        ("add of 4 elements, until the call returns", host),
        ("add of 4 elements, with the device", device),
        ("add_assign of 4 elements, until the call returns", host_in_place),
        ("add_assign of 4 elements, with the device", device_in_place),
    ])
}

/// PyTorch's times, and a note on what it is.
fn torch() -> (Times, String) {
    let run = || -> std::io::Result<String> {
        let mut python = Command::new("python3").arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        if let Some(mut input) = python.stdin.take() {
            input.write_all(TORCH.as_bytes())?;
        }
        Ok(String::from_utf8_lossy(&python.wait_with_output()?.stdout).into_owned())
    };
    let output = run().unwrap_or_default();
    let mut note = String::new();
    let mut times = Times::new();
    for line in output.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
        if let Some(text) = line.note {
            note = text;
        }
        if let Some(ms) = line.ms {
            times.insert((line.op, line.dtype, line.shape), ms);
        }
    }
    (times, note)
}

fn table(ours: &[(Case, Option<f64>)], overheads: &[(&str, f64)], torch: &Times, note: &str) -> String {
    let theirs =
        |op: &str, dtype: &str, shape: &str| torch.get(&(op.to_owned(), dtype.to_owned(), shape.to_owned())).copied();
    let copy = ours.iter().find(|(case, _)| case.op == "copy" && case.dtype == DType::F32);
    let mut copies: Vec<f64> = copy.and_then(|(_, time)| *time).into_iter().collect();
    copies.extend(theirs("copy", "f32", "64M"));
    let fastest = copies.into_iter().fold(f64::INFINITY, f64::min);
    let rate = copy.and_then(|(case, _)| case.bytes).unwrap_or(0) as f64 / fastest / 1e9;
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
    let ratio = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => format!("{:.2}", a / b),
        _ => String::new(),
    };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "# {}\n\n`cargo run --release -p congruent-benches --features cuda --bin cuda_table -- benches/results/h200.md`\n\n{note}. \
         Milliseconds per call, medians; the copy rate is {rate:.2} TB/s, read and written, and the limit is a case's bytes \
         at that rate. Ratios above 1 are slower than what they are held against.\n",
        device()
    );
    let _ = writeln!(text, "| case | dtype | shape | limit | ours | PyTorch | ours ÷ limit | ours ÷ PyTorch |");
    let _ = writeln!(text, "|---|---|---|---|---|---|---|---|");
    for (case, time) in ours {
        let dtype = case.dtype.to_string();
        let limit = case.bytes.map(|bytes| bytes as f64 / rate / 1e9);
        let torch = theirs(case.op, &dtype, case.shape);
        let _ = writeln!(
            text,
            "| {} | {dtype} | {} | {} | {} | {} | {} | {} |",
            case.op,
            case.shape,
            number(limit),
            number(*time),
            number(torch),
            ratio(*time, limit),
            ratio(*time, torch)
        );
    }
    let _ = writeln!(text, "\n| cost of a small op, in a chain of 1000 | ours, µs | PyTorch, µs |\n|---|---|---|");
    for (name, micros) in overheads {
        let torch = theirs(name, "f32", "4").map_or_else(String::new, |micros| format!("{micros:.2}"));
        let _ = writeln!(text, "| {name} | {micros:.2} | {torch} |");
    }
    text
}

/// The GPU and its driver, as nvidia-smi names them.
fn device() -> String {
    let query = ["--query-gpu=name,driver_version", "--format=csv,noheader"];
    let output = Command::new("nvidia-smi").args(query).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let line = text.lines().next().unwrap_or("a CUDA device");
    line.replace(", ", ", driver ")
}
