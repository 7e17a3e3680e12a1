//! The cases: one line each, under the name that `torch_cuda.py` gives the same case.

use std::sync::Arc;

use congruent::ops::{Activation, ConvOptions};
use congruent::{AnyBackend, DType, Generator, Result, Scalar, Tensor, step};
use congruent_benches::random;

type Run = Box<dyn FnMut() -> Result<()>>;
type T = Tensor<AnyBackend>;

/// Puts the inputs on a backend.
pub(crate) type Make = Box<dyn Fn(&Arc<AnyBackend>) -> Result<Run>>;

/// What is timed: a call on inputs that are there already, its result included.
pub(crate) struct Case {
    pub(crate) op: &'static str,
    pub(crate) dtype: DType,
    pub(crate) shape: &'static str,
    /// What it reads and writes at least once, if memory is its limit.
    pub(crate) bytes: Option<usize>,
    pub(crate) make: Make,
}

/// 64M elements, flat and as a square.
const N: usize = 64 << 20;
const SIDE: usize = 8192;

/// Every case, in the order of the table.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        elementwise(&mut cases, dtype);
        broadcast(&mut cases, dtype);
        reductions(&mut cases, dtype);
        norms(&mut cases, dtype);
    }
    indices(&mut cases);
    sorts(&mut cases);
    random_numbers(&mut cases);
    products(&mut cases);
    for dtype in [DType::F32, DType::BF16] {
        convolutions(&mut cases, dtype);
    }
    cases
}

fn elementwise(cases: &mut Vec<Case>, dtype: DType) {
    let size = dtype.size();
    let mut flat = |op, bytes: usize, call: fn(&T, &T) -> Result<T>| {
        cases.push(two(op, dtype, "64M", Some(N * bytes), [&[N], &[N]], call));
    };
    flat("add", 3 * size, |a, b| a.add(b));
    flat("mul_scalar", 2 * size, |a, _| a.mul(2.0));
    flat("exp", 2 * size, |a, _| a.exp());
    flat("tanh", 2 * size, |a, _| a.tanh());
    flat("gelu", 2 * size, |a, _| a.gelu());
    flat("gelu_tanh", 2 * size, |a, _| a.gelu_tanh());
    flat("relu", 2 * size, |a, _| a.relu());
    flat("silu", 2 * size, |a, _| a.silu());
    flat("gt", 2 * size + 1, |a, b| a.gt(b));
    flat("copy", 2 * size, |a, _| a.copy());
    flat("cast_f32", size + 4, |a, _| if a.dtype() == DType::F32 { a.copy() } else { a.cast(DType::F32) });
    flat("cast_bf16", size + 2, |a, _| if a.dtype() == DType::BF16 { a.copy() } else { a.cast(DType::BF16) });
    flat("fill", size, |a, _| Tensor::full(a.backend(), Scalar::Float(1.0), [N], a.dtype()));
    cases.push(Case {
        op: "where",
        dtype,
        shape: "64M",
        bytes: Some(N * (3 * size + 1)),
        make: Box::new(move |backend| {
            let (a, b) = (spread(backend, dtype, &[N])?, spread(backend, dtype, &[N])?);
            let mask = a.gt(0.0)?;
            Ok(Box::new(move || mask.where_cond(&a, &b).map(drop)))
        }),
    });
    let half = N / 2;
    cases.push(two("cat", dtype, "2x32M", Some(N * 2 * size), [&[N / 2], &[N / 2]], |a, b| Tensor::cat(&[a, b], 0)));
    cases.push(two("strided", dtype, "64M::2", Some(half * 3 * size), [&[N], &[1]], |a, _| {
        a.slice(0, step(.., 2))?.copy()
    }));
}

fn broadcast(cases: &mut Vec<Case>, dtype: DType) {
    let moved = Some(2 * N * dtype.size());
    let mut square = |op, bytes, other, call: fn(&T, &T) -> Result<T>| {
        cases.push(two(op, dtype, "8192", bytes, [&[SIDE, SIDE], other], call));
    };
    square("add_row", moved, &[SIDE], |a, b| a.add(b));
    square("add_col", moved, &[SIDE, 1], |a, b| a.add(b));
    square("add_t", moved, &[1], |a, _| a.add(&a.t()?));
    square("add_bt", Some(3 * N * dtype.size()), &[SIDE, SIDE], |a, b| a.add(&b.t()?));
    square("transpose_copy", moved, &[1], |a, _| a.t()?.copy());
    square("permute_copy", moved, &[1], |a, _| a.reshape([64, 128, 64, 128])?.permute([0, 2, 1, 3])?.copy());
}

fn reductions(cases: &mut Vec<Case>, dtype: DType) {
    let read = Some(N * dtype.size());
    let mut square = |op, shape, sizes, call: fn(&T) -> Result<T>| {
        cases.push(one(op, dtype, shape, read, sizes, call));
    };
    square("sum_all", "64M", &[N], |x| x.sum((), false));
    square("sum0", "8192", &[SIDE, SIDE], |x| x.sum(0, false));
    square("sum1", "8192", &[SIDE, SIDE], |x| x.sum(1, false));
    square("max1", "8192", &[SIDE, SIDE], |x| x.max(1, false));
    square("max_all", "64M", &[N], |x| x.max((), false));
    square("argmax1", "8192", &[SIDE, SIDE], |x| x.argmax(1, false));
    square("argmax0", "8192", &[SIDE, SIDE], |x| x.argmax(0, false));
    square("mean02", "64x1024x1024", &[64, 1024, 1024], |x| x.mean([0, 2], false));
    square("sum1", "64x1024x1024", &[64, 1024, 1024], |x| x.sum(1, false));
    square("sum1", "524288x128", &[N / 128, 128], |x| x.sum(1, false));
    square("var1", "8192", &[SIDE, SIDE], |x| x.var(1.0, 1, false));
    square("logsumexp1", "8192", &[SIDE, SIDE], |x| x.logsumexp(1, false));
}

fn norms(cases: &mut Vec<Case>, dtype: DType) {
    let moved = Some(2 * N * dtype.size());
    let mut square = |op, call: fn(&T, &T) -> Result<T>| {
        cases.push(two(op, dtype, "8192", moved, [&[SIDE, SIDE], &[SIDE]], call));
    };
    square("softmax", |x, _| x.softmax(1));
    square("log_softmax", |x, _| x.log_softmax(1));
    square("layer_norm", |x, weight| x.layer_norm(1, 1e-5, Some(weight), Some(weight)));
    square("rms_norm", |x, weight| x.rms_norm(1, 1e-5, Some(weight)));
}

/// Rows of a table by random numbers, and what a mask lets through.
fn indices(cases: &mut Vec<Case>) {
    const ROWS: i64 = 1 << 16;
    let bytes = 2 * N * 4 + 8 * (1 << 16);
    let mut by_number = |op, bytes, call: fn(&T, &T) -> Result<T>| {
        let make = move |backend: &_| -> Result<Run> {
            let table = spread(backend, DType::F32, &[1 << 16, 1 << 10])?;
            let numbers = Tensor::randint(backend, 0..ROWS, [1 << 16], DType::I64, &Generator::new(1))?;
            Ok(Box::new(move || call(&table, &numbers).map(drop)))
        };
        cases.push(Case { op, dtype: DType::F32, shape: "65536x1024", bytes: Some(bytes), make: Box::new(make) });
    };
    by_number("embedding", bytes, |table, numbers| table.embedding(numbers));
    by_number("embedding_grad", bytes, |rows, numbers| rows.embedding_grad(numbers, 1 << 16));
    cases.push(one("masked_select", DType::F32, "64M", Some(N * 4 * 3), &[N], |x| x.masked_select(&x.gt(0.0)?)));
}

fn sorts(cases: &mut Vec<Case>) {
    let scanned = Some(2 * N * 4);
    cases.push(one("cumsum0", DType::F32, "8192", scanned, &[SIDE, SIDE], |x| x.cumsum(0)));
    cases.push(one("cumsum1", DType::F32, "8192", scanned, &[SIDE, SIDE], |x| x.cumsum(1)));
    let mut rows = |op, shape, sizes, call: fn(&T) -> Result<T>| {
        let make = move |backend: &_| -> Result<Run> {
            let x = Tensor::rand(backend, sizes, DType::F32, &Generator::new(2))?;
            Ok(Box::new(move || call(&x).map(drop)))
        };
        cases.push(Case { op, dtype: DType::F32, shape, bytes: None, make: Box::new(make) });
    };
    let many: &'static [usize] = &[1024, 8192];
    rows("sort", "1024x8192", many, |x| x.sort(1, false));
    rows("argsort", "1024x8192", many, |x| x.argsort(1, false));
    rows("topk50", "1024x8192", many, |x| Ok(x.topk(50, 1, true)?.0));
    rows("sort", "16M", &[1 << 24], |x| x.sort(0, false));
    rows("topk50", "1M", &[1 << 20], |x| Ok(x.topk(50, 0, true)?.0));
}

fn random_numbers(cases: &mut Vec<Case>) {
    let mut drawn = |op, dtype: DType, call: fn(&Arc<AnyBackend>, &Generator) -> Result<T>| {
        let make = move |backend: &Arc<AnyBackend>| -> Result<Run> {
            let (backend, generator) = (Arc::clone(backend), Generator::new(3));
            Ok(Box::new(move || call(&backend, &generator).map(drop)))
        };
        cases.push(Case { op, dtype, shape: "64M", bytes: Some(N * dtype.size()), make: Box::new(make) });
    };
    drawn("rand", DType::F32, |backend, generator| Tensor::rand(backend, [N], DType::F32, generator));
    drawn("rand", DType::BF16, |backend, generator| Tensor::rand(backend, [N], DType::BF16, generator));
    drawn("randn", DType::F32, |backend, generator| Tensor::randn(backend, [N], DType::F32, generator));
    drawn("randint", DType::I64, |backend, generator| Tensor::randint(backend, 0..1000, [N], DType::I64, generator));
    drawn("randperm", DType::I64, |backend, generator| Tensor::randperm(backend, N, generator));
}

fn products(cases: &mut Vec<Case>) {
    let mut product = |op, dtype, shape, [a, b]: [&'static [usize]; 2]| {
        cases.push(two(op, dtype, shape, None, [a, b], |a, b| a.matmul(b)));
    };
    product("matmul", DType::F32, "1024", [&[1024, 1024]; 2]);
    product("matmul", DType::F32, "4096", [&[4096, 4096]; 2]);
    product("matmul", DType::F64, "4096", [&[4096, 4096]; 2]);
    product("matmul", DType::BF16, "8192", [&[SIDE, SIDE]; 2]);
    product("matmul", DType::F16, "8192", [&[SIDE, SIDE]; 2]);
    product("bmm", DType::F32, "64x512x64x512", [&[64, 512, 64], &[64, 64, 512]]);
    product("bmm", DType::BF16, "64x512x64x512", [&[64, 512, 64], &[64, 64, 512]]);
}

/// Layers of image networks, [batch, channels, height, width] in rows; those that memory limits have their bytes.
fn convolutions(cases: &mut Vec<Case>, dtype: DType) {
    let of = |stride, padding, groups| ConvOptions {
        stride: [stride; 3],
        padding: [[padding; 2]; 3],
        groups,
        ..ConvOptions::default()
    };
    let (same, deep) = (of(1, 1, 1), of(1, 1, 256));
    let wide = Some((2 * 32 * 256 * 56 * 56 + 256 * 9) * dtype.size());
    let (small, kernel): (&[usize], &[usize]) = (&[32, 64, 56, 56], &[64, 64, 3, 3]);
    let (channels, depth): (&[usize], &[usize]) = (&[32, 256, 56, 56], &[256, 1, 3, 3]);
    let mut layer =
        |op, shape, bytes, sizes: [&'static [usize]; 2], call: fn(&T, &T, ConvOptions) -> Result<T>, options| {
            let make = move |backend: &_| -> Result<Run> {
                let (x, weight) = (spread(backend, dtype, sizes[0])?, spread(backend, dtype, sizes[1])?);
                Ok(Box::new(move || call(&x, &weight, options).map(drop)))
            };
            cases.push(Case { op, dtype, shape, bytes, make: Box::new(make) });
        };
    layer("conv3x3", "32x64x56", None, [small, kernel], |x, w, options| x.conv(w, None, options), same);
    layer(
        "conv3x3_relu",
        "32x64x56",
        None,
        [small, kernel],
        |x, w, options| x.conv_activated(w, Some(&w.i((.., 0, 0, 0))?), options, Activation::Relu),
        same,
    );
    layer(
        "conv3x3_nhwc",
        "32x64x56",
        None,
        [&[32, 56, 56, 64], &[64, 3, 3, 64]],
        |x, w, options| x.permute([0, 3, 1, 2])?.conv(&w.permute([0, 3, 1, 2])?, None, options),
        same,
    );
    // As many channels come as go, at stride 1: an image is also a gradient of the output.
    layer(
        "conv3x3_grad_input",
        "32x64x56",
        None,
        [small, kernel],
        |y, w, options| y.conv_grad_input(w, y.shape(), options),
        same,
    );
    layer(
        "conv3x3_grad_weight",
        "32x64x56",
        None,
        [small, kernel],
        |x, w, options| x.conv_grad_weight(x, w.shape(), options),
        same,
    );
    layer(
        "conv7x7s2",
        "32x3x224",
        None,
        [&[32, 3, 224, 224], &[64, 3, 7, 7]],
        |x, w, options| x.conv(w, None, options),
        of(2, 3, 1),
    );
    layer(
        "conv1x1",
        "32x64x56",
        None,
        [small, &[256, 64, 1, 1]],
        |x, w, options| x.conv(w, None, options),
        of(1, 0, 1),
    );
    layer("dwconv3x3", "32x256x56", wide, [channels, depth], |x, w, options| x.conv(w, None, options), deep);
    layer(
        "dwconv3x3_grad_input",
        "32x256x56",
        wide,
        [channels, depth],
        |y, w, options| y.conv_grad_input(w, y.shape(), options),
        deep,
    );
}

fn one(
    op: &'static str,
    dtype: DType,
    shape: &'static str,
    bytes: Option<usize>,
    sizes: &'static [usize],
    call: fn(&T) -> Result<T>,
) -> Case {
    let make = move |backend: &_| -> Result<Run> {
        let x = spread(backend, dtype, sizes)?;
        Ok(Box::new(move || call(&x).map(drop)))
    };
    Case { op, dtype, shape, bytes, make: Box::new(make) }
}

fn two(
    op: &'static str,
    dtype: DType,
    shape: &'static str,
    bytes: Option<usize>,
    sizes: [&'static [usize]; 2],
    call: fn(&T, &T) -> Result<T>,
) -> Case {
    let make = move |backend: &_| -> Result<Run> {
        let (a, b) = (spread(backend, dtype, sizes[0])?, spread(backend, dtype, sizes[1])?);
        Ok(Box::new(move || call(&a, &b).map(drop)))
    };
    Case { op, dtype, shape, bytes, make: Box::new(make) }
}

/// Random data; a large tensor repeats a run of it, which no cache can hold on to.
fn spread(backend: &Arc<AnyBackend>, dtype: DType, shape: &[usize]) -> Result<T> {
    const RUN: usize = 1 << 20;
    let count: usize = shape.iter().product();
    if !count.is_multiple_of(RUN) {
        return random(backend, dtype, shape);
    }
    random(backend, dtype, &[RUN])?.expand([count / RUN, RUN])?.copy()?.reshape(shape)
}
