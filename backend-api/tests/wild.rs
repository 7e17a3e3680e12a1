//! However wild a shape, stride, offset or slice, constructors return a result or an error: tests run with overflow
//! checks, so that arithmetic which leaves its range would panic.

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::compare::{Clamp, Where};
use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::random::{Distribution, Random};
use congruent_backend_api::ops::reduce::{ArgReduce, ArgReduceOp, Reduce, ReduceOp};
use congruent_backend_api::ops::scan::{Scan, ScanOp, ScanRange};
use congruent_backend_api::ops::statistic::{Statistic, StatisticOp};
use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{DType, Layout, MAX_RANK, Scalar, Shape, Slice, Source, View};
use proptest::prelude::*;
use proptest::sample::select;

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..4_usize, 1 => select(vec![1 << 31, (1 << 32) + 1, 1 << 61, isize::MAX as usize, usize::MAX])]
}

fn signed() -> impl Strategy<Value = isize> {
    let far = vec![
        isize::MIN,
        isize::MIN + 1,
        -(1 << 61),
        -(1 << 31),
        1 << 31,
        1 << 60,
        1 << 61,
        (1 << 62) - 1,
        isize::MAX - 1,
        isize::MAX,
    ];
    prop_oneof![4 => -4..=4_isize, 1 => select(far)]
}

fn layout() -> impl Strategy<Value = Layout> {
    let offset = prop_oneof![
        Just(0_usize),
        0..20_usize,
        select(vec![1 << 61, 1 << 62, isize::MAX as usize - 1, isize::MAX as usize, usize::MAX])
    ];
    let axes = prop::collection::vec((size(), signed()), 0..=MAX_RANK + 1);
    (axes, offset).prop_filter_map("outside of any storage", |(axes, offset)| {
        let (sizes, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
        Layout::new("test", &sizes, &strides, offset).ok()
    })
}

/// The first and last element, by arithmetic that cannot overflow; `None` without elements.
fn extent(layout: &Layout) -> Option<(i128, i128)> {
    let start = layout.offset() as i128;
    let mut extent = (start, start);
    for (&size, &stride) in layout.shape().iter().zip(layout.strides()) {
        let span = (size as i128 - 1) * stride as i128;
        if span < 0 { extent.0 += span } else { extent.1 += span }
    }
    (layout.count() > 0).then_some(extent)
}

fn optional(value: impl Strategy<Value = isize>) -> impl Strategy<Value = Option<isize>> {
    prop::option::of(value)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_local_rejects: 1 << 30, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn layouts(
        layout in layout(), axis in -9..9_isize, start in optional(signed()), stop in optional(signed()), step in signed(),
        shape in prop::collection::vec(size(), 0..=MAX_RANK), index in signed(),
    ) {
        let last = extent(&layout).map_or(-1, |(first, last)| {
            assert!(first >= 0 && last < isize::MAX as i128);
            last
        });
        prop_assert_eq!(layout.min_len() as i128, last + 1);
        let _ = (layout.is_contiguous(), layout.is_injective());
        let axes: Vec<isize> = (0..layout.rank() as isize).rev().collect();
        let views = [
            layout.slice(axis, Slice { start, stop, step }), layout.select(axis, index), layout.flip(&axes), layout.flip(&[axis]),
            layout.permute(&axes), layout.squeeze(axis), layout.unsqueeze(axis), layout.broadcast_to("test", &shape),
            layout.reshape(&shape).map(|view| view.unwrap_or(layout)), layout.reshape(&[layout.count()]).map(|view| view.unwrap_or(layout)),
        ];
        for view in views.into_iter().flatten() {
            // A view of a view lies within it.
            if let (Some((first, last)), Some((low, high))) = (extent(&view), extent(&layout)) {
                prop_assert!(low <= first && last <= high, "{:?} of {:?}", view, layout);
            }
            prop_assert!(view.count() == 0 || layout.count() > 0);
        }
    }

    #[test]
    fn plans(x in layout(), y in layout(), out in layout(), axes in prop::collection::vec(-3..3_isize, 0..3), same: bool, free: bool) {
        let dense = |shape: &[usize]| Shape::new("test", shape).map(Layout::contiguous);
        let out = if free { out } else { dense(x.shape()).unwrap() };
        let y = if same { x } else { y };
        let [x_view, y_view, out_view] = [&x, &y, &out].map(|layout| View { dtype: DType::F64, layout });
        let [x_source, y_source] = [x_view, y_view].map(Source::View);
        let truths = View { dtype: DType::Bool, layout: &y };
        let _ = Unary::new(UnaryOp::Exp, x_source, out_view);
        let _ = Copy::new(x_view, out_view);
        let _ = Fill::new(Scalar::Float(0.0), out_view);
        let _ = Clamp::new(None, None, Source::Output, out_view);
        let _ = Where::new(Source::View(truths), x_source, Source::Output, out_view);
        if let Ok(plan) = Binary::new(BinaryOp::Add, x_source, y_source, out_view) {
            let nest = plan.elementwise().nest();
            for (operand, layout) in [&out, &x, &y].into_iter().enumerate() {
                let found = nest.extent(operand).map(|(low, high)| (low as i128, high as i128));
                prop_assert_eq!(found, if out.count() == 0 { None } else { extent(layout) });
            }
        }
        for keepdim in [false, true] {
            let Ok(shape) = Reduce::shape(ReduceOp::Sum, x.shape(), Some(&axes), keepdim) else { continue };
            let target = if free { out } else { Layout::contiguous(shape) };
            let target = |dtype| View { dtype, layout: &target };
            let _ = Reduce::new(ReduceOp::Sum, x_view, Some(&axes), target(DType::F64));
            let _ = Statistic::new(StatisticOp::Norm, -1.0, x_view, Some(&axes), target(DType::F64)).map(|plan| plan.reduced_count());
            if let [axis] = axes[..] {
                let _ = ArgReduce::new(ArgReduceOp::Argmin, x_view, axis, target(DType::I64));
            }
        }
        let _ = Random::new(Distribution::Normal, u64::MAX, u64::MAX, out_view).map(|plan| plan.nest().extent(0));
        let range = ScanRange { exclusive: false, reverse: same };
        if let Ok(plan) = Scan::new(ScanOp::Max, x_view, axes.first().copied().unwrap_or(0), range, out_view) {
            let rows = plan.rows().extent(1).map(|(low, high)| (low as i128, high as i128));
            let span = (plan.len() as i128 - 1) * plan.strides()[1] as i128;
            let found = rows.map(|(low, high)| (low + span.min(0), high + span.max(0)));
            prop_assert_eq!(found, extent(&x));
        }
        // The transpose of a matrix fits it; anything else mostly does not.
        let right = if x.rank() >= 2 && same { x.permute(&(0..x.rank() as isize - 2).chain([-1, -2]).collect::<Vec<_>>()).unwrap() } else { y };
        if let Ok(shape) = Matmul::shape(x.shape(), right.shape()) {
            let target = Layout::contiguous(shape);
            let [right, target] = [&right, &target].map(|layout| View { dtype: DType::F64, layout });
            let [alpha, beta] = [1.0, 0.0].map(Scalar::Float);
            prop_assert!(Matmul::new(x_view, right, alpha, beta, target).is_ok());
        }
    }
}
