//! A whole backend in two files, written against the public contract alone: storage and loops (`backend.rs`), arithmetic
//! (`arithmetic.rs`). It is slow and passes the kit; all that is provided, the statistics and linear layers, is inherited.
//!
//! ```sh
//! cargo run --release -p congruent-conformance --example minimal              # every trial passes
//! cargo run --release -p congruent-conformance --example minimal -- --broken  # two planted bugs: nine trials fail
//! cargo run --release -p congruent-conformance --example minimal -- reduce::  # a part, as with any test
//! ```

mod arithmetic;
mod backend;

use congruent_conformance::trials::Harness;
use libtest_mimic::Arguments;

use backend::Minimal;

fn main() {
    let (broken, arguments): (Vec<_>, Vec<_>) = std::env::args().partition(|argument| argument == "--broken");
    let broken = !broken.is_empty();
    let harness = Harness::new("minimal", move || Ok(Minimal::new(broken)));
    libtest_mimic::run(&Arguments::from_iter(arguments), harness.trials()).exit()
}
