//! Ordering one row: keys, a stable sort, and the selection of the first k.
//!
//! A long row is sorted by its keys' bytes, the least significant first (LSD radix sort, which is stable), a short one by
//! the standard library's stable sort; the parts of a very long one are sorted in parallel and merged. The selection
//! keeps the best candidates seen so far, and passes over whole chunks that hold none.

use congruent_backend_api::{Error, ErrorKind, Result, bf16, f16};

use crate::lane::Lane;
use crate::loops::{GRAIN, both};

/// An element with a place in the total preorder of the contract.
pub(super) trait Ordered: Lane {
    type Key: Key;

    /// Greater for greater elements, equal for equal ones: the greatest of all for NaN, one for zeros of either sign.
    fn key(self) -> Self::Key;
}

/// An unsigned integer that is sorted by its bytes.
pub(super) trait Key: Copy + Ord + Send + Sync + std::ops::BitXor<Output = Self> {
    const BYTES: usize = size_of::<Self>();
    const ZERO: Self;
    const ALL_BITS: Self;

    /// A byte; 0 is the least significant one.
    fn byte(self, index: usize) -> usize;
}

/// The place of an element in its row.
pub(super) trait Position: Copy + Ord + Send + Sync {
    fn new(index: usize) -> Self;
    fn index(self) -> i64;
}

macro_rules! unsigned {
    ($($K:ty)*) => {$(
        impl Key for $K {
            const ZERO: Self = 0;
            const ALL_BITS: Self = Self::MAX;

            fn byte(self, index: usize) -> usize {
                usize::from((u64::from(self) >> (8 * index)) as u8)
            }
        }
    )*};
}

unsigned!(u8 u16 u32 u64);

macro_rules! integers {
    ($($T:ty, $K:ty;)*) => {$(
        impl Ordered for $T {
            type Key = $K;

            #[allow(trivial_numeric_casts, reason = "unsigned types are their own keys")]
            fn key(self) -> $K {
                // The least value, as its own bits, becomes 0.
                self as $K ^ <$T>::MIN as $K
            }
        }
    )*};
}

integers! {
    i64, u64;
    i32, u32;
    u32, u32;
    u8, u8;
}

macro_rules! floats {
    ($($T:ty, $K:ty;)*) => {$(
        impl Ordered for $T {
            type Key = $K;

            fn key(self) -> $K {
                const SIGN: $K = 1 << (<$K>::BITS - 1);
                let (bits, infinity) = (self.to_bits(), <$T>::INFINITY.to_bits());
                match bits & !SIGN {
                    0 => SIGN,
                    magnitude if magnitude > infinity => <$K>::MAX,
                    _ if bits & SIGN != 0 => !bits,
                    _ => bits | SIGN,
                }
            }
        }
    )*};
}

floats! {
    f64, u64;
    f32, u32;
    f16, u16;
    bf16, u16;
}

impl Position for u32 {
    fn new(index: usize) -> Self {
        index as Self
    }

    fn index(self) -> i64 {
        self.into()
    }
}

impl Position for u64 {
    fn new(index: usize) -> Self {
        index as Self
    }

    fn index(self) -> i64 {
        self.cast_signed()
    }
}

/// The first k of a part of a row that begins at position `start`, in any order. With their positions all candidates are
/// different, so the first of equal elements goes first.
pub(super) fn select<T: Ordered, P: Position>(
    x: &[T],
    start: usize,
    k: usize,
    flip: T::Key,
) -> Result<Vec<(T::Key, P)>> {
    /// Elements of which none is likely to be a candidate, passed over at once.
    const CHUNK: usize = 64;
    let mut best = Vec::new();
    if x.len() > 4 * GRAIN && k < x.len() / 4 {
        let middle = x.len() / 2;
        let (left, right) = both(
            || select::<T, P>(&x[..middle], start, k, flip),
            || select::<T, P>(&x[middle..], start + middle, k, flip),
        );
        best = left?;
        best.extend(right?);
        keep(&mut best, k);
        return Ok(best);
    }
    let room = x.len().min(k.saturating_mul(2).max(CHUNK));
    reserve(&mut best, room + CHUNK)?;
    let mut worst = None;
    for (chunk, at) in x.chunks(CHUNK).zip((start..).step_by(CHUNK)) {
        if let Some(worst) = worst
            && !chunk.iter().fold(false, |found, x| found | (x.key() ^ flip < worst))
        {
            continue;
        }
        let candidates = chunk.iter().zip(at..).map(|(x, index)| (x.key() ^ flip, P::new(index)));
        best.extend(candidates.filter(|candidate| worst.is_none_or(|worst| candidate.0 < worst)));
        if best.len() >= room && best.len() > k {
            keep(&mut best, k);
            // A later element that equals the last one kept comes after it.
            worst = best.last().map(|item| item.0);
        }
    }
    keep(&mut best, k);
    Ok(best)
}

/// Keeps the k least; the greatest of them is then the last one.
fn keep<I: Ord>(items: &mut Vec<I>, k: usize) {
    if items.len() > k && k > 0 {
        items.select_nth_unstable(k - 1);
    }
    items.truncate(k);
}

/// Sorts by key, stably.
pub(super) fn sort_items<I: Copy + Send + Sync, K: Key>(
    items: &mut [I],
    spare: &mut Vec<I>,
    key: &(impl Fn(&I) -> K + Sync),
) -> Result<()> {
    // Fewer elements do not pay for the counts of the radix sort.
    if items.len() < 128 * K::BYTES {
        items.sort_by_key(key);
        return Ok(());
    }
    reserve(spare, items.len())?;
    spare.clear();
    spare.extend_from_slice(items);
    sort_parts(items, spare, rayon::current_num_threads(), key);
    Ok(())
}

/// Sorts `items` with as much room in `spare`; `parts` of them in parallel.
fn sort_parts<I: Copy + Send + Sync, K: Key>(
    items: &mut [I],
    spare: &mut [I],
    parts: usize,
    key: &(impl Fn(&I) -> K + Sync),
) {
    if parts < 2 || items.len() <= 2 * GRAIN {
        return radix_sort(items, spare, key);
    }
    let middle = items.len() / 2;
    let (left, right) = items.split_at_mut(middle);
    let (spare_left, spare_right) = spare.split_at_mut(middle);
    both(
        || sort_parts(left, spare_left, parts.div_ceil(2), key),
        || sort_parts(right, spare_right, parts.div_ceil(2), key),
    );
    merge(left, right, spare, key);
    items.copy_from_slice(spare);
}

fn radix_sort<I: Copy, K: Key>(items: &mut [I], spare: &mut [I], key: &impl Fn(&I) -> K) {
    let mut counts = vec![[0_usize; 256]; K::BYTES];
    for item in &*items {
        let key = key(item);
        for (index, counts) in counts.iter_mut().enumerate() {
            counts[key.byte(index)] += 1;
        }
    }
    let (mut from, mut to, mut moved) = (items, spare, false);
    for (index, counts) in counts.iter_mut().enumerate() {
        if counts.contains(&from.len()) {
            continue;
        }
        let mut start = 0;
        for count in counts.iter_mut() {
            (*count, start) = (start, start + *count);
        }
        for item in &*from {
            let next = &mut counts[key(item).byte(index)];
            to[*next] = *item;
            *next += 1;
        }
        (from, to, moved) = (to, from, !moved);
    }
    if moved {
        to.copy_from_slice(from);
    }
}

/// Merges two sorted runs; of equal items those on the left come first.
fn merge<I: Copy + Send + Sync, K: Key>(left: &[I], right: &[I], out: &mut [I], key: &(impl Fn(&I) -> K + Sync)) {
    if out.len() > GRAIN {
        let (from_left, from_right) = if left.len() >= right.len() {
            let at = left.len() / 2;
            let pivot = key(&left[at]);
            (at, right.partition_point(|item| key(item) < pivot))
        } else {
            let at = right.len() / 2;
            let pivot = key(&right[at]);
            (left.partition_point(|item| key(item) <= pivot), at)
        };
        let (out_first, out_second) = out.split_at_mut(from_left + from_right);
        both(
            || merge(&left[..from_left], &right[..from_right], out_first, key),
            || merge(&left[from_left..], &right[from_right..], out_second, key),
        );
        return;
    }
    let (mut left, mut right) = (left, right);
    for out in out {
        let run = match (left.first(), right.first()) {
            (Some(a), Some(b)) if key(b) < key(a) => &mut right,
            (Some(_), _) => &mut left,
            (None, _) => &mut right,
        };
        if let Some((first, rest)) = run.split_first() {
            (*out, *run) = (*first, rest);
        }
    }
}

/// Makes room for `len` items in all.
pub(super) fn reserve<I>(items: &mut Vec<I>, len: usize) -> Result<()> {
    items.try_reserve_exact(len.saturating_sub(items.len())).map_err(|error| {
        let message = format!("a temporary of {len} elements of {} bytes could not be allocated", size_of::<I>());
        Error::new(ErrorKind::OutOfMemory, "sort", message).with_source(error)
    })
}
