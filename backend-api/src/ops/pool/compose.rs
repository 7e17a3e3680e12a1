//! The provided composition: one elementwise op or a few for each element of the kernel.
//!
//! Those windows that hold their k-th element meet it on a part of y and on a stepped part of x, so that nothing is padded.
//! Positions and divisors are tables that the host makes.

use super::{Divisor, Pool, PoolOp, PoolOps};
use crate::compose::Temporary;
use crate::dtype::{DType, Element, Scalar};
use crate::elementwise::{Source, View};
use crate::error::Result;
use crate::layout::{Layout, Slice};
use crate::ops::binary::{Binary, BinaryOp};
use crate::ops::compare::{Compare, CompareOp, Where};
use crate::ops::conv::MAX_SPATIAL;
use crate::ops::copy::{Copy, Fill};
use crate::shape::Shape;

pub(super) fn run<B: PoolOps + ?Sized>(
    backend: &B,
    plan: &Pool,
    input: &B::Storage,
    indices: Option<&B::Storage>,
    out: &mut B::Storage,
) -> Result<()> {
    if plan.x.count() == 0 {
        return Ok(());
    }
    let composer = Composer { backend, plan };
    match plan.op {
        PoolOp::MaxPool => composer.max(input, out),
        PoolOp::ArgmaxPool => composer.argmax(input, out),
        PoolOp::AvgPool => composer.average(input, out),
        PoolOp::MaxPoolGrad | PoolOp::AvgPoolGrad => composer.gradient(input, indices, out),
    }
}

struct Composer<'p, B: ?Sized> {
    backend: &'p B,
    plan: &'p Pool,
}

/// An element of the kernel.
type Tap = [usize; MAX_SPATIAL];

impl<B: PoolOps + ?Sized> Composer<'_, B> {
    fn max(&self, x: &B::Storage, out: &mut B::Storage) -> Result<()> {
        let (plan, dtype) = (self.plan, self.plan.dtype);
        self.fill(least(dtype), View { dtype, layout: &plan.y }, out)?;
        for tap in self.taps() {
            let (from, to) = (self.of_x(&plan.x, tap)?, self.of_y(&plan.y, tap)?);
            let (from, to) = (View { dtype, layout: &from }, View { dtype, layout: &to });
            let plan = Binary::new(BinaryOp::Maximum, Source::Output, Source::View(from), to)?;
            self.backend.binary(&plan, None, Some(x), out)?;
        }
        Ok(())
    }

    /// Keeps the greatest element so far and its position; a later one wins unless it is at most that, or that is NaN.
    fn argmax(&self, x: &B::Storage, out: &mut B::Storage) -> Result<()> {
        let (plan, dtype) = (self.plan, self.plan.dtype);
        let whole = View { dtype: DType::I64, layout: &plan.y };
        let first = self.upload(&self.positions(|axis, window| plan.windows[axis].window(window).first))?;
        self.backend.copy(&Copy::new(first.view(), whole)?, &first.storage, out)?;
        let mut best = self.temporary(dtype, *plan.y.shape())?;
        self.fill(least(dtype), View { dtype, layout: &best.layout }, &mut best.storage)?;
        let mut wins = self.temporary(DType::Bool, *plan.y.shape())?;
        let mut within = self.temporary(DType::Bool, *plan.y.shape())?;
        for tap in self.taps() {
            let (from, part, to) = (self.of_x(&plan.x, tap)?, self.of_y(&best.layout, tap)?, self.of_y(&plan.y, tap)?);
            let over = |dtype, layout| View { dtype, layout };
            let (new, old) = (Source::View(over(dtype, &from)), Source::View(over(dtype, &part)));
            let truth = over(DType::Bool, &part);
            let compare = Compare::new(CompareOp::Le, dtype, new, old, truth)?;
            self.backend.compare(&compare, Some(x), Some(&best.storage), &mut within.storage)?;
            let compare = Compare::new(CompareOp::Eq, dtype, old, old, truth)?;
            self.backend.compare(&compare, Some(&best.storage), Some(&best.storage), &mut wins.storage)?;
            // Bools are ordered: not within, and not NaN so far.
            let compare = Compare::new(CompareOp::Lt, DType::Bool, Source::View(truth), Source::Output, truth)?;
            self.backend.compare(&compare, Some(&within.storage), None, &mut wins.storage)?;
            let table = self.upload(&self.positions_of(tap))?;
            let choice =
                Where::new(Source::View(truth), Source::View(table.view()), Source::Output, over(DType::I64, &to))?;
            self.backend.choose(&choice, Some(&wins.storage), Some(&table.storage), None, out)?;
            let choice = Where::new(Source::View(truth), new, Source::Output, over(dtype, &part))?;
            self.backend.choose(&choice, Some(&wins.storage), Some(x), None, &mut best.storage)?;
        }
        Ok(())
    }

    fn average(&self, x: &B::Storage, out: &mut B::Storage) -> Result<()> {
        let (plan, dtype) = (self.plan, self.plan.dtype);
        let wide = widened(dtype);
        if wide == dtype {
            self.sum_windows(x, &plan.x, out, &plan.y)?;
            return self.divide(out, View { dtype, layout: &plan.y });
        }
        let x = self.cast(x, View { dtype, layout: &plan.x }, wide)?;
        let mut sums = self.temporary(wide, *plan.y.shape())?;
        self.sum_windows(&x.storage, &x.layout, &mut sums.storage, &sums.layout)?;
        self.divide(&mut sums.storage, View { dtype: wide, layout: &sums.layout })?;
        self.backend.copy(&Copy::new(sums.view(), View { dtype, layout: &plan.y })?, &sums.storage, out)
    }

    fn sum_windows(&self, x: &B::Storage, from: &Layout, out: &mut B::Storage, to: &Layout) -> Result<()> {
        let dtype = widened(self.plan.dtype);
        self.fill(Scalar::Float(0.0), View { dtype, layout: to }, out)?;
        for tap in self.taps() {
            self.add((x, &self.of_x(from, tap)?), out, &self.of_y(to, tap)?)?;
        }
        Ok(())
    }

    /// Each window's value goes to the elements of the window: of an average, divided; of a maximum, where its position is.
    fn gradient(&self, grad: &B::Storage, indices: Option<&B::Storage>, out: &mut B::Storage) -> Result<()> {
        let (plan, dtype) = (self.plan, self.plan.dtype);
        let wide = widened(dtype);
        let mut grad = self.cast(grad, View { dtype, layout: &plan.y }, wide)?;
        if plan.op == PoolOp::AvgPoolGrad {
            self.divide(&mut grad.storage, View { dtype: wide, layout: &grad.layout })?;
        }
        let indices = indices.zip(plan.indices.as_ref());
        if wide == dtype {
            return self.spread(&grad, indices, out, &plan.x);
        }
        let mut sums = self.temporary(wide, *plan.x.shape())?;
        self.spread(&grad, indices, &mut sums.storage, &sums.layout)?;
        self.backend.copy(&Copy::new(sums.view(), View { dtype, layout: &plan.x })?, &sums.storage, out)
    }

    fn spread(
        &self,
        grad: &Temporary<B::Storage>,
        indices: Option<(&B::Storage, &Layout)>,
        out: &mut B::Storage,
        to: &Layout,
    ) -> Result<()> {
        self.fill(Scalar::Float(0.0), View { dtype: grad.dtype, layout: to }, out)?;
        let (mut mask, mut terms) = (None, None);
        for tap in self.taps() {
            let (part, to) = (self.of_y(&grad.layout, tap)?, self.of_x(to, tap)?);
            let Some((indices, layout)) = indices else {
                self.add((&grad.storage, &part), out, &to)?;
                continue;
            };
            let mask = self.kept(&mut mask, DType::Bool)?;
            let terms = self.kept(&mut terms, grad.dtype)?;
            let (truth, value) =
                (View { dtype: DType::Bool, layout: &part }, View { dtype: grad.dtype, layout: &part });
            let (layout, table) = (self.of_y(layout, tap)?, self.upload(&self.positions_of(tap))?);
            let named = Source::View(View { dtype: DType::I64, layout: &layout });
            let compare = Compare::new(CompareOp::Eq, DType::I64, named, Source::View(table.view()), truth)?;
            self.backend.compare(&compare, Some(indices), Some(&table.storage), &mut mask.storage)?;
            let zero = Source::Scalar(Scalar::Float(0.0));
            let choice = Where::new(Source::View(truth), Source::View(value), zero, value)?;
            self.backend.choose(&choice, Some(&mask.storage), Some(&grad.storage), None, &mut terms.storage)?;
            self.add((&terms.storage, &part), out, &to)?;
        }
        Ok(())
    }

    /// Divides values of windows.
    fn divide(&self, values: &mut B::Storage, view: View<'_>) -> Result<()> {
        let divisor = match self.plan.options.divisor {
            Divisor::Fixed(1) => return Ok(()),
            Divisor::Fixed(divisor) => {
                let divisor = Source::Scalar(Scalar::Float(divisor as f64));
                let plan = Binary::new(BinaryOp::Div, Source::Output, divisor, view)?;
                return self.backend.binary(&plan, None, None, values);
            }
            Divisor::Elements | Divisor::Padded => self.divisors(view.dtype)?,
        };
        let plan = Binary::new(BinaryOp::Div, Source::Output, Source::View(divisor.view()), view)?;
        self.backend.binary(&plan, None, Some(&divisor.storage), values)
    }

    fn add(&self, (x, from): (&B::Storage, &Layout), out: &mut B::Storage, to: &Layout) -> Result<()> {
        let dtype = widened(self.plan.dtype);
        let (from, to) = (View { dtype, layout: from }, View { dtype, layout: to });
        let plan = Binary::new(BinaryOp::Add, Source::Output, Source::View(from), to)?;
        self.backend.binary(&plan, None, Some(x), out)
    }

    fn fill(&self, value: Scalar, view: View<'_>, out: &mut B::Storage) -> Result<()> {
        self.backend.fill(&Fill::new(value, view)?, out)
    }

    fn cast(&self, x: &B::Storage, view: View<'_>, dtype: DType) -> Result<Temporary<B::Storage>> {
        let mut copy = self.temporary(dtype, *view.layout.shape())?;
        let plan = Copy::new(view, copy.view())?;
        self.backend.copy(&plan, x, &mut copy.storage)?;
        Ok(copy)
    }

    fn temporary(&self, dtype: DType, shape: Shape) -> Result<Temporary<B::Storage>> {
        let layout = Layout::contiguous(shape);
        Ok(Temporary { storage: self.backend.alloc(dtype, layout.count())?, dtype, layout })
    }

    /// The temporary of a value for each window that the taps share.
    fn kept<'t>(
        &self,
        slot: &'t mut Option<Temporary<B::Storage>>,
        dtype: DType,
    ) -> Result<&'t mut Temporary<B::Storage>> {
        Ok(match slot {
            Some(kept) => kept,
            None => slot.insert(self.temporary(dtype, *self.plan.y.shape())?),
        })
    }

    /// The elements of the kernel that some window has inside the input.
    fn taps(&self) -> impl Iterator<Item = Tap> + use<'_, B> {
        let windows = &self.plan.windows;
        let sizes = windows.map(|axis| axis.kernel);
        let all =
            (0..sizes[0]).flat_map(move |a| (0..sizes[1]).flat_map(move |b| (0..sizes[2]).map(move |c| [a, b, c])));
        all.filter(|tap| windows.iter().zip(tap).all(|(axis, &tap)| !axis.of_tap(tap).0.is_empty()))
    }

    /// The part of x that is a tap of some window.
    fn of_x(&self, x: &Layout, tap: Tap) -> Result<Layout> {
        self.part(x, |axis| {
            let windows = &self.plan.windows[axis];
            let (range, first) = windows.of_tap(tap[axis]);
            (first, range.len(), windows.stride)
        })
    }

    /// The part of y whose windows have the tap.
    fn of_y(&self, y: &Layout, tap: Tap) -> Result<Layout> {
        self.part(y, |axis| {
            let (range, _) = self.plan.windows[axis].of_tap(tap[axis]);
            (range.start, range.len(), 1)
        })
    }

    fn part(&self, layout: &Layout, of: impl Fn(usize) -> (usize, usize, usize)) -> Result<Layout> {
        (0..layout.rank() - 2).try_fold(*layout, |layout, axis| {
            let (first, count, step) = of(axis);
            let stop = first + (count - 1) * step + 1;
            let slice = Slice { start: Some(first as isize), stop: Some(stop as isize), step: step as isize };
            layout.slice(2 + axis as isize, slice)
        })
    }

    /// A table over all windows of the row-major position of an element of each.
    fn positions(&self, at: impl Fn(usize, usize) -> usize) -> Table<i64> {
        self.table(|axis| 0..self.plan.windows[axis].count, |window| self.position(window, &at))
    }

    /// The same of a tap, over the windows that have it.
    fn positions_of(&self, tap: Tap) -> Table<i64> {
        let of = |axis: usize| self.plan.windows[axis].of_tap(tap[axis]);
        let at = |axis: usize, window: usize| {
            let (range, first) = of(axis);
            first + (window - range.start) * self.plan.windows[axis].stride
        };
        self.table(|axis| of(axis).0, |window| self.position(window, at))
    }

    fn position(&self, window: Tap, at: impl Fn(usize, usize) -> usize) -> i64 {
        (0..MAX_SPATIAL).fold(0, |position, axis| position * self.plan.windows[axis].size + at(axis, window[axis]))
            as i64
    }

    fn divisors(&self, dtype: DType) -> Result<Temporary<B::Storage>> {
        let windows = &self.plan.windows;
        let divisor =
            |window: Tap| self.plan.divisor(std::array::from_fn(|axis| windows[axis].window(window[axis]))) as f64;
        let table = self.table(|axis| 0..windows[axis].count, divisor);
        match dtype {
            DType::F64 => self.upload(&table),
            _ => {
                self.upload(&Table { shape: table.shape, elements: table.elements.iter().map(|&x| x as f32).collect() })
            }
        }
    }

    fn table<T>(&self, windows: impl Fn(usize) -> std::ops::Range<usize>, element: impl Fn(Tap) -> T) -> Table<T> {
        let ranges: [_; MAX_SPATIAL] = std::array::from_fn(windows);
        let mut elements = Vec::new();
        for a in ranges[0].clone() {
            for b in ranges[1].clone() {
                elements.extend(ranges[2].clone().map(|c| element([a, b, c])));
            }
        }
        Table { shape: ranges[..self.plan.x.rank() - 2].iter().map(ExactSizeIterator::len).collect(), elements }
    }

    fn upload<T: Element>(&self, table: &Table<T>) -> Result<Temporary<B::Storage>> {
        let mut copy = self.temporary(T::DTYPE, Shape::new(self.plan.op.name(), &table.shape)?)?;
        self.backend.write(T::as_bytes(&table.elements), &mut copy.storage, 0)?;
        Ok(copy)
    }
}

/// A value for each of some windows.
struct Table<T> {
    shape: Vec<usize>,
    elements: Vec<T>,
}

fn widened(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The identity of the maximum.
fn least(dtype: DType) -> Scalar {
    match dtype {
        DType::I64 => Scalar::Int(i64::MIN),
        DType::I32 => Scalar::Int(i32::MIN.into()),
        DType::U32 | DType::U8 => Scalar::Int(0),
        _ => Scalar::Float(f64::NEG_INFINITY),
    }
}
