//! Times one case on all who can run it: calls in batches of about the same time, one batch of each in turn, in an
//! order that rotates, so that whatever disturbs the machine for a while disturbs all of them.

use crate::case::Case;
use crate::document::{Row, Time};
use crate::runner::{Refusal, Runner};

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Seconds of one batch.
    pub batch: f64,
    /// Batches of each runner in one pass.
    pub repetitions: usize,
    /// How often all cases are gone through, so that a disturbance of minutes does not meet all batches of a case.
    pub passes: usize,
    /// Seconds after which a runner gets no further batch, once it has three.
    pub patience: f64,
}

impl Effort {
    /// What a report is made with.
    pub const USUAL: Self = Self { batch: 0.01, repetitions: 3, passes: 3, patience: 1.0 };
    /// A first look.
    pub const QUICK: Self = Self { batch: 0.003, repetitions: 3, passes: 2, patience: 0.5 };
}

/// One who runs the case, and what came of it so far.
struct Entry<'a> {
    runner: &'a mut Box<dyn Runner>,
    calls: u32,
    spent: f64,
    time: Time,
}

/// Times cases, pass after pass; `begin` hears of each case of each pass before it begins, `keep` gets what there is after
/// each pass: whoever stops a long run has what was measured until then.
///
/// # Errors
/// What `keep` returns; then nothing more is measured.
pub fn measure_all<E>(
    cases: &[Case],
    runners: &mut [Box<dyn Runner>],
    effort: Effort,
    full: bool,
    mut begin: impl FnMut(&Case),
    mut keep: impl FnMut(usize, &[Row]) -> Result<(), E>,
) -> Result<Vec<Row>, E> {
    let mut rows: Vec<Row> = Vec::new();
    for pass in 0..effort.passes {
        for (at, case) in cases.iter().enumerate() {
            begin(case);
            // What took very long, or cannot be run, does so again.
            let slow = |row: &Row| row.times.iter().all(|time| time.seconds.len() < 3 * pass);
            match rows.get_mut(at) {
                Some(row) if slow(row) => {}
                Some(row) => row.extend(measure(case, runners, effort, full)),
                None => rows.push(measure(case, runners, effort, full)),
            }
        }
        keep(pass, &rows)?;
    }
    Ok(rows)
}

/// Times a case; `huge` cases are not for CPUs unless `full`.
pub fn measure(case: &Case, runners: &mut [Box<dyn Runner>], effort: Effort, full: bool) -> Row {
    let mut times = Vec::new();
    let mut entries = Vec::new();
    for runner in runners.iter_mut() {
        if case.huge && !full && runner.identity().device == "cpu" {
            continue;
        }
        let mut time = Time::new(runner.identity());
        match calibrate(case, runner, effort) {
            Ok((calls, spent)) => entries.push(Entry { runner, calls, spent, time }),
            Err(refusal) => {
                runner.release();
                time.refusal = Some(refusal);
                times.push(time);
            }
        }
    }
    for turn in 0..effort.repetitions {
        let count = entries.len();
        for at in 0..count {
            repeat(case, &mut entries[(at + turn) % count], effort);
        }
    }
    for entry in entries {
        entry.runner.release();
        times.push(entry.time);
    }
    Row { spec: case.spec.clone(), bytes: case.bytes, flops: case.flops, elements: case.elements, times }
}

/// How many calls make a batch, after calls that warm up; and the seconds that took.
fn calibrate(case: &Case, runner: &mut Box<dyn Runner>, effort: Effort) -> Result<(u32, f64), Refusal> {
    /// Enough for a chain of the smallest ops; more would fill the queue of a device.
    const MOST: u32 = 100_000;
    runner.prepare(case)?;
    // The first call compiles, allocates, and so on.
    runner.run(case, 1)?;
    let mut calls = 1;
    loop {
        let seconds = runner.run(case, calls)?.seconds;
        if seconds > effort.batch / 4.0 || calls > MOST / 4 {
            let wanted = f64::from(calls) * effort.batch / seconds;
            return Ok((wanted.clamp(1.0, f64::from(MOST)) as u32, seconds));
        }
        calls *= 4;
    }
}

fn repeat(case: &Case, entry: &mut Entry<'_>, effort: Effort) {
    // A first time is needed even of the slowest.
    let enough = match entry.time.seconds.len() {
        0 => false,
        1 | 2 => entry.spent > 4.0 * effort.patience,
        _ => entry.spent > effort.patience,
    };
    if enough || entry.time.refusal.is_some() {
        return;
    }
    match entry.runner.run(case, entry.calls) {
        Ok(batch) => {
            entry.spent += batch.seconds;
            entry.time.seconds.push(batch.seconds / f64::from(entry.calls));
            entry.time.returned.push(batch.returned / f64::from(entry.calls));
        }
        Err(refusal) => {
            entry.time.seconds.clear();
            entry.time.returned.clear();
            entry.time.refusal = Some(refusal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use congruent::DType;

    use super::*;
    use crate::case::data;
    use crate::runner::{Batch, Identity};

    /// Who ran, in order.
    type Log = Rc<RefCell<Vec<String>>>;

    /// Takes as long as it is told to, and fails from some batch on.
    struct Fake {
        identity: Identity,
        seconds: f64,
        left: usize,
        log: Log,
    }

    impl Runner for Fake {
        fn identity(&self) -> &Identity {
            &self.identity
        }

        fn prepare(&mut self, _: &Case) -> Result<(), Refusal> {
            Ok(())
        }

        fn run(&mut self, _: &Case, calls: u32) -> Result<Batch, Refusal> {
            self.log.borrow_mut().push(self.identity.device.clone());
            self.left = self.left.checked_sub(1).ok_or_else(|| Refusal::Failed("worn out".to_owned()))?;
            let seconds = self.seconds * f64::from(calls);
            Ok(Batch { seconds, returned: seconds / 2.0 })
        }

        fn release(&mut self) {}
    }

    fn fakes(list: &[(&str, f64, usize)]) -> (Vec<Box<dyn Runner>>, Log) {
        let log = Log::default();
        let make = |&(device, seconds, left): &(&str, f64, usize)| -> Box<dyn Runner> {
            let text = |text: &str| text.to_owned();
            let identity =
                Identity { library: text("fake"), device: text(device), version: text("1"), note: String::new() };
            Box::new(Fake { identity, seconds, left, log: Rc::clone(&log) })
        };
        (list.iter().map(make).collect(), log)
    }

    fn case() -> Case {
        Case::new(("unary", "exp"), DType::F32, [data(&[4])], |inputs| inputs.x[0].exp())
    }

    #[test]
    fn runners_take_turns() {
        let (mut runners, log) = fakes(&[("a", 0.01, 99), ("b", 0.02, 99)]);
        let row = measure(&case(), &mut runners, Effort { repetitions: 3, ..Effort::USUAL }, false);
        let log = log.borrow();
        assert_eq!(log[log.len() - 6..], ["a", "b", "b", "a", "a", "b"]);
        assert_eq!(row.times[1].seconds, [0.02; 3]);
        assert_eq!(row.times[1].returned, [0.01; 3]);
    }

    #[test]
    fn slow_calls_are_not_repeated_forever() {
        let (mut runners, log) = fakes(&[("a", 10.0, 99), ("b", 1.0, 99)]);
        let row = measure(&case(), &mut runners, Effort::USUAL, false);
        assert_eq!((row.times[0].seconds.len(), row.times[1].seconds.len()), (1, 3));
        assert_eq!(log.borrow().len(), 8);

        let (mut runners, log) = fakes(&[("a", 10.0, 99)]);
        let rows = measure_all(&[case()], &mut runners, Effort::USUAL, false, |_| {}, |_, _| Ok::<(), ()>(())).unwrap();
        assert_eq!((rows[0].times[0].seconds.len(), log.borrow().len()), (1, 3));
    }

    #[test]
    fn passes_go_through_all_cases() {
        let (mut runners, _) = fakes(&[("a", 0.01, 999)]);
        let mut seen = Vec::new();
        let cases = [case(), case().named("other")];
        let begin = |case: &Case| seen.push(case.spec.shape.clone());
        let mut kept = Vec::new();
        let keep = |pass, rows: &[Row]| {
            kept.push((pass, rows.len(), rows[1].times[0].seconds.len()));
            Ok::<(), ()>(())
        };
        let rows = measure_all(&cases, &mut runners, Effort::USUAL, false, begin, keep).unwrap();
        assert_eq!(seen, ["4", "other", "4", "other", "4", "other"]);
        assert_eq!(kept, [(0, 2, 3), (1, 2, 6), (2, 2, 9)]);
        assert!(rows.iter().all(|row| row.times[0].seconds.len() == 9));
        // What cannot be kept is not measured for.
        let stopped = measure_all(&cases, &mut runners, Effort::USUAL, false, |_| {}, |pass, _| Err(pass));
        assert_eq!(stopped, Err(0));
    }

    #[test]
    fn a_failure_leaves_no_time() {
        let (mut runners, _) = fakes(&[("a", 0.01, 4)]);
        let row = measure(&case(), &mut runners, Effort::USUAL, false);
        assert!(row.times[0].seconds.is_empty());
        assert_eq!(row.times[0].refusal, Some(Refusal::Failed("worn out".to_owned())));
    }

    #[test]
    fn huge_cases_are_for_gpus() {
        let (mut runners, _) = fakes(&[("cpu", 0.01, 99), ("cuda:0", 0.01, 99)]);
        let devices = |row: Row| row.times.into_iter().map(|time| time.device).collect::<Vec<_>>();
        assert_eq!(devices(measure(&case().huge(true), &mut runners, Effort::QUICK, false)), ["cuda:0"]);
        assert_eq!(devices(measure(&case().huge(true), &mut runners, Effort::QUICK, true)), ["cpu", "cuda:0"]);
    }
}
