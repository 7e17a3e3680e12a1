//! Images of another size, and windows as columns.

use congruent::ops::{ConvOptions, Coordinates, Interpolation, Rounding};
use congruent::{DType, ErrorKind, Tensor, bf16};

use crate::{AnyTensor, count, cpu, f32s, parts};

const LINEAR: Interpolation = Interpolation::Linear;

fn close(x: &AnyTensor, expected: &[f32]) {
    let got = x.to_vec::<f32>().unwrap();
    assert!(got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}");
}

#[test]
fn nearest_elements_are_copied_by_each_rounding() {
    let row = |rounding, coordinates| {
        parts(&count([1, 1, 4]).resize([6], Interpolation::Nearest(rounding), coordinates).unwrap()).1
    };
    assert_eq!(row(Rounding::Floor, Coordinates::Asymmetric), [0, 0, 1, 2, 2, 3]);
    assert_eq!(row(Rounding::HalfDown, Coordinates::HalfPixel), [0, 0, 1, 2, 2, 3]);
    assert_eq!(row(Rounding::HalfUp, Coordinates::HalfPixel), [0, 1, 1, 2, 3, 3]);
    assert_eq!(row(Rounding::Ceil, Coordinates::AlignCorners), [0, 1, 2, 2, 3, 3]);
    let image = count([1, 2, 2, 2]).resize([4, 4], Interpolation::Nearest(Rounding::Floor), Coordinates::Asymmetric);
    assert_eq!(parts(&image.unwrap()).1[..8], [0, 0, 1, 1, 0, 0, 1, 1]);
    let same = count([1, 1, 3]).resize([3], Interpolation::Nearest(Rounding::Ceil), Coordinates::HalfPixel);
    assert_eq!(parts(&same.unwrap()).1, [0, 1, 2]);
}

#[test]
fn lines_and_cubics_meet_their_points() {
    let x = f32s(&[0.0, 1.0, 4.0, 9.0], [1, 1, 4]);
    close(&x.resize([7], LINEAR, Coordinates::AlignCorners).unwrap(), &[0.0, 0.5, 1.0, 2.5, 4.0, 6.5, 9.0]);
    close(&x.resize([2], LINEAR, Coordinates::HalfPixel).unwrap(), &[0.5, 6.5]);
    // Keys' cubic of slope −1/2 is exact for squares, away from the edge.
    let cubic = x.resize([7], Interpolation::Cubic(-0.5), Coordinates::AlignCorners).unwrap();
    assert_eq!(cubic.to_vec::<f32>().unwrap()[3], 2.25);
    // The last row is the last row: rounding does not step over the edge.
    let tall = count([28, 4]).cast(DType::F32).unwrap().resize([24, 2], LINEAR, Coordinates::AlignCorners).unwrap();
    close(&tall.i(23).unwrap().contiguous().unwrap(), &[108.0, 111.0]);
    // An axis after the other, in f32: a square of bf16 is rounded once.
    let half = Tensor::from_slice(&cpu(), &[bf16::from_f32(1.0), bf16::from_f32(3.0)], [1, 1, 2]).unwrap();
    let third = half.resize([4], LINEAR, Coordinates::HalfPixel).unwrap().to_vec::<bf16>().unwrap();
    assert_eq!(third, [1.0, 1.5, 2.5, 3.0].map(bf16::from_f32));
    close(&x.resize_by([0.6], LINEAR, Coordinates::HalfPixel).unwrap(), &[1.0 / 3.0, 4.0]);
    // A view of part of an image, to its own size.
    let part = count([1, 1, 3, 4]).cast(DType::F32).unwrap().transpose(2, 3).unwrap().narrow(2, 1, 2).unwrap();
    close(&part.resize([2, 3], LINEAR, Coordinates::HalfPixel).unwrap(), &[1.0, 5.0, 9.0, 2.0, 6.0, 10.0]);
}

#[test]
fn sizes_and_scales_that_do_not_fit_are_errors() {
    let x = f32s(&[1.0, 2.0], [1, 2]);
    let kind = |sizes: &[usize]| x.resize(sizes, LINEAR, Coordinates::HalfPixel).map_err(|error| error.kind());
    assert_eq!(kind(&[1, 1, 1]).unwrap_err(), ErrorKind::Shape);
    assert_eq!(kind(&[1, 0]).unwrap().shape(), [1, 0]);
    let none = f32s(&[], [1, 0]).resize([1, 2], LINEAR, Coordinates::HalfPixel);
    assert_eq!(none.unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(count([2]).resize([3], LINEAR, Coordinates::HalfPixel).unwrap_err().kind(), ErrorKind::DType);
    for scale in [0.0, f64::NAN, f64::INFINITY] {
        let scaled = x.resize_by([scale], LINEAR, Coordinates::HalfPixel);
        assert_eq!(scaled.unwrap_err().kind(), ErrorKind::Argument);
    }
}

#[test]
fn pixels_are_shuffled_there_and_back() {
    let x = count([1, 8, 2, 3]);
    let shuffled = x.pixel_shuffle(2).unwrap();
    assert_eq!(shuffled.shape(), [1, 2, 4, 6]);
    assert_eq!(parts(&shuffled).1[..6], [0, 6, 1, 7, 2, 8]);
    assert_eq!(parts(&shuffled.pixel_unshuffle(2).unwrap()), parts(&x));
    assert_eq!(x.pixel_shuffle(3).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(x.pixel_shuffle(0).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(x.pixel_unshuffle(2).unwrap_err().kind(), ErrorKind::Shape);
}

#[test]
fn unfolded_windows_are_what_a_convolution_sums() {
    let options = ConvOptions { stride: [2, 1, 1], padding: [[1, 0], [0, 2], [0; 2]], dilation: [1, 2, 1], groups: 1 };
    let x = count([2, 3, 5, 4]).rem(7).unwrap().cast(DType::F32).unwrap();
    let weight = count([4, 3, 2, 2]).rem(5).unwrap().cast(DType::F32).unwrap();
    let columns = x.unfold([2, 2], options).unwrap();
    let conv = x.conv(&weight, None, options).unwrap();
    let products = weight.reshape([4, 12]).unwrap().matmul(&columns).unwrap();
    assert_eq!(products.to_vec::<f32>().unwrap(), conv.to_vec::<f32>().unwrap());
    // Fold is the adjoint, and the transposed convolution folds products.
    let back = weight.reshape([4, 12]).unwrap().t().unwrap().matmul(&products).unwrap();
    let folded = back.fold([5, 4], [2, 2], options).unwrap();
    let transposed = conv.conv_grad_input(&weight, [2, 3, 5, 4], options).unwrap();
    assert_eq!(folded.to_vec::<f32>().unwrap(), transposed.to_vec::<f32>().unwrap());
    assert_eq!(x.unfold([2], options).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(x.unfold([9, 9], options).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(x.unfold([2, 2], ConvOptions { stride: [0; 3], ..options }).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(columns.fold([5, 5], [2, 2], options).unwrap_err().kind(), ErrorKind::Shape);
    let none = Tensor::zeros(&cpu(), [0, 3, 5, 4], DType::F32).unwrap().unfold([2, 2], options).unwrap();
    assert_eq!(none.shape(), [0, 12, columns.shape()[2]]);
}
