// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ways to send and to receive messages, by the names that figures have.

use std::fmt;

use serde::{Deserialize, Serialize};
use uldma::{MessageOptions, ReceiveTechnique, SendTechnique};

use crate::failure::Failure;

/// How a sender gives messages to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sending {
    /// The same registered memory again and again, which the program never touches.
    Generator,
    /// By a technique.
    Technique(#[serde(with = "by_name")] SendTechnique),
    /// By `V2P_DMA`, with the pin cache on.
    Cached,
    /// By copies into buffers of a layer, which `V2P_DMA` sends.
    Buffered,
    /// By `PEX_DMA`, and each page is written to as soon as the call returns.
    Overwritten,
}

/// How a receiver takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Receiving {
    /// Only that there was one: its bytes stay in the slot, which is posted again.
    Null,
    /// By a technique.
    Technique(#[serde(with = "by_name")] ReceiveTechnique),
    /// By copies out of buffers of a layer, which `V2P_DMA` receives into.
    Buffered,
}

/// Both directions of a message connection; its two ends are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Way {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    /// Bytes of a slot: the MTU.
    pub(crate) slot: usize,
    pub(crate) slots: u8,
}

impl Sending {
    /// Returns the technique of the library.
    fn technique(self) -> SendTechnique {
        match self {
            Self::Generator => SendTechnique::DirectDma,
            Self::Technique(technique) => technique,
            Self::Cached | Self::Buffered => SendTechnique::V2pDma,
            Self::Overwritten => SendTechnique::PexDma,
        }
    }
}

impl Receiving {
    /// Returns the technique of the library.
    fn technique(self) -> ReceiveTechnique {
        match self {
            Self::Null => ReceiveTechnique::CopyDma,
            Self::Technique(technique) => technique,
            Self::Buffered => ReceiveTechnique::V2pDma,
        }
    }

    /// Returns true if a message has to fit into one buffer, or one place.
    pub(crate) fn takes_whole(self) -> bool {
        use ReceiveTechnique::{DirectDma, V2pDma};
        matches!(self.technique(), V2pDma | DirectDma)
    }
}

impl Way {
    /// Checks that both techniques work on one connection: the driver puts nothing.
    pub(super) fn check(&self) -> Result<(), Failure> {
        use {ReceiveTechnique as Receive, SendTechnique as Send};
        let both = (self.sending.technique(), self.receiving.technique());
        if both == (Send::CopyDmaKernel, Receive::DirectDma) {
            return Err(Failure::Refused(
                "the driver sends messages, and puts nothing",
            ));
        }
        Ok(())
    }

    /// Returns the options of the connection.
    pub(super) fn options(&self) -> MessageOptions {
        MessageOptions {
            sending: self.sending.technique(),
            receiving: self.receiving.technique(),
            slot: self.slot,
            slots: self.slots,
            // However short: the figures show from where on an exchange pays.
            exchange_from: 0,
            ..MessageOptions::default()
        }
    }
}

impl fmt::Display for Sending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generator => formatter.write_str("generator"),
            Self::Technique(technique) => technique.fmt(formatter),
            Self::Cached => formatter.write_str("v2p-dma-cached"),
            Self::Buffered => formatter.write_str("buffered"),
            Self::Overwritten => formatter.write_str("overwritten"),
        }
    }
}

impl fmt::Display for Receiving {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null"),
            Self::Technique(technique) => technique.fmt(formatter),
            Self::Buffered => formatter.write_str("buffered"),
        }
    }
}

/// Techniques in JSON: by the name that the library gives them.
mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(
        technique: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(technique)
    }

    pub(super) fn deserialize<'a, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err = String>,
        D: Deserializer<'a>,
    {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_puts_nothing() {
        let check = |sending, receiving| {
            let way = Way {
                sending,
                receiving,
                slot: 4096,
                slots: 8,
            };
            way.check().is_ok()
        };
        let kernel = Sending::Technique(SendTechnique::CopyDmaKernel);
        let places = Receiving::Technique(ReceiveTechnique::DirectDma);
        assert!(check(kernel, Receiving::Null) && !check(kernel, places));
        assert!(check(Sending::Technique(SendTechnique::Pio), places));
    }

    #[test]
    fn the_other_process_understands_every_way() {
        for &receiving in ReceiveTechnique::ALL {
            let way = Way {
                sending: Sending::Technique(SendTechnique::CopyDma),
                receiving: Receiving::Technique(receiving),
                slot: 4096,
                slots: 8,
            };
            let text = serde_json::to_string(&way).unwrap();
            assert!(text.contains(receiving.name()), "{text}");
            assert_eq!(serde_json::from_str::<Way>(&text).unwrap(), way);
            assert_eq!(way.options().receiving, receiving);
        }
        assert!(serde_json::from_str::<Sending>(r#"{"technique":"no-dma"}"#).is_err());
    }
}
