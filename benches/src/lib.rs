//! Congruent's backends beside each other, beside what the machine can do, and beside other libraries.
//!
//! ```sh
//! cargo run --release -p congruent-benches -- report                  # every case on every backend present
//! cargo run --release -p congruent-benches -- report matmul f32       # some of them
//! cargo run --release -p congruent-benches -- compare old.json new.json
//! cargo bench -p congruent-benches -- matmul                          # the same cases in criterion
//! ```
//!
//! With `--features cuda` every CUDA device is among the backends. A case is written once, in [`cases`]: its inputs, the
//! call, and the bytes and additions that it needs at the least. [`measure`] times it on each [`runner`] in turn,
//! [`limits`] says how fast it could be, and [`table`] and [`html`] show the [`document`] that comes of it.

#![forbid(unsafe_code)]

pub mod case;
pub mod cases;
pub mod compare;
pub mod document;
pub mod environment;
pub mod figures;
pub mod html;
pub mod limits;
pub mod machine;
pub mod measure;
pub mod runner;
pub mod select;
pub mod stats;
pub mod table;
#[cfg(test)]
mod testing;
pub mod worker;
