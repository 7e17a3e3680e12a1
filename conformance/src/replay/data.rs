//! Reading tensors and scalars from JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use congruent_backend_api::{DType, Layout, Scalar, Shape};
use serde_json::{Number, Value};

use super::fields::{FieldError, Fields, Node, Result};
use crate::host::{HostTensor, decode, encode_float, encode_int};
use crate::round::Format;

/// The elements of a storage as a file gives them.
#[derive(Clone, Debug)]
pub(super) struct Data {
    /// Their memory.
    pub(super) bytes: Vec<u8>,
    /// Which elements were given as bits, so that a NaN among them means just that NaN; empty for none.
    pub(super) literal: Vec<bool>,
}

/// A tensor: dtype, shape, strides and offset over its storage.
pub(super) fn tensor(mut fields: Fields) -> Result<HostTensor> {
    let dtype = dtype(&fields.required("dtype")?)?;
    let shape = fields.required("shape")?;
    let (strides, offset) = (fields.given("strides"), fields.given("offset"));
    let data = fields.required("data")?;
    fields.finish()?;
    let layout = layout(shape, strides, offset)?;
    let bytes = self::data(data.clone(), dtype)?.bytes;
    let len = bytes.len() / dtype.size();
    if layout.min_len() > len {
        let needed = layout.min_len();
        return Err(data.fail(format!("the view reaches element {}, the data has only {len}", needed - 1)));
    }
    Ok(HostTensor { dtype, layout, bytes })
}

fn layout(shape: Node, strides: Option<Node>, offset: Option<Node>) -> Result<Layout> {
    let offset = offset.map_or(Ok(0), |offset| offset.unsigned())?;
    let at = shape.clone();
    let sizes = shape.sizes()?;
    let fail = |error: congruent_backend_api::Error| at.fail(error.message());
    let strides = match strides {
        Some(strides) => strides.integers()?,
        None => Layout::contiguous(Shape::new("replay", &sizes).map_err(fail)?).strides().to_vec(),
    };
    Layout::new("replay", &sizes, &strides, offset).map_err(fail)
}

/// A dtype's name.
pub(super) fn dtype(node: &Node) -> Result<DType> {
    node.text()?.parse().map_err(|error: congruent_backend_api::Error| node.fail(error.message()))
}

/// The data of a storage, in any of the forms.
pub(super) fn data(node: Node, dtype: DType) -> Result<Data> {
    let mut data = Data { bytes: Vec::new(), literal: Vec::new() };
    if let Value::Array(list) = &node.value {
        reserve(&node, dtype, list.len(), &mut data)?;
        for (index, value) in list.iter().enumerate() {
            let parsed = element(value, dtype);
            let (bits, literal) = parsed.map_err(|message| node.fail(format!("element {index}: {message}")))?;
            data.push(dtype, bits, literal);
        }
        return Ok(data);
    }
    let whole = node.clone();
    let mut fields = node.fields().map_err(|error| FieldError {
        message: error.message.replacen("an object", "a list, or an object with full, arange, repeat or base64", 1),
        ..error
    })?;
    if let Some(text) = fields.optional("base64") {
        fields.finish()?;
        return base64(&text, dtype);
    }
    let (full, repeat, arange) = (fields.optional("full"), fields.optional("repeat"), fields.optional("arange"));
    let len = fields.required("len")?.unsigned()?;
    fields.finish()?;
    reserve(&whole, dtype, len, &mut data)?;
    match (full, repeat, arange) {
        (Some(value), None, None) => {
            let (bits, literal) = one(&value, dtype)?;
            (0..len).for_each(|_| data.push(dtype, bits, literal));
        }
        (None, Some(values), None) => {
            let pattern = values.clone().list()?.iter().map(|value| one(value, dtype)).collect::<Result<Vec<_>>>()?;
            if pattern.is_empty() && len > 0 {
                return Err(values.fail("there is nothing to repeat"));
            }
            pattern.iter().cycle().take(len).for_each(|&(bits, literal)| data.push(dtype, bits, literal));
        }
        (None, None, Some(range)) => arange_data(range, dtype, len, &mut data)?,
        _ => return Err(whole.fail("give exactly one of full, arange, repeat and base64")),
    }
    Ok(data)
}

impl Data {
    fn push(&mut self, dtype: DType, bits: u64, literal: bool) {
        let before = self.bytes.len() / dtype.size();
        self.bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
        if literal || !self.literal.is_empty() {
            self.literal.resize(before, false);
            self.literal.push(literal);
        }
    }
}

fn reserve(node: &Node, dtype: DType, len: usize, data: &mut Data) -> Result<()> {
    let bytes = len.checked_mul(dtype.size()).filter(|&bytes| data.bytes.try_reserve_exact(bytes).is_ok());
    bytes.map(drop).ok_or_else(|| node.fail(format!("{len} elements of {dtype} do not fit into memory")))
}

fn base64(node: &Node, dtype: DType) -> Result<Data> {
    let bytes = STANDARD.decode(node.text()?).map_err(|error| node.fail(error.to_string()))?;
    if !bytes.len().is_multiple_of(dtype.size()) {
        return Err(node.fail(format!("{} bytes are not a whole number of {dtype} elements", bytes.len())));
    }
    if dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        return Err(node.fail("a bool byte must be 0 or 1"));
    }
    Ok(Data { bytes, literal: Vec::new() })
}

fn arange_data(node: Node, dtype: DType, len: usize, data: &mut Data) -> Result<()> {
    let at = node.clone();
    let fail = |message: String| at.fail(message);
    let [start, step] = <[Node; 2]>::try_from(node.list()?).map_err(|_| fail("expected [start, step]".to_owned()))?;
    let whole = |node: &Node| node.value.as_i64().map(i128::from);
    let real = |node: &Node| node.value.as_f64().ok_or_else(|| node.fail("expected a number"));
    let values = (whole(&start), whole(&step));
    let (first, by) = (real(&start)?, real(&step)?);
    for index in 0..len {
        let bits = match values {
            // At most 2^63 steps of 2^63: no overflow.
            (Some(start), Some(step)) => integer_bits(dtype, start + step * index as i128),
            _ => float_bits(dtype, first + by * index as f64),
        };
        data.push(dtype, bits.map_err(&fail)?, false);
    }
    Ok(())
}

fn one(node: &Node, dtype: DType) -> Result<(u64, bool)> {
    element(&node.value, dtype).map_err(|message| node.fail(message))
}

/// The bits of an element, and whether they were given as bits.
fn element(value: &Value, dtype: DType) -> std::result::Result<(u64, bool), String> {
    let bits = match value {
        Value::Bool(truth) if dtype == DType::Bool => Ok((*truth).into()),
        Value::Number(number) => match integer(number) {
            Some(value) => integer_bits(dtype, value),
            None => float_bits(dtype, number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => return hex(digits, dtype).map(|bits| (bits, true)),
            None => special(text)
                .filter(|_| dtype.is_float())
                .map(|value| encode_float(dtype, value))
                .ok_or_else(|| wrong(value, dtype)),
        },
        _ => Err(wrong(value, dtype)),
    };
    bits.map(|bits| (bits, false))
}

fn wrong(value: &Value, dtype: DType) -> String {
    let known = match dtype {
        DType::Bool => "true, false or \"0x…\"",
        _ if dtype.is_float() => "a number, \"nan\", \"inf\", \"-inf\", \"-0\" or \"0x…\"",
        _ => "a number or \"0x…\"",
    };
    format!("{value} is no element of {dtype}; give {known}")
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn special(text: &str) -> Option<f64> {
    match text {
        "nan" => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        "-0" => Some(-0.0),
        _ => None,
    }
}

fn hex(digits: &str, dtype: DType) -> std::result::Result<u64, String> {
    let most = 2 * dtype.size();
    let bits = u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() <= most && !digits.starts_with('+'));
    let bits =
        bits.ok_or_else(|| format!("\"0x{digits}\" is not the bits of a {dtype}: at most {most} hexadecimal digits"))?;
    if dtype == DType::Bool && bits > 1 {
        Err(format!("\"0x{digits}\" is no bool; give 0x00 or 0x01"))
    } else {
        Ok(bits)
    }
}

fn integer_bits(dtype: DType, value: i128) -> std::result::Result<u64, String> {
    if let Some(format) = Format::of(dtype) {
        return Ok(encode_float(dtype, format.round_int(value)));
    }
    let (low, high) = range(dtype);
    if (low..=high).contains(&value) {
        Ok(encode_int(dtype, value))
    } else {
        Err(format!("{value} is outside the range {low}..={high} of {dtype}"))
    }
}

fn float_bits(dtype: DType, value: f64) -> std::result::Result<u64, String> {
    match dtype {
        DType::Bool => Err(format!("{value} is no bool; give true or false")),
        _ if dtype.is_float() => Ok(encode_float(dtype, value)),
        _ => integer_bits(dtype, value.round_ties_even() as i128),
    }
}

fn range(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size() as u32;
    match dtype {
        DType::Bool => (0, 1),
        DType::I64 | DType::I32 => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        _ => (0, (1 << bits) - 1),
    }
}

/// A scalar argument of an op on `dtype`, in the kind in which it is given: `2` is an integer, `2.0` a float.
pub(super) fn scalar(node: &Node, dtype: DType) -> Result<Scalar> {
    match &node.value {
        Value::Bool(truth) => Ok(Scalar::Bool(*truth)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(value), _) => Ok(Scalar::Int(value)),
            (None, Some(value)) if number.is_f64() || dtype.is_float() => Ok(Scalar::Float(value)),
            _ => Err(node.fail(format!("{number} is outside the range of i64"))),
        },
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => hex(digits, dtype).map(|bits| decode(dtype, bits)).map_err(|message| node.fail(message)),
            None => special(text).map(Scalar::Float).ok_or_else(|| node.fail(wrong(&node.value, DType::F64))),
        },
        _ => Err(node.fail(wrong(&node.value, dtype))),
    }
}
