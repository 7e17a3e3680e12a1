//! Running a graph: its nodes one after another, each as frontend calls.

use std::collections::HashMap;
use std::sync::Arc;

use congruent_backend_api::erase::AnyBackend;
use prost::Message as _;

use super::load::{NodeTest, Set};
use super::node::{Lowered, Node, Stop};
use super::ops;
use super::proto::type_proto::Value;
use super::proto::{GraphProto, TensorProto, ValueInfoProto};
use super::tensor::host;
use super::trace::{Step, Tensor, Trace};
use crate::host::HostTensor;

/// What a graph made.
#[derive(Debug)]
pub(super) struct Evaluated {
    /// Each output with the one that is stored.
    pub(super) outputs: Vec<(Tensor, HostTensor)>,
    /// What was called on the way.
    pub(super) steps: Vec<Step>,
    /// Whether something was computed that is no step.
    pub(super) composed: bool,
}

/// Runs a test's graph on one set of inputs.
pub(super) fn evaluate(test: &NodeTest, set: &Set, backend: &Arc<AnyBackend>) -> Lowered<Evaluated> {
    let default = GraphProto::default();
    let graph = test.model.graph.as_ref().unwrap_or(&default);
    let mut values = HashMap::new();
    for tensor in &graph.initializer {
        values.insert(tensor.name.as_deref().unwrap_or_default(), upload(backend, &host(tensor)?)?);
    }
    let given: Vec<_> = graph.input.iter().filter(|input| !values.contains_key(name(input))).collect();
    for (input, bytes) in given.into_iter().zip(&set.inputs) {
        values.insert(name(input), upload(backend, &stored(input, bytes)?)?);
    }
    // Before anything runs: what no kit can hold a result against is not covered.
    let wanted = graph.output.iter().zip(&set.outputs);
    let wanted = wanted.map(|(output, bytes)| Ok((output, stored(output, bytes)?))).collect::<Lowered<Vec<_>>>()?;
    if wanted.is_empty() {
        return Err(Stop::Malformed("no output is stored".to_owned()));
    }
    let trace = Trace::default();
    for proto in &graph.node {
        let domain = proto.domain.as_deref().unwrap_or_default();
        if !matches!(domain, "" | "ai.onnx") {
            let op = proto.op_type.as_deref().unwrap_or_default();
            return Err(Stop::NotCovered(format!("op {domain}.{op}")));
        }
        let operand = |name: &String| match (name.as_str(), values.get(name.as_str())) {
            ("", _) => Ok(None),
            (_, Some(value)) => Ok(Some(Tensor::clone(value))),
            (name, None) => Err(Stop::Malformed(format!("nothing makes the value `{name}`"))),
        };
        let inputs = proto.input.iter().map(operand).collect::<Lowered<Vec<_>>>()?;
        let node = Node::new(proto, backend, inputs);
        let outputs = ops::run(&trace, &node)?;
        node.check_read()?;
        if proto.output.iter().skip(outputs.len()).any(|name| !name.is_empty()) {
            return Err(node.not_covered(&format!("with more than {} outputs", outputs.len())));
        }
        values.extend(proto.output.iter().map(String::as_str).zip(outputs));
    }
    let outputs = wanted.into_iter().map(|(output, wanted)| match values.get(name(output)) {
        Some(value) => Ok((value.clone(), wanted)),
        None => Err(Stop::Malformed(format!("nothing makes the output `{}`", name(output)))),
    });
    let outputs = outputs.collect::<Lowered<_>>()?;
    Ok(Evaluated { outputs, composed: trace.is_composed(), steps: trace.steps() })
}

/// The tensor on a backend.
pub(super) fn upload(backend: &Arc<AnyBackend>, tensor: &HostTensor) -> Lowered<Tensor> {
    let mut storage = backend.alloc(tensor.dtype, tensor.storage_len())?;
    backend.write(&tensor.bytes, &mut storage, 0)?;
    Ok(Tensor::from_parts(backend, Arc::new(storage), tensor.layout)?)
}

/// The tensor in a file, if that is what its place in the graph holds.
fn stored(place: &ValueInfoProto, bytes: &[u8]) -> Lowered<HostTensor> {
    let Some(Value::TensorType(_)) = place.r#type.as_ref().and_then(|kind| kind.value.as_ref()) else {
        return Err(Stop::NotCovered("sequences, optionals and maps".to_owned()));
    };
    let proto = TensorProto::decode(bytes).map_err(|error| Stop::Malformed(error.to_string()))?;
    host(&proto)
}

fn name(value: &ValueInfoProto) -> &str {
    value.name.as_deref().unwrap_or_default()
}
