//! `congruent-benches`: measures, renders and compares reports.
//!
//! Exit codes: 0 done, 1 a case failed on a backend of Congruent or became slower, 2 the command could not be carried out.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use congruent_benches::case::Case;
use congruent_benches::compare::Comparison;
use congruent_benches::document::{Document, Row, SCHEMA};
use congruent_benches::environment::Environment;
use congruent_benches::machine::Machine;
use congruent_benches::measure::{Effort, measure_all};
use congruent_benches::runner::{Ours, Runner};
use congruent_benches::select::select;
use congruent_benches::worker::Worker;
use congruent_benches::{cases, html, table};
use indicatif::{ProgressBar, ProgressStyle};

/// Times Congruent's backends beside each other, beside what the machine can do, and beside other libraries.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

const EXAMPLES: &str = "\
Examples:
  congruent-benches report                          every case on every backend present
  congruent-benches report matmul conv f32          some families, one dtype
  congruent-benches report --quick --out target/q   a first look
  congruent-benches report --backend cuda:0         one backend
  congruent-benches report --peers                  beside candle, burn, ndarray, faer, gemm and matrixmultiply
  congruent-benches report --worker ./my_library    beside a library of your own (src/worker.rs has the protocol)
  congruent-benches compare old.json new.json       what became slower beyond noise

Exit codes: 0 done, 1 a case failed on a backend of Congruent or became slower, 2 the command could not be carried out.";

#[derive(Debug, Subcommand)]
enum Action {
    /// Measure, and write report.json, report.md and report.html
    Report(ReportArgs),
    /// Compare two reports; exit code 1 when something became slower beyond noise
    Compare(CompareArgs),
    /// Write the table and the page of a report.json again
    Render(RenderArgs),
    /// Print the names of the cases
    List {
        /// Families, ops, dtypes, shapes, or whole names [default: all]
        filter: Vec<String>,
    },
}

#[derive(Args, Debug)]
struct ReportArgs {
    /// Families, ops, dtypes, shapes, or whole names [default: all]
    filter: Vec<String>,
    /// Backends, such as cpu or cuda:0 [default: all present]
    #[arg(long, value_delimiter = ',')]
    backend: Vec<String>,
    /// Shorter and fewer repetitions, and no large case
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Time CPUs on the cases for GPUs too (minutes)
    #[arg(long)]
    full: bool,
    /// A worker process to time beside, as a command line; may be given several times
    #[arg(long, value_name = "COMMAND")]
    worker: Vec<String>,
    /// Build benches/peers, and time candle, burn, ndarray, faer, gemm and matrixmultiply beside (minutes the first time)
    #[arg(long)]
    peers: bool,
    /// Leave PyTorch out, which is timed beside on each device where python3 has it
    #[arg(long)]
    no_torch: bool,
    /// Where the report goes
    #[arg(long, default_value = "target/benches")]
    out: PathBuf,
}

#[derive(Args, Debug)]
struct CompareArgs {
    /// The older report.json
    old: PathBuf,
    /// The newer report.json
    new: PathBuf,
    /// The least change that counts, in percent
    #[arg(long, default_value_t = 5.0)]
    tolerance: f64,
    /// Print every case, not only changes
    #[arg(long)]
    all: bool,
}

#[derive(Args, Debug)]
struct RenderArgs {
    /// A report.json
    file: PathBuf,
    /// Where report.md and report.html go [default: only the terminal's table]
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Action::Report(args) => report(&args),
        Action::Compare(args) => compare(&args),
        Action::Render(args) => render(&args),
        Action::List { filter } => list(&filter),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("congruent-benches: {message}");
            ExitCode::from(2)
        }
    }
}

/// Measures what the arguments select; whether all of it ran on Congruent's backends.
fn report(args: &ReportArgs) -> Result<bool, String> {
    let mut chosen = select(cases::all(), &args.filter)?;
    if args.quick {
        chosen.retain(|case| case.elements <= 1 << 20 && case.flops.unwrap_or(0) <= 1 << 31);
    }
    let chosen: Vec<Case> = cases::limits().into_iter().chain(chosen).collect();
    let mut runners = backends(&args.backend)?;
    runners.extend(workers(args, &runners)?);
    let names: Vec<String> = runners.iter().map(|runner| runner.identity().name()).collect();
    eprintln!("{} cases on {}", chosen.len(), names.join(", "));
    let effort = if args.quick { Effort::QUICK } else { Effort::USUAL };
    let environment = Environment::of_this_process();
    let identities: Vec<_> = runners.iter().map(|runner| runner.identity().clone()).collect();
    let document = |rows: &[Row]| {
        let rows = rows.iter().filter(|row| !row.times.is_empty()).cloned().collect();
        let (environment, runners) = (environment.clone(), identities.clone());
        Document { schema: SCHEMA, command: command(), environment, runners, rows }
    };
    let bar = progress(chosen.len() * effort.passes);
    let begin = |case: &Case| {
        bar.set_message(case.spec.name());
        bar.inc(1);
    };
    let rows = measure_all(&chosen, &mut runners, effort, args.full, begin, |pass, rows| {
        if bar.is_hidden() {
            eprintln!("pass {} of {} is in {}", pass + 1, effort.passes, args.out.display());
        }
        let document = document(rows);
        write(&args.out.join("report.json"), &document.to_json()?)?;
        pages(&document, &args.out)
    })?;
    bar.finish_and_clear();
    let document = document(&rows);
    print(&table::terminal(&document))?;
    print(&format!("{}: report.html, report.md, report.json", args.out.display()))?;
    let failed = document.failures().any(|(_, time, _)| document.ours().any(|ours| ours.library == time.library));
    Ok(!failed)
}

/// The named backends, or all present; and the machine where the CPU is one of them.
fn backends(names: &[String]) -> Result<Vec<Box<dyn Runner>>, String> {
    let backends = match names {
        [] => congruent::backends(),
        _ => names.iter().map(|name| congruent::backend(name)).collect::<Result<_, _>>().map_err(|e| e.to_string())?,
    };
    let cpu = backends.iter().any(|backend| backend.name() == "cpu");
    let ours = backends.into_iter().map(|backend| Box::new(Ours::new(backend)) as Box<dyn Runner>);
    Ok(ours.chain(cpu.then(|| Box::new(Machine::default()) as Box<dyn Runner>)).collect())
}

/// The workers asked for, which must start, and PyTorch, which may be missing.
fn workers(args: &ReportArgs, backends: &[Box<dyn Runner>]) -> Result<Vec<Box<dyn Runner>>, String> {
    let mut lines = args.worker.clone();
    if args.peers && backends.iter().any(|runner| runner.identity().device == "cpu") {
        lines.extend(peers()?);
    }
    let mut workers: Vec<Box<dyn Runner>> = Vec::new();
    for line in &lines {
        let mut words = line.split_whitespace();
        let program = words.next().ok_or("--worker needs a command")?;
        let worker = Worker::start(Command::new(program).args(words), PATIENCE);
        workers.push(Box::new(worker.map_err(|error| format!("worker `{line}`: {error}"))?));
    }
    let devices = backends.iter().map(|runner| runner.identity()).filter(|runner| runner.is_ours());
    for device in devices.map(|runner| runner.device.clone()).filter(|_| !args.no_torch) {
        let script = include_str!("../torch_worker.py");
        match Worker::start(Command::new("python3").args(["-c", script, &device]), PATIENCE) {
            Ok(worker) => workers.push(Box::new(worker)),
            Err(error) => eprintln!("without PyTorch on {device}: {error}"),
        }
    }
    Ok(workers)
}

/// How long a worker may take for one answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Builds the worker of the Rust libraries; a command for each of them.
fn peers() -> Result<Vec<String>, String> {
    // Cargo sets the variable for what it runs.
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("benches"), PathBuf::from);
    let folder = folder.join("peers");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--manifest-path"]).arg(folder.join("Cargo.toml"));
    // A target folder of the caller's would be that of another workspace.
    build.arg("--target-dir").arg(folder.join("target"));
    match build.status() {
        Ok(status) if status.success() => {}
        Ok(_) => return Err(format!("{} does not build", folder.display())),
        Err(error) => return Err(format!("cargo: {error}; --worker starts a worker that is built already")),
    }
    let program = folder.join("target/release/congruent-peers");
    let names = ["burn-flex", "burn-ndarray", "candle", "faer", "gemm", "matrixmultiply", "ndarray"];
    Ok(names.map(|name| format!("{} {name}", program.display())).to_vec())
}

fn compare(args: &CompareArgs) -> Result<bool, String> {
    let (old, new) = (Document::read(&args.old)?, Document::read(&args.new)?);
    let comparison = Comparison::new(&old, &new, args.tolerance / 100.0);
    print(&comparison.text(args.all))?;
    Ok(comparison.regressions().next().is_none())
}

fn render(args: &RenderArgs) -> Result<bool, String> {
    let document = Document::read(&args.file)?;
    match &args.out {
        Some(out) => pages(&document, out)?,
        None => print(&table::terminal(&document))?,
    }
    Ok(true)
}

fn list(filter: &[String]) -> Result<bool, String> {
    let names: Vec<String> = select(cases::all(), filter)?.iter().map(|case| case.spec.name()).collect();
    print(&names.join("\n")).map(|()| true)
}

/// What this process was called with, as one would type it.
fn command() -> String {
    let features = if cfg!(feature = "cuda") { " --features cuda" } else { "" };
    let args: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo run --release -p congruent-benches{features} -- {}", args.join(" "))
}

fn pages(document: &Document, out: &Path) -> Result<(), String> {
    write(&out.join("report.md"), &table::markdown(document))?;
    write(&out.join("report.html"), &html::page(document))
}

/// Writes text into a file, making its folder.
fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| fs::write(path, text)).map_err(|error| format!("{}: {error}", path.display()))
}

/// Prints to the standard output; a reader that has gone away, such as `head`, is no error.
fn print(text: &str) -> Result<(), String> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn progress(cases: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed} {msg}");
    let bar = ProgressBar::new(cases as u64);
    if let Ok(style) = style { bar.with_style(style) } else { bar }
}
