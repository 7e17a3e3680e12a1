//! The CPU backend's verdict on every op and dtype.

use congruent_backend_cpu::Cpu;
use congruent_conformance::trials::Harness;

fn main() {
    Harness::new("cpu", || Ok(Cpu::new())).cases(32).run()
}
