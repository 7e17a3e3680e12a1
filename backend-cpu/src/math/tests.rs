//! Special values, and the bounds of the contract.

use super::*;

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// The result must have these bits, or be NaN too.
fn same(given: f64, expected: f64) -> bool {
    given.to_bits() == expected.to_bits() || (given.is_nan() && expected.is_nan())
}

type Function<T> = fn(T) -> T;
type Specials = (&'static str, Function<f32>, Function<f64>, [f64; 6]);

#[test]
fn special_values() {
    let x = [0.0, -0.0, INF, -INF, NAN, 2.0];
    let ignored = -1234.5;
    let cases: [Specials; 27] = [
        ("exp", Real::exp, Real::exp, [1.0, 1.0, INF, 0.0, NAN, ignored]),
        ("exp2", Real::exp2, Real::exp2, [1.0, 1.0, INF, 0.0, NAN, 4.0]),
        ("expm1", Real::expm1, Real::expm1, [0.0, -0.0, INF, -1.0, NAN, ignored]),
        ("ln", Real::ln, Real::ln, [-INF, -INF, INF, NAN, NAN, ignored]),
        ("log2", Real::log2, Real::log2, [-INF, -INF, INF, NAN, NAN, 1.0]),
        ("log10", Real::log10, Real::log10, [-INF, -INF, INF, NAN, NAN, ignored]),
        ("log1p", Real::log1p, Real::log1p, [0.0, -0.0, INF, NAN, NAN, ignored]),
        ("sin", Real::sin, Real::sin, [0.0, -0.0, NAN, NAN, NAN, ignored]),
        ("cos", Real::cos, Real::cos, [1.0, 1.0, NAN, NAN, NAN, ignored]),
        ("tan", Real::tan, Real::tan, [0.0, -0.0, NAN, NAN, NAN, ignored]),
        ("asin", Real::asin, Real::asin, [0.0, -0.0, NAN, NAN, NAN, NAN]),
        ("acos", Real::acos, Real::acos, [ignored, ignored, NAN, NAN, NAN, NAN]),
        ("atan", Real::atan, Real::atan, [0.0, -0.0, ignored, ignored, NAN, ignored]),
        ("sinh", Real::sinh, Real::sinh, [0.0, -0.0, INF, -INF, NAN, ignored]),
        ("cosh", Real::cosh, Real::cosh, [1.0, 1.0, INF, INF, NAN, ignored]),
        ("tanh", Real::tanh, Real::tanh, [0.0, -0.0, 1.0, -1.0, NAN, ignored]),
        ("asinh", Real::asinh, Real::asinh, [0.0, -0.0, INF, -INF, NAN, ignored]),
        ("acosh", Real::acosh, Real::acosh, [NAN, NAN, INF, NAN, NAN, ignored]),
        ("atanh", Real::atanh, Real::atanh, [0.0, -0.0, NAN, NAN, NAN, NAN]),
        ("erf", Real::erf, Real::erf, [0.0, -0.0, 1.0, -1.0, NAN, ignored]),
        ("erfc", Real::erfc, Real::erfc, [1.0, 1.0, 0.0, 2.0, NAN, ignored]),
        ("sigmoid", Real::sigmoid, Real::sigmoid, [0.5, 0.5, 1.0, 0.0, NAN, ignored]),
        ("silu", Real::silu, Real::silu, [0.0, -0.0, INF, -0.0, NAN, ignored]),
        ("gelu", Real::gelu, Real::gelu, [0.0, -0.0, INF, -0.0, NAN, ignored]),
        ("gelu_tanh", Real::gelu_tanh, Real::gelu_tanh, [0.0, -0.0, INF, -0.0, NAN, ignored]),
        ("softplus", Real::softplus, Real::softplus, [ignored, ignored, INF, 0.0, NAN, ignored]),
        ("sqrt", Real::sqrt, Real::sqrt, [0.0, -0.0, INF, NAN, NAN, ignored]),
    ];
    for (name, single, double, expected) in cases {
        for (x, expected) in x.into_iter().zip(expected).filter(|&(_, expected)| expected != ignored) {
            assert!(same(double(x), expected), "f64 {name}({x}) = {}, not {expected}", double(x));
            let single = f64::from(single(x as f32));
            assert!(same(single, expected), "f32 {name}({x}) = {single}, not {expected}");
        }
    }
}

/// f64 is accurate enough to judge f32; the largest error must be within the contract's.
#[test]
fn f32_is_within_the_bounds() {
    let cases: [(&str, Function<f32>, Function<f64>, f64); 26] = [
        ("exp", Real::exp, Real::exp, 3.0),
        ("exp2", Real::exp2, Real::exp2, 3.0),
        ("expm1", Real::expm1, Real::expm1, 3.0),
        ("ln", Real::ln, Real::ln, 3.0),
        ("log2", Real::log2, Real::log2, 3.0),
        ("log10", Real::log10, Real::log10, 3.0),
        ("log1p", Real::log1p, Real::log1p, 3.0),
        ("sin", Real::sin, Real::sin, 4.0),
        ("cos", Real::cos, Real::cos, 4.0),
        ("tan", Real::tan, Real::tan, 5.0),
        ("asin", Real::asin, Real::asin, 5.0),
        ("acos", Real::acos, Real::acos, 5.0),
        ("atan", Real::atan, Real::atan, 5.0),
        ("sinh", Real::sinh, Real::sinh, 4.0),
        ("cosh", Real::cosh, Real::cosh, 4.0),
        ("tanh", Real::tanh, Real::tanh, 4.0),
        ("asinh", Real::asinh, Real::asinh, 5.0),
        ("acosh", Real::acosh, Real::acosh, 5.0),
        ("atanh", Real::atanh, Real::atanh, 5.0),
        ("erf", Real::erf, Real::erf, 4.0),
        ("erfc", Real::erfc, Real::erfc, 6.0),
        ("sigmoid", Real::sigmoid, Real::sigmoid, 8.0),
        ("silu", Real::silu, Real::silu, 8.0),
        ("softplus", Real::softplus, Real::softplus, 8.0),
        ("gelu", Real::gelu, Real::gelu, 8.0),
        ("gelu_tanh", Real::gelu_tanh, Real::gelu_tanh, 8.0),
    ];
    for (name, single, double, bound) in cases {
        for x in (0..u32::MAX).step_by(99_991).map(f32::from_bits).filter(|x| !x.is_nan()) {
            let (given, exact) = (single(x), double(f64::from(x)));
            let nearest = exact as f32;
            let unit = f64::from(nearest.abs().next_up()) - f64::from(nearest.abs());
            let condition = match (name, f64::from(x).min(0.0)) {
                ("gelu", x) => x * x,
                ("gelu_tanh", x) => 6.4 * (x + 0.044715 * x * x * x).abs(),
                _ => 0.0,
            };
            let close = (f64::from(given) - exact).abs() <= (bound + condition) * unit;
            let alike = given.to_bits() == nearest.to_bits() || (given.is_nan() && exact.is_nan());
            assert!(alike || close, "{name}({x:e}) = {given:e}, not {exact:e}");
        }
    }
}

#[test]
fn f64_at_known_values() {
    let cases = [
        (1.0.exp(), std::f64::consts::E),
        (Real::erf(1.0), 0.842_700_792_949_714_9),
        (Real::erfc(10.0), 2.088_487_583_762_545e-45),
        (Real::asinh(1e300), 691.468_675_078_773_7),
        (Real::acosh(1e300), 691.468_675_078_773_7),
        (Real::asinh(-1e-20), -1e-20),
        (Real::sin(1e22), -0.852_200_849_767_188_8),
        (Real::silu(-744.0), -5.706e-321),
        (Real::softplus(-50.0), 1.928_749_847_963_918e-22),
        (Real::softplus(50.0), 50.0),
        (Real::gelu_tanh(1e200), 1e200),
        (Real::sigmoid(-750.0), 0.0),
    ];
    assert!((Real::gelu(-10.0) / -7.619_853_024_160_526e-23 - 1.0_f64).abs() < 108.0 * f64::EPSILON);
    for (index, (given, expected)) in cases.into_iter().enumerate() {
        let error = (given - expected).abs();
        assert!(error <= 4.0 * f64::EPSILON * expected.abs() + 5e-323, "case {index}: {given:e}, not {expected:e}");
    }
}

#[test]
fn functions_of_two_at_special_values() {
    let cases = [
        (NAN, 0.0, 1.0),
        (1.0, NAN, 1.0),
        (NAN, 1.0, NAN),
        (-0.0, -3.0, -INF),
        (-0.0, 3.0, -0.0),
        (-0.0, -2.0, INF),
        (-0.0, 0.5, 0.0),
        (-0.0, INF, 0.0),
        (-INF, 3.0, -INF),
        (-INF, -3.0, -0.0),
        (-INF, 0.5, INF),
        (-1.0, INF, 1.0),
        (-2.0, 3.0, -8.0),
        (-2.0, 0.5, NAN),
        (-8.0, 1.0 / 3.0, NAN),
        (0.5, INF, 0.0),
        (2.0, -INF, 0.0),
    ];
    for (a, b, expected) in cases {
        assert!(same(Real::pow(a, b), expected), "{a} ^ {b} = {}", Real::pow(a, b));
        let single = f64::from(Real::pow(a as f32, b as f32));
        assert!(same(single, expected), "f32 {a} ^ {b} = {single}");
    }
    assert!((Real::pow(f64::MAX, -0.5) / 7.458_340_731_200_207e-155 - 1.0).abs() < 4.0 * f64::EPSILON);
    assert!((Real::pow(1e160, -2.0) - 1e-320).abs() <= 5e-324);
    assert_eq!(Real::pow(-1e-20_f64, 27.0).to_bits(), 1 << 63);
    for (y, x, expected) in [(-0.0, 1.0, -0.0), (-5e-324, 1e300, -0.0), (0.0, -0.0, std::f64::consts::PI)] {
        assert!(same(Real::atan2(y, x), expected));
    }
    assert!(Real::atan2(INF, INF) == std::f64::consts::FRAC_PI_4 && Real::atan2(NAN, 1.0).is_nan());
}
