//! The kernels: their sources, modules of some ops of a family for one dtype, compiled at first use and kept.
//!
//! [`KernelModule`] is a unit of compilation: `common.cuh`, `elementwise.cuh`, then the family's `.cu`, with the element
//! type and the part of the family on the command line. Large families have several parts, so that the first op of a
//! process waits for few others. Compiling one takes NVRTC about a second; afterwards it comes from the disk cache in
//! milliseconds. The function of an op is looked up once per device and then found by index.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use congruent_backend_api::ops::attention::AttentionOp;
use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::compare::CompareOp;
use congruent_backend_api::ops::conv::ConvOp;
use congruent_backend_api::ops::index::ScatterOp;
use congruent_backend_api::ops::norm::NormalizeOp;
use congruent_backend_api::ops::pool::PoolOp;
use congruent_backend_api::ops::random::RandomOp;
use congruent_backend_api::ops::reduce::{ArgReduceOp, ReduceOp};
use congruent_backend_api::ops::scan::ScanOp;
use congruent_backend_api::ops::sort::SortOp;
use congruent_backend_api::ops::statistic::StatisticOp;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, Op, Result};
use cudarc::driver::{CudaFunction, CudaModule};
use cudarc::nvrtc::Ptx;

use crate::cache;
use crate::compile::Target;
use crate::device::Device;
use crate::error::driver_error;

const COMMON: &str = include_str!("common.cuh");
const ELEMENTWISE: &str = include_str!("elementwise.cuh");

/// A part of an op family's kernels for one dtype: what NVRTC compiles at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelModule {
    family: usize,
    part: usize,
    dtype: DType,
}

/// Family names and sources, in the order of [`KernelModule::family`].
const FAMILIES: [(&str, &str); 15] = [
    ("unary", include_str!("ops/unary.cu")),
    ("binary", include_str!("ops/binary.cu")),
    ("compare", include_str!("ops/compare.cu")),
    ("copy", include_str!("ops/copy.cu")),
    ("reduce", include_str!("ops/reduce.cu")),
    ("random", include_str!("ops/random.cu")),
    ("scan", include_str!("ops/scan.cu")),
    ("sort", concat!(include_str!("ops/sort.cu"), include_str!("ops/topk.cuh"))),
    ("matmul", include_str!("ops/matmul.cu")),
    ("norm", concat!(include_str!("ops/rows.cuh"), include_str!("ops/norm.cu"))),
    ("statistic", concat!(include_str!("ops/rows.cuh"), include_str!("ops/statistic.cu"))),
    ("index", concat!(include_str!("ops/index.cu"), include_str!("ops/grouping.cuh"))),
    (
        "attention",
        concat!(
            include_str!("ops/attention.cu"),
            include_str!("ops/attention_tiles.cuh"),
            include_str!("ops/attention_tensor.cuh"),
            include_str!("ops/attention_fma.cuh"),
        ),
    ),
    ("conv", include_str!("ops/conv.cu")),
    ("pool", include_str!("ops/pool.cu")),
];

/// Where an op's kernels are: the name of a family, which for statistics is their own, and the value of `PART` in its source.
fn place(op: Op) -> (&'static str, usize) {
    let part = match op {
        Op::Unary(op) => match op {
            UnaryOp::Gelu
            | UnaryOp::GeluTanh
            | UnaryOp::Sigmoid
            | UnaryOp::Silu
            | UnaryOp::Softplus
            | UnaryOp::Tanh => 1,
            UnaryOp::Erf
            | UnaryOp::Erfc
            | UnaryOp::Exp
            | UnaryOp::Exp2
            | UnaryOp::Expm1
            | UnaryOp::Ln
            | UnaryOp::Log10
            | UnaryOp::Log1p
            | UnaryOp::Log2
            | UnaryOp::Rsqrt => 2,
            UnaryOp::Acos
            | UnaryOp::Acosh
            | UnaryOp::Asin
            | UnaryOp::Asinh
            | UnaryOp::Atan
            | UnaryOp::Atanh
            | UnaryOp::Cos
            | UnaryOp::Cosh
            | UnaryOp::Sin
            | UnaryOp::Sinh
            | UnaryOp::Tan => 3,
            _ => 0,
        },
        Op::Binary(op) => match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div => 0,
            _ => 1,
        },
        Op::Cast(_) | Op::Sort(SortOp::Topk) | Op::SearchSorted => 1,
        Op::Reduce(ReduceOp::Max | ReduceOp::Min) | Op::Scan(ScanOp::Max | ScanOp::Min) => 1,
        Op::Reduce(ReduceOp::All | ReduceOp::Any | ReduceOp::Prod) | Op::Scan(ScanOp::LogSumExp) => 2,
        Op::ArgReduce(_) => 3,
        Op::Scatter(ScatterOp::Add | ScatterOp::Max | ScatterOp::Min) => 1,
        Op::Normalize(NormalizeOp::Softmax | NormalizeOp::LogSoftmax) => 0,
        Op::Normalize(_) => 1,
        Op::NormalizeGrad(NormalizeOp::Softmax | NormalizeOp::LogSoftmax) => 2,
        Op::NormalizeGrad(_) => 3,
        _ => 0,
    };
    (if matches!(op, Op::Statistic(_)) { "statistic" } else { op.family() }, part)
}

impl KernelModule {
    /// Every module.
    pub fn all() -> impl Iterator<Item = Self> {
        let parts = |family| (0..Self::PARTS).map(move |part| (family, part));
        (0..FAMILIES.len())
            .flat_map(parts)
            .flat_map(|(family, part)| DType::ALL.map(|dtype| Self { family, part, dtype }))
            .filter(|module| module.kernels().next().is_some())
    }

    const PARTS: usize = 4;
    const SLOTS: usize = FAMILIES.len() * Self::PARTS * DType::ALL.len();

    /// A different number below [`SLOTS`](Self::SLOTS) for each module.
    fn slot(self) -> usize {
        (self.family * Self::PARTS + self.part) * DType::ALL.len() + self.dtype as usize
    }

    fn of(kernel: Kernel) -> Self {
        let (name, part) = place(kernel.op);
        let family = FAMILIES.iter().position(|&(family, _)| family == name).unwrap_or(0);
        Self { family, part, dtype: kernel.dtype }
    }

    /// The names of the kernels that the module must contain.
    #[must_use]
    pub fn symbols(self) -> Vec<String> {
        self.kernels().map(|kernel| kernel.to_string()).collect()
    }

    /// Compiles the module for devices of compute capability `arch` (90 is 9.0), past every cache. No GPU is needed.
    ///
    /// # Errors
    /// `LibraryNotFound` without NVRTC, `Native` when it rejects the source.
    pub fn compile(self, arch: u32) -> Result<Vec<u8>> {
        Target::of(arch)?.compile(&self.to_string(), &self.source(), &self.options())
    }

    fn kernels(self) -> impl Iterator<Item = Kernel> {
        Op::all()
            .filter(move |&op| place(op) == (FAMILIES[self.family].0, self.part) && op.accepts(self.dtype))
            .flat_map(move |op| passes(op, self.dtype).iter().map(move |&pass| Kernel { op, dtype: self.dtype, pass }))
    }

    fn source(self) -> String {
        let (family, kernels) = FAMILIES[self.family];
        format!("{COMMON}\n#line 1 \"elementwise.cuh\"\n{ELEMENTWISE}\n#line 1 \"{family}.cu\"\n{kernels}")
    }

    /// No fast-math, and no contraction of `a * b + c`, which would change correctly rounded results.
    fn options(self) -> Vec<String> {
        let is = |name: &str, truth: bool| format!("-DIS_{name}={}", u8::from(truth));
        vec![
            "--std=c++17".to_owned(),
            "--fmad=false".to_owned(),
            "--device-int128".to_owned(),
            // The shared file has more functions than one family uses.
            "--diag-suppress=177".to_owned(),
            format!("-DPART={}", self.part),
            format!("-DELEMENT={}", self.dtype),
            is("FLOAT", self.dtype.is_float()),
            is("INT", self.dtype.is_int()),
            is("BOOL", self.dtype == DType::Bool),
            is("HALF", matches!(self.dtype, DType::F16 | DType::BF16)),
            is("F32", self.dtype == DType::F32),
            is("F64", self.dtype == DType::F64),
            is("SIGNED", matches!(self.dtype, DType::I64 | DType::I32)),
            format!("-DHAS_ATOMICS={}", u8::from(has_atomics(self.dtype))),
        ]
    }

    /// The image in the disk cache. NVRTC is not asked, not even for its version, so that a warm start doesn't load it: an
    /// image is good with whichever version made it, and where the driver doesn't take it, it is compiled again.
    fn cached(self, arch: u32) -> Option<Vec<u8>> {
        cache::load(&self.key(arch))
    }

    /// The image, compiled and stored in the disk cache.
    fn compiled(self, arch: u32) -> Result<Vec<u8>> {
        let image = self.compile(arch)?;
        cache::store(&self.key(arch), &image);
        Ok(image)
    }

    fn key(self, arch: u32) -> String {
        format!("{self} {arch} {}\n{}", self.options().join(" "), self.source())
    }
}

impl fmt::Display for KernelModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}_{}", FAMILIES[self.family].0, self.part, self.dtype)
    }
}

/// The passes of an op, each a kernel of its own. Those of `nonzero` include what sorts the sources of any scatter.
fn passes(op: Op, dtype: DType) -> &'static [Pass] {
    match op {
        // Composed from other ops, so it has no kernel; positions are written by the kernels of `sort`.
        Op::Sort(SortOp::Argsort) => &[],
        Op::Conv(ConvOp::Conv) => &[Pass::Main, Pass::Three, Pass::Five],
        Op::Conv(ConvOp::ConvGradWeight) => &[Pass::Main, Pass::Check],
        Op::Conv(ConvOp::ConvTranspose) => &[Pass::Main, Pass::Three, Pass::Five, Pass::Check],
        Op::Reduce(_) | Op::ArgReduce(_) | Op::Scan(_) | Op::Sort(SortOp::Sort) => &[Pass::Main, Pass::Finish],
        Op::Scatter(ScatterOp::Set) => &[Pass::Claim, Pass::Main],
        Op::Scatter(_) if dtype.is_int() && has_atomics(dtype) => &[Pass::Atomic],
        Op::Scatter(ScatterOp::Add) if has_atomics(dtype) => &[Pass::Main, Pass::Merge, Pass::Atomic],
        Op::Scatter(_) => &[Pass::Main, Pass::Merge],
        Op::Attention(AttentionOp::Output) if dtype != DType::F64 => &[
            Pass::Main,
            Pass::Features64,
            Pass::Features128,
            Pass::Few64,
            Pass::Few128,
            Pass::Combine64,
            Pass::Combine128,
        ],
        Op::Nonzero => &[Pass::Count, Pass::Scan, Pass::Main, Pass::Keys, Pass::Histogram, Pass::Move],
        _ => &[Pass::Main],
    }
}

/// Whether the device adds elements of this dtype atomically.
pub(crate) fn has_atomics(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::BF16 | DType::U8 | DType::Bool)
}

/// A step of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Main,
    Atomic,
    Check,
    Claim,
    Combine64,
    Combine128,
    Count,
    Features64,
    Features128,
    Few64,
    Few128,
    Finish,
    Five,
    Histogram,
    Keys,
    Merge,
    Move,
    Scan,
    Three,
}

impl Pass {
    const COUNT: usize = 19;

    fn suffix(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Atomic => "_atomic",
            Self::Check => "_check",
            Self::Claim => "_claim",
            Self::Count => "_count",
            Self::Combine64 => "_64_combine",
            Self::Combine128 => "_128_combine",
            Self::Features64 => "_64",
            Self::Features128 => "_128",
            Self::Few64 => "_64_few",
            Self::Few128 => "_128_few",
            Self::Finish => "_finish",
            Self::Five => "_five",
            Self::Histogram => "_histogram",
            Self::Keys => "_keys",
            Self::Merge => "_merge",
            Self::Move => "_move",
            Self::Scan => "_scan",
            Self::Three => "_three",
        }
    }
}

/// A kernel: a pass of an op for inputs of a dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) op: Op,
    pub(crate) dtype: DType,
    pub(crate) pass: Pass,
}

impl Kernel {
    /// The main kernel of an op.
    pub(crate) fn new(op: Op, dtype: DType) -> Self {
        Self { op, dtype, pass: Pass::Main }
    }

    const SLOTS: usize = Pass::COUNT * OPS * DType::ALL.len();

    /// A different number below [`SLOTS`](Self::SLOTS) for each kernel.
    fn slot(self) -> usize {
        (op_index(self.op) * DType::ALL.len() + self.dtype as usize) * Pass::COUNT + self.pass as usize
    }
}

/// The symbol in the module: `exp_f32`, `cast_i64_f32` (to i64 from f32), `sum_finish_f32`.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op.name())?;
        if let Op::Cast(to) = self.op {
            write!(f, "_{to}")?;
        }
        write!(f, "{}_{}", self.pass.suffix(), self.dtype)
    }
}

const BINARY: usize = UnaryOp::ALL.len();
const COMPARE: usize = BINARY + BinaryOp::ALL.len();
const CAST: usize = COMPARE + CompareOp::ALL.len();
const REDUCE: usize = CAST + DType::ALL.len();
const ARG_REDUCE: usize = REDUCE + ReduceOp::ALL.len();
const SCAN: usize = ARG_REDUCE + ArgReduceOp::ALL.len();
const SCATTER: usize = SCAN + ScanOp::ALL.len();
const SORT: usize = SCATTER + ScatterOp::ALL.len();
const RANDOM: usize = SORT + SortOp::ALL.len();
const REST: usize = RANDOM + RandomOp::ALL.len();
const STATISTIC: usize = REST + 10;
const CONV: usize = STATISTIC + StatisticOp::ALL.len();
const NORMALIZE: usize = CONV + ConvOp::ALL.len();
const ATTENTION: usize = NORMALIZE + 2 * NormalizeOp::ALL.len();
const POOL: usize = ATTENTION + AttentionOp::ALL.len();
const OPS: usize = POOL + PoolOp::ALL.len();

/// A different number below `OPS` for each op that has a kernel.
fn op_index(op: Op) -> usize {
    match op {
        Op::Unary(op) => op as usize,
        Op::Binary(op) => BINARY + op as usize,
        Op::Compare(op) => COMPARE + op as usize,
        Op::Cast(dtype) => CAST + dtype as usize,
        Op::Reduce(op) => REDUCE + op as usize,
        Op::ArgReduce(op) => ARG_REDUCE + op as usize,
        Op::Scan(op) => SCAN + op as usize,
        Op::Scatter(op) => SCATTER + op as usize,
        Op::Sort(op) => SORT + op as usize,
        Op::Random(op) => RANDOM + op as usize,
        Op::Attention(op) => ATTENTION + op as usize,
        Op::Pool(op) => POOL + op as usize,
        Op::Clamp => REST,
        Op::Copy => REST + 1,
        Op::Fill => REST + 2,
        Op::Matmul => REST + 3,
        Op::Where => REST + 4,
        Op::Linear => REST + 5,
        Op::Statistic(op) => STATISTIC + op as usize,
        Op::Gather => REST + 7,
        Op::Nonzero => REST + 8,
        Op::SearchSorted => REST + 9,
        Op::Normalize(op) => NORMALIZE + op as usize,
        Op::NormalizeGrad(op) => NORMALIZE + NormalizeOp::ALL.len() + op as usize,
        Op::Conv(op) => CONV + op as usize,
    }
}

/// The loaded modules and functions of a device.
pub(crate) struct Kernels {
    // One for each family and dtype, locked only while a function is looked up for the first time.
    modules: Box<[Mutex<Option<Arc<CudaModule>>>]>,
    functions: Box<[OnceLock<CudaFunction>]>,
}

impl Kernels {
    pub(crate) fn new() -> Self {
        Self {
            modules: std::iter::repeat_with(Mutex::default).take(KernelModule::SLOTS).collect(),
            functions: std::iter::repeat_with(OnceLock::new).take(Kernel::SLOTS).collect(),
        }
    }

    /// The function of a kernel, compiled and loaded at the first call; `check` sees it then.
    pub(crate) fn function(
        &self,
        device: &Device,
        kernel: Kernel,
        check: impl FnOnce(&CudaFunction) -> Result<()>,
    ) -> Result<&CudaFunction> {
        let slot = &self.functions[kernel.slot()];
        if let Some(function) = slot.get() {
            return Ok(function);
        }
        let function = self.load(device, kernel)?;
        check(&function)?;
        Ok(slot.get_or_init(|| function))
    }

    fn load(&self, device: &Device, kernel: Kernel) -> Result<CudaFunction> {
        let op = kernel.op.name();
        let wanted = KernelModule::of(kernel);
        let mut module = self.modules[wanted.slot()].lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = match &*module {
            Some(loaded) => loaded,
            None => {
                let load = |image| device.context().load_module(Ptx::from_binary(image));
                let loaded = match wanted.cached(device.arch()).map(load) {
                    Some(Ok(loaded)) => loaded,
                    _ => load(wanted.compiled(device.arch())?).map_err(|error| driver_error(op, error))?,
                };
                module.insert(loaded)
            }
        };
        loaded.load_function(&kernel.to_string()).map_err(|error| driver_error(op, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_a_slot_and_a_symbol_of_its_own() {
        let mut slots = vec![false; Kernel::SLOTS];
        let mut symbols = std::collections::HashSet::new();
        for kernel in KernelModule::all().flat_map(KernelModule::kernels) {
            assert!(!std::mem::replace(&mut slots[kernel.slot()], true), "{kernel}");
            assert!(symbols.insert(kernel.to_string()), "{kernel}");
            assert!(KernelModule::of(kernel).symbols().contains(&kernel.to_string()), "{kernel}");
        }
        assert!(symbols.contains("exp_f32") && symbols.contains("cast_i64_f16") && symbols.contains("sum_finish_u8"));
    }
}
