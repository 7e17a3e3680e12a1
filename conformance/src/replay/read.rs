//! Finding and reading files: one case each (`.json`), or one a line (`.jsonl`), gzip-compressed (`.gz`) or plain.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use congruent_backend_api::ErrorKind;
use serde_json::Value;

use super::call::{Job, build};
use super::data::tensor;
use super::fields::{FieldError, Fields, Node, Result as FieldResult};
use super::judge::{Check, Output};
use super::operand::{Operand, Target};
use super::{Expectation, Replay};

/// Why a file could not be read: which file, where in it, and what is wrong.
#[derive(Debug)]
pub struct ReadError {
    /// The file or folder.
    path: PathBuf,
    /// The line of a `.jsonl` file.
    line: Option<usize>,
    /// As in `inputs[1].strides`; empty for the whole.
    field: String,
    message: String,
    source: Option<io::Error>,
}

impl ReadError {
    fn io(path: &Path, error: io::Error) -> Self {
        let (path, message) = (path.to_owned(), error.to_string());
        Self { path, line: None, field: String::new(), message, source: Some(error) }
    }

    fn field(path: &Path, line: Option<usize>, error: FieldError) -> Self {
        Self { path: path.to_owned(), line, field: error.path, message: error.message, source: None }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if !self.field.is_empty() {
            write!(f, " {}:", self.field)?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// The cases of a file, or of every `.json` and `.jsonl` file (plain or `.gz`) below a folder, in order of the paths.
///
/// # Errors
/// For a path that does not exist or is of another kind, and for the first case that is malformed: an unknown field, a
/// missing one, a value of the wrong kind. The error names file, line and field.
pub fn read(path: &Path) -> Result<Vec<Replay>, ReadError> {
    let mut files = Vec::new();
    if path.is_dir() {
        find(path, &mut files)?;
        files.sort();
        if files.is_empty() {
            return Err(ReadError::io(
                path,
                io::Error::new(io::ErrorKind::NotFound, "no .json or .jsonl file in this folder"),
            ));
        }
    } else {
        files.push(path.to_owned());
    }
    let mut replays = Vec::new();
    for file in files {
        read_file(&file, &mut replays)?;
    }
    Ok(replays)
}

#[derive(Clone, Copy)]
enum Kind {
    Json,
    Lines,
}

/// The kind of a file, and whether it is compressed.
fn kind(path: &Path) -> Option<(Kind, bool)> {
    let name = path.file_name()?.to_str()?;
    let (name, compressed) = name.strip_suffix(".gz").map_or((name, false), |name| (name, true));
    match name.rsplit_once('.')?.1 {
        "json" => Some((Kind::Json, compressed)),
        "jsonl" => Some((Kind::Lines, compressed)),
        _ => None,
    }
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), ReadError> {
    let fail = |error| ReadError::io(folder, error);
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let path = entry.path();
        // Links to folders are not followed: they may lead back here.
        if entry.file_type().map_err(fail)?.is_dir() {
            find(&path, files)?;
        } else if kind(&path).is_some() {
            files.push(path);
        }
    }
    Ok(())
}

fn read_file(path: &Path, replays: &mut Vec<Replay>) -> Result<(), ReadError> {
    let fail = |error| ReadError::io(path, error);
    let (kind, compressed) = kind(path).ok_or_else(|| {
        fail(io::Error::new(io::ErrorKind::InvalidInput, "replay files end in .json, .jsonl, .json.gz or .jsonl.gz"))
    })?;
    let mut text = String::new();
    let mut file = File::open(path).map_err(fail)?;
    if compressed {
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).map_err(fail)?;
    } else {
        file.read_to_string(&mut text).map_err(fail)?;
    }
    match kind {
        Kind::Json => replays.push(case(path, None, &text)?),
        Kind::Lines => lines(path, &text, replays)?,
    }
    Ok(())
}

fn lines(path: &Path, text: &str, replays: &mut Vec<Replay>) -> Result<(), ReadError> {
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        replays.push(case(path, Some(index + 1), line)?);
    }
    Ok(())
}

/// The cases that come with the kit: bugs of other libraries, and what the kit itself has found.
#[must_use]
pub fn recorded() -> Vec<Replay> {
    let mut replays = Vec::new();
    for (file, text) in [
        ("found-by-the-kit.jsonl", include_str!("../../cases/found-by-the-kit.jsonl")),
        ("public-bugs.jsonl", include_str!("../../cases/public-bugs.jsonl")),
    ] {
        lines(Path::new(file), text, &mut replays).expect("a test reads them");
    }
    replays
}

fn case(path: &Path, line: Option<usize>, text: &str) -> Result<Replay, ReadError> {
    let value = serde_json::from_str(text).map_err(|error| {
        let at = (line.or(Some(error.line())), error.column());
        // The position goes to the front, as compilers have it.
        let reason = error.to_string();
        let reason = reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason);
        let message = format!("column {}: {reason}", at.1);
        ReadError { path: path.to_owned(), line: at.0, field: String::new(), message, source: None }
    })?;
    parse(value).map_err(|error| ReadError::field(path, line, error))
}

/// One case.
pub(super) fn parse(value: Value) -> FieldResult<Replay> {
    let mut fields = Node::root(value).fields()?;
    let version = fields.required("congruent_replay")?;
    if version.value != 1 {
        return Err(version.fail(format!("version {} of the format; this program reads version 1", version.value)));
    }
    let name = fields.required("name")?.text()?.to_owned();
    let op = fields.required("op")?.text()?.to_owned();
    let source = fields.given("source").map_or_else(|| Ok(String::new()), |source| source.text().map(str::to_owned))?;
    fields.given("note").map(|note| note.text().map(drop)).transpose()?;
    let args = fields.given("args").map_or_else(|| Ok(Fields::none("args")), Node::fields)?;
    let inputs = fields.required("inputs")?.list()?.into_iter().map(operand).collect::<FieldResult<_>>()?;
    let expect = expectation(fields.required("expect")?)?;
    let check = fields.optional("check").map_or(Ok(Check::Bound), Check::parse)?;
    let into = fields.optional("into").map_or(Ok(Target::Fresh), into)?;
    let options =
        fields.given("backend_args").map(Node::fields).transpose()?.is_some_and(|options| options.finish().is_err());
    fields.finish()?;
    let job = if options {
        Job::NotCovered("a call with `backend_args`".to_owned())
    } else {
        let outputs = if let Expectation::Outputs(outputs) = &expect { outputs.len() } else { 1 };
        build(&op, args, inputs, into, outputs)?
    };
    if let (Expectation::Outputs(outputs), Job::Call(_)) = (&expect, &job)
        && outputs.len() != 1
    {
        let (path, message) = ("expect.outputs".to_owned(), format!("`{op}` has one output, not {}", outputs.len()));
        return Err(FieldError { path, message });
    }
    Ok(Replay { name, op, source, job, expect, check })
}

fn operand(node: Node) -> FieldResult<Operand> {
    if node.is_null() {
        return Ok(Operand::Null(node));
    }
    let mut fields = node.fields()?;
    match fields.optional("scalar") {
        Some(scalar) => {
            fields.finish()?;
            Ok(Operand::Scalar(scalar))
        }
        None => tensor(fields).map(Operand::Tensor),
    }
}

fn into(node: Node) -> FieldResult<Target> {
    match node.value {
        Value::Bool(false) => Ok(Target::Fresh),
        Value::Bool(true) => Ok(Target::Elsewhere),
        _ => Ok(Target::Given(Box::new(tensor(node.fields()?)?))),
    }
}

fn expectation(node: Node) -> FieldResult<Expectation> {
    let mut fields = node.fields()?;
    let (outputs, oracle, error) = (fields.optional("outputs"), fields.optional("oracle"), fields.optional("error"));
    let expectation = match (outputs, oracle, error) {
        (Some(outputs), None, None) => {
            let outputs = outputs.list()?.into_iter().map(|output| Output::parse(output.fields()?));
            Expectation::Outputs(outputs.collect::<FieldResult<_>>()?)
        }
        (None, Some(oracle), None) if oracle.truth()? => Expectation::Oracle,
        (None, None, Some(error)) => {
            let kind = KINDS.into_iter().find(|kind| error.value == kind.name());
            let names = || KINDS.map(ErrorKind::name).join(", ");
            Expectation::Error(kind.ok_or_else(|| error.fail(format!("{} is none of {}", error.value, names())))?)
        }
        _ => return Err(fields.fail("give exactly one of `outputs`, `oracle`: true and `error`")),
    };
    fields.finish()?;
    Ok(expectation)
}

/// The errors that a case can expect.
const KINDS: [ErrorKind; 7] = [
    ErrorKind::Argument,
    ErrorKind::Axis,
    ErrorKind::DivisionByZero,
    ErrorKind::DType,
    ErrorKind::IndexOutOfRange,
    ErrorKind::Shape,
    ErrorKind::Unsupported,
];
