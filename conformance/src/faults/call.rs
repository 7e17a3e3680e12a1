//! One call of an op as the wrapper sees it, whatever its family.

use std::sync::atomic::Ordering;

use congruent_backend_api::erase::Erased;
use congruent_backend_api::ops::sort::SortOp;
use congruent_backend_api::{
    DType, Elementwise, Error, ErrorKind, Layout, Nest, Op, Operand, Result, Scalar, Source, Storage, View,
};

use super::{Element, Faulty, Held, Kind, Special, Written};
use crate::host::{HostTensor, decode, encode_float, encode_int, positions};

/// A call, without the plan that only its family knows.
pub(super) struct Call<'a> {
    pub(super) op: Op,
    /// The dtype of the inputs.
    pub(super) dtype: DType,
    /// The output view, in the order of the operands' values.
    pub(super) view: Layout,
    pub(super) operands: Vec<Values<'a>>,
    /// α and β, the parameter, or 1 for an exclusive scan, for a descending order and for the right side.
    pub(super) factors: (f64, f64),
}

/// Where the values of an operand lie.
pub(super) enum Values<'a> {
    /// In a storage; for each element of the output the view holds `group` values.
    Stored { storage: &'a Held, view: Layout, group: usize },
    /// For the elements of each output row, `taken` of them, the `len` elements of the input row.
    Row { storage: &'a Held, view: Layout, len: usize, taken: usize },
    /// For element (i, j) of each output matrix, row i of the left operand or column j of the right one, which the view
    /// has as rows.
    Matrix { storage: &'a Held, view: Layout, rows: usize, columns: usize, inner: usize, left: bool },
    /// For each element of a row of a scan, the row up to and with that element.
    Prefix { storage: &'a Held, view: Layout, len: usize },
    /// One value.
    Scalar(Scalar),
    /// In the output.
    Output,
}

/// Beyond this many values a reduced group keeps its correct result: laws about long sums would take too long.
const LONGEST_GROUP: usize = 1 << 17;
/// The same for the rows of scans and sorts, which enter once for each element.
const LONGEST_ROW: usize = 1 << 11;
/// The same for all groups of a call: those of a search may be one row again and again.
const MOST_VALUES: usize = 1 << 24;

impl Faulty {
    /// Runs a call, with the fault if it touches the op. `run` is the correct call, or one with changed layouts.
    pub(super) fn run(&self, call: &Call<'_>, out: &Held, run: impl Fn(&mut Erased) -> Result<()>) -> Result<()> {
        let first = *self.first_thread.get_or_init(|| std::thread::current().id());
        let out = &mut *out.write();
        if !self.fault.touches(call.op, call.dtype) {
            return run(out);
        }
        match self.fault.kind {
            Kind::Output(spoil) => self.rewrite(call, out, run, spoil),
            // What these change, the op's own wrapper has changed in `run`.
            Kind::Input(_) | Kind::Index(_) | Kind::Scatter(..) | Kind::Random(_) => run(out),
            Kind::Function(function) => self.replace(call, out, run, function),
            Kind::Unary(_, function) => {
                self.replace(call, out, run, |element| Some(Scalar::Float(function(element.value(0)))))
            }
            Kind::Integer(_, function) => self.replace(call, out, run, |element| {
                Some(Scalar::Int(function(element.dtype, element.integer(0), element.integer(1))))
            }),
            Kind::Order(order) => self.reorder(call, out, run, order),
            Kind::Special(Special::EmptyCall) if call.view.count() == 0 => {
                Err(Error::new(ErrorKind::Native, call.op.name(), "a grid of 0 blocks cannot be launched"))
            }
            Kind::Special(Special::Lies) => Err(Error::unsupported(self.fault.name, call.op.name(), call.dtype)),
            Kind::Special(Special::InPlaceTwice) => {
                run(out)?;
                if call.operands.iter().any(|operand| matches!(operand, Values::Output)) { run(out) } else { Ok(()) }
            }
            Kind::Special(Special::InputChanged) => {
                run(out)?;
                let first_stored = call.operands.iter().find_map(|operand| match operand {
                    Values::Stored { storage, .. }
                    | Values::Matrix { storage, .. }
                    | Values::Row { storage, .. }
                    | Values::Prefix { storage, .. } => Some(storage),
                    Values::Scalar(_) | Values::Output => None,
                });
                let storage = first_stored.and_then(|storage| storage.try_write());
                storage.map_or(Ok(()), |mut storage| self.scribble(&mut storage))
            }
            Kind::Special(Special::ThreadScratch) if first != std::thread::current().id() => {
                self.rewrite(call, out, run, |written| {
                    if let Some(&at) = written.positions.first() {
                        written.after.set_bits(at, written.after.bits(at) ^ 1);
                    }
                })
            }
            Kind::Special(Special::LostCall) if self.queued.fetch_add(1, Ordering::Relaxed) == 64 => Ok(()),
            Kind::Special(_) | Kind::Taps(_) | Kind::Windows(_) => run(out),
        }
    }

    /// Runs a call, then lets `change` spoil the elements of the view.
    pub(super) fn rewrite(
        &self,
        call: &Call<'_>,
        out: &mut Erased,
        run: impl Fn(&mut Erased) -> Result<()>,
        change: impl FnOnce(&mut Written<'_>),
    ) -> Result<()> {
        let before = self.peek(out)?;
        run(out)?;
        let mut after = self.peek(out)?;
        let walked = positions(&call.view);
        let mut ascending = walked.clone();
        ascending.sort_unstable();
        change(&mut Written {
            after: &mut after,
            before: &before,
            sizes: call.view.shape(),
            walked: &walked,
            positions: &ascending,
            calls: self.calls.fetch_add(1, Ordering::Relaxed),
        });
        self.inner.write(&after.bytes, out, 0)
    }

    /// Runs a call, then replaces each element by a function of the values that entered.
    fn replace(
        &self,
        call: &Call<'_>,
        out: &mut Erased,
        run: impl Fn(&mut Erased) -> Result<()>,
        function: impl Fn(&Element<'_>) -> Option<Scalar>,
    ) -> Result<()> {
        let long = |operand: &Values<'_>| match operand {
            Values::Stored { group, .. } => {
                *group > LONGEST_GROUP || group.saturating_mul(call.view.count()) > MOST_VALUES
            }
            Values::Prefix { len, .. } | Values::Row { len, .. } => *len > LONGEST_ROW,
            _ => false,
        };
        if call.operands.iter().any(long) {
            return run(out);
        }
        let old = self.peek(out)?;
        let sources =
            call.operands.iter().map(|operand| self.gather(operand, call, &old)).collect::<Result<Vec<_>>>()?;
        self.rewrite(call, out, run, |written| {
            let dtype = written.after.dtype;
            for (index, &at) in written.walked.iter().enumerate() {
                let operands: Vec<_> = sources.iter().map(|source| source.values(index)).collect();
                let (old, new) = (decode(dtype, written.before.bits(at)), decode(dtype, written.after.bits(at)));
                let factors = call.factors;
                let element = Element {
                    op: call.op,
                    dtype: call.dtype,
                    out: dtype,
                    operands: &operands,
                    factors,
                    old,
                    new,
                    calls: written.calls,
                };
                if let Some(value) = function(&element).filter(|&value| value != new) {
                    written.after.set_bits(at, encode(dtype, value));
                }
            }
        })
    }

    /// Runs a sort, then writes rows in another order.
    fn reorder(
        &self,
        call: &Call<'_>,
        out: &mut Erased,
        run: impl Fn(&mut Erased) -> Result<()>,
        order: fn(&[Scalar], DType, bool) -> Vec<usize>,
    ) -> Result<()> {
        let Some(&Values::Row { storage, ref view, len, taken }) = call.operands.first() else { return run(out) };
        if len > LONGEST_GROUP || call.view.count() == 0 {
            return run(out);
        }
        let x = self.peek(&storage.read())?;
        let positions = positions(view);
        self.rewrite(call, out, run, |written| {
            for (row, to) in positions.chunks(len).zip(written.walked.chunks(taken)) {
                let values: Vec<_> = row.iter().map(|&at| decode(x.dtype, x.bits(at))).collect();
                let order = order(&values, call.dtype, call.factors.0 == 1.0);
                for (&to, from) in to.iter().zip(order) {
                    let sorted = call.op == Op::Sort(SortOp::Sort);
                    written.after.set_bits(to, if sorted { x.bits(row[from]) } else { from as u64 });
                }
            }
        })
    }

    fn gather(&self, operand: &Values<'_>, call: &Call<'_>, old: &HostTensor) -> Result<Gathered> {
        let values = |host: &HostTensor, view: &Layout| {
            positions(view).into_iter().map(|at| decode(host.dtype, host.bits(at))).collect()
        };
        Ok(match operand {
            Values::Stored { storage, view, group } => Gathered {
                values: values(&self.peek(&storage.read())?, view),
                group: *group,
                index: |index, _| index,
                sizes: [1; 2],
                growing: false,
            },
            Values::Prefix { storage, view, len } => Gathered {
                values: values(&self.peek(&storage.read())?, view),
                group: *len,
                index: |index, [len, _]| index / len,
                sizes: [*len, 1],
                growing: true,
            },
            Values::Row { storage, view, len, taken } => Gathered {
                values: values(&self.peek(&storage.read())?, view),
                group: *len,
                index: |index, [taken, _]| index / taken,
                sizes: [*taken, 1],
                growing: false,
            },
            Values::Matrix { storage, view, rows, columns, inner, left } => Gathered {
                values: values(&self.peek(&storage.read())?, view),
                group: *inner,
                // An output element (batch, i, j) takes row i of its batch on the left, j on the right.
                index: if *left {
                    |index, [_, columns]| index / columns
                } else {
                    |index, [rows, columns]| index / (rows * columns) * columns + index % columns
                },
                sizes: [*rows, *columns],
                growing: false,
            },
            Values::Scalar(scalar) => {
                Gathered { values: vec![*scalar], group: 1, index: |_, _| 0, sizes: [1; 2], growing: false }
            }
            Values::Output => Gathered {
                values: values(old, &call.view),
                group: 1,
                index: |index, _| index,
                sizes: [1; 2],
                growing: false,
            },
        })
    }

    /// The layout by which an input is read.
    pub(super) fn layout(&self, op: Op, dtype: DType, layout: Layout, storage: Option<&Held>) -> Layout {
        let (Kind::Input(change), true, Some(storage)) = (self.fault.kind, self.fault.touches(op, dtype), storage)
        else {
            return layout;
        };
        let (mut strides, mut offset) = (layout.strides().to_vec(), layout.offset());
        change(layout.shape(), &mut strides, &mut offset);
        let fits = |offset: usize| Layout::new("fault", layout.shape(), &strides, offset).ok();
        // The wrapper cannot read outside the storage, as a device would: what reaches past the end slides back, and
        // where that is not enough the call stays right.
        let excess = fits(offset).map_or(0, |changed| changed.min_len().saturating_sub(storage.len()));
        let changed = offset.checked_sub(excess).and_then(fits);
        changed.filter(|changed| changed.min_len() <= storage.len()).unwrap_or(layout)
    }

    /// An operand of an elementwise call: its layout, changed by the fault, and its values.
    pub(super) fn operand<'a, const N: usize>(
        &self,
        (op, dtype): (Op, DType),
        elementwise: &Elementwise<N>,
        index: usize,
        storage: Option<&'a Held>,
    ) -> Result<(Layout, Values<'a>)> {
        let layout = self.layout(op, dtype, of_nest(elementwise.nest(), index)?, storage);
        let values = match (elementwise.operand(index), storage) {
            (Operand::Storage { .. }, Some(storage)) => Values::Stored { storage, view: layout, group: 1 },
            (Operand::Scalar(scalar), _) => Values::Scalar(scalar),
            _ => Values::Output,
        };
        Ok((layout, values))
    }
}

/// The values of an operand, read once.
struct Gathered {
    values: Vec<Scalar>,
    group: usize,
    index: fn(usize, [usize; 2]) -> usize,
    sizes: [usize; 2],
    /// Whether of a group only what is not after the element enters.
    growing: bool,
}

impl Gathered {
    /// The values that enter element `index` of the output.
    fn values(&self, index: usize) -> Vec<Scalar> {
        let start = (self.index)(index, self.sizes) * self.group;
        let len = if self.growing { index % self.group + 1 } else { self.group };
        self.values[start..start + len].to_vec()
    }
}

/// A view of an operand as the nest walks it.
pub(super) fn of_nest<const N: usize>(nest: &Nest<N>, operand: usize) -> Result<Layout> {
    Layout::new("fault", nest.sizes(), nest.strides(operand), nest.offset(operand))
}

/// An operand of an elementwise plan, read through a layout.
pub(super) fn source(operand: Operand, layout: &Layout) -> Source<'_> {
    match operand {
        Operand::Storage { dtype, .. } => Source::View(View { dtype, layout }),
        Operand::Scalar(scalar) => Source::Scalar(scalar),
        Operand::Output => Source::Output,
    }
}

/// The bits of a value in a dtype: floats are rounded, integers wrap.
pub(super) fn encode(dtype: DType, value: Scalar) -> u64 {
    match value {
        Scalar::Float(value) => encode_float(dtype, value),
        Scalar::Int(value) if dtype.is_float() => encode_float(dtype, value as f64),
        Scalar::Int(value) => encode_int(dtype, value.into()),
        Scalar::Bool(value) => value.into(),
    }
}
