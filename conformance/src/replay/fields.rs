//! Walking a JSON value with the path to each part, so that an error can name the field.

use serde_json::{Map, Value};

/// What is wrong with a field.
#[derive(Clone, Debug)]
pub(super) struct FieldError {
    /// Where, as in `inputs[1].strides`; empty for the case itself.
    pub(super) path: String,
    /// What was given, and the rule.
    pub(super) message: String,
}

pub(super) type Result<T, E = FieldError> = std::result::Result<T, E>;

/// A JSON value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    path: String,
    /// The value.
    pub(super) value: Value,
}

impl Node {
    /// The case itself.
    pub(super) fn root(value: Value) -> Self {
        Self { path: String::new(), value }
    }

    /// An error at this field.
    pub(super) fn fail(&self, message: impl Into<String>) -> FieldError {
        FieldError { path: self.path.clone(), message: message.into() }
    }

    fn expected(&self, what: &str) -> FieldError {
        let mut given = self.value.to_string();
        if given.len() > 60 {
            given.truncate(given.floor_char_boundary(60));
            given.push('…');
        }
        self.fail(format!("expected {what}, found {given}"))
    }

    pub(super) fn is_null(&self) -> bool {
        self.value.is_null()
    }

    pub(super) fn fields(self) -> Result<Fields> {
        match self.value {
            Value::Object(map) => Ok(Fields { path: self.path, map, known: Vec::new() }),
            _ => Err(self.expected("an object")),
        }
    }

    pub(super) fn list(self) -> Result<Vec<Self>> {
        match self.value {
            Value::Array(list) => {
                let path = |index| format!("{}[{index}]", self.path);
                Ok(list.into_iter().enumerate().map(|(index, value)| Self { path: path(index), value }).collect())
            }
            _ => Err(self.expected("a list")),
        }
    }

    pub(super) fn text(&self) -> Result<&str> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    pub(super) fn truth(&self) -> Result<bool> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    pub(super) fn signed(&self) -> Result<isize> {
        let number = self.value.as_i64().and_then(|number| isize::try_from(number).ok());
        number.ok_or_else(|| self.expected("an integer"))
    }

    pub(super) fn unsigned(&self) -> Result<usize> {
        let number = self.value.as_u64().and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.expected("an integer that is not negative"))
    }

    /// A number that is not negative, as tolerances are.
    pub(super) fn tolerance(&self) -> Result<f64> {
        let number = self.value.as_f64().filter(|number| *number >= 0.0);
        number.ok_or_else(|| self.expected("a number that is not negative"))
    }

    pub(super) fn sizes(self) -> Result<Vec<usize>> {
        self.list()?.iter().map(Self::unsigned).collect()
    }

    pub(super) fn integers(self) -> Result<Vec<isize>> {
        self.list()?.iter().map(Self::signed).collect()
    }
}

/// An object whose fields are taken one by one; what is left at the end is an error.
#[derive(Debug)]
pub(super) struct Fields {
    path: String,
    map: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    /// No fields at all.
    pub(super) fn none(path: &str) -> Self {
        Self { path: path.to_owned(), map: Map::new(), known: Vec::new() }
    }

    /// A field that may be left out.
    pub(super) fn optional(&mut self, name: &'static str) -> Option<Node> {
        self.known.push(name);
        let value = self.map.remove(name)?;
        Some(Node { path: self.path_of(name), value })
    }

    /// A field that may be left out or `null`.
    pub(super) fn given(&mut self, name: &'static str) -> Option<Node> {
        self.optional(name).filter(|node| !node.is_null())
    }

    /// A field that must be there.
    pub(super) fn required(&mut self, name: &'static str) -> Result<Node> {
        self.optional(name).ok_or_else(|| self.fail(format!("the field `{name}` is missing")))
    }

    /// An error of the object as a whole.
    pub(super) fn fail(&self, message: impl Into<String>) -> FieldError {
        FieldError { path: self.path.clone(), message: message.into() }
    }

    /// Fails if a field was not asked for.
    pub(super) fn finish(self) -> Result<()> {
        match self.map.keys().next() {
            None => Ok(()),
            Some(_) if self.known.is_empty() => Err(self.unknown("there are none here")),
            Some(_) => Err(self.unknown(&format!("known are {}", self.known.join(", ")))),
        }
    }

    fn unknown(&self, known: &str) -> FieldError {
        let name = self.map.keys().next().map_or("", String::as_str);
        FieldError { path: self.path_of(name), message: format!("unknown field; {known}") }
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}
