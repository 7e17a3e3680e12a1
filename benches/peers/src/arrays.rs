//! ndarray, as it is: expressions of arrays, `mapv` for functions, `dot` for products.

use std::hint::black_box;

use ndarray::{Array, Array1, Array2, Axis, NdFloat, concatenate};

use crate::case::{Call, Case, Refusal};

/// The call of a case.
pub(crate) fn prepare(_: &str, case: &Case) -> Result<Call, Refusal> {
    match case.dtype.as_str() {
        "f32" => of::<f32>(case),
        "f64" => of::<f64>(case),
        _ => Err(case.missing()),
    }
}

fn of<T: NdFloat + From<f32>>(case: &Case) -> Result<Call, Refusal> {
    let vector = |at: usize| -> Result<Array1<T>, Refusal> {
        Ok(case.input(at)?.floats().into_iter().map(Into::into).collect())
    };
    let matrix = |at: usize| -> Result<Array2<T>, Refusal> {
        let shape = case.input(at)?.rows();
        vector(at)?.into_shape_with_order(shape).map_err(|error| Refusal::Failed(error.to_string()))
    };
    let one = |call: fn(&Array1<T>) -> Array1<T>| -> Result<Call, Refusal> {
        let x = vector(0)?;
        Ok(call_of(move || call(&x)))
    };
    let square = |call: fn(&Array2<T>) -> Array2<T>| -> Result<Call, Refusal> {
        let x = matrix(0)?;
        Ok(call_of(move || call(&x)))
    };
    let two = |call: fn(&Array2<T>, &Array2<T>) -> Array2<T>| -> Result<Call, Refusal> {
        let (a, b) = (matrix(0)?, matrix(1)?);
        Ok(call_of(move || call(&a, &b)))
    };
    match case.op.as_str() {
        "exp" => one(|x| x.mapv(T::exp)),
        "tanh" => one(|x| x.mapv(T::tanh)),
        "sqrt" => one(|x| x.mapv(T::sqrt)),
        "ln" => one(|x| x.mapv(T::ln)),
        "sin" => one(|x| x.mapv(T::sin)),
        "cos" => one(|x| x.mapv(T::cos)),
        "abs" => one(|x| x.mapv(T::abs)),
        "relu" => one(|x| x.mapv(|x| x.max(T::zero()))),
        "mul_scalar" => one(|x| x * (T::one() + T::one())),
        "copy" => one(|x| x.clone()),
        "add" => {
            let (a, b) = (vector(0)?, vector(1)?);
            Ok(call_of(move || &a + &b))
        }
        "add_row" | "add_col" => {
            let (a, b) = (matrix(0)?, matrix(1)?);
            Ok(call_of(move || &a + &b))
        }
        "add_t" => square(|x| x + &x.t()),
        "add_bt" => two(|a, b| a + &b.t()),
        "transpose_copy" => square(|x| x.t().as_standard_layout().into_owned()),
        "cat" => {
            let (a, b) = (vector(0)?, vector(1)?);
            Ok(Box::new(move || {
                let joined = concatenate(Axis(0), &[a.view(), b.view()]).map_err(|e| Refusal::Failed(e.to_string()))?;
                black_box(&joined);
                Ok(())
            }))
        }
        "fill" => {
            let count = case.arg("count");
            Ok(call_of(move || Array1::from_elem(count, T::one())))
        }
        "sum" => {
            let x = vector(0)?;
            Ok(Box::new(move || {
                black_box(x.sum());
                Ok(())
            }))
        }
        "sum_first" | "sum_last" => {
            let (x, axis) = (matrix(0)?, Axis(usize::from(case.op == "sum_last")));
            Ok(call_of(move || x.sum_axis(axis)))
        }
        "matmul" => two(|a, b| a.dot(b)),
        "matmul_at" => two(|a, b| a.t().dot(b)),
        "matmul_bt" => two(|a, b| a.dot(&b.t())),
        "matmul_atbt" => two(|a, b| a.t().dot(&b.t())),
        _ => Err(case.missing()),
    }
}

fn call_of<T, D>(mut run: impl FnMut() -> Array<T, D> + 'static) -> Call {
    Box::new(move || {
        black_box(&run());
        Ok(())
    })
}
