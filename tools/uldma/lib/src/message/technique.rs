// SPDX-License-Identifier: MIT OR Apache-2.0

//! The techniques of sending and of receiving, by the paper's names.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Defines the techniques of one direction and their names.
macro_rules! techniques {
    ($(#[$doc:meta])* $Technique:ident, $direction:literal, {
        $($(#[$text:meta])* $Name:ident, $name:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $Technique {
            $($(#[$text])* $Name,)*
        }

        impl $Technique {
            /// All techniques.
            pub const ALL: &[Self] = &[$(Self::$Name),*];

            /// Returns the name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Name => $name,)*
                }
            }

            /// Checks that the technique can be used where messages go through the window.
            ///
            /// # Errors
            ///
            /// [`Error::Technique`].
            pub(crate) fn check_window(self) -> Result<Self> {
                match self {
                    Self::Pio | Self::CopyDma => Ok(self),
                    other => Err(other.refused(
                        "messages go through the window, since a side has no engine: use pio or \
                         copy-dma",
                    )),
                }
            }

            /// Builds the error for an operation that the technique cannot do.
            pub(crate) fn refused(self, why: &'static str) -> Error {
                Error::Technique {
                    direction: $direction,
                    technique: self.name(),
                    why,
                }
            }
        }

        impl fmt::Display for $Technique {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.name())
            }
        }

        impl FromStr for $Technique {
            type Err = String;

            fn from_str(text: &str) -> std::result::Result<Self, String> {
                let known = Self::ALL.iter().find(|technique| technique.name() == text);
                known.copied().ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|it| it.name()).collect();
                    format!("no technique; techniques are {}", names.join(", "))
                })
            }
        }
    };
}

techniques! {
    /// A technique of sending, see `Documentation/uldma/semantics.rst`.
    SendTechnique, "sending", {
        /// The processor writes the message into a slot in the window, which the device reads.
        Pio, "pio";
        /// The processor copies the message into a registered slot, which the device reads.
        CopyDma, "copy-dma";
        /// The driver copies the message into a slot of its own, which the device reads.
        CopyDmaKernel, "copy-dma-kernel";
        /// The device reads memory that was registered when the connection was made.
        DirectDma, "direct-dma";
        /// The device reads the program's own memory, which is pinned for the message.
        V2pDma, "v2p-dma";
        /// The device reads the program's own pages, which are write-protected meanwhile.
        PexDma, "pex-dma";
    }
}

techniques! {
    /// A technique of receiving, see `Documentation/uldma/semantics.rst`.
    ReceiveTechnique, "receiving", {
        /// The device writes into a slot in the window, from where the processor reads.
        Pio, "pio";
        /// The device writes into a registered slot, from where the processor copies.
        CopyDma, "copy-dma";
        /// The device writes into a slot of the driver, which copies.
        CopyDmaKernel, "copy-dma-kernel";
        /// The sender names the place in memory that was registered when the connection was made.
        DirectDma, "direct-dma";
        /// The device writes into memory that the program has posted.
        V2pDma, "v2p-dma";
        /// The driver exchanges the pages of a slot with the program's.
        PexDma, "pex-dma";
        /// The device writes into the memory of the call if that has come before, else into a slot.
        Redirect, "redirect";
    }
}

impl ReceiveTechnique {
    /// Returns the number in the wire format.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Pio => 1,
            // The peer sees no difference.
            Self::CopyDma | Self::CopyDmaKernel => 2,
            Self::DirectDma => 3,
            Self::V2pDma => 4,
            Self::PexDma => 5,
            Self::Redirect => 6,
        }
    }

    /// Returns the technique of that number, or the first of several.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        let all = Self::ALL.iter().copied();
        all.into_iter()
            .find(|technique| technique.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_unique_and_translate_back() {
        for &technique in SendTechnique::ALL {
            assert_eq!(technique.name().parse(), Ok(technique));
        }
        for &technique in ReceiveTechnique::ALL {
            assert_eq!(technique.name().parse(), Ok(technique));
            let found = ReceiveTechnique::from_number(technique.number());
            let by_program = match technique {
                ReceiveTechnique::CopyDmaKernel => ReceiveTechnique::CopyDma,
                other => other,
            };
            assert_eq!(found, Some(by_program));
        }
        assert_eq!(ReceiveTechnique::from_number(0), None);
        assert!("dma"
            .parse::<SendTechnique>()
            .unwrap_err()
            .contains("copy-dma"));
    }

    #[test]
    fn a_refusal_names_direction_technique_and_reason() {
        assert!(SendTechnique::CopyDma.check_window().is_ok());
        assert!(SendTechnique::CopyDmaKernel.check_window().is_err());
        let error = ReceiveTechnique::DirectDma.check_window().unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("receiving by direct-dma: messages go"),
            "{error}"
        );
        let error = SendTechnique::V2pDma.check_window().unwrap_err();
        assert!(error.to_string().contains("use pio or copy-dma"));
    }
}
