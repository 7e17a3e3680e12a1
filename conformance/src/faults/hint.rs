//! What a wrong result looks like: the seeded faults that make the same of the same call.

use std::sync::Arc;

use congruent_backend_api::erase::{AnyBackend, Erase};

use super::{Fault, Faulty, faults};
use crate::case::{Case, Outcome};
use crate::expect::{Expect, judge};
use crate::host::decode;
use crate::ops::expect;

/// The faults of the list that make of each of `cases` what `backend` makes of it: the same damage, or results that are
/// wrong in the same elements and there differ by no more than the op's bound. Each case must be one in which the backend is wrong.
///
/// The faults are put into a backend that is right about the cases, the frontend's own for the CPU; where the build has none,
/// nothing is said.
#[must_use]
pub fn resembling(cases: &[&Case], backend: &AnyBackend) -> Vec<Fault> {
    let Ok(correct) = congruent::backend("cpu") else { return Vec::new() };
    let seen: Vec<_> = cases.iter().map_while(|&case| Seen::new(case, backend, correct.as_ref())).collect();
    if seen.len() < cases.len() || seen.is_empty() {
        return Vec::new();
    }
    faults().filter(|&fault| seen.iter().all(|seen| seen.is_made_by(fault, &correct))).collect()
}

/// What a backend made of a case.
struct Seen<'a> {
    case: &'a Case,
    outcome: Outcome,
    expected: Vec<Expect>,
}

impl<'a> Seen<'a> {
    /// The result, if there is one and the correct backend is right about the case.
    fn new(case: &'a Case, backend: &AnyBackend, correct: &AnyBackend) -> Option<Self> {
        let (outcome, right, expected) = (case.run(backend).ok()?, case.run(correct).ok()?, expect(case));
        let accepted = |(bits, expect)| judge(case.out.dtype, bits, expect).accepted;
        let sound = right.damage.is_none() && right.out.view_bits().into_iter().zip(&expected).all(accepted);
        sound.then_some(Self { case, outcome, expected })
    }

    fn is_made_by(&self, fault: Fault, correct: &Arc<AnyBackend>) -> bool {
        if fault.laws_only || !fault.touches(self.case.op(), self.case.dtype()) {
            return false;
        }
        let Ok(made) = self.case.run(&Erase(Faulty::new(Arc::clone(correct), fault))) else { return false };
        let reported = made.reported == self.outcome.reported;
        if made.damage.is_some() || self.outcome.damage.is_some() {
            return reported && made.damage == self.outcome.damage;
        }
        let pairs = || made.out.view_bits().into_iter().zip(self.outcome.out.view_bits()).zip(&self.expected);
        // Not a single wrong element: what was wrong is something else.
        let wrong = |bits, expect| !judge(self.case.out.dtype, bits, expect).accepted;
        let shows = pairs().any(|((_, seen), expect)| wrong(seen, expect));
        reported && shows && pairs().all(|((made, seen), expect)| self.alike(made, seen, expect))
    }

    /// Whether both are right, or both are wrong and alike.
    fn alike(&self, made: u64, seen: u64, expect: &Expect) -> bool {
        let dtype = self.case.out.dtype;
        let [made_fits, seen_fits] = [made, seen].map(|bits| judge(dtype, bits, expect).accepted);
        if made_fits != seen_fits {
            return false;
        }
        made_fits
            || made == seen
            || match (*expect, decode(dtype, made).to_f64()) {
                (Expect::Near { bound, .. }, centre) if centre.is_finite() => {
                    judge(dtype, seen, &Expect::near(centre.into(), bound)).accepted
                }
                (_, value) => value.is_nan() && decode(dtype, seen).to_f64().is_nan(),
            }
    }
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use congruent_backend_api::DType;

    use super::*;
    use crate::ops::rows;
    use crate::suite::{Candidate, Profile, check, selected};

    #[test]
    fn a_fault_is_recognised() {
        for (name, op) in [
            ("the last element repeats the one before", "add"),
            ("the offset is ignored", "sum"),
            ("results keep 20 bits of significand", "matmul"),
        ] {
            let fault = faults().find(|fault| fault.name == name).unwrap();
            let make = move || {
                let cpu = Arc::new(Erase(congruent_backend_cpu::Cpu::new()));
                Ok(Arc::new(Erase(Faulty::new(cpu, fault))) as Arc<AnyBackend>)
            };
            let rows: Vec<_> = rows().filter(|&row| selected(row, &[op.to_owned()], &[DType::F32])).collect();
            let profile = Profile { cases: 96, limit: 512, ..Profile::default() };
            let report = check(&[Candidate::new("wrong", make)], &rows, &profile, |_| {}).unwrap();
            let found: Vec<_> = report.failures().filter_map(|cell| cell.failure.as_ref()).collect();
            assert!(
                !found.is_empty() && found.iter().all(|found| found.resembles.contains(&name)),
                "{name}: {found:?}"
            );
        }
    }
}
