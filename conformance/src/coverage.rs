//! What a cell has seen: kinds of layouts, and features of values. A count of zero means not tested, never passed.

use congruent_backend_api::Scalar;
use serde::Serialize;

use crate::case::{Case, Input};
use crate::host::HostTensor;
use crate::round::{Format, exp2};
use crate::spec::LayoutKind;

/// Something about values that has broken backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Feature {
    /// No elements.
    Empty,
    /// A NaN.
    Nan,
    /// An infinity.
    Infinite,
    /// −0.
    NegativeZero,
    /// A subnormal number.
    Subnormal,
    /// The greatest or smallest number of the dtype.
    Extreme,
    /// Equal values.
    Ties,
    /// Values of both signs.
    Signs,
    /// More than 1024 elements.
    Large,
}

impl Feature {
    /// Every feature.
    pub const ALL: [Self; 9] = [
        Self::Empty,
        Self::Nan,
        Self::Infinite,
        Self::NegativeZero,
        Self::Subnormal,
        Self::Extreme,
        Self::Ties,
        Self::Signs,
        Self::Large,
    ];

    /// Whether a tensor shows the feature.
    fn is_in(self, tensor: &HostTensor, values: &[Scalar]) -> bool {
        let format = Format::of(tensor.dtype);
        let any = |test: &dyn Fn(f64) -> bool| values.iter().any(|value| test(value.to_f64()));
        match self {
            Self::Empty => values.is_empty(),
            Self::Nan => any(&f64::is_nan),
            Self::Infinite => any(&f64::is_infinite),
            Self::NegativeZero => any(&|x| x == 0.0 && x.is_sign_negative()),
            Self::Subnormal => format.is_some_and(|format| any(&|x| x != 0.0 && x.abs() < exp2(format.min_exponent))),
            Self::Extreme => match format {
                Some(format) => any(&|x| x.abs() == format.max()),
                None => {
                    let bits = 8 * tensor.dtype.size() as i32;
                    any(&|x| [exp2(bits - 1), exp2(bits - 1) - 1.0, exp2(bits) - 1.0].contains(&x.abs()))
                }
            },
            Self::Ties => values.windows(2).any(|pair| pair[0] == pair[1]),
            Self::Signs => any(&|x| x < 0.0) && any(&|x| x > 0.0),
            Self::Large => values.len() > 1024,
        }
    }
}

/// How many cases showed each kind of layout and each feature.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    layouts: [usize; LayoutKind::ALL.len()],
    features: [usize; Feature::ALL.len()],
}

impl Coverage {
    /// Counts a case.
    pub fn record(&mut self, case: &Case) {
        let tensors = || {
            case.inputs.iter().filter_map(|input| if let Input::Tensor(tensor) = input { Some(tensor) } else { None })
        };
        let values: Vec<_> = tensors().map(HostTensor::values).collect();
        // What has no tensor among its operands is covered by the layout that it writes.
        let written = tensors().next().is_none().then_some(&case.out);
        for (count, kind) in self.layouts.iter_mut().zip(LayoutKind::ALL) {
            *count += usize::from(tensors().chain(written).any(|tensor| LayoutKind::of(&tensor.layout) == kind));
        }
        for (count, feature) in self.features.iter_mut().zip(Feature::ALL) {
            *count += usize::from(tensors().zip(&values).any(|(tensor, values)| feature.is_in(tensor, values)));
        }
    }

    /// Adds the counts of another cell.
    pub fn add(&mut self, other: &Self) {
        self.layouts.iter_mut().zip(&other.layouts).for_each(|(count, more)| *count += more);
        self.features.iter_mut().zip(&other.features).for_each(|(count, more)| *count += more);
    }

    /// Cases with each kind of layout.
    pub fn layouts(&self) -> impl Iterator<Item = (LayoutKind, usize)> + '_ {
        LayoutKind::ALL.into_iter().zip(self.layouts)
    }

    /// Cases with each feature.
    pub fn features(&self) -> impl Iterator<Item = (Feature, usize)> + '_ {
        Feature::ALL.into_iter().zip(self.features)
    }
}
