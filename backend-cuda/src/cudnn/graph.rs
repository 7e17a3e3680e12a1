//! A convolution as cuDNN's graph of operations.

use congruent_backend_api::DType;
use congruent_backend_api::ops::conv::ConvOp;
use cudarc::cudnn::result::CudnnError;
use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Attribute, cudnnBackendDescriptorType_t as Class, cudnnConvolutionMode_t,
    cudnnDataType_t, cudnnPointwiseMode_t,
};

use super::descriptor::{Address, Descriptor};
use super::{AXES, Graph};

/// The names under which tensors are given memory, and that of one which never is in memory.
pub(super) const X: i64 = 1;
pub(super) const WEIGHT: i64 = 2;
pub(super) const Y: i64 = 3;
pub(super) const BIAS: i64 = 4;
const SUMS: i64 = 5;

/// The descriptors of a graph, which live as long as what is made from them.
#[derive(Default)]
pub(super) struct Parts(pub(super) Vec<Descriptor>);

impl Parts {
    /// A descriptor with what `describe` sets.
    pub(super) fn add(
        &mut self,
        class: Class,
        describe: impl FnOnce(&Descriptor) -> Result<(), CudnnError>,
    ) -> Result<Address, CudnnError> {
        let descriptor = Descriptor::new(class)?;
        describe(&descriptor)?;
        descriptor.finalize()?;
        let address = descriptor.address();
        self.0.push(descriptor);
        Ok(address)
    }

    /// A packed tensor; one without memory is only an intermediate of a graph.
    fn tensor(
        &mut self,
        graph: &Graph,
        (id, in_memory): (i64, bool),
        dtype: DType,
        sizes: &[i64; AXES],
    ) -> Result<Address, CudnnError> {
        let mut strides = [1; AXES];
        let mut step = 1;
        for axis in order(graph.axes, graph.channels_last).rev() {
            strides[axis] = step;
            step *= sizes[axis];
        }
        self.add(Class::CUDNN_BACKEND_TENSOR_DESCRIPTOR, |tensor| {
            tensor.set(Attribute::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?;
            tensor.set(Attribute::CUDNN_ATTR_TENSOR_DATA_TYPE, &[data_type(dtype)])?;
            tensor.set(Attribute::CUDNN_ATTR_TENSOR_DIMENSIONS, &sizes[..graph.axes])?;
            tensor.set(Attribute::CUDNN_ATTR_TENSOR_STRIDES, &strides[..graph.axes])?;
            tensor.set(Attribute::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[16_i64])?;
            tensor.set(Attribute::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[!in_memory])
        })
    }

    fn addition(&mut self, compute: DType, [a, b]: [Address; 2], y: Address) -> Result<Address, CudnnError> {
        let function = self.add(Class::CUDNN_BACKEND_POINTWISE_DESCRIPTOR, |function| {
            function.set(Attribute::CUDNN_ATTR_POINTWISE_MODE, &[cudnnPointwiseMode_t::CUDNN_POINTWISE_ADD])?;
            function.set(Attribute::CUDNN_ATTR_POINTWISE_MATH_PREC, &[data_type(compute)])
        })?;
        self.add(Class::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, |operation| {
            operation.set(Attribute::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[function])?;
            operation.set(Attribute::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[a])?;
            operation.set(Attribute::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[b])?;
            operation.set(Attribute::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[y])
        })
    }
}

impl Graph {
    /// Describes tensors and operations, and returns the operations.
    pub(super) fn operations(&self, parts: &mut Parts) -> Result<Vec<Address>, CudnnError> {
        let (dtype, out, space) = (self.dtype, self.out_dtype, self.axes - 2);
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let [dtype_x, dtype_weight, dtype_y] = match self.op {
            ConvOp::Conv if self.bias => [dtype, dtype, wide],
            ConvOp::Conv => [dtype, dtype, out],
            ConvOp::ConvTranspose => [out, dtype, dtype],
            ConvOp::ConvGradWeight => [dtype, out, dtype],
        };
        let x = parts.tensor(self, (X, true), dtype_x, &self.sizes[0])?;
        let weight = parts.tensor(self, (WEIGHT, true), dtype_weight, &self.sizes[1])?;
        let sums = if self.bias { (SUMS, false) } else { (Y, true) };
        let sums = parts.tensor(self, sums, dtype_y, &self.sizes[2])?;
        let walk = parts.add(Class::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, |walk| {
            let mode = cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
            walk.set(Attribute::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[data_type(wide)])?;
            walk.set(Attribute::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[mode])?;
            walk.set(Attribute::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[space as i64])?;
            walk.set(Attribute::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &self.stride[..space])?;
            walk.set(Attribute::CUDNN_ATTR_CONVOLUTION_DILATIONS, &self.dilation[..space])?;
            walk.set(Attribute::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &self.padding[..space])?;
            walk.set(Attribute::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &self.padding[..space])
        })?;
        let names = names(self.op);
        let convolution = parts.add(names.class, |convolution| {
            convolution.set(names.walk, &[walk])?;
            convolution.set(names.x, &[x])?;
            convolution.set(names.weight, &[weight])?;
            convolution.set(names.y, &[sums])?;
            if wide == DType::F64 {
                convolution.set(names.alpha, &[1.0_f64])?;
                convolution.set(names.beta, &[0.0_f64])
            } else {
                convolution.set(names.alpha, &[1.0_f32])?;
                convolution.set(names.beta, &[0.0_f32])
            }
        })?;
        let mut operations = vec![convolution];
        if self.bias {
            let channels = [1, self.sizes[2][1], 1, 1, 1];
            let bias = parts.tensor(self, (BIAS, true), dtype, &channels)?;
            let y = parts.tensor(self, (Y, true), out, &self.sizes[2])?;
            operations.push(parts.addition(wide, [sums, bias], y)?);
        }
        Ok(operations)
    }
}

/// The axes of a packed tensor as they lie in memory, outermost first.
pub(crate) fn order(axes: usize, channels_last: bool) -> impl DoubleEndedIterator<Item = usize> {
    (0..axes).map(move |place| match place {
        0 => 0,
        place if !channels_last => place,
        place if place + 1 == axes => 1,
        place => place + 1,
    })
}

/// A float dtype.
fn data_type(dtype: DType) -> cudnnDataType_t {
    match dtype {
        DType::F64 => cudnnDataType_t::CUDNN_DATA_DOUBLE,
        DType::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
        DType::BF16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        _ => cudnnDataType_t::CUDNN_DATA_FLOAT,
    }
}

/// What cuDNN calls the parts of an operation.
struct Names {
    class: Class,
    walk: Attribute,
    x: Attribute,
    weight: Attribute,
    y: Attribute,
    alpha: Attribute,
    beta: Attribute,
}

fn names(op: ConvOp) -> Names {
    match op {
        ConvOp::Conv => Names {
            class: Class::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            walk: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            x: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            weight: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            y: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            alpha: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            beta: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
        },
        ConvOp::ConvTranspose => Names {
            class: Class::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            walk: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            x: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            weight: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            y: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            alpha: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            beta: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
        },
        ConvOp::ConvGradWeight => Names {
            class: Class::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            walk: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            x: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            weight: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            y: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            alpha: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            beta: Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
        },
    }
}
