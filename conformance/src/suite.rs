//! Running rows: proptest generates cases, every backend runs each of them, the oracle judges.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::{DType, ErrorKind, Op, Result};
use proptest::strategy::{BoxedStrategy, Just, Strategy as _};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::arithmetic::Arithmetic;
use crate::case::Case;
use crate::expect::{Expect, judge};
use crate::faults::resembling;
use crate::host::{HostTensor, decode};
use crate::laws::LAWS;
use crate::minimise::minimise;
use crate::ops::{Row, cases, data_error, expect_of, misreported, unary};
use crate::replay::{Outcome, recorded};
use crate::report::{Cell, Column, Failure, LawResult, Mark, RecordedResult, Report, describe, describe_briefly};
use crate::spec::Draw;
use crate::values::hash;

/// How much is run.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The seed of every random choice.
    pub seed: u64,
    /// Cases for each op and dtype.
    pub cases: u32,
    /// About how many elements a case has at most.
    pub limit: usize,
    /// Threads that run rows.
    pub threads: usize,
}

impl Profile {
    /// The full tier: more and larger cases, minutes instead of seconds.
    #[must_use]
    pub fn full() -> Self {
        Self { cases: 1024, limit: 1 << 14, ..Self::default() }
    }
}

impl Default for Profile {
    /// The quick tier: under a minute on two cores.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
        Self { seed: 0x00c0_9642, cases: 128, limit: 2048, threads }
    }
}

/// A backend to be checked. Each thread of the suite makes one of its own, since an error that data causes is
/// reported to whoever synchronises next.
pub struct Candidate {
    name: String,
    arithmetic: Arithmetic,
    make: Box<dyn Fn() -> Result<Arc<AnyBackend>> + Send + Sync>,
}

impl Candidate {
    /// A backend that `make` creates.
    pub fn new(name: impl Into<String>, make: impl Fn() -> Result<Arc<AnyBackend>> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), arithmetic: Arithmetic::default(), make: Box::new(make) }
    }

    /// Declares departures from the contract's arithmetic, which widen the bounds.
    #[must_use]
    pub fn declare(mut self, arithmetic: Arithmetic) -> Self {
        self.arithmetic = arithmetic;
        self
    }

    /// What is declared.
    #[must_use]
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// The name under which the report lists it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn column(&self) -> Column {
        Column { name: self.name.clone(), declared: self.arithmetic.to_string() }
    }

    /// A new instance.
    ///
    /// # Errors
    /// What the backend's constructor returns.
    pub fn make(&self) -> Result<Arc<AnyBackend>> {
        (self.make)()
    }
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Runs `rows` on the candidates, all of which see the same cases; `progress` is told of each row that is finished.
///
/// # Errors
/// When a candidate cannot be made.
pub fn check<C: Borrow<Candidate> + Sync>(
    candidates: &[C],
    rows: &[Row],
    profile: &Profile,
    progress: impl Fn(Row) + Sync,
) -> Result<Report> {
    let start = Instant::now();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        let candidates = || candidates.iter().map(Borrow::borrow);
        let backends = candidates().map(Candidate::make).collect::<Result<Vec<_>>>()?;
        while let Some(&row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let cells: Vec<_> = (candidates().zip(&backends))
                .map(|(candidate, backend)| check_cell(candidate, backend.as_ref(), row, profile))
                .collect();
            results.lock().unwrap_or_else(PoisonError::into_inner).extend(cells);
            progress(row);
        }
        Ok(())
    };
    in_parallel(profile.threads, work)?;
    let mut cells = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let row = |cell: &Cell| rows.iter().position(|row| *row == (cell.op, cell.dtype));
    let columns: Vec<_> = candidates.iter().map(|candidate| candidate.borrow().column()).collect();
    let column = |cell: &Cell| columns.iter().position(|column| column.name == cell.backend);
    cells.sort_by_key(|cell| (row(cell), column(cell)));
    Ok(Report::new(profile, columns, cells, start.elapsed()))
}

/// Runs `work` on as many threads, which share what there is to do.
///
/// # Errors
/// The first error of a thread.
pub fn in_parallel<E: Send>(threads: usize, work: impl Fn() -> Result<(), E> + Sync) -> Result<(), E> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(&work)).collect();
        // A worker that panicked has found a bug of the kit or a panic of a backend: either must be seen.
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Tests every law on every candidate.
///
/// # Errors
/// When a candidate cannot be made; an error inside a law breaks that law.
pub fn check_laws<C: Borrow<Candidate>>(candidates: &[C], seed: u64) -> Result<Vec<LawResult>> {
    let mut results = Vec::new();
    for candidate in candidates.iter().map(Borrow::borrow) {
        let backend = candidate.make()?;
        for law in LAWS {
            let broken = (law.test)(&backend, seed).unwrap_or_else(|error| Some(format!("returned an error: {error}")));
            results.push(LawResult { backend: candidate.name().to_owned(), law: law.name, broken });
        }
    }
    Ok(results)
}

/// Runs the cases that come with the kit on every candidate.
///
/// # Errors
/// When a candidate cannot be made.
pub fn check_recorded<C: Borrow<Candidate>>(candidates: &[C]) -> Result<Vec<RecordedResult>> {
    let (replays, mut results) = (recorded(), Vec::new());
    for candidate in candidates.iter().map(Borrow::borrow) {
        let backend = candidate.make()?;
        results.extend(replays.iter().map(|replay| {
            let (verdict, reason) = match replay.run(&backend) {
                Outcome::Pass => (Mark::Pass, None),
                Outcome::Fail(reason) => (Mark::Fail, Some(reason)),
                Outcome::Unsupported => (Mark::Unsupported, None),
                Outcome::NotCovered(what) => (Mark::Unsupported, Some(format!("the kit does not have {what}"))),
            };
            let [name, op, source] = [replay.name(), replay.op(), replay.source()].map(str::to_owned);
            RecordedResult { backend: candidate.name().to_owned(), name, op, source, verdict, reason }
        }));
    }
    Ok(results)
}

fn check_cell(candidate: &Candidate, backend: &AnyBackend, row: Row, profile: &Profile) -> Cell {
    let start = Instant::now();
    let (op, dtype) = row;
    let cell = RefCell::new(Cell::new(candidate.name(), op, dtype));
    // The first case that failed, before it shrinks.
    let first = RefCell::new(None);
    let run = |case: Case| {
        let verdict = run_case(backend, &case, candidate.arithmetic);
        let mut cell = cell.borrow_mut();
        // Shrinking repeats the failing case; it counts once.
        if !cell.failed() {
            cell.record(&case, &verdict);
            if cell.failed() {
                first.replace(Some(case));
            }
        }
        verdict.failure.map_or(Ok(()), |reason| Err(TestCaseError::fail(reason)))
    };
    // A backend that lacks an op says so at once and every time; a few calls show it.
    let lacks = || cell.borrow().unsupported >= UNSUPPORTED;
    let result = stages(row, profile).take_while(|_| !lacks()).try_for_each(|(strategy, cases, seed)| {
        let bytes: Vec<u8> = (0..4).flat_map(|word| hash(seed, word).to_le_bytes()).collect();
        let config = Config { cases, failure_persistence: None, max_shrink_iters: 2048, ..Config::default() };
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
            .run(&strategy, run)
            .map_err(Box::new)
    });
    let mut cell = cell.into_inner();
    match result.map_err(|error| *error) {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => {
            cell.failure = Some(Failure::new(reason.message()));
        }
        Err(TestError::Fail(reason, case)) => {
            let case = minimise(backend, case, candidate.arithmetic);
            // The smaller case may fail in another element.
            let verdict = run_case(backend, &case, candidate.arithmetic);
            // The larger one tells faults apart that are alike on a few elements.
            let cases: Vec<_> = [Some(&case), first.into_inner().as_ref()].into_iter().flatten().cloned().collect();
            let resembles = resembling(&cases.iter().collect::<Vec<_>>(), backend).into_iter().map(|fault| fault.name);
            cell.failure = Some(Failure {
                reason: verdict.failure.unwrap_or_else(|| reason.message().to_owned()),
                wrong: verdict.wrong,
                more: verdict.more,
                resembles: resembles.collect(),
                case: Some(Box::new(case)),
            });
        }
    }
    cell.seconds = start.elapsed().as_secs_f64();
    cell
}

/// What a row runs, each with a number of cases and a seed: every value of a 16-bit dtype for a function of one operand,
/// then the pairwise covering array, then random cases.
pub(crate) fn stages(row: Row, profile: &Profile) -> impl Iterator<Item = (BoxedStrategy<Case>, u32, u64)> {
    let (op, dtype) = row;
    // The row's own stream: rows can be run alone and see the same cases.
    let seed = op.name().bytes().chain(dtype.name().bytes()).fold(profile.seed, |seed, byte| hash(seed, byte.into()));
    let exhaustive = match op {
        Op::Unary(op) if dtype.size() == 2 => Some((Just(unary::exhaustive(op, dtype)).boxed(), 1, seed)),
        _ => None,
    };
    let limit = profile.limit;
    let covering = COVERING.min(profile.cases * 2 / 3);
    let pairs = (0..covering)
        .map(move |index| (cases(row, Draw::covering(limit, index as usize)), 1, hash(seed, u64::from(index))));
    let random = (cases(row, Draw::any(limit)), profile.cases - covering, seed);
    exhaustive.into_iter().chain(pairs).chain([random])
}

/// Cells of the covering array.
const COVERING: u32 = 84;

/// Calls after which an op counts as lacking.
const UNSUPPORTED: usize = 8;

/// Entries of a histogram of error over bound; the last one holds what is smaller still.
pub const BUCKETS: usize = 24;

/// What the judge says of one run.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Why the run is wrong; `None` when it is right or unsupported.
    pub failure: Option<String>,
    /// Elements that are wrong.
    pub wrong: usize,
    /// The first of them but for the very first, which `failure` describes.
    pub more: Vec<String>,
    /// Whether the backend said that it lacks the op.
    pub unsupported: bool,
    /// Elements judged.
    pub elements: usize,
    /// Elements of which nothing was known.
    pub indeterminate: usize,
    /// Elements inside their bound whose error is above what is likely.
    pub loose: usize,
    /// Elements by the power of two of their error over its bound: entry i counts ratios in (2^-(i+1), 2^-i].
    pub histogram: [usize; BUCKETS],
    /// The greatest error in units in the last place among accepted elements.
    pub ulps: f64,
    /// The greatest error over its bound among accepted elements.
    pub ratio: f64,
}

/// Wrong elements that are described after the first.
const MORE: usize = 4;

impl Verdict {
    fn fail(reason: impl Into<String>) -> Self {
        Self { failure: Some(reason.into()), ..Self::default() }
    }
}

/// Runs a case and judges everything about it: support, errors, memory outside the view, inputs, values.
#[must_use]
pub fn run_case(backend: &AnyBackend, case: &Case, arithmetic: Arithmetic) -> Verdict {
    let supported = backend.supports(case.op(), case.dtype());
    let outcome = match case.run(backend) {
        Ok(outcome) => outcome,
        Err(error) if error.kind() == ErrorKind::Unsupported && !supported => {
            return Verdict { unsupported: true, ..Verdict::default() };
        }
        Err(error) => return Verdict::fail(format!("returned an error: {error}")),
    };
    if !supported {
        return Verdict::fail("ran, although `supports` says that the backend lacks the op");
    }
    if let Some(reason) = misreported(outcome.reported, data_error(case)) {
        return Verdict::fail(reason);
    }
    match outcome.damage {
        Some(damage) => Verdict::fail(damage),
        None => judge_output(case, &outcome.out, &expect_of(case, arithmetic), arithmetic),
    }
}

fn judge_output(case: &Case, out: &HostTensor, expected: &[Expect], arithmetic: Arithmetic) -> Verdict {
    let mut verdict = Verdict { elements: expected.len(), ..Verdict::default() };
    let dtype = case.out.dtype;
    for (index, (bits, expect)) in out.view_bits().into_iter().zip(expected).enumerate() {
        let judged = judge(dtype, bits, expect);
        verdict.indeterminate += usize::from(judged.indeterminate);
        verdict.loose += usize::from(judged.loose);
        if judged.accepted {
            verdict.ulps = verdict.ulps.max(judged.ulps);
            verdict.ratio = verdict.ratio.max(judged.ratio);
            if judged.bounded && judged.ratio > 0.0 {
                verdict.histogram[(-judged.ratio.log2()).floor().clamp(0.0, BUCKETS as f64 - 1.0) as usize] += 1;
            }
        } else if !flushed(dtype, bits, expect, arithmetic) {
            verdict.wrong += 1;
            match verdict.failure {
                None => verdict.failure = Some(describe(case, index, bits, expect, &judged)),
                Some(_) if verdict.more.len() < MORE => {
                    verdict.more.push(describe_briefly(case, index, bits, expect, &judged));
                }
                Some(_) => {}
            }
        }
    }
    verdict
}

/// Whether a zero stands for a subnormal, on a backend that declares so.
fn flushed(dtype: DType, bits: u64, expect: &Expect, arithmetic: Arithmetic) -> bool {
    let value = match expect {
        Expect::Bits(expected) => decode(dtype, *expected).to_f64(),
        Expect::Near { value, .. } => value.hi,
        Expect::Any | Expect::Nan => return false,
    };
    dtype.is_float() && decode(dtype, bits).to_f64() == 0.0 && arithmetic.flushes(dtype, value)
}

/// Whether a row is selected by op name or family, and dtype; an empty list selects all.
#[must_use]
pub fn selected((op, dtype): Row, ops: &[String], dtypes: &[DType]) -> bool {
    let named = |name: &String| {
        *name == op.name() || *name == op.family() || matches!(op, Op::Cast(to) if *name == format!("cast_{to}"))
    };
    (ops.is_empty() || ops.iter().any(named)) && (dtypes.is_empty() || dtypes.contains(&dtype))
}
