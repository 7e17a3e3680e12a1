//! What attention is asked for, and its operands.

use std::ops::Range;

/// What is computed. Floats only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionOp {
    /// The weighted values.
    Output,
    /// The logarithm of the sum of each query's exponentials.
    LogSumExp,
    /// The gradient by the queries.
    GradQuery,
    /// The gradient by the keys.
    GradKey,
    /// The gradient by the values.
    GradValue,
}

impl AttentionOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[Self::Output, Self::LogSumExp, Self::GradQuery, Self::GradKey, Self::GradValue];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Output => "attention",
            Self::LogSumExp => "attention_logsumexp",
            Self::GradQuery => "attention_grad_query",
            Self::GradKey => "attention_grad_key",
            Self::GradValue => "attention_grad_value",
        }
    }

    /// Whether the op is a gradient, and takes an [`AttentionGradient`].
    #[must_use]
    pub fn is_gradient(self) -> bool {
        matches!(self, Self::GradQuery | Self::GradKey | Self::GradValue)
    }
}

/// Which query stands at which key, where causality, a window or slopes ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Alignment {
    /// The last query stands at the last key of its batch item: bottom-right, as when queries continue a sequence whose
    /// keys are all kept.
    #[default]
    Last,
    /// The first query stands at the first key: top-left.
    First,
}

/// Weights that are left out at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Of leaving a weight out; those that stay are divided by one less it.
    pub probability: f64,
    /// The stream of [`random`](crate::ops::random).
    pub seed: u64,
    /// The word of the stream that decides about the first weight.
    pub offset: u64,
}

/// What attention does beside the product of its operands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// The factor of the scores; `None` is 1/√d.
    pub scale: Option<f64>,
    /// Whether a query sees no key behind the one it stands at.
    pub causal: bool,
    /// Which query stands at which key.
    pub alignment: Alignment,
    /// A query sees only keys that are less than this away from the one it stands at.
    pub window: Option<usize>,
    /// Scores s become c · tanh(s / c).
    pub soft_cap: Option<f64>,
    /// Weights that are left out.
    pub dropout: Option<Dropout>,
}

/// The operands of attention, each a `T`: a view, a storage, a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionInputs<T> {
    /// Queries, [batch, heads, n, d].
    pub q: T,
    /// Keys, [batch, kv_heads, m, d].
    pub k: T,
    /// Values, [batch, kv_heads, m, e].
    pub v: T,
    /// Broadcasts to [batch, heads, n, m]: bool, true where a query sees a key; or of the dtype of q, added to the scores.
    pub mask: Option<T>,
    /// Broadcasts to [batch, heads], in the dtype of the computation (f32 for f16 and bf16): a head's scores lose its slope
    /// times the distance between the key and the one that the query stands at (ALiBi).
    pub slopes: Option<T>,
    /// How many keys of each batch item there are, `[batch]`, i64. What lies outside 0 ..= m counts as the nearer of both.
    pub lengths: Option<T>,
    /// What gradients take beside.
    pub gradient: Option<AttentionGradient<T>>,
}

/// What gradients of attention take beside its own operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionGradient<T> {
    /// The gradient of the output, [batch, heads, n, e].
    pub grad: T,
    /// [`LogSumExp`](AttentionOp::LogSumExp) of the same operands, [batch, heads, n], in the dtype of the computation.
    pub logsumexp: T,
    /// Σ grad ⊙ output over the features, of the same shape and dtype.
    pub delta: T,
}

impl<T> AttentionInputs<T> {
    /// Operands without any that is optional.
    pub fn new(q: T, k: T, v: T) -> Self {
        Self { q, k, v, mask: None, slopes: None, lengths: None, gradient: None }
    }

    /// In order: q, k, v, mask, slopes, lengths, grad, logsumexp, delta.
    pub fn to_array(self) -> [Option<T>; 9] {
        let [grad, logsumexp, delta] = match self.gradient {
            Some(AttentionGradient { grad, logsumexp, delta }) => [Some(grad), Some(logsumexp), Some(delta)],
            None => [None, None, None],
        };
        [Some(self.q), Some(self.k), Some(self.v), self.mask, self.slopes, self.lengths, grad, logsumexp, delta]
    }

    /// The reverse of [`to_array`](Self::to_array): `None` without q, k or v, or with a part of the gradient's operands.
    pub fn from_array([q, k, v, mask, slopes, lengths, grad, logsumexp, delta]: [Option<T>; 9]) -> Option<Self> {
        let gradient = match (grad, logsumexp, delta) {
            (Some(grad), Some(logsumexp), Some(delta)) => Some(AttentionGradient { grad, logsumexp, delta }),
            (None, None, None) => None,
            _ => return None,
        };
        Some(Self { q: q?, k: k?, v: v?, mask, slopes, lengths, gradient })
    }

    /// The operands, each made into another type.
    ///
    /// # Errors
    /// The first that `make` reports.
    pub fn try_map<U, E>(self, mut make: impl FnMut(T) -> Result<U, E>) -> Result<AttentionInputs<U>, E> {
        let gradient = match self.gradient {
            Some(AttentionGradient { grad, logsumexp, delta }) => {
                Some(AttentionGradient { grad: make(grad)?, logsumexp: make(logsumexp)?, delta: make(delta)? })
            }
            None => None,
        };
        Ok(AttentionInputs {
            q: make(self.q)?,
            k: make(self.k)?,
            v: make(self.v)?,
            mask: self.mask.map(&mut make).transpose()?,
            slopes: self.slopes.map(&mut make).transpose()?,
            lengths: self.lengths.map(&mut make).transpose()?,
            gradient,
        })
    }

    /// The operands, each made into another type.
    pub fn map<U>(self, mut make: impl FnMut(T) -> U) -> AttentionInputs<U> {
        let Ok(made) = self.try_map(|operand| Ok::<_, std::convert::Infallible>(make(operand)));
        made
    }
}

/// Which keys a query sees by causality and window, and which queries see a key: the same for every head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Band {
    /// No key behind the query's own.
    pub causal: bool,
    /// Keys and the query's own are less than this apart; more than all positions without a window.
    pub window: usize,
    /// Which key is the query's own.
    pub alignment: Alignment,
    /// The number of queries.
    pub queries: usize,
}

impl Band {
    /// By how much the number of a query's own key is more than the query's, where there are `keys`.
    #[must_use]
    pub fn shift(&self, keys: usize) -> isize {
        match self.alignment {
            Alignment::Last => keys as isize - self.queries as isize,
            Alignment::First => 0,
        }
    }

    /// The keys that a query sees, of `keys` in all.
    #[must_use]
    pub fn keys(&self, query: usize, keys: usize) -> Range<usize> {
        let place = query as isize + self.shift(keys);
        let within = |key: isize| key.clamp(0, keys as isize) as usize;
        let ahead = if self.causal { 1 } else { self.window as isize };
        let end = within(place.saturating_add(ahead));
        within(place.saturating_sub(self.window as isize - 1)).min(end)..end
    }

    /// The queries that see a key, of `keys` in all.
    #[must_use]
    pub fn queries(&self, key: usize, keys: usize) -> Range<usize> {
        if key >= keys {
            return 0..0;
        }
        let place = key as isize - self.shift(keys);
        let within = |query: isize| query.clamp(0, self.queries as isize) as usize;
        let behind = if self.causal { 0 } else { self.window as isize - 1 };
        let end = within(place.saturating_add(self.window as isize));
        within(place.saturating_sub(behind)).min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_a_band_agree() {
        for queries in 0..7 {
            for keys in 0..7 {
                for (causal, window) in [(false, 100), (true, 100), (true, 1), (true, 3), (false, 1), (false, 2)] {
                    for alignment in [Alignment::First, Alignment::Last] {
                        let band = Band { causal, window, alignment, queries };
                        for query in 0..queries {
                            for key in 0..keys {
                                let place = query as isize
                                    + if alignment == Alignment::First { 0 } else { keys as isize - queries as isize };
                                let seen = (!causal || key as isize <= place) && place.abs_diff(key as isize) < window;
                                assert_eq!(
                                    band.keys(query, keys).contains(&key),
                                    seen,
                                    "{band:?} {query} {key} {keys}"
                                );
                                assert_eq!(
                                    band.queries(key, keys).contains(&query),
                                    seen,
                                    "{band:?} {query} {key} {keys}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn operands_keep_their_places() {
        let mut inputs = AttentionInputs::new(1, 2, 3);
        inputs.lengths = Some(6);
        inputs.gradient = Some(AttentionGradient { grad: 7, logsumexp: 8, delta: 9 });
        let array = [Some(1), Some(2), Some(3), None, None, Some(6), Some(7), Some(8), Some(9)];
        assert_eq!(inputs.to_array(), array);
        assert_eq!(AttentionInputs::from_array(array), Some(inputs));
        assert_eq!(AttentionInputs::from_array([Some(1); 9].map(|x| x.filter(|_| false))), None);
        assert_eq!(inputs.map(|x| x + 1).to_array()[5], Some(7));
    }
}
