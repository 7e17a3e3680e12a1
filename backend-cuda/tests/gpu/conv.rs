//! Convolutions and their gradients against plain loops, on small integers, whose sums are exact.

use congruent_backend_api::ops::conv::{Conv, ConvOp, ConvOptions};
use congruent_backend_api::{ConvOps, Element, Layout, bf16, f16};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, cuda, layout};

/// One op on x and weight of these shapes; images and weights in rows, or channels last.
fn check<T: Element>(
    cuda: &Cuda,
    from: fn(f64) -> T,
    to: fn(T) -> f64,
    x: &[usize],
    weight: &[usize],
    options: &ConvOptions,
) {
    let y = Conv::shape(x, weight, options).unwrap();
    let shapes = [x, weight, &y];
    for op in ConvOp::ALL.iter().copied() {
        // The operands and the output by their places in `shapes`.
        let [a, b, out] = match op {
            ConvOp::Conv => [0, 1, 2],
            ConvOp::ConvTranspose => [2, 1, 0],
            ConvOp::ConvGradWeight => [0, 2, 1],
        };
        for last in [false, true] {
            let tensor = |index: usize, seed: usize| {
                let place = if last { channels_last(shapes[index]) } else { layout(shapes[index]) };
                Tensor::from_fn(cuda, &[place.count()], |at| from(((at * 7 + seed) % 3) as f64 - 1.0)).with(|_| place)
            };
            let (left, right, mut result) = (tensor(a, 1), tensor(b, 2), tensor(out, 0));
            let bias = (op != ConvOp::ConvGradWeight)
                .then(|| Tensor::from_fn(cuda, &[shapes[out][1]], |at| from(at as f64 + 1.0)));
            let plan =
                Conv::new(op, left.view(), right.view(), bias.as_ref().map(Tensor::view), options, result.view())
                    .unwrap();
            let given = bias.as_ref().map(|bias| &bias.storage);
            cuda.conv(&plan, &left.storage, &right.storage, given, &mut result.storage).unwrap();
            let values = |tensor: &Tensor| tensor.to_vec::<T>(cuda).into_iter().map(to).collect::<Vec<_>>();
            let mut held = [Vec::new(), Vec::new(), Vec::new()];
            (held[a], held[b]) = (values(&left), values(&right));
            held[out] = vec![0.0; result.layout.count()];
            taps(shapes, options, |at| held[out][at[out]] += held[a][at[a]] * held[b][at[b]]);
            if bias.is_some() {
                let space: usize = shapes[out][2..].iter().product();
                held[out]
                    .iter_mut()
                    .enumerate()
                    .for_each(|(index, sum)| *sum += (index / space % shapes[out][1] + 1) as f64);
            }
            // The sums are exact, and rounded once.
            let expected: Vec<f64> = held[out].iter().map(|&sum| to(from(sum))).collect();
            let name = op.name();
            assert_eq!(values(&result), expected, "{name} {} {x:?} {weight:?} {options:?} {last}", T::DTYPE);
        }
    }
}

/// Every product of an input, a tap and an output, by their elements.
fn taps([x, weight, y]: [&[usize]; 3], options: &ConvOptions, mut visit: impl FnMut([usize; 3])) {
    let (outputs, inputs) = (weight[0] / options.groups, weight[1]);
    for index in 0..y.iter().product::<usize>() * weight[1..].iter().product::<usize>() {
        let (out, tap) =
            (unravel(index / weight[1..].iter().product::<usize>(), y), index % weight[1..].iter().product::<usize>());
        let tap = unravel(tap, &weight[1..]);
        let at: Option<Vec<usize>> = (0..x.len() - 2)
            .map(|axis| {
                let padded = options.stride[axis] * out[2 + axis] + options.dilation[axis] * tap[1 + axis];
                padded.checked_sub(options.padding[axis][0]).filter(|&at| at < x[2 + axis])
            })
            .collect();
        if let Some(at) = at {
            let channel = out[1] / outputs * inputs + tap[0];
            let (image, kernel) = ([&[out[0], channel][..], &at].concat(), [&[out[1]][..], &tap].concat());
            visit([ravel(&image, x), ravel(&kernel, weight), ravel(&out, y)]);
        }
    }
}

fn unravel(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut at = vec![0; shape.len()];
    for (at, &size) in at.iter_mut().zip(shape).rev() {
        (*at, index) = (index % size, index / size);
    }
    at
}

fn ravel(at: &[usize], shape: &[usize]) -> usize {
    at.iter().zip(shape).fold(0, |index, (&at, &size)| index * size + at)
}

fn channels_last(shape: &[usize]) -> Layout {
    let stored = [&shape[..1], &shape[2..], &shape[1..2]].concat();
    let rank = shape.len() as isize;
    let axes: Vec<isize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    layout(&stored).permute(&axes).unwrap()
}

#[test]
fn convolutions_of_every_form() {
    let Some(cuda) = cuda() else { return };
    let alone = Cuda::builder(0).cudnn(false).build().unwrap();
    let options = |stride, padding, dilation, groups| ConvOptions {
        stride: [stride; 3],
        padding: [padding; 3],
        dilation: [dilation; 3],
        groups,
    };
    let cases: [(&[usize], &[usize], ConvOptions); 9] = [
        (&[2, 16, 20, 20], &[24, 16, 3, 3], options(1, [1, 1], 1, 1)),
        (&[2, 6, 21, 13], &[12, 1, 5, 5], options(1, [2, 2], 1, 6)),
        (&[2, 3, 8, 9], &[5, 3, 3, 2], options(1, [1, 1], 1, 1)),
        (&[2, 4, 9, 7], &[6, 2, 3, 3], options(2, [2, 0], 2, 2)),
        // Windows that lie on top of each other, and need no copy.
        (&[3, 4, 33], &[4, 1, 5], options(1, [0, 0], 1, 4)),
        (&[2, 16, 8, 8], &[8, 16, 1, 1], options(1, [0, 0], 1, 1)),
        (&[1, 2, 5, 6, 7], &[4, 2, 2, 3, 2], options(2, [1, 2], 1, 1)),
        (&[2, 64, 14, 14], &[1, 64, 3, 3], options(1, [1, 1], 1, 1)),
        (&[1, 4, 4, 4], &[4, 4, 4, 4], options(1, [1, 2], 1, 1)),
    ];
    let backends = [cuda, &alone];
    for (cuda, (x, weight, options)) in backends.into_iter().flat_map(|cuda| cases.iter().map(move |case| (cuda, case)))
    {
        check::<f64>(cuda, |x| x, |x| x, x, weight, options);
        check::<f32>(cuda, |x| x as f32, f64::from, x, weight, options);
        check::<f16>(cuda, f16::from_f64, f16::to_f64, x, weight, options);
        check::<bf16>(cuda, bf16::from_f64, bf16::to_f64, x, weight, options);
    }
}
