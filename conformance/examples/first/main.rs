//! The first backend of `docs/write-a-backend.md` and its trials. `f32::max` drops NaN, so that one trial fails.

#[expect(unreachable_pub, reason = "in the guide it is a crate of its own")]
mod backend;

use backend::Plain;
use congruent_conformance::partial::Partial;
use congruent_conformance::trials::Harness;

fn main() {
    Harness::new("plain", || Ok(Partial::new(Plain).copy().binary())).run()
}
