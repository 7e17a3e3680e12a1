//! Other Rust libraries as a worker of `congruent-benches report`, which has the protocol (`benches/src/worker.rs`):
//!
//! ```sh
//! cargo build --release --manifest-path benches/peers/Cargo.toml
//! cargo run --release -p congruent-benches -- report --worker "benches/peers/target/release/congruent-peers candle"
//! ```
//!
//! One process times one library: `candle`, `burn-flex`, `burn-ndarray`, `ndarray`, `faer`, `gemm` or `matrixmultiply`.

mod arrays;
mod burn;
mod candle;
mod case;
mod products;

use std::io::{BufRead as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Value, json};

use case::{Call, Case, Refusal, unsupported};

/// Makes the call of a case.
type Prepare = fn(&str, &Case) -> Result<Call, Refusal>;

/// Name on the command line, crate, and what prepares its calls.
const LIBRARIES: [(&str, &str, Prepare); 7] = [
    ("burn-flex", "burn-tensor", burn::prepare),
    ("burn-ndarray", "burn-tensor", burn::prepare),
    ("candle", "candle-core", candle::prepare),
    ("faer", "faer", products::prepare),
    ("gemm", "gemm", products::prepare),
    ("matrixmultiply", "matrixmultiply", products::prepare),
    ("ndarray", "ndarray", arrays::prepare),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let Some((name, package, prepare)) = LIBRARIES.into_iter().find(|(name, ..)| *name == wanted) else {
        let names: Vec<_> = LIBRARIES.iter().map(|(name, ..)| *name).collect();
        eprintln!("name one of {}", names.join(" "));
        return ExitCode::from(2);
    };
    // A panic of the library is an answer.
    std::panic::set_hook(Box::new(|_| {}));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    say(&json!({
        "library": name, "device": "cpu", "version": version(package), "note": format!("{threads} threads"),
    }));
    let mut call: Option<Call> = None;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        say(&guarded(|| answer(&line, name, prepare, &mut call)).unwrap_or_else(refused));
    }
    ExitCode::SUCCESS
}

fn answer(line: &str, name: &str, prepare: Prepare, call: &mut Option<Call>) -> Result<Value, Refusal> {
    let failed = |error: serde_json::Error| Refusal::Failed(error.to_string());
    let mut question: Value = serde_json::from_str(line).map_err(failed)?;
    if let Some(case) = question.get_mut("prepare") {
        *call = None;
        let case: Case = serde_json::from_value(case.take()).map_err(failed)?;
        *call = Some(prepare(name, &case)?);
        return Ok(json!({ "ready": true }));
    }
    if let Some(calls) = question.get("run").and_then(Value::as_u64) {
        let call = call.as_mut().ok_or_else(|| unsupported("nothing is prepared"))?;
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        return Ok(json!({ "seconds": seconds, "returned": seconds }));
    }
    *call = None;
    Ok(json!({ "released": true }))
}

/// Panics as failures.
fn guarded(run: impl FnOnce() -> Result<Value, Refusal>) -> Result<Value, Refusal> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(Refusal::Failed(text.lines().next().unwrap_or_default().to_owned()))
    })
}

fn refused(refusal: Refusal) -> Value {
    match refusal {
        Refusal::Unsupported(why) => json!({ "unsupported": why }),
        Refusal::Failed(why) => json!({ "failed": why }),
    }
}

fn say(message: &Value) {
    let mut out = std::io::stdout().lock();
    // Who asked has gone away when this fails, and then there are no more questions.
    let _ = writeln!(out, "{message}").and_then(|()| out.flush());
}

/// The version of a package in the lock file: the newest, where two are locked.
fn version(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"\nversion = \"");
    let entries = include_str!("../Cargo.lock").split(name.as_str()).skip(1);
    entries.last().and_then(|rest| rest.split('"').next()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prepares, runs twice and releases, as the report does.
    fn session(name: &str, case: &Value) -> Vec<Value> {
        let (_, _, prepare) = LIBRARIES.into_iter().find(|(library, ..)| *library == name).unwrap();
        let mut call = None;
        let questions = [json!({ "prepare": case }), json!({ "run": 2 }), json!({ "release": true })];
        let mut ask =
            |line: Value| guarded(|| answer(&line.to_string(), name, prepare, &mut call)).unwrap_or_else(refused);
        questions.map(&mut ask).to_vec()
    }

    fn data(shapes: &[&[usize]]) -> Value {
        shapes.iter().map(|shape| json!({ "kind": "data", "shape": shape })).collect()
    }

    #[test]
    fn every_library_multiplies() {
        let case = json!({ "op": "matmul", "dtype": "f32", "inputs": data(&[&[8, 16], &[16, 4]]), "args": {} });
        for (name, package, _) in LIBRARIES {
            let answers = session(name, &case);
            assert_eq!((&answers[0], &answers[2]), (&json!({ "ready": true }), &json!({ "released": true })), "{name}");
            assert!(answers[1]["seconds"].as_f64().unwrap() > 0.0, "{name}: {answers:?}");
            assert!(version(package).starts_with(|c: char| c.is_ascii_digit()), "{package}");
        }
    }

    #[test]
    fn what_a_library_lacks_is_unsupported_and_a_panic_failed() {
        let unknown = json!({ "op": "nothing", "dtype": "f32", "inputs": data(&[&[4]]), "args": {} });
        let unfit = json!({ "op": "matmul", "dtype": "f32", "inputs": data(&[&[8, 16], &[3, 4]]), "args": {} });
        for (name, ..) in LIBRARIES {
            assert!(session(name, &unknown)[0]["unsupported"].is_string(), "{name}");
            let answers = session(name, &unfit);
            assert!(answers[..2].iter().any(|answer| answer["failed"].is_string()), "{name}: {answers:?}");
        }
    }

    #[test]
    fn ops_of_each_kind_run() {
        let index = json!({ "kind": "index", "shape": [6], "below": 8 });
        let window = json!({ "kernel": 2, "stride": 2, "padding": 0 });
        let cases = [
            json!({ "op": "exp", "dtype": "bf16", "inputs": data(&[&[8]]), "args": {} }),
            json!({ "op": "add_row", "dtype": "f32", "inputs": data(&[&[4, 8], &[8]]), "args": {} }),
            json!({ "op": "cast_bf16", "dtype": "f32", "inputs": data(&[&[8]]), "args": {} }),
            json!({ "op": "sum_first", "dtype": "f32", "inputs": data(&[&[4, 8]]), "args": {} }),
            json!({ "op": "softmax", "dtype": "f32", "inputs": data(&[&[4, 8], &[8], &[8]]), "args": {} }),
            json!({ "op": "layer_norm", "dtype": "f32", "inputs": data(&[&[4, 8], &[8], &[8]]), "args": {} }),
            json!({ "op": "sort", "dtype": "f32", "inputs": [{ "kind": "uniform", "shape": [8] }], "args": {} }),
            json!({ "op": "embedding", "dtype": "f32", "inputs": [data(&[&[8, 4]])[0], index], "args": {} }),
            json!({ "op": "rand", "dtype": "f32", "inputs": [], "args": { "count": 8 } }),
            json!({ "op": "bmm", "dtype": "f32", "inputs": data(&[&[2, 4, 8], &[2, 8, 4]]), "args": {} }),
            json!({ "op": "linear_gelu", "dtype": "f32", "inputs": data(&[&[4, 8], &[8, 8], &[8]]), "args": {} }),
            json!({
                "op": "conv3x3", "dtype": "f32", "inputs": data(&[&[1, 2, 6, 6], &[3, 2, 3, 3]]),
                "args": { "stride": 1, "padding": 1, "groups": 1 },
            }),
            json!({ "op": "max_pool2x2s2", "dtype": "f32", "inputs": data(&[&[1, 2, 6, 6]]), "args": window }),
            json!({ "op": "attention", "dtype": "f32", "inputs": data(&[&[1, 2, 8, 4][..]; 3]), "args": { "causal": 0 } }),
        ];
        for name in ["candle", "burn-flex", "burn-ndarray"] {
            for case in &cases {
                let answers = session(name, case);
                let halves = name == "burn-ndarray" && (case["dtype"] == "bf16" || case["op"] == "cast_bf16");
                assert!(halves || answers[1]["seconds"].is_number(), "{name} {}: {answers:?}", case["op"]);
            }
        }
    }
}
