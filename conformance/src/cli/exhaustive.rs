//! Functions of one f32 operand on all 2^32 values.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use congruent_backend_api::{DType, Op};
use congruent_conformance::ops::{Row, unary};
use congruent_conformance::suite::{Candidate, Verdict, in_parallel, run_case};

use super::check::progress;
use super::print;

/// Values in one case.
const CHUNK: u64 = 1 << 20;

/// Runs the selected functions; whether all values are within their bounds.
pub(super) fn run(candidates: &[Candidate], rows: &[Row]) -> Result<bool, String> {
    let ops: Vec<_> = rows
        .iter()
        .filter_map(|row| match row {
            (Op::Unary(op), DType::F32) => Some(*op),
            _ => None,
        })
        .collect();
    if ops.is_empty() {
        return Err("--exhaustive runs functions of one f32 operand; select some with --op".to_owned());
    }
    let mut agree = true;
    for op in ops {
        for candidate in candidates {
            let worst = sweep(candidate, |chunk| unary::f32_values(op, chunk * CHUNK, CHUNK as usize))?;
            let verdict = match &worst.failure {
                None => format!("pass, worst {:.3} ULP, error ÷ bound {:.3}", worst.ulps, worst.ratio),
                Some(reason) => format!("FAIL {reason}"),
            };
            agree &= worst.failure.is_none();
            print(&format!("{} f32 on {}: {} values, {verdict}", op.name(), candidate.name(), worst.elements))?;
        }
    }
    Ok(agree)
}

/// All chunks on every core; the worst of their verdicts.
fn sweep(
    candidate: &Candidate,
    case: impl Fn(u64) -> congruent_conformance::case::Case + Sync,
) -> Result<Verdict, String> {
    let chunks = (1_u64 << 32) / CHUNK;
    let (next, total, bar) = (AtomicU64::new(0), Mutex::new(Verdict::default()), progress(chunks as usize));
    let work = || -> Result<(), String> {
        let backend = candidate.make().map_err(|error| error.to_string())?;
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                return Ok(());
            }
            let verdict = run_case(backend.as_ref(), &case(chunk), candidate.arithmetic());
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.elements += verdict.elements;
            total.ulps = total.ulps.max(verdict.ulps);
            total.ratio = total.ratio.max(verdict.ratio);
            total.failure = total.failure.take().or(verdict.failure);
            bar.inc(1);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    in_parallel(threads, work)?;
    bar.finish_and_clear();
    Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner))
}
