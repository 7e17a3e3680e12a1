//! var, std, logsumexp and norm: the provided composition, which runs on the other ops of this backend.

use congruent_backend_api::StatisticOps;

use crate::backend::Cpu;

impl StatisticOps for Cpu {}
