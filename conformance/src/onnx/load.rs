//! Reading the tests of a folder: `test_NAME/model.onnx` and `test_NAME/test_data_set_N/{input,output}_N.pb`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use prost::Message as _;

use super::proto::ModelProto;

/// One node test.
#[derive(Clone, Debug)]
pub struct NodeTest {
    pub(super) name: String,
    pub(super) model: ModelProto,
    pub(super) sets: Vec<Set>,
}

/// Inputs with the outputs that they make; each is a message that the type of the graph's input or output tells how to read.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) inputs: Vec<Vec<u8>>,
    pub(super) outputs: Vec<Vec<u8>>,
}

impl NodeTest {
    /// The test's name, that of its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The tests of a folder, in the order of their names. `folder` may also be that of an unpacked wheel.
///
/// # Errors
/// When there is no test in the folder, with how to get them; when a file cannot be read, with its path.
pub fn read(folder: &Path) -> Result<Vec<NodeTest>, String> {
    let inside = folder.join("onnx/backend/test/data/node");
    let folder = if inside.is_dir() { &inside } else { folder };
    let mut tests = Vec::new();
    for path in entries(folder).map_err(|error| format!("{error}; {HOW}"))? {
        if path.join("model.onnx").is_file() {
            tests.push(test(&path)?);
        }
    }
    if tests.is_empty() {
        return Err(format!("{}: no folder in it has a model.onnx; {HOW}", folder.display()));
    }
    Ok(tests)
}

const HOW: &str = "give the folder of an unpacked wheel of onnx 1.22.0, the last with all node tests:
  pip download onnx==1.22.0 --no-deps -d wheels
  python3 -m zipfile -e wheels/onnx-1.22.0-*.whl wheels/onnx
  conformance onnx wheels/onnx";

fn test(folder: &Path) -> Result<NodeTest, String> {
    let path = folder.join("model.onnx");
    let model = ModelProto::decode(file(&path)?.as_slice()).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut sets = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            sets.push(Set { inputs: numbered(&path, "input")?, outputs: numbered(&path, "output")? });
        }
    }
    Ok(NodeTest { name: name(folder), model, sets })
}

/// The files `PREFIX_0.pb`, `PREFIX_1.pb`, …
fn numbered(folder: &Path, prefix: &str) -> Result<Vec<Vec<u8>>, String> {
    let paths = (0..).map(|index| folder.join(format!("{prefix}_{index}.pb"))).take_while(|path| path.is_file());
    paths.map(|path| file(&path)).collect()
}

fn file(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let read = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let mut paths = read().map_err(|error| format!("{}: {error}", folder.display()))?;
    paths.sort();
    Ok(paths)
}

fn name(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
