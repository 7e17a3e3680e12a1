//! Tensors of protocol buffers.

use congruent_backend_api::{DType, Layout, Shape};

use super::node::Stop;
use super::proto::TensorProto;
use super::proto::tensor_proto::DataType;
use crate::host::HostTensor;

/// The dtype of an ONNX data type.
pub(super) fn dtype(data_type: i32) -> Result<DType, Stop> {
    let known = DataType::try_from(data_type).unwrap_or(DataType::Undefined);
    match known {
        DataType::Double => Ok(DType::F64),
        DataType::Float => Ok(DType::F32),
        DataType::Float16 => Ok(DType::F16),
        DataType::Bfloat16 => Ok(DType::BF16),
        DataType::Int64 => Ok(DType::I64),
        DataType::Int32 => Ok(DType::I32),
        DataType::Uint32 => Ok(DType::U32),
        DataType::Uint8 => Ok(DType::U8),
        DataType::Bool => Ok(DType::Bool),
        _ => Err(Stop::NotCovered(format!("dtype {}", known.as_str_name()))),
    }
}

/// The elements, row-major.
pub(super) fn host(proto: &TensorProto) -> Result<HostTensor, Stop> {
    let dtype = dtype(proto.data_type.unwrap_or(0))?;
    if proto.data_location.unwrap_or(0) != 0 {
        return Err(Stop::NotCovered("tensors in external files".to_owned()));
    }
    let sizes: Option<Vec<usize>> = proto.dims.iter().map(|&size| usize::try_from(size).ok()).collect();
    let sizes = sizes.ok_or_else(|| Stop::Malformed(format!("a tensor has shape {:?}", proto.dims)))?;
    if sizes.len() > congruent_backend_api::MAX_RANK {
        return Err(Stop::NotCovered(format!("rank {}", sizes.len())));
    }
    let layout = Layout::contiguous(Shape::new("onnx", &sizes)?);
    let bytes = proto.raw_data.clone().unwrap_or_else(|| typed(proto, dtype));
    if bytes.len() != layout.count() * dtype.size() {
        let message = format!("a tensor of {dtype} {sizes:?} has {} bytes of data", bytes.len());
        return Err(Stop::Malformed(message));
    }
    Ok(HostTensor { dtype, layout, bytes })
}

/// The elements where they are not raw: small integers, and the bits of small floats, are stored as i32.
fn typed(proto: &TensorProto, dtype: DType) -> Vec<u8> {
    let small = |size: usize| proto.int32_data.iter().flat_map(move |x| x.to_le_bytes().into_iter().take(size));
    match dtype {
        DType::F64 => proto.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::F32 => proto.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::I64 => proto.int64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::U32 => proto.uint64_data.iter().flat_map(|x| x.to_le_bytes().into_iter().take(4)).collect(),
        DType::F16 | DType::BF16 | DType::I32 | DType::U8 | DType::Bool => small(dtype.size()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use congruent_backend_api::Scalar;

    #[test]
    fn raw_and_typed_data_are_the_same_tensor() {
        let half = 0x3c00_u16;
        let proto = |raw_data, int32_data| TensorProto {
            dims: vec![1],
            data_type: Some(DataType::Float16 as i32),
            raw_data,
            int32_data,
            ..TensorProto::default()
        };
        let raw = host(&proto(Some(half.to_le_bytes().to_vec()), Vec::new())).unwrap();
        assert_eq!(raw, host(&proto(None, vec![half.into()])).unwrap());
        assert_eq!(raw.values(), [Scalar::Float(1.0)]);
        assert!(matches!(host(&proto(None, Vec::new())), Err(Stop::Malformed(_))));
        let string = TensorProto { data_type: Some(DataType::String as i32), ..TensorProto::default() };
        assert!(matches!(host(&string), Err(Stop::NotCovered(reason)) if reason == "dtype STRING"));
    }
}
