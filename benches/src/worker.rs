//! Other libraries, each in a process of its own that speaks JSON, a line for each message.
//!
//! A worker first says who it is, then answers each line that it reads with one line, and ends when its input does:
//!
//! | it reads | it answers |
//! |---|---|
//! | | `{"library":"torch","device":"cpu","version":"2.11","note":"2 threads"}` |
//! | `{"prepare":{"family":…,"op":"add","dtype":"f32","shape":"64K","inputs":[{"kind":"data","shape":[65536]},…],"args":{}}}` | `{"ready":true}` |
//! | `{"run":100}` | `{"seconds":0.0021,"returned":0.0021}` |
//! | `{"release":true}` | `{"released":true}` |
//!
//! Instead of any answer it may give `{"unsupported":"why"}` or `{"failed":"why"}`. Inputs are the kinds of
//! [`Input`](crate::case::Input); `run` makes so many calls on them and waits for the device once. One process stays for
//! the whole report, so that its library is warm, and is quiet while others are timed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::case::Case;
use crate::runner::{Batch, Identity, Refusal, Runner};

/// A worker process.
#[derive(Debug)]
pub struct Worker {
    identity: Identity,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    patience: Duration,
}

/// An answer that is not the expected one.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Denial {
    Unsupported(String),
    Failed(String),
}

#[derive(Deserialize)]
struct Done {}

impl Worker {
    /// Starts a worker; `patience` is how long an answer may take.
    ///
    /// # Errors
    /// The process cannot be started, or does not say who it is.
    pub fn start(command: &mut Command, patience: Duration) -> Result<Self, String> {
        // Idle threads of OpenMP sleep instead of taking the cores from whom is timed next.
        command.env("OMP_WAIT_POLICY", "passive").env("KMP_BLOCKTIME", "1");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.for_each(|line| drop(sender.send(line)));
            });
        }
        let errors = child
            .stderr
            .take()
            .map(|errors| std::thread::spawn(move || BufReader::new(errors).lines().map_while(Result::ok).last()));
        let input = child.stdin.take();
        let identity =
            Identity { library: String::new(), device: String::new(), version: String::new(), note: String::new() };
        let mut worker = Self { identity, child, input, lines, patience };
        match worker.receive() {
            Ok(identity) => worker.identity = identity,
            Err(Refusal::Failed(why) | Refusal::Unsupported(why)) => {
                drop(worker);
                let said = errors.and_then(|errors| errors.join().ok().flatten());
                return Err(said.unwrap_or(why));
            }
        }
        Ok(worker)
    }

    fn ask<A: DeserializeOwned>(&mut self, question: &Value) -> Result<A, Refusal> {
        let gone = || Refusal::Failed("the worker has ended".to_owned());
        let input = self.input.as_mut().ok_or_else(gone)?;
        writeln!(input, "{question}").and_then(|()| input.flush()).map_err(|_| gone())?;
        self.receive()
    }

    fn receive<A: DeserializeOwned>(&mut self) -> Result<A, Refusal> {
        let line = self.lines.recv_timeout(self.patience).map_err(|error| {
            if error == RecvTimeoutError::Timeout {
                // A late answer would be taken for that of the next question.
                self.input = None;
                return Refusal::Failed(format!(
                    "no answer within {} s; the worker is given up",
                    self.patience.as_secs()
                ));
            }
            Refusal::Failed("the worker has ended".to_owned())
        })?;
        let strange = |_| Refusal::Failed(format!("a strange answer: {line}"));
        match serde_json::from_str(&line) {
            Ok(Denial::Unsupported(why)) => Err(Refusal::Unsupported(why)),
            Ok(Denial::Failed(why)) => Err(Refusal::Failed(why)),
            Err(_) => serde_json::from_str(&line).map_err(strange),
        }
    }
}

impl Runner for Worker {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn prepare(&mut self, case: &Case) -> Result<(), Refusal> {
        self.ask::<Done>(&json!({ "prepare": case.spec })).map(drop)
    }

    fn run(&mut self, _: &Case, calls: u32) -> Result<Batch, Refusal> {
        self.ask(&json!({ "run": calls }))
    }

    fn release(&mut self) {
        // A worker that has ended holds nothing.
        let _ = self.ask::<Done>(&json!({ "release": true }));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let given_up = self.input.is_none();
        self.input = None;
        if given_up {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use congruent::DType;

    use super::*;
    use crate::case::data;

    const WHO: &str = r#"{"library":"fake","device":"cpu","version":"1"}"#;

    /// A shell that answers each line it reads with the next one given.
    fn shell(answers: &[&str], patience: Duration) -> Result<Worker, String> {
        let script: String = answers.iter().map(|answer| format!("read -r line; echo '{answer}'\n")).collect();
        Worker::start(Command::new("sh").args(["-c", &format!("echo '{WHO}'\n{script}")]), patience)
    }

    fn case() -> Case {
        Case::new(("unary", "exp"), DType::F32, [data(&[4])], |inputs| inputs.x[0].exp())
    }

    #[test]
    fn a_worker_says_who_it_is_and_answers() {
        let answers = [r#"{"ready":true}"#, r#"{"seconds":0.5,"returned":0.25}"#, r#"{"unsupported":"no exp"}"#];
        let mut worker = shell(&answers, Duration::from_secs(20)).unwrap();
        assert_eq!(worker.identity().name(), "fake cpu");
        worker.prepare(&case()).unwrap();
        assert_eq!(worker.run(&case(), 2).unwrap(), Batch { seconds: 0.5, returned: 0.25 });
        assert_eq!(worker.prepare(&case()), Err(Refusal::Unsupported("no exp".to_owned())));
        assert_eq!(worker.prepare(&case()), Err(Refusal::Failed("the worker has ended".to_owned())));
    }

    #[test]
    fn strange_answers_and_silence_are_failures() {
        let mut worker = shell(&["what?"], Duration::from_secs(20)).unwrap();
        let strange = worker.run(&case(), 1).unwrap_err();
        assert_eq!(strange, Refusal::Failed("a strange answer: what?".to_owned()));

        let silent = format!("echo '{WHO}'; exec sleep 60");
        let mut worker = Worker::start(Command::new("sh").args(["-c", &silent]), Duration::from_millis(300)).unwrap();
        let why = |result| match result {
            Err(Refusal::Failed(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(why(worker.prepare(&case())).contains("no answer"));
        assert!(why(worker.prepare(&case())).contains("has ended"));
    }

    #[test]
    fn one_that_cannot_start_says_why() {
        let script = "echo 'no module named torch' >&2; exit 3";
        let error = Worker::start(Command::new("sh").args(["-c", script]), Duration::from_secs(20)).unwrap_err();
        assert_eq!(error, "no module named torch");
        assert!(Worker::start(&mut Command::new("no-such-worker"), Duration::from_secs(1)).is_err());
    }
}
