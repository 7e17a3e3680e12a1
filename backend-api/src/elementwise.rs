//! What the plans of elementwise ops share: operands that are views, scalars or the output itself.

use crate::backend::Storage;
use crate::dtype::{DType, Scalar};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::nest::Nest;

/// A storage's dtype together with the layout of a view of it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The dtype of the storage.
    pub dtype: DType,
    /// Where the view's elements lie.
    pub layout: &'a Layout,
}

/// Where an elementwise op takes an operand from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A view of another storage; it broadcasts to the output's shape.
    View(View<'a>),
    /// One value for every element.
    Scalar(Scalar),
    /// The output's own element: the op works in place.
    Output,
}

/// How an operand of a plan is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// From the storage passed to the call, which is `Some`; `min_len` is the least length that it must have.
    Storage {
        /// The dtype of the storage.
        dtype: DType,
        /// The least length of the storage.
        min_len: usize,
    },
    /// From this scalar, already rounded to the op's dtype; the call passes `None`.
    Scalar(Scalar),
    /// From the output, before it is overwritten; the call passes `None`.
    Output,
}

/// The operands of an elementwise op and the nest that walks them; operand 0 of the nest is the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Elementwise<const N: usize> {
    op: &'static str,
    out_dtype: DType,
    out_min_len: usize,
    // Entry 0 stands for the output and is always `Operand::Output`.
    operands: [Operand; N],
    nest: Nest<N>,
}

impl<const N: usize> Elementwise<N> {
    /// Checks and canonicalises; `sources[i]` becomes operand `i + 1` and must have dtype `dtypes[i]`.
    pub(crate) fn new(op: &'static str, sources: &[(Source<'_>, DType)], out: View<'_>) -> Result<Self> {
        debug_assert_eq!(sources.len() + 1, N);
        check_output(op, out.layout)?;
        if is_flat(sources, out.layout) {
            return Self::flat(op, sources, out);
        }
        let mut operands = [Operand::Output; N];
        let mut layouts = [*out.layout; N];
        for (index, &(source, dtype)) in sources.iter().enumerate() {
            operands[index + 1] = operand(op, source, dtype, out.dtype)?;
            match source {
                Source::View(view) => layouts[index + 1] = view.layout.broadcast_to(op, out.layout.shape())?,
                Source::Scalar(_) => layouts[index + 1] = constant(op, out.layout)?,
                Source::Output => {}
            }
            if let Operand::Storage { min_len, .. } = &mut operands[index + 1] {
                *min_len = layouts[index + 1].min_len();
            }
        }
        let nest = Nest::new(std::array::from_fn(|index| &layouts[index]));
        Ok(Self { op, out_dtype: out.dtype, out_min_len: out.layout.min_len(), operands, nest })
    }

    /// [`new`](Self::new) where every view runs through memory as the output does.
    fn flat(op: &'static str, sources: &[(Source<'_>, DType)], out: View<'_>) -> Result<Self> {
        let mut operands = [Operand::Output; N];
        let mut starts = [(out.layout.offset(), 1); N];
        for (index, &(source, dtype)) in sources.iter().enumerate() {
            operands[index + 1] = operand(op, source, dtype, out.dtype)?;
            match source {
                Source::View(view) => starts[index + 1] = (view.layout.offset(), 1),
                Source::Scalar(_) => starts[index + 1] = (0, 0),
                Source::Output => {}
            }
        }
        let nest = Nest::flat(out.layout.count(), starts);
        Ok(Self { op, out_dtype: out.dtype, out_min_len: out.layout.min_len(), operands, nest })
    }

    /// The op's name.
    #[must_use]
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// The loop nest; operand 0 is the output, a scalar operand has strides 0.
    #[must_use]
    pub fn nest(&self) -> &Nest<N> {
        &self.nest
    }

    /// How operand `index` is read; 1 is the first input.
    #[must_use]
    pub fn operand(&self, index: usize) -> Operand {
        self.operands[index]
    }

    /// The dtype of the output.
    #[must_use]
    pub fn out_dtype(&self) -> DType {
        self.out_dtype
    }

    /// Checks the storages of a call against the plan: what a backend does before it touches memory.
    ///
    /// # Errors
    /// `Argument` when an input is present or absent against the plan, or a dtype or length does not fit.
    pub fn check<S: Storage>(&self, inputs: &[Option<&S>], out: &S) -> Result<()> {
        check_storage(self.op, "the output", self.out_dtype, self.out_min_len, out)?;
        if inputs.len() + 1 != N {
            let message = format!("{} inputs given, the plan has {}", inputs.len(), N - 1);
            return Err(Error::new(ErrorKind::Argument, self.op, message));
        }
        for (&operand, input) in self.operands[1..].iter().zip(inputs) {
            match (operand, input) {
                (Operand::Storage { dtype, min_len }, Some(input)) => {
                    check_storage(self.op, "an input", dtype, min_len, *input)?;
                }
                (Operand::Scalar(_) | Operand::Output, None) => {}
                _ => {
                    let message = format!("an input was given or left out against the plan's operand {operand:?}");
                    return Err(Error::new(ErrorKind::Argument, self.op, message));
                }
            }
        }
        Ok(())
    }
}

/// Whether there are several elements, and every view has the shape of the output and lies in row-major order, as it does.
fn is_flat(sources: &[(Source<'_>, DType)], out: &Layout) -> bool {
    let alike = |source: &Source<'_>| match source {
        Source::View(view) => view.layout.shape() == out.shape() && view.layout.is_contiguous(),
        Source::Scalar(_) | Source::Output => true,
    };
    out.count() > 1 && out.is_contiguous() && sources.iter().all(|(source, _)| alike(source))
}

/// How a source of dtype `dtype` is read; the length is that of the view as it is.
fn operand(op: &'static str, source: Source<'_>, dtype: DType, out_dtype: DType) -> Result<Operand> {
    match source {
        Source::View(view) => {
            check_dtype(op, view.dtype, dtype)?;
            Ok(Operand::Storage { dtype, min_len: view.layout.min_len() })
        }
        Source::Scalar(scalar) => Ok(Operand::Scalar(scalar.to_dtype(op, dtype)?)),
        Source::Output if dtype == out_dtype => Ok(Operand::Output),
        Source::Output => {
            let message = format!("in place needs one dtype, but the operand is {dtype} and the result {out_dtype}");
            Err(Error::new(ErrorKind::DType, op, message))
        }
    }
}

/// A layout of `out`'s shape that stays at element 0.
fn constant(op: &'static str, out: &Layout) -> Result<Layout> {
    Layout::new(op, &[], &[], 0)?.broadcast_to(op, out.shape())
}

/// Fails unless an output layout reaches each element once.
pub(crate) fn check_output(op: &'static str, out: &Layout) -> Result<()> {
    if out.is_contiguous() || out.is_injective() {
        return Ok(());
    }
    let message =
        format!("the output {out:?} reaches an element twice (a broadcast view?); write to a view without overlap");
    Err(Error::new(ErrorKind::Argument, op, message))
}

/// Fails unless the dtypes are equal.
pub(crate) fn check_dtype(op: &'static str, given: DType, expected: DType) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    let message = format!("dtypes {expected} and {given} meet, and nothing is promoted; cast one of them");
    Err(Error::new(ErrorKind::DType, op, message))
}

/// Fails unless a shape is the expected one.
pub(crate) fn check_shape(op: &'static str, what: &str, given: &[usize], expected: &[usize]) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    let message = format!("{what} has shape {given:?}, but the result has shape {expected:?}");
    Err(Error::new(ErrorKind::Shape, op, message))
}

/// Fails unless `dtype` is in the domain of the op.
pub(crate) fn check_domain(op: crate::ops::Op, dtype: DType) -> Result<()> {
    if op.accepts(dtype) {
        return Ok(());
    }
    let names: Vec<_> = DType::ALL.into_iter().filter(|&dtype| op.accepts(dtype)).map(DType::name).collect();
    let message = format!("`{}` is not defined for {dtype}, only for {}; cast first", op.name(), names.join(" "));
    Err(Error::new(ErrorKind::DType, op.name(), message))
}

/// Fails unless a storage has the planned dtype and length.
pub(crate) fn check_storage<S: Storage>(
    op: &'static str,
    role: &str,
    dtype: DType,
    min_len: usize,
    storage: &S,
) -> Result<()> {
    if storage.dtype() == dtype && storage.len() >= min_len {
        return Ok(());
    }
    let message = format!(
        "{role} is a storage of {} {} elements, the plan needs at least {min_len} of {dtype}",
        storage.len(),
        storage.dtype()
    );
    Err(Error::new(ErrorKind::Argument, op, message))
}
