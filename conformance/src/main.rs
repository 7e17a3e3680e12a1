//! `conformance`: checks every backend present against the oracle, and replays single cases.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
