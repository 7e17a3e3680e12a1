//! Reductions over rows, columns and everything, with one pass and two.

use congruent_backend_api::ops::reduce::{ArgReduce, ArgReduceOp, Reduce, ReduceOp, summation_depth};
use congruent_backend_api::ops::statistic::{Statistic, StatisticOp};
use congruent_backend_api::{Element, Layout, ReduceOps, StatisticOps, bf16, f16};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, cuda, layout, odd_layouts};

fn reduce<O: Element>(cuda: &Cuda, op: ReduceOp, x: &Tensor, axes: Option<&[isize]>) -> Vec<O> {
    let shape = Reduce::shape(op, x.layout.shape(), axes, false).unwrap();
    let mut out = Tensor::zeros::<O>(cuda, &shape);
    let plan = Reduce::new(op, x.view(), axes, out.view()).unwrap();
    cuda.reduce(&plan, &x.storage, &mut out.storage).unwrap();
    out.to_vec(cuda)
}

fn arg_reduce(cuda: &Cuda, op: ArgReduceOp, x: &Tensor, axis: isize) -> Vec<i64> {
    let shape = Reduce::shape(ReduceOp::Sum, x.layout.shape(), Some(&[axis]), false).unwrap();
    let mut out = Tensor::zeros::<i64>(cuda, &shape);
    let plan = ArgReduce::new(op, x.view(), axis, out.view()).unwrap();
    cuda.arg_reduce(&plan, &x.storage, &mut out.storage).unwrap();
    out.to_vec(cuda)
}

/// Elements of the groups that are reduced together, by the definition.
fn groups<T: Element>(x: &[T], shape: &[usize], axes: &[usize]) -> Vec<Vec<T>> {
    let kept: Vec<usize> = (0..shape.len()).filter(|axis| !axes.contains(axis)).collect();
    let mut groups = vec![Vec::new(); kept.iter().map(|&axis| shape[axis]).product()];
    let strides = layout(shape);
    for (at, &x) in x.iter().enumerate() {
        let index = |axis: usize| at / strides.strides()[axis] as usize % shape[axis];
        groups[kept.iter().fold(0, |group, &axis| group * shape[axis] + index(axis))].push(x);
    }
    groups
}

#[test]
fn integers_over_every_set_of_axes_and_layout() {
    let Some(cuda) = cuda() else { return };
    let sets: [&[isize]; 8] = [&[], &[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]];
    for view in odd_layouts() {
        let x = Tensor::from_fn(cuda, &[4096], |at| (at as i64 * 0x9e37_79b9) ^ 0x55).with(|_| view);
        let values = x.to_vec::<i64>(cuda);
        for axes in sets {
            let named: Vec<usize> = axes.iter().map(|&axis| axis as usize).collect();
            let groups = groups(&values, x.layout.shape(), &named);
            let each = |of: &dyn Fn(&Vec<i64>) -> i64| groups.iter().map(of).collect::<Vec<_>>();
            let got = |op| reduce::<i64>(cuda, op, &x, Some(axes));
            assert_eq!(got(ReduceOp::Sum), each(&|g| g.iter().fold(0, |a: i64, &b| a.wrapping_add(b))), "{axes:?}");
            assert_eq!(got(ReduceOp::Prod), each(&|g| g.iter().fold(1, |a: i64, &b| a.wrapping_mul(b))), "{axes:?}");
            assert_eq!(got(ReduceOp::Max), each(&|g| *g.iter().max().unwrap()), "{axes:?}");
            assert_eq!(got(ReduceOp::Min), each(&|g| *g.iter().min().unwrap()), "{axes:?}");
            assert_eq!(got(ReduceOp::Mean), each(&|g| g.iter().sum::<i64>() / g.len() as i64), "{axes:?}");
            if let [axis] = *axes {
                let first = |g: &[i64], best: i64| g.iter().position(|&x| x == best).unwrap() as i64;
                let expected = each(&|g| first(g, *g.iter().max().unwrap()));
                assert_eq!(arg_reduce(cuda, ArgReduceOp::Argmax, &x, axis), expected, "{axis}");
                let expected = each(&|g| first(g, *g.iter().min().unwrap()));
                assert_eq!(arg_reduce(cuda, ArgReduceOp::Argmin, &x, axis), expected, "{axis}");
            }
        }
    }
}

#[test]
fn every_length_in_one_pass_and_two() {
    let Some(cuda) = cuda() else { return };
    for rows in [1, 2, 33, 300] {
        for columns in [1, 2, 31, 32, 33, 255, 257, 1025, 70_001] {
            let x = Tensor::from_fn(cuda, &[rows, columns], |at| (at % 251) as i32 - 100);
            let values = x.to_vec::<i32>(cuda);
            for axis in [0, 1] {
                let groups = groups(&values, &[rows, columns], &[axis]);
                let expected: Vec<i32> = groups.iter().map(|g| g.iter().sum()).collect();
                assert_eq!(
                    reduce::<i32>(cuda, ReduceOp::Sum, &x, Some(&[axis as isize])),
                    expected,
                    "{rows} {columns} {axis}"
                );
                let expected: Vec<i64> = groups
                    .iter()
                    .map(|g| g.iter().position(|x| x == g.iter().max().unwrap()).unwrap() as i64)
                    .collect();
                assert_eq!(
                    arg_reduce(cuda, ArgReduceOp::Argmax, &x, axis as isize),
                    expected,
                    "{rows} {columns} {axis}"
                );
            }
            assert_eq!(reduce::<i32>(cuda, ReduceOp::Sum, &x, None), [values.iter().sum::<i32>()]);
        }
    }
}

#[test]
fn sums_are_as_exact_as_their_depth_says() {
    let Some(cuda) = cuda() else { return };
    let tenths = Tensor::from_fn(cuda, &[10_000_000], |_| 0.1_f32);
    let sum = reduce::<f32>(cuda, ReduceOp::Sum, &tenths, None)[0];
    assert!((f64::from(sum) / (1e7 * f64::from(0.1_f32)) - 1.0).abs() < 1e-6, "{sum}");
    let ones = Tensor::from_fn(cuda, &[1 << 25, 2], |_| 1.0_f32);
    assert_eq!(reduce::<f32>(cuda, ReduceOp::Mean, &ones, Some(&[0])), [1.0, 1.0]);
    drop((tenths, ones));
    for count in [2, 3, 64, 65, 1000, 100_003] {
        let value = |at: usize| ((at * 7919 % 10_007) as f32 - 5000.0) * 1.0009;
        let x = Tensor::from_fn(cuda, &[count], value);
        let (exact, size) =
            (0..count).map(value).fold((0.0, 0.0), |(s, a), x| (s + f64::from(x), a + f64::from(x.abs())));
        let bound = size * summation_depth(count) as f64 * 2f64.powi(-24);
        let error = (f64::from(reduce::<f32>(cuda, ReduceOp::Sum, &x, None)[0]) - exact).abs();
        assert!(error <= bound, "{count}: {error} is above {bound}");
        let x = Tensor::from_fn(cuda, &[count], |at| bf16::from_f32(value(at) / 100.0));
        let exact: f64 = x.to_vec::<bf16>(cuda).into_iter().map(f64::from).sum();
        let got = reduce::<bf16>(cuda, ReduceOp::Sum, &x, None)[0];
        assert!((got.to_f64() - exact).abs() <= exact.abs() / 256.0 + size * 1e-6, "{count}: {got} {exact}");
    }
    // Infinity survives compensation, and so does what overflows.
    let infinite = Tensor::new(cuda, &[4], &[1.0, f64::INFINITY, -3.0, 4.0]);
    assert_eq!(reduce::<f64>(cuda, ReduceOp::Sum, &infinite, None), [f64::INFINITY]);
    let over = Tensor::new(cuda, &[3], &[f32::MAX, f32::MAX, 1.0]);
    assert_eq!(reduce::<f32>(cuda, ReduceOp::Sum, &over, None), [f32::INFINITY]);
    let halves = Tensor::from_fn(cuda, &[4], |_| f16::from_f32(60_000.0));
    assert_eq!(reduce::<f16>(cuda, ReduceOp::Mean, &halves, None), [f16::from_f32(60_000.0)]);
}

#[test]
fn order_of_nan_and_zeros() {
    let Some(cuda) = cuda() else { return };
    let bits = |y: Vec<f32>| y.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for nan in [0, 1, 999] {
        let x = Tensor::from_fn(cuda, &[1000], |at| if at == nan { f32::NAN } else { at as f32 });
        assert!(reduce::<f32>(cuda, ReduceOp::Max, &x, None)[0].is_nan());
        assert!(reduce::<f32>(cuda, ReduceOp::Min, &x, None)[0].is_nan());
        assert_eq!(arg_reduce(cuda, ArgReduceOp::Argmax, &x, 0), [nan as i64]);
        assert_eq!(arg_reduce(cuda, ArgReduceOp::Argmin, &x, 0), [nan as i64]);
        assert_eq!(reduce::<bool>(cuda, ReduceOp::Any, &x, None), [true]);
    }
    let zeros = Tensor::new(cuda, &[4], &[-0.0_f32, 0.0, -0.0, 0.0]);
    assert_eq!(bits(reduce(cuda, ReduceOp::Max, &zeros, None)), [0.0_f32.to_bits()]);
    assert_eq!(bits(reduce(cuda, ReduceOp::Min, &zeros, None)), [(-0.0_f32).to_bits()]);
    assert_eq!(arg_reduce(cuda, ArgReduceOp::Argmax, &zeros, 0), [0]);
    assert_eq!(reduce::<bool>(cuda, ReduceOp::Any, &zeros, None), [false]);
    let nans = Tensor::new(cuda, &[3], &[f16::NAN, f16::NAN, f16::ONE]);
    assert_eq!(arg_reduce(cuda, ArgReduceOp::Argmin, &nans, 0), [0]);
    let truths = Tensor::new(cuda, &[2, 2], &[true, true, false, true]);
    assert_eq!(reduce::<bool>(cuda, ReduceOp::All, &truths, Some(&[1])), [true, false]);
    assert_eq!(reduce::<bool>(cuda, ReduceOp::Any, &truths, Some(&[0])), [true, true]);
}

#[test]
fn of_nothing() {
    let Some(cuda) = cuda() else { return };
    let x = Tensor::new::<f32>(cuda, &[3, 0], &[]);
    assert_eq!(reduce::<f32>(cuda, ReduceOp::Sum, &x, Some(&[1])), [0.0; 3]);
    assert_eq!(reduce::<f32>(cuda, ReduceOp::Prod, &x, Some(&[1])), [1.0; 3]);
    assert!(reduce::<f32>(cuda, ReduceOp::Mean, &x, Some(&[1])).iter().all(|y| y.is_nan()));
    assert_eq!(reduce::<bool>(cuda, ReduceOp::All, &x, Some(&[1])), [true; 3]);
    assert_eq!(reduce::<f32>(cuda, ReduceOp::Max, &x, Some(&[0])), []);
    let x = Tensor::new::<u8>(cuda, &[0], &[]);
    assert_eq!(reduce::<u8>(cuda, ReduceOp::Prod, &x, None), [1]);
}

#[test]
fn integer_means_do_not_wrap() {
    let Some(cuda) = cuda() else { return };
    let x = Tensor::new(cuda, &[3], &[i64::MAX, i64::MAX, i64::MAX - 3]);
    assert_eq!(reduce::<i64>(cuda, ReduceOp::Mean, &x, None), [i64::MAX - 1]);
    let x = Tensor::new(cuda, &[2], &[-1_i32, -2]);
    assert_eq!(reduce::<i32>(cuda, ReduceOp::Mean, &x, None), [-1]);
    let x = Tensor::from_fn(cuda, &[100_000], |_| 250_u8);
    assert_eq!(reduce::<u8>(cuda, ReduceOp::Mean, &x, None), [250]);
}

#[test]
fn the_same_bits_in_every_run() {
    let Some(cuda) = cuda() else { return };
    let x = Tensor::from_fn(cuda, &[1_000_003], |at| (at as f32 * 0.7).sin());
    let first = reduce::<f32>(cuda, ReduceOp::Sum, &x, None)[0].to_bits();
    assert!((0..20).all(|_| reduce::<f32>(cuda, ReduceOp::Sum, &x, None)[0].to_bits() == first));
}

#[test]
fn statistics_compose() {
    let Some(cuda) = cuda() else { return };
    let x = Tensor::new(cuda, &[2, 4], &[3.0_f64, -4.0, 0.0, 0.0, 1e200, 1e200, 1e200, 1e200]);
    let statistic = |op, parameter| {
        let mut out = Tensor::zeros::<f64>(cuda, &[2]);
        let plan = Statistic::new(op, parameter, x.view(), Some(&[1]), out.view()).unwrap();
        cuda.statistic(&plan, &x.storage, &mut out.storage).unwrap();
        out.to_vec::<f64>(cuda)
    };
    let norm = statistic(StatisticOp::Norm, 2.0);
    assert!(norm[0] == 5.0 && (norm[1] / 2e200 - 1.0).abs() < 1e-15, "{norm:?}");
    assert_eq!(statistic(StatisticOp::Norm, 0.0), [2.0, 4.0]);
    assert_eq!(statistic(StatisticOp::Var, 0.0), [6.1875, 0.0]);
    assert_eq!(statistic(StatisticOp::Std, 1.0)[1], 0.0);
    assert_eq!(statistic(StatisticOp::LogSumExp, 0.0)[1], 1e200);
    let sliced = Tensor::from_fn(cuda, &[10], |at| at as f64).with(|_| Layout::new("test", &[3], &[-2], 8).unwrap());
    assert_eq!(reduce::<f64>(cuda, ReduceOp::Sum, &sliced, None), [8.0 + 6.0 + 4.0]);
}
