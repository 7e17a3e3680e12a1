//! Sorting: what holds of any order, on data with ties, zeros of both signs and NaN, in short rows and long ones.

use congruent::{DType, Layout, Result, Tensor};

use super::{Backend, bits, differ, make};
use crate::host::decode;
use crate::ops::sort::compare;
use crate::values::Class;

/// Rows that a thread, a block and a device sort; the last two need positions beyond 16 bits.
const SHAPES: [[usize; 2]; 4] = [[50, 37], [5, 2049], [2, 70_001], [1, 300_007]];

/// Every dtype with the short shapes; the long ones with two dtypes each, so that there is one of each size.
fn kinds() -> impl Iterator<Item = (DType, usize)> {
    let long = [(DType::F64, 2), (DType::F16, 2), (DType::F32, 3), (DType::U8, 3)];
    DType::ALL.into_iter().flat_map(|dtype| [(dtype, 0), (dtype, 1)]).chain(long)
}

/// Rows of a dtype, with a class of values for each shape.
fn rows(backend: &Backend, dtype: DType, index: usize, seed: u64) -> Result<Tensor<congruent::AnyBackend>> {
    let class = [Class::Specials, Class::Ties, Class::FullRange, Class::Uniform][index % 4];
    make(backend, dtype, class, &SHAPES[index], seed)
}

pub(super) fn permutation(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for (dtype, index) in kinds() {
        let (x, len) = (rows(backend, dtype, index, seed)?, SHAPES[index][1]);
        for descending in [false, true] {
            let (before, sorted) = (bits(&x)?, bits(&x.sort(1, descending)?)?);
            let positions = x.argsort(1, descending)?.to_vec::<i64>()?;
            for (row, ((before, sorted), positions)) in
                before.chunks(len).zip(sorted.chunks(len)).zip(positions.chunks(len)).enumerate()
            {
                let mut seen = vec![false; len];
                for (place, (&bits, &from)) in sorted.iter().zip(positions).enumerate() {
                    let from = usize::try_from(from).unwrap_or(len);
                    let again = seen.get_mut(from).is_none_or(|seen| std::mem::replace(seen, true));
                    if again || before[from] != bits {
                        return Ok(Some(format!(
                            "{dtype} {:?}, descending {descending}: place {place} of row {row} has {bits:#x}, from {from}",
                            SHAPES[index]
                        )));
                    }
                    let Some(next) = positions.get(place + 1) else { continue };
                    let order = compare(decode(dtype, bits), decode(dtype, sorted[place + 1]));
                    let order = if descending { order.reverse() } else { order };
                    if order.is_gt() || order.is_eq() && from as i64 >= *next {
                        return Ok(Some(format!(
                            "{dtype} {:?}, descending {descending}: places {place} and the next of row {row} are out of order",
                            SHAPES[index]
                        )));
                    }
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn twice(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for (dtype, index) in kinds() {
        let descending = index % 2 == 1;
        let once = rows(backend, dtype, index, seed)?.sort(1, descending)?;
        let (again, places) = (once.sort(1, descending)?, once.argsort(1, descending)?);
        let identity = Tensor::arange(backend, 0..SHAPES[index][1] as i64, DType::I64)?;
        let found = differ(&again, &once, false)?.or(differ(&places, &identity.expand(SHAPES[index])?, false)?);
        if let Some(found) = found {
            return Ok(Some(format!("{dtype} {:?}: {found}", SHAPES[index])));
        }
    }
    Ok(None)
}

pub(super) fn first_of_order(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for (dtype, index) in kinds() {
        let (x, len) = (rows(backend, dtype, index, seed)?, SHAPES[index][1]);
        for largest in [false, true] {
            let (sorted, order) = (x.sort(1, largest)?, x.argsort(1, largest)?);
            for k in [1, 50, len / 3, len].into_iter().filter(|&k| k <= len) {
                let (values, positions) = x.topk(k, 1, largest)?;
                let (sorted, order) = (sorted.i((.., ..k))?, order.i((.., ..k))?);
                if let Some(found) = differ(&values, &sorted, false)?.or(differ(&positions, &order, false)?) {
                    return Ok(Some(format!("{dtype} {:?}, k = {k}: {found}", SHAPES[index])));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn reversed(backend: &Backend, _: u64) -> Result<Option<String>> {
    for (len, step) in [(257, 101), (2048, 787), (70_001, 30_011), (300_007, 123_457)] {
        // Distinct numbers in a shuffled order: the step shares no factor with the length.
        let x = Tensor::arange(backend, 0..len, DType::I64)?.mul(step)?.rem(len)?;
        for dtype in [DType::I64, DType::I32, DType::F32, DType::F64] {
            let x = x.cast(dtype)?;
            let (up, down) = (x.sort(0, false)?, x.sort(0, true)?);
            let rising = Tensor::arange(backend, 0..len, dtype)?;
            if let Some(found) = differ(&up, &rising, false)?.or(differ(&down.flip([0])?, &rising, false)?) {
                return Ok(Some(format!("{dtype}, {len} elements: {found}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn any_axis(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F32, DType::F16, DType::I64, DType::Bool] {
        let x = make(backend, dtype, Class::Ties, &[7, 300, 5], seed)?;
        for (axis, order) in [(0, [1, 2, 0]), (1, [0, 2, 1])] {
            let back: [isize; 3] = if axis == 0 { [2, 0, 1] } else { [0, 2, 1] };
            let moved = x.permute(order)?.contiguous()?;
            let pairs = [
                (x.sort(axis, false)?, moved.sort(-1, false)?),
                (x.argsort(axis, true)?, moved.argsort(-1, true)?),
                (x.flip([0, 2])?.argsort(axis, false)?, x.flip([0, 2])?.permute(order)?.argsort(-1, false)?),
            ];
            for (along, last) in pairs {
                if let Some(found) = differ(&along, &last.permute(back)?, false)? {
                    return Ok(Some(format!("{dtype}, axis {axis}: {found}")));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn search_counts(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U32, DType::U8] {
        let x = make(backend, dtype, Class::Ties, &[3, 513], seed)?.sort(1, false)?;
        let values = make(backend, dtype, Class::Ties, &[3, 40], seed + 1)?;
        for right in [false, true] {
            let (rows, columns) = (x.unsqueeze(1)?, values.unsqueeze(2)?);
            let before = if right { rows.le(&columns)? } else { rows.lt(&columns)? };
            let counts = before.cast(DType::I64)?.sum(2, false)?;
            if let Some(found) = differ(&x.searchsorted(&values, right)?, &counts, false)? {
                return Ok(Some(format!("{dtype}, right {right}: {found}")));
            }
        }
    }
    // Beyond 16 bits, and each element of a row of distinct ones is found where it stands.
    let row = Tensor::arange(backend, 0..70_001, DType::I64)?;
    differ(&row.mul(3)?.searchsorted(&row.mul(3)?, false)?, &row, false)
}

pub(super) fn nan_of_either_sign(backend: &Backend, _: u64) -> Result<Option<String>> {
    // The bits of NaN, −NaN with a payload, ∞, −∞, 0, −0 in each format.
    let bytes =
        |words: &[u64], size: usize| words.iter().flat_map(|word| word.to_le_bytes()[..size].to_vec()).collect();
    let (wide, single) = (0x7ff_u64 << 52, 0xff_u64 << 23);
    let cases: [(DType, Vec<u8>); 4] = [
        (DType::F64, bytes(&[wide | 1 << 51, 1 << 63 | wide | 0x123, wide, 1 << 63 | wide, 0, 1 << 63], 8)),
        (DType::F32, bytes(&[single | 1 << 22, 1 << 31 | single | 0x123, single, 1 << 31 | single, 0, 1 << 31], 4)),
        (DType::F16, bytes(&[0x7e00, 0xfc01, 0x7c00, 0xfc00, 0, 0x8000], 2)),
        (DType::BF16, bytes(&[0x7fc0, 0xff81, 0x7f80, 0xff80, 0, 0x8000], 2)),
    ];
    for (dtype, bytes) in cases {
        let mut storage = backend.alloc(dtype, 6)?;
        backend.write(&bytes, &mut storage, 0)?;
        let layout = Layout::contiguous(congruent::Shape::new("law", &[6])?);
        let x = Tensor::from_parts(backend, std::sync::Arc::new(storage), layout)?;
        for (descending, expected) in [(false, [3, 4, 5, 2, 0, 1]), (true, [0, 1, 2, 4, 5, 3])] {
            let before = bits(&x)?;
            let moved: Vec<u64> = expected.iter().map(|&at| before[at as usize]).collect();
            let order = x.argsort(0, descending)?.to_vec::<i64>()?;
            if order != expected || bits(&x.sort(0, descending)?)? != moved {
                return Ok(Some(format!("{dtype}, descending {descending}: the order is {order:?}")));
            }
        }
        let places = x.sort(0, false)?.searchsorted(&x, false)?.to_vec::<i64>()?;
        if places != [4, 4, 3, 0, 1, 1] {
            return Ok(Some(format!("{dtype}: the places are {places:?}")));
        }
    }
    Ok(None)
}

pub(super) fn middle(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in super::FLOATS {
        let x = make(backend, dtype, Class::SmallInts, &[4, 33], seed)?;
        let sorted = x.sort(1, false)?;
        let pairs = [
            ("the median of an odd count", x.median(1, false)?, sorted.i((.., 16))?),
            ("the quantile 0", x.quantile(0.0, 1, true)?, x.min(1, true)?),
            ("the quantile 1", x.quantile(1.0, None, false)?, x.max((), false)?),
            (
                "the median of an even count",
                x.i((.., ..32))?.median(-1, false)?,
                x.i((.., ..32))?.sort(1, false)?.i((.., 15..17))?.mean(1, false)?,
            ),
        ];
        for (name, found, expected) in pairs {
            if let Some(found) = differ(&found, &expected.contiguous()?, true)? {
                return Ok(Some(format!("{name}, {dtype}: {found}")));
            }
        }
    }
    Ok(None)
}
