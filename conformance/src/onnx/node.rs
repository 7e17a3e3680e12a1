//! A node with its operands. What a lowering does not read is found out: an attribute or an operand that was passed over
//! would make the test say more than was tested.

use std::cell::Cell;
use std::sync::Arc;

use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::{DType, Error, Scalar};

use super::proto::{AttributeProto, NodeProto, TensorProto};
use super::trace::Tensor;

/// Why a test ends before its outputs are judged.
#[derive(Debug)]
pub(super) enum Stop {
    /// The frontend or the kit has nothing for this.
    NotCovered(String),
    /// A call failed.
    Error(Error),
    /// The test's files contradict themselves.
    Malformed(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// What a lowering returns.
pub(super) type Lowered<T> = Result<T, Stop>;

/// A node, and the tensors that it takes.
#[derive(Debug)]
pub(super) struct Node<'a> {
    proto: &'a NodeProto,
    backend: &'a Arc<AnyBackend>,
    inputs: Vec<Option<Tensor>>,
    /// Bit masks of what was read.
    read_attributes: Cell<u64>,
    read_inputs: Cell<u64>,
}

impl<'a> Node<'a> {
    pub(super) fn new(proto: &'a NodeProto, backend: &'a Arc<AnyBackend>, inputs: Vec<Option<Tensor>>) -> Self {
        Self { proto, backend, inputs, read_attributes: Cell::new(0), read_inputs: Cell::new(0) }
    }

    /// The operator's name.
    pub(super) fn op(&self) -> &'a str {
        self.proto.op_type.as_deref().unwrap_or_default()
    }

    /// Where the tensors are.
    pub(super) fn backend(&self) -> &'a Arc<AnyBackend> {
        self.backend
    }

    /// How many outputs the node names.
    pub(super) fn outputs(&self) -> usize {
        self.proto.output.len()
    }

    /// An operand that may be absent.
    pub(super) fn optional(&self, index: usize) -> Option<&Tensor> {
        self.read_inputs.set(self.read_inputs.get() | bit(index));
        self.inputs.get(index).and_then(Option::as_ref)
    }

    /// An operand.
    pub(super) fn input(&self, index: usize) -> Lowered<&Tensor> {
        self.optional(index).ok_or_else(|| Stop::Malformed(format!("{} has no operand {index}", self.op())))
    }

    /// The operands of a variadic operator.
    pub(super) fn all(&self) -> Vec<&Tensor> {
        (0..self.inputs.len()).filter_map(|index| self.optional(index)).collect()
    }

    /// The only element of an operand that may be absent.
    pub(super) fn scalar(&self, index: usize) -> Lowered<Option<Scalar>> {
        self.optional(index).map(only).transpose()
    }

    fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        let index = self.proto.attribute.iter().position(|attribute| attribute.name.as_deref() == Some(name))?;
        self.read_attributes.set(self.read_attributes.get() | bit(index));
        self.proto.attribute.get(index)
    }

    /// An integer attribute that has no default.
    pub(super) fn given(&self, name: &str) -> Option<i64> {
        self.attribute(name).and_then(|attribute| attribute.i)
    }

    /// An integer attribute.
    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.given(name).unwrap_or(default)
    }

    /// An integer attribute that names an axis or a size.
    pub(super) fn size(&self, name: &str, default: i64) -> isize {
        to_isize(self.int(name, default))
    }

    /// A truth value, which ONNX stores as an integer.
    pub(super) fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, default.into()) != 0
    }

    /// A float attribute.
    pub(super) fn float(&self, name: &str, default: f32) -> f64 {
        self.attribute(name).and_then(|attribute| attribute.f).unwrap_or(default).into()
    }

    /// A list of integers.
    pub(super) fn ints(&self, name: &str) -> Option<Vec<isize>> {
        self.attribute(name).map(|attribute| attribute.ints.iter().copied().map(to_isize).collect())
    }

    /// A text attribute.
    pub(super) fn text(&self, name: &str, default: &str) -> String {
        let given = self.attribute(name).and_then(|attribute| attribute.s.as_deref());
        given.map_or_else(|| default.to_owned(), |text| String::from_utf8_lossy(text).into_owned())
    }

    /// A tensor attribute.
    pub(super) fn tensor(&self, name: &str) -> Option<&'a TensorProto> {
        self.attribute(name).and_then(|attribute| attribute.t.as_ref())
    }

    /// The value of an attribute that holds one number or a list of them.
    pub(super) fn numbers(&self, name: &str) -> Option<Numbers<'a>> {
        self.attribute(name).map(|attribute| match name {
            "value_int" => Numbers::Ints(attribute.i.as_slice(), false),
            "value_ints" => Numbers::Ints(&attribute.ints, true),
            "value_float" => Numbers::Floats(attribute.f.as_slice(), false),
            _ => Numbers::Floats(&attribute.floats, true),
        })
    }

    /// Reads an operand's integers; where it is absent, the attribute of that name, which it was in older versions.
    pub(super) fn operand_or_attribute(&self, index: usize, name: &str) -> Lowered<Option<Vec<isize>>> {
        match self.optional(index) {
            Some(tensor) => integers(tensor).map(Some),
            None => Ok(self.ints(name)),
        }
    }

    /// Names this operator in a reason.
    pub(super) fn not_covered(&self, what: &str) -> Stop {
        Stop::NotCovered(format!("{} {what}", self.op()))
    }

    /// Fails for an attribute or an operand that nothing has read.
    pub(super) fn check_read(&self) -> Lowered<()> {
        for (index, attribute) in self.proto.attribute.iter().enumerate() {
            if self.read_attributes.get() & bit(index) == 0 {
                return Err(self.not_covered(&format!("with `{}`", attribute.name.as_deref().unwrap_or_default())));
            }
        }
        for (index, input) in self.inputs.iter().enumerate() {
            if self.read_inputs.get() & bit(index) == 0 && input.is_some() {
                return Err(self.not_covered(&format!("with operand {index}")));
            }
        }
        Ok(())
    }
}

/// The numbers of an attribute, and whether they make an axis.
pub(super) enum Numbers<'a> {
    Ints(&'a [i64], bool),
    Floats(&'a [f32], bool),
}

/// Beyond the 64th everything shares the last bit.
fn bit(index: usize) -> u64 {
    1 << index.min(63)
}

/// An integer of a file as an axis or a size; what does not fit is outside every tensor as well.
pub(super) fn to_isize(value: i64) -> isize {
    isize::try_from(value).unwrap_or(if value < 0 { isize::MIN } else { isize::MAX })
}

/// The elements of a tensor that the host must know, such as a shape.
pub(super) fn integers(tensor: &Tensor) -> Lowered<Vec<isize>> {
    Ok(tensor.cast(DType::I64)?.to_vec::<i64>()?.into_iter().map(to_isize).collect())
}

/// The only element of a tensor.
pub(super) fn only(tensor: &Tensor) -> Lowered<Scalar> {
    match tensor.dtype() {
        DType::Bool => Ok(tensor.item::<bool>()?.into()),
        dtype if dtype.is_float() => Ok(tensor.cast(DType::F64)?.item::<f64>()?.into()),
        _ => Ok(tensor.cast(DType::I64)?.item::<i64>()?.into()),
    }
}

/// Axes and sizes as the frontend takes them.
pub(super) fn sizes(values: &[isize]) -> Lowered<Vec<usize>> {
    let sizes: Option<Vec<usize>> = values.iter().map(|&size| usize::try_from(size).ok()).collect();
    sizes.ok_or_else(|| Stop::Malformed(format!("{values:?} is no shape")))
}
