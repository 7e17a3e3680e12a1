//! Every case, family by family: a line each, at several sizes.

mod attention;
mod conv;
mod copy;
mod elementwise;
mod index;
mod limit;
mod matmul;
mod norm;
mod pool;
mod random;
mod reduce;
mod sort;

use congruent::DType;

use crate::case::Case;

/// The floats of half width.
const HALVES: [DType; 2] = [DType::F16, DType::BF16];
/// f32 and the halves.
const COMMON: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
/// Elements of a flat tensor that fits a core's cache, of one that fits none, and of one for GPUs.
const FLAT: [usize; 3] = [1 << 16, 1 << 24, 64 << 20];
/// The sides of squares of the same sizes.
const SIDES: [usize; 3] = [256, 4096, 8192];

/// What only a GPU is timed on.
const fn huge(elements: usize) -> bool {
    elements > 1 << 24
}

/// The cases that measure the machine; they belong to every report.
#[must_use]
pub fn limits() -> Vec<Case> {
    limit::cases()
}

/// Every case, in the order of the table.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        elementwise::cases(),
        copy::cases(),
        reduce::cases(),
        norm::cases(),
        sort::cases(),
        index::cases(),
        random::cases(),
        matmul::cases(),
        conv::cases(),
        pool::cases(),
        attention::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let mut seen = HashSet::new();
        for case in all().iter().chain(&limits()) {
            assert!(seen.insert(case.spec.name()), "{} twice", case.spec.name());
            assert!(case.elements > 0, "{} has no size", case.spec.name());
        }
    }

    #[test]
    fn small_cases_run_on_the_cpu() {
        let backend = congruent::backend("cpu").unwrap();
        let mut families = HashSet::new();
        for case in all().iter().chain(&limits()).filter(|case| case.elements <= 1 << 16) {
            let mut inputs = case.make(&backend).unwrap();
            case.call(&mut inputs).unwrap_or_else(|error| panic!("{}: {error}", case.spec.name()));
            families.insert(case.spec.family.clone());
        }
        let all: HashSet<_> = all().into_iter().map(|case| case.spec.family).collect();
        assert!(families.is_superset(&all), "no small case of {:?}", all.difference(&families));
    }
}
