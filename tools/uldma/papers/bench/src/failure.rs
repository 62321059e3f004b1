// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of a measurement.

/// The reason why a measurement ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An error of the library or the device.
    #[error("{0}")]
    Uldma(#[from] uldma::Error),
    /// An error of TCP, which other transports do without.
    #[error("TCP: {0}")]
    Tcp(String),
    /// An error of the operating system.
    #[error("{0}: {1}")]
    Io(&'static str, std::io::Error),
    /// A series that cannot be measured.
    #[error("{0}")]
    Refused(&'static str),
    /// A failure of the peer, or a message of it that cannot be understood.
    #[error("the other side {0}")]
    Peer(String),
}

impl Failure {
    /// Returns advice, if any.
    pub(crate) fn hint(&self) -> Option<&str> {
        match self {
            Self::Uldma(error) => error.hint(),
            Self::Peer(_) => Some("the programs on both nodes must be of the same release"),
            Self::Tcp(_) | Self::Io(..) | Self::Refused(_) => None,
        }
    }
}
