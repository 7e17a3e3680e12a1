//! Linear layers: the provided composition, which runs on the other ops of this backend. The bias and the activation pass
//! over sums that are still in the cache for all but large layers.

use congruent_backend_api::LinearOps;

use crate::backend::Cpu;

impl LinearOps for Cpu {}
