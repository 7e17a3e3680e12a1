//! What is printed, character by character.

use congruent::{DType, Tensor, bf16, f16};

use crate::{AnyTensor, count, cpu, f32s, i64s};

#[track_caller]
fn check(x: &AnyTensor, expected: &str) {
    assert_eq!(x.to_string(), expected);
}

#[test]
fn integers_and_bools_are_aligned_right() {
    check(&i64s(&[7], []), "7 i64[]");
    check(&i64s(&[1, -20, 300], [3]), "[  1 -20 300] i64[3]");
    check(&i64s(&[1, 2], [2]).gt(1).unwrap(), "[false  true] bool[2]");
    check(&count([2, 2, 2]), "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]] i64[2, 2, 2]");
}

#[test]
fn floats_are_aligned_at_the_point() {
    check(&f32s(&[2.5], []), "2.5 f32[]");
    check(&f32s(&[1.0, 2.0], [2]), "[1. 2.] f32[2]");
    check(&f32s(&[0.1, 22.0, -3.25], [3]), "[ 0.1  22.   -3.25] f32[3]");
    check(&f32s(&[f32::NAN, 1.5, f32::NEG_INFINITY], [3]), "[ nan  1.5 -inf] f32[3]");
    check(&f32s(&[f32::NAN, f32::INFINITY], [2]), "[nan inf] f32[2]");
    check(&f32s(&[-0.0, 0.0], [2]), "[-0.  0.] f32[2]");
    check(&Tensor::full(&cpu(), std::f64::consts::PI, [], DType::F64).unwrap(), "3.14159265 f64[]");
    // The digits are those of the dtype: 0.1 is not 0.09997559.
    check(&Tensor::from_slice(&cpu(), &[f16::from_f32(0.1)], [1]).unwrap(), "[0.1] f16[1]");
    check(&Tensor::from_slice(&cpu(), &[bf16::from_f32(0.3)], [1]).unwrap(), "[0.3] bf16[1]");
}

#[test]
fn wide_ranges_get_exponents() {
    check(&f32s(&[1e10, -1.5], [2]), "[ 1.0e+10 -1.5e+00] f32[2]");
    check(&f32s(&[1e-7], [1]), "[1.e-07] f32[1]");
    check(&Tensor::from_slice(&cpu(), &[1e300, 0.0], [2]).unwrap(), "[1.e+300 0.e+000] f64[2]");
}

#[test]
fn empty_tensors_keep_their_brackets() {
    check(&f32s(&[], [0]), "[] f32[0]");
    check(&f32s(&[], [2, 0]), "[[]\n []] f32[2, 0]");
    check(&f32s(&[], [0, 2]), "[] f32[0, 2]");
    check(&f32s(&[], [1 << 40, 0]), "[[]\n []\n []\n ...\n []\n []\n []] f32[1099511627776, 0]");
}

#[test]
fn long_tensors_show_their_edges() {
    check(&count([1001]), "[   0    1    2 ...  998  999 1000] i64[1001]");
    let expected = "\
[[   0    1    2 ...   37   38   39]
 [  40   41   42 ...   77   78   79]
 [  80   81   82 ...  117  118  119]
 ...
 [1880 1881 1882 ... 1917 1918 1919]
 [1920 1921 1922 ... 1957 1958 1959]
 [1960 1961 1962 ... 1997 1998 1999]] i64[50, 40]";
    check(&count([50, 40]), expected);
    check(
        &count([2, 600]).i((.., 4..)).unwrap(),
        "\
[[   4    5    6 ...  597  598  599]
 [ 604  605  606 ... 1197 1198 1199]] i64[2, 596]",
    );
}

#[test]
fn long_rows_go_on_in_the_next_line() {
    let text = count([50]).to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line.len() <= 100 + " i64[50]".len()));
    assert!(lines[1].starts_with(" 33 34") && lines[1].ends_with("49] i64[50]"), "{text}");
}

#[test]
fn an_error_is_shown_in_place_of_the_elements() {
    let zero = i64s(&[0], [1]);
    // A backend of its own: the error waits there for the next synchronising call, whosever it is.
    let device = std::sync::Arc::new(congruent::Cpu::new());
    let x = zero.to_backend(&device).unwrap();
    let quotient = (1 / &x).unwrap();
    let text = quotient.to_string();
    assert!(text.starts_with('<') && text.ends_with("(division_by_zero)> i64[1]"), "{text}");
    assert_eq!(quotient.to_string(), "[0] i64[1]");
}

#[test]
fn debug_tells_layout_and_backend() {
    let text = format!("{:?}", count([2, 3]).t().unwrap());
    assert_eq!(text, "Tensor { dtype: i64, shape: [3, 2], strides: [1, 3], offset: 0, backend: \"cpu\", .. }");
}
