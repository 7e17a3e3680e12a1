//! The one error type: a kind to match on, an op, a message to read, and the native cause.

use std::error::Error as StdError;
use std::fmt;

/// What went wrong, in the classes that a program can react to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A parameter is outside its domain (a scalar that the dtype cannot hold, a wrong slice length).
    Argument,
    /// An axis does not exist, or is named twice.
    Axis,
    /// The device or its context is gone; the backend can no longer be used.
    DeviceLost,
    /// An integer was divided by zero; reported by the next synchronising call.
    DivisionByZero,
    /// The device's driver is older than what the backend needs; the message says which version.
    DriverTooOld,
    /// Dtypes differ, or the op is not defined for this dtype.
    DType,
    /// An index value was outside its axis; reported by the next synchronising call.
    IndexOutOfRange,
    /// A file could not be read or written, or is not what it should be.
    Io,
    /// A native library is not installed or too old.
    LibraryNotFound,
    /// The native driver or library failed in a way that has no class of its own.
    Native,
    /// Memory could not be allocated; the backend stays usable.
    OutOfMemory,
    /// Shapes do not fit together, or an element count overflows.
    Shape,
    /// This backend does not implement the op for this dtype.
    Unsupported,
}

impl ErrorKind {
    /// The kind in snake case, as replay files spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Argument => "argument",
            Self::Axis => "axis",
            Self::DeviceLost => "device_lost",
            Self::DivisionByZero => "division_by_zero",
            Self::DriverTooOld => "driver_too_old",
            Self::DType => "dtype",
            Self::IndexOutOfRange => "index_out_of_range",
            Self::Io => "io",
            Self::LibraryNotFound => "library_not_found",
            Self::Native => "native",
            Self::OutOfMemory => "out_of_memory",
            Self::Shape => "shape",
            Self::Unsupported => "unsupported",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error of an op: its [kind](ErrorKind), the op, what was given and which rule it broke.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    op: &'static str,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `op`; `message` says what was given, the rule, and where possible the cure.
    #[must_use]
    pub fn new(kind: ErrorKind, op: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, op, message: message.into(), source: None }))
    }

    /// The error that a backend returns for an op and dtype which it does not implement.
    #[must_use]
    pub fn unsupported(backend: &str, op: &'static str, dtype: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unsupported, op, format!("backend `{backend}` does not implement `{op}` for {dtype}"))
    }

    /// Adds the native error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The class of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The name of the op that failed.
    #[must_use]
    pub fn op(&self) -> &'static str {
        self.0.op
    }

    /// What was given and which rule it broke.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.0.op, self.0.message, self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_op_message_and_kind_and_keeps_the_source() {
        let error = Error::new(ErrorKind::Shape, "matmul", "inner dimensions differ")
            .with_source(std::io::Error::other("native"));
        assert_eq!(error.to_string(), "matmul: inner dimensions differ (shape)");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("native"));
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
