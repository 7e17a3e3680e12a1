//! Tells the crate which compiler builds it, for the environment of reports.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = Command::new(rustc).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    println!("cargo::rustc-env=CONGRUENT_RUSTC={}", String::from_utf8_lossy(&version).trim());
    println!("cargo::rerun-if-changed=build.rs");
}
