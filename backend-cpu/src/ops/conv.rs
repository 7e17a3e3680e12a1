//! Convolutions: the provided composition. Its products are those of this backend, over windows that it copies.

use congruent_backend_api::ConvOps;

use crate::backend::Cpu;

impl ConvOps for Cpu {}
