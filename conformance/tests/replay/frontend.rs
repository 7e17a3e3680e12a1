//! Ops that only the frontend has, held against index arithmetic.

use congruent_conformance::replay::Outcome;
use serde_json::{Value, json};

use super::{base, f32s, fails, outputs, run, with};

fn i32s(shape: Value, data: Value) -> Value {
    json!({"dtype": "i32", "shape": shape, "data": data})
}

/// The call passes with this expectation and with the oracle's, into a new output and into one of another layout, and fails
/// with another element.
fn passes(op: &str, inputs: &Value, args: &Value, wanted: &[Value]) {
    for into in [false, true] {
        let fields = json!({"args": args, "into": into});
        for expect in [json!({"outputs": wanted}), json!({"oracle": true})] {
            let outcome = run(with(base(op, inputs.clone(), expect), fields.clone()));
            assert_eq!(outcome, Outcome::Pass, "{op} {args}");
        }
        let mut wrong = wanted.to_vec();
        if let Some(element) = wrong.last_mut().and_then(|tensor| tensor["data"].as_array_mut()?.last_mut()) {
            *element = json!(-77);
            let case = with(base(op, inputs.clone(), json!({"outputs": wrong})), fields);
            fails(case, "the expectation contradicts the oracle: element");
        }
    }
}

#[test]
fn joins_and_assignments() {
    let a = i32s(json!([2, 2]), json!([0, 1, 2, 3]));
    // The transpose of [[4, 5, 6], [7, 8, 9]].
    let b = json!({"dtype": "i32", "shape": [3, 2], "strides": [1, 3], "data": [4, 5, 6, 7, 8, 9]});
    let none = i32s(json!([0, 2]), json!([]));
    let joined = i32s(json!([5, 2]), json!([0, 1, 2, 3, 4, 7, 5, 8, 6, 9]));
    passes("cat", &json!([a, none, b]), &json!({"axis": -2}), &[joined]);
    passes("cat", &json!([a]), &json!({"axis": 1}), std::slice::from_ref(&a));
    passes("cat", &json!([none, none]), &json!({"axis": 1}), &[i32s(json!([0, 4]), json!([]))]);
    let t = json!({"dtype": "i32", "shape": [2, 2], "strides": [1, 2], "data": [4, 5, 6, 7]});
    let stacked = |data| [i32s(json!([2, 2, 2]), data)];
    passes("stack", &json!([a, t]), &json!({"axis": 0}), &stacked(json!([0, 1, 2, 3, 4, 6, 5, 7])));
    passes("stack", &json!([a, t]), &json!({"axis": -1}), &stacked(json!([0, 4, 1, 6, 2, 5, 3, 7])));
    let assigned = |data| [i32s(json!([3, 2]), data)];
    let row = i32s(json!([2]), json!([-1, -2]));
    passes(
        "slice_assign",
        &json!([b, row]),
        &json!({"ranges": [[null, null, -2]]}),
        &assigned(json!([-1, -2, 5, 8, -1, -2])),
    );
    passes("slice_assign", &json!([b, row]), &json!({"ranges": [1]}), &assigned(json!([4, 7, -1, -2, 6, 9])));
    let column = i32s(json!([1]), json!([-3]));
    passes(
        "slice_assign",
        &json!([b, column]),
        &json!({"ranges": [[1, null, 1], -1]}),
        &assigned(json!([4, 7, 5, -3, 6, -3])),
    );
    let floats = f32s(json!(["nan", -3e9]));
    passes("slice_assign", &json!([b, floats]), &json!({"ranges": [0]}), &assigned(json!([0, i32::MIN, 5, 8, 6, 9])));
    passes("slice_assign", &json!([b, none]), &json!({"ranges": [[2, 1, 1]]}), &assigned(json!([4, 7, 5, 8, 6, 9])));
}

#[test]
fn joins_and_assignments_report_errors() {
    let a = i32s(json!([2, 2]), json!([0, 1, 2, 3]));
    let error = |op: &str, inputs: Value, args: Value, kind: &str| {
        assert_eq!(run(with(base(op, inputs, json!({"error": kind})), json!({"args": args}))), Outcome::Pass, "{op}");
    };
    error("cat", json!([]), json!({"axis": 0}), "argument");
    error("cat", json!([a, a]), json!({"axis": 2}), "axis");
    error("cat", json!([a, i32s(json!([2]), json!([0, 1]))]), json!({"axis": 0}), "shape");
    error("cat", json!([a, {"dtype": "i64", "shape": [2, 2], "data": [0, 1, 2, 3]}]), json!({"axis": 0}), "dtype");
    error("stack", json!([a, i32s(json!([2, 1]), json!([0, 1]))]), json!({"axis": 0}), "shape");
    error("slice_assign", json!([a, i32s(json!([3]), json!([0, 1, 2]))]), json!({"ranges": [0]}), "shape");
    error("slice_assign", json!([a, i32s(json!([2]), json!([0, 1]))]), json!({"ranges": [2]}), "index_out_of_range");
}

#[test]
fn parts_borders_and_copies() {
    // The transpose of [[0, 1, 2], [3, 4, 5]], from the back.
    let x = json!({"dtype": "i32", "shape": [3, 2], "strides": [-1, -3], "offset": 5, "data": [5, 4, 3, 2, 1, 0]});
    let two = [i32s(json!([1, 2]), json!([0, 3])), i32s(json!([2, 2]), json!([1, 4, 2, 5]))];
    passes("split", &json!([x]), &json!({"sizes": [1, 2], "axis": 0}), &two);
    let two = [i32s(json!([2, 2]), json!([0, 3, 1, 4])), i32s(json!([1, 2]), json!([2, 5]))];
    passes("chunk", &json!([x]), &json!({"chunks": 2, "axis": -2}), &two);
    let none = i32s(json!([0, 2]), json!([]));
    passes("chunk", &json!([none]), &json!({"chunks": 2, "axis": 0}), &[none.clone(), none]);
    let calls = [
        ("roll", json!({"shifts": [1], "axes": [0]}), json!([3, 2]), json!([2, 5, 0, 3, 1, 4])),
        ("roll", json!({"shifts": [-1, 3], "axes": [0, 1]}), json!([3, 2]), json!([4, 1, 5, 2, 3, 0])),
        ("roll", json!({"shifts": [2]}), json!([3, 2]), json!([2, 5, 0, 3, 1, 4])),
        ("tile", json!({"reps": [2]}), json!([3, 4]), json!([0, 3, 0, 3, 1, 4, 1, 4, 2, 5, 2, 5])),
        ("tile", json!({"reps": [2, 1, 1]}), json!([2, 3, 2]), json!([0, 3, 1, 4, 2, 5, 0, 3, 1, 4, 2, 5])),
        ("repeat", json!({"repeats": 2, "axis": 1}), json!([3, 4]), json!([0, 0, 3, 3, 1, 1, 4, 4, 2, 2, 5, 5])),
        ("repeat", json!({"repeats": 2}), json!([12]), json!([0, 0, 3, 3, 1, 1, 4, 4, 2, 2, 5, 5])),
        (
            "pad",
            json!({"pads": [[1, 0], [0, 1]], "value": 9}),
            json!([4, 3]),
            json!([9, 9, 9, 0, 3, 9, 1, 4, 9, 2, 5, 9]),
        ),
        ("pad", json!({"pads": [[-2, 0], [1, -1]]}), json!([1, 2]), json!([0, 2])),
        (
            "pad",
            json!({"pads": [[2, 0], [0, 1]], "mode": "reflect"}),
            json!([5, 3]),
            json!([2, 5, 2, 1, 4, 1, 0, 3, 0, 1, 4, 1, 2, 5, 2]),
        ),
        (
            "pad",
            json!({"pads": [[-1, 1], [2, 0]], "mode": "replicate"}),
            json!([3, 4]),
            json!([1, 1, 1, 4, 2, 2, 2, 5, 2, 2, 2, 5]),
        ),
        (
            "pad",
            json!({"pads": [[1, 0], [0, 2]], "mode": "circular"}),
            json!([4, 4]),
            json!([2, 5, 2, 5, 0, 3, 0, 3, 1, 4, 1, 4, 2, 5, 2, 5]),
        ),
    ];
    for (op, args, shape, data) in calls {
        passes(op, &json!([x]), &args, &[i32s(shape, data)]);
    }
}

#[test]
fn sums_of_products() {
    let x = i32s(json!([2, 2]), json!([0, 1, 2, 3]));
    let y = i32s(json!([2]), json!([5, 7]));
    let sum = |equation: &str, inputs: Value, shape: Value, data: Value| {
        passes("einsum", &inputs, &json!({"equation": equation}), &[i32s(shape, data)]);
    };
    sum("ij,j->i", json!([x, y]), json!([2]), json!([7, 31]));
    sum("ij,jk,k->i", json!([x, x, y]), json!([2]), json!([31, 107]));
    sum("ii->i", json!([x]), json!([2]), json!([0, 3]));
    sum("...j,k->k...", json!([x, y]), json!([2, 2]), json!([5, 25, 7, 35]));
    sum("ba", json!([x]), json!([2, 2]), json!([0, 2, 1, 3]));
    let floats = json!({"dtype": "f32", "shape": [2], "data": [0.1, 0.3]});
    let product = |value: f64| json!({"outputs": [{"dtype": "f32", "shape": [], "data": [value]}]});
    let case =
        |expect: Value| with(base("einsum", json!([floats, floats]), expect), json!({"args": {"equation": "i,i"}}));
    assert_eq!(run(case(product(0.1))), Outcome::Pass);
    assert_eq!(run(case(json!({"oracle": true}))), Outcome::Pass);
    fails(case(product(0.100_01)), "contradicts the oracle");
    fails(case(json!({"error": "shape"})), "succeeded");
    let wrong = with(base("einsum", json!([x]), json!({"error": "argument"})), json!({"args": {"equation": "ij->k"}}));
    assert_eq!(run(wrong), Outcome::Pass);
}

#[test]
fn the_number_of_outputs_is_compared() {
    let a = i32s(json!([1]), json!([5]));
    let two = with(base("cat", json!([a]), json!({"outputs": [a, a]})), json!({"args": {"axis": 0}}));
    fails(two, "the expectation contradicts the oracle: there are 2 outputs, by the oracle 1");
}

#[test]
fn view_ops_are_compared_with_index_arithmetic() {
    let x = json!({"dtype": "i32", "shape": [2, 3], "data": [0, 1, 2, 3, 4, 5]});
    let calls = [
        ("slice", json!({"ranges": [[null, null, -1], [-2, null, null]]}), json!([2, 2]), json!([4, 5, 1, 2])),
        ("slice", json!({"ranges": [1, [0, 100, 2]]}), json!([2]), json!([3, 5])),
        ("slice", json!({"ranges": [[5, 0, 1]]}), json!([0, 3]), json!([])),
        ("permute", json!({"axes": [1, 0]}), json!([3, 2]), json!([0, 3, 1, 4, 2, 5])),
        ("flip", json!({"axes": null}), json!([2, 3]), json!([5, 4, 3, 2, 1, 0])),
        ("flip", json!({"axes": [-1]}), json!([2, 3]), json!([2, 1, 0, 5, 4, 3])),
        ("expand", json!({"shape": [2, 2, 3]}), json!([2, 2, 3]), json!([0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5])),
        ("reshape", json!({"shape": [3, 2]}), json!([3, 2]), json!([0, 1, 2, 3, 4, 5])),
        ("unsqueeze", json!({"axis": -1}), json!([2, 3, 1]), json!([0, 1, 2, 3, 4, 5])),
        ("contiguous", json!({}), json!([2, 3]), json!([0, 1, 2, 3, 4, 5])),
    ];
    for (op, args, shape, data) in calls {
        passes(op, &json!([x]), &args, &[i32s(shape, data)]);
    }
    let wrong = outputs(json!({"dtype": "i32", "shape": [2, 3], "data": [0, 1, 2, 3, 4, 6]}));
    fails(base("contiguous", json!([x]), wrong), "contradicts the oracle: element [1, 2]");
    let squeeze = with(base("squeeze", json!([x]), json!({"error": "shape"})), json!({"args": {"axis": 0}}));
    assert_eq!(run(squeeze), Outcome::Pass);
}

#[test]
fn sorts_with_positions_and_quantiles() {
    let i64s = |shape: Value, data: Value| json!({"dtype": "i64", "shape": shape, "data": data});
    let x = f32s(json!([3, 1, 2, 1, 5, 4]));
    let sorted = [f32s(json!([1, 1, 2, 3, 4, 5])), i64s(json!([6]), json!([1, 3, 2, 0, 5, 4]))];
    let first = [f32s(json!([5, 4])), i64s(json!([2]), json!([4, 5]))];
    for (op, args, wanted) in [("sort", json!({}), sorted), ("topk", json!({"k": 2}), first)] {
        for into in [false, true] {
            let call = |outputs: &[Value]| {
                run(with(base(op, json!([x]), json!({"outputs": outputs})), json!({"args": args, "into": into})))
            };
            assert_eq!(call(&wanted), Outcome::Pass, "{op}");
            let [values, mut positions] = wanted.clone();
            positions["data"][1] = json!(0);
            assert!(matches!(call(&[values, positions]), Outcome::Fail(_)), "{op}");
        }
    }
    passes(
        "unique",
        &json!([f32s(json!([3, "nan", -0.0, 3, 0, "nan"]))]),
        &json!({}),
        &[f32s(json!([-0.0, 3, "nan"]))],
    );
    let quantile = |wanted: Value| {
        let args = json!({"q": 0.3, "axis": 0});
        run(with(base("quantile", json!([x]), json!({"outputs": [wanted]})), json!({"args": args})))
    };
    let scalar = |value: Value| json!({"dtype": "f32", "shape": [], "data": [value]});
    assert_eq!(quantile(scalar(json!(1.5))), Outcome::Pass);
    assert!(matches!(quantile(scalar(json!(1.501))), Outcome::Fail(_)));
    let median = with(base("median", json!([x]), json!({"oracle": true})), json!({"args": {"keepdim": true}}));
    assert_eq!(run(median), Outcome::Pass);
}
