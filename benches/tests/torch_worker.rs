//! `torch_worker.py` speaks the protocol and knows every op; PyTorch itself is a stand-in that accepts any call.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use congruent_benches::cases;
use congruent_benches::runner::Identity;
use serde_json::{Value, json};

/// A module, tensor, device and number whose every attribute, call, element and sum is itself.
const STAND_IN: &str = r#"
import sys
class Anything:
    __version__ = "0.0"
    def __getattr__(self, name): return self
    def __call__(self, *args, **options): return self
    def __getitem__(self, key): return self
    def __iter__(self): return iter((self, self))
    def __str__(self): return "cpu"
    __add__ = __sub__ = __mul__ = __rmul__ = __matmul__ = __lt__ = __gt__ = lambda self, other: self
    def __neg__(self): return self
torch = Anything()
sys.modules["torch"] = sys.modules["torch.nn"] = sys.modules["torch.nn.functional"] = torch
sys.argv = ["torch_worker.py", "cpu"]
exec(open(sys.stdin.readline().strip()).read())
"#;

#[test]
fn the_worker_knows_every_op() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("torch_worker.py");
    let mut worker = Command::new("python3")
        .args(["-c", STAND_IN])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed, as for the wheels of CI");
    let mut input = worker.stdin.take().unwrap();
    let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
    let mut ask = |question: &str| -> Value {
        writeln!(input, "{question}").unwrap();
        serde_json::from_str(&lines.next().expect("an answer to each question").unwrap()).unwrap()
    };
    let who: Identity = serde_json::from_value(ask(&script.display().to_string())).unwrap();
    assert_eq!((who.library.as_str(), who.device.as_str()), ("torch", "cpu"));

    let mut unknown = BTreeSet::new();
    for case in cases::all().into_iter().chain(cases::limits()) {
        let name = case.spec.name();
        let answer = ask(&json!({ "prepare": case.spec }).to_string());
        if answer.get("unsupported").is_some() {
            unknown.insert(case.spec.op);
            continue;
        }
        assert_eq!(answer, json!({ "ready": true }), "{name}");
        let answer = ask(&json!({ "run": 2 }).to_string());
        assert!(answer["seconds"].as_f64() >= answer["returned"].as_f64(), "{name}: {answer}");
    }
    // PyTorch has only the sum among scans into a given output without positions.
    assert_eq!(unknown, BTreeSet::from(["cummax_first", "cummax_last"].map(str::to_owned)));
    assert!(ask(r#"{"run":"many"}"#)["failed"].is_string());
    assert_eq!(ask(r#"{"release":true}"#), json!({ "released": true }));
    drop(input);
    assert!(worker.wait().unwrap().success());
}
