//! Runs, threads and errors: what happened before, or elsewhere, has no influence.

use std::thread;

use congruent::api::erase::AnyBackend;
use congruent::{DType, ErrorKind, Result, Tensor};

use super::{Backend, differ, make};
use crate::values::Class;

pub(super) fn determinism(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::WideExponent, &[70, 1025], seed)?;
    let run = || -> Result<Vec<Tensor<AnyBackend>>> {
        Ok(vec![x.sum((), false)?, x.sum(0, false)?, x.mean(1, false)?, x.matmul(&x.t()?)?, x.logsumexp(0, false)?])
    };
    let first = run()?;
    for round in 0..2 {
        // Another history of allocations before each repetition.
        let _held = Tensor::zeros(backend, [1000 * (round + 1)], DType::U8)?;
        for (before, after) in first.iter().zip(run()?) {
            if let Some(found) = differ(before, &after, false)? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

pub(super) fn chain(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::Uniform, &[1000], seed)?;
    let (mut queued, mut stepped) = (x.clone(), x);
    for step in 0..100 {
        queued = queued.mul(1.01)?.add(f64::from(step))?;
    }
    for step in 0..100 {
        stepped = stepped.mul(1.01)?;
        stepped.synchronize()?;
        stepped = stepped.add(f64::from(step))?;
        stepped.synchronize()?;
    }
    differ(&queued, &stepped, false)
}

pub(super) fn empties(backend: &Backend, _: u64) -> Result<Option<String>> {
    let x = Tensor::zeros(backend, [3, 0], DType::F32)?;
    let shapes =
        [x.exp()?.count(), x.add(&x)?.count(), x.matmul(&Tensor::zeros(backend, [0, 0], DType::F32)?)?.count()];
    let zeros = x.matmul(&Tensor::zeros(backend, [0, 2], DType::F32)?)?.to_vec::<f32>()?;
    let sums =
        (x.sum(1, false)?.to_vec::<f32>()?, x.prod((), false)?.item::<f32>()?, x.mean((), false)?.item::<f32>()?);
    let right = shapes == [0; 3] && zeros == [0.0; 6] && sums.0 == [0.0; 3] && sums.1 == 1.0 && sums.2.is_nan();
    let kinds = [x.max(1, false), x.argmax(1, false), x.cast(DType::I32)?.mean((), false)]
        .map(|result| result.map_err(|error| error.kind()));
    let refused = kinds.iter().all(|kind| matches!(kind, Err(ErrorKind::Argument)));
    Ok((!right || !refused).then(|| format!("sums {sums:?}, product {zeros:?}, extremes {kinds:?}")))
}

pub(super) fn usable_after_error(backend: &Backend, _: u64) -> Result<Option<String>> {
    let x = Tensor::arange(backend, 1..5, DType::I32)?;
    let quotient = x.div(0)?;
    let first = quotient.to_vec::<i32>().map_err(|error| error.kind());
    let again = quotient.to_vec::<i32>().map_err(|error| error.kind());
    let huge = Tensor::zeros(backend, [1 << 52], DType::F64).map(|_| ()).map_err(|error| error.kind());
    let after = x.add(1)?.to_vec::<i32>()?;
    let right = first == Err(ErrorKind::DivisionByZero)
        && again == Ok(vec![0; 4])
        && huge == Err(ErrorKind::OutOfMemory)
        && after == [2, 3, 4, 5];
    Ok((!right).then(|| format!("division {first:?}, then {again:?}; 32 PiB {huge:?}; then {after:?}")))
}

pub(super) fn threads(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let run = || -> Result<Vec<Tensor<AnyBackend>>> {
        let x = make(backend, DType::F32, Class::WideExponent, &[65, 129], seed)?;
        let mut y = x.mul(0.5)?;
        for _ in 0..8 {
            y.add_assign(&x)?;
        }
        let ints = x.cast(DType::I32)?;
        Ok(vec![
            x.sum(0, false)?,
            x.matmul(&y.t()?)?,
            y.tanh()?,
            x.lt(&y)?,
            x.argmax(1, false)?,
            x.var(1.0, 1, false)?,
            ints.t()?.contiguous()?,
        ])
    };
    let expected = run()?;
    let results: Vec<Result<_>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    for (worker, results) in results.into_iter().enumerate() {
        for (one, alone) in results?.iter().zip(&expected) {
            if let Some(found) = differ(one, alone, false)? {
                return Ok(Some(format!("thread {worker} of 4, shape {:?}: {found}", one.shape())));
            }
        }
    }
    Ok(None)
}

pub(super) fn error_elsewhere(backend: &Backend, _: u64) -> Result<Option<String>> {
    let x = Tensor::arange(backend, 0..1000, DType::I32)?;
    let before = x.add(1)?;
    let fail = || -> Result<ErrorKind> {
        let quotient = x.rem(&x)?;
        Ok(quotient.synchronize().map_or_else(|error| error.kind(), |()| ErrorKind::Argument))
    };
    let reported =
        thread::scope(|scope| scope.spawn(fail).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))?;
    let expected: Vec<i32> = (1..1001).collect();
    let (before, after) = (before.to_vec::<i32>()?, x.add(1)?.to_vec::<i32>()?);
    let right = reported == ErrorKind::DivisionByZero && before == expected && after == expected;
    Ok((!right)
        .then(|| format!("another thread's division by zero was reported to it as {reported}, or changed results")))
}
