// SPDX-License-Identifier: MIT OR Apache-2.0

//! Failures, as reported to users and programs.

use std::fmt::Display;
use std::process::ExitCode;

use serde::Serialize;
use uldma::Error;

use crate::standard;

/// Classes of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Failed,
    /// The program at the other side has taken only so many bytes.
    NotTaken(Option<u64>),
    /// The reader of standard output has closed it.
    ClosedPipe,
    Usage,
    NoDevice,
    NoPermission,
    Version,
    Timeout,
    Mismatch,
    Peer,
}

impl Kind {
    /// The exit code that `--help` documents.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Failed | Self::NotTaken(_) | Self::ClosedPipe => 1,
            Self::Usage => 2,
            Self::NoDevice | Self::NoPermission | Self::Version => 3,
            Self::Timeout => 4,
            Self::Mismatch => 5,
            Self::Peer => 6,
        }
    }

    /// The name in JSON.
    const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::NotTaken(_) => "not-taken",
            Self::ClosedPipe => "closed-pipe",
            Self::Usage => "usage",
            Self::NoDevice => "no-device",
            Self::NoPermission => "no-permission",
            Self::Version => "version",
            Self::Timeout => "timeout",
            Self::Mismatch => "mismatch",
            Self::Peer => "peer",
        }
    }
}

/// A failure in JSON.
#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    error: ErrorReport<'a>,
}

#[derive(Serialize)]
struct ErrorReport<'a> {
    kind: &'static str,
    message: &'a str,
    hint: Option<&'a str>,
    /// For data that the program at the other side has not taken; null if it has not said how much.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_taken: Option<Option<u64>>,
}

/// Reason for which the program fails.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// Builds the failure of an operation of the operating system.
    pub(crate) fn io(what: impl Display, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => Kind::Timeout,
            _ => Kind::Failed,
        };
        Self::new(kind, format!("{what}: {error}"))
    }

    /// Adds how many of the bytes that were to be sent the program at the other side has taken; none if
    /// it has not said so.
    pub(crate) fn not_taken(mut self, taken: impl Into<Option<u64>>, of: u64) -> Self {
        let taken = taken.into();
        if matches!(self.kind, Kind::Failed | Kind::Peer) {
            self.kind = Kind::NotTaken(taken);
        }
        let count = taken.map_or_else(|| "unknown".to_owned(), |taken| taken.to_string());
        self.message += &format!(" (taken by the other side: {count} of {of} bytes)");
        self
    }

    /// Builds the failure of a write to standard output.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::BrokenPipe => Kind::ClosedPipe,
            _ => Kind::Failed,
        };
        Self::new(kind, format!("standard output: {error}"))
    }

    /// Reports the failure and returns the exit code. A closed pipe is reported to programs only, as
    /// the user has closed it.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if json {
            let report = Report {
                schema_version: crate::schema::SCHEMA_VERSION,
                error: ErrorReport {
                    kind: self.kind.name(),
                    message: &self.message,
                    hint: self.hint.as_deref(),
                    bytes_taken: match self.kind {
                        Kind::NotTaken(taken) => Some(taken),
                        _ => None,
                    },
                },
            };
            let text = serde_json::to_string(&report);
            complain(text.as_ref().unwrap_or(&self.message));
        } else if self.kind != Kind::ClosedPipe {
            complain(format!("uldma: {}", self.message));
            if let Some(hint) = &self.hint {
                complain(format!("  hint: {hint}"));
            }
        }
        ExitCode::from(self.kind.exit_code())
    }
}

/// Writes a line to standard error. It may be closed; the exit code reports the failure anyway.
pub(crate) fn complain(text: impl Display) {
    let _ = standard::error_line(text);
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NoDevice(_) => Kind::NoDevice,
            Error::Permission(_) => Kind::NoPermission,
            Error::NoPeer { .. } | Error::Technique { .. } => Kind::Usage,
            Error::Abi { .. } => Kind::Version,
            Error::Timeout { .. } => Kind::Timeout,
            Error::OtherKind { .. } => Kind::Mismatch,
            Error::LinkDown | Error::Closed | Error::Violation(_) => Kind::Peer,
            other => match other.errno() {
                Some(nix::errno::Errno::ETIMEDOUT | nix::errno::Errno::ENOENT) => Kind::Timeout,
                Some(nix::errno::Errno::ENOTCONN | nix::errno::Errno::ESTALE) => Kind::Peer,
                Some(nix::errno::Errno::ENODEV) => Kind::NoDevice,
                _ => Kind::Failed,
            },
        };
        Self {
            kind,
            message: error.to_string(),
            hint: error.hint().map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_device_from_being_opened_is_told_apart() {
        let kind = |error: Error| Failure::from(error).kind;
        let path = || "/dev/uldma0".into();
        assert_eq!(kind(Error::NoDevice(path())), Kind::NoDevice);
        assert_eq!(kind(Error::Permission(path())), Kind::NoPermission);
        let (kernel, library) = (2, 1);
        assert_eq!(kind(Error::Abi { kernel, library }), Kind::Version);
        for kind in [Kind::NoDevice, Kind::NoPermission, Kind::Version] {
            assert_eq!(kind.exit_code(), 3);
        }
    }
}
