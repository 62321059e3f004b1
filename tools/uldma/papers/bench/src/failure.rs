// SPDX-License-Identifier: MIT OR Apache-2.0

//! Why there are no figures.

/// Why a measurement ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The library or the device.
    #[error("{0}")]
    Uldma(#[from] uldma::Error),
    /// TCP, which is not needed.
    #[error("TCP: {0}")]
    Tcp(String),
    /// The operating system.
    #[error("{0}: {1}")]
    Io(&'static str, std::io::Error),
    /// The other side.
    #[error("the other side {0}")]
    Peer(String),
}

impl Failure {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<&str> {
        match self {
            Self::Uldma(error) => error.hint(),
            Self::Peer(_) => Some("the programs on both nodes must be of the same release"),
            Self::Tcp(_) | Self::Io(..) => None,
        }
    }
}
