//! The command line: arguments, exit codes, and which backends are present.
//!
//! Exit codes: 0 all agree, 1 something disagrees, 2 the command could not be carried out.

mod check;
mod diff;
mod exhaustive;
mod faults;
mod report;
mod table;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use congruent_backend_api::erase::Erase;
use congruent_backend_api::{DType, Error, ErrorKind};
use congruent_backend_cpu::Cpu;
use congruent_backend_cuda::Cuda;
use congruent_conformance::onnx::Detail;
use congruent_conformance::suite::Candidate;

/// Proves that tensor backends agree: every op, dtype and layout against one oracle, inside derived error bounds.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    check: CheckArgs,
}

const EXAMPLES: &str = "\
Examples:
  conformance                                 check every backend present (about a minute)
  conformance --op matmul --dtype f32         one row of the table
  conformance --op reduce --cases 1000        a whole family, thoroughly
  conformance --backend cpu --seed 7          one backend, other random cases
  conformance --tier soak --minutes 60        new random cases for an hour
  conformance --op exp --exhaustive           all 2^32 values of f32
  conformance replay conformance/cases        run recorded cases
  conformance onnx wheels/onnx                run the node tests of ONNX
  conformance diff old.json new.json          what became worse between two reports
  conformance faults                          see that the kit catches what it should

Exit codes: 0 all agree, 1 something disagrees, 2 the command could not be carried out.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Check backends against the oracle (what runs without a command)
    Check(CheckArgs),
    /// Test the kit itself: every seeded fault must be caught
    Faults(FaultsArgs),
    /// Run replay files: .json, .jsonl, gzip-compressed or plain, or directories of them
    Replay(ReplayArgs),
    /// Run the node tests of ONNX: evidence of a third party
    Onnx(OnnxArgs),
    /// Render a report again from its JSON: the table, a page of HTML, or XML for JUnit
    Report(ReportArgs),
    /// Compare two reports: what became worse
    Diff(DiffArgs),
    /// Tables of what backends support, for a README
    Support(SupportArgs),
    /// What bounds the error of every op for every dtype
    Bounds,
    /// List the backends that are present
    Backends,
}

#[derive(Args, Debug)]
struct CheckArgs {
    /// Backends to check, such as cpu or cuda:0 [default: all present]
    #[arg(long, value_delimiter = ',')]
    backend: Vec<String>,
    /// Ops or families to check, such as exp, matmul or reduce [default: all]
    #[arg(long, value_delimiter = ',')]
    op: Vec<String>,
    /// Dtypes of the inputs to check [default: all]
    #[arg(long, value_delimiter = ',')]
    dtype: Vec<DType>,
    /// Seed of every random choice, decimal or 0x hexadecimal
    #[arg(long, value_parser = seed)]
    seed: Option<u64>,
    /// Cases for each op and dtype
    #[arg(long)]
    cases: Option<u32>,
    /// How much to run
    #[arg(long, value_enum, default_value_t = Tier::Quick)]
    tier: Tier,
    /// Minutes of the soak tier
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Run functions of one f32 operand on all 2^32 values (minutes for each: choose them with --op)
    #[arg(long)]
    exhaustive: bool,
    /// Print a line for every op, dtype and backend
    #[arg(long)]
    long: bool,
    /// Also test the kit itself on the first backend, and report the seeded faults that it catches
    #[arg(long)]
    faults: bool,
    /// Where the report (HTML, JSON, JUnit) and the failing cases go
    #[arg(long, default_value = "target/conformance")]
    out: PathBuf,
}

/// How much to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Tier {
    /// Under a minute
    Quick,
    /// Some minutes: more and larger cases
    Full,
    /// Round after round with new seeds, for --minutes
    Soak,
}

#[derive(Args, Debug)]
struct FaultsArgs {
    /// The correct backend that is made wrong
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// Cases for each op and dtype
    #[arg(long, default_value_t = Self::CASES)]
    cases: u32,
    /// Run only faults whose description contains this
    #[arg(long, default_value = "")]
    only: String,
}

impl FaultsArgs {
    /// Cases for each op and dtype.
    const CASES: u32 = 64;
}

#[derive(Args, Debug)]
struct ReplayArgs {
    /// Files or directories
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Backends to run on, such as cpu or cuda:0 [default: all present]
    #[arg(long, value_delimiter = ',')]
    backend: Vec<String>,
    /// Print only counts for each op, and failures
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args, Debug)]
struct OnnxArgs {
    /// The folder of an unpacked wheel of onnx 1.22.0, or of the tests themselves
    folder: PathBuf,
    /// Backends to run on, such as cpu or cuda:0 [default: all present]
    #[arg(long, value_delimiter = ',')]
    backend: Vec<String>,
    /// Print only totals, and failures
    #[arg(long, short, conflicts_with = "long")]
    quiet: bool,
    /// Print a line for every test
    #[arg(long)]
    long: bool,
}

#[derive(Args, Debug)]
struct ReportArgs {
    /// A report.json
    file: PathBuf,
    /// Write a page of HTML
    #[arg(long)]
    html: Option<PathBuf>,
    /// Write XML for JUnit
    #[arg(long)]
    junit: Option<PathBuf>,
    /// Print a line for every op, dtype and backend
    #[arg(long)]
    long: bool,
}

#[derive(Args, Debug)]
struct DiffArgs {
    /// The older report.json
    before: PathBuf,
    /// The newer report.json
    after: PathBuf,
}

#[derive(Args, Debug)]
struct SupportArgs {
    /// A report.json of all rows
    file: PathBuf,
    /// Write the tables between the markers of this file
    #[arg(long, value_name = "README.md", conflicts_with = "check")]
    write: Option<PathBuf>,
    /// Fail when the tables of this file are stale; only backends of the report are looked at
    #[arg(long, value_name = "README.md")]
    check: Option<PathBuf>,
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => check::run(&cli.check),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Faults(args)) => faults::run(&args),
        Some(Command::Replay(args)) => replay(&args),
        Some(Command::Onnx(args)) => onnx(&args),
        Some(Command::Report(args)) => report::render(&args),
        Some(Command::Diff(args)) => diff::run(&args),
        Some(Command::Support(args)) => report::support(&args),
        Some(Command::Bounds) => print(&table::bounds().trim_fmt()).map(|()| true),
        Some(Command::Backends) => {
            let names: Vec<_> = present().iter().map(|candidate| candidate.name().to_owned()).collect();
            print(&names.join("\n")).map(|()| true)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("conformance: {message}");
            ExitCode::from(2)
        }
    }
}

fn replay(args: &ReplayArgs) -> Result<bool, String> {
    let candidates = candidates(&args.backend)?;
    let mut lines = Vec::new();
    let result = congruent_conformance::replay::command(&args.paths, &candidates, args.quiet, &mut lines);
    print(String::from_utf8_lossy(&lines).trim_end())?;
    result.map_err(|error| error.to_string())
}

fn onnx(args: &OnnxArgs) -> Result<bool, String> {
    let candidates = candidates(&args.backend)?;
    let detail = match (args.quiet, args.long) {
        (true, _) => Detail::Quiet,
        (false, false) => Detail::Reasons,
        (false, true) => Detail::Tests,
    };
    let mut lines = Vec::new();
    let agrees = congruent_conformance::onnx::command(&args.folder, &candidates, detail, &mut lines);
    let agrees = agrees.map_err(|error| error.to_string())?;
    print(String::from_utf8_lossy(&lines).trim_end()).map(|()| agrees)
}

/// Prints to the standard output; a reader that has gone away, such as `head`, is no error.
fn print(text: &str) -> Result<(), String> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{error}; give a decimal or 0x hexadecimal number below 2^64"))
}

/// The CPU, and every CUDA device.
fn present() -> Vec<Candidate> {
    let cpu = Candidate::new("cpu", || Ok(Arc::new(Erase(Cpu::new()))));
    let devices = Cuda::device_count().unwrap_or(0);
    let cuda = (0..devices)
        .map(|ordinal| Candidate::new(format!("cuda:{ordinal}"), move || Ok(Arc::new(Erase(Cuda::new(ordinal)?)))));
    std::iter::once(cpu).chain(cuda).collect()
}

/// The named backends, or all present.
fn candidates(names: &[String]) -> Result<Vec<Candidate>, String> {
    let mut present = present();
    if names.is_empty() {
        return Ok(present);
    }
    names
        .iter()
        .map(|name| {
            let at = present.iter().position(|candidate| candidate.name() == name);
            at.map(|at| present.swap_remove(at)).ok_or_else(|| absent(name).to_string())
        })
        .collect()
}

fn absent(name: &str) -> Error {
    let names: Vec<_> = present().iter().map(|candidate| candidate.name().to_owned()).collect();
    let why = match Cuda::device_count() {
        Err(error) if name.starts_with("cuda") => format!("; CUDA: {}", error.message()),
        _ => String::new(),
    };
    Error::new(ErrorKind::Argument, "backend", format!("`{name}` is not present; there are {}{why}", names.join(", ")))
}
