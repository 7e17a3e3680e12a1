//! var, std, logsumexp and norm: the provided composition, which runs on the other ops of this backend.

use congruent_backend_api::StatisticOps;

use crate::device::Cuda;

impl StatisticOps for Cuda {}
