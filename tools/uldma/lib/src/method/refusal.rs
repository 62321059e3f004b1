// SPDX-License-Identifier: MIT OR Apache-2.0

//! Refusals of the device: the statuses of initiations and transfers.

use crate::sys::uapi;

/// Reason for which the device did not start a transfer, or ended it early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A load without a store before it; also the answer of a device that has been removed.
    #[error("no arguments were passed (or the device was removed)")]
    NoArgs,
    /// Zero bytes, or more than one initiation can move.
    #[error("the size is out of range")]
    BadSize,
    /// The access was not aligned or not of eight bytes.
    #[error("the access was not an aligned one of eight bytes")]
    BadAccess,
    /// No such page or region.
    #[error("no such page or region")]
    NotValid,
    /// The page or region belongs to another space.
    #[error("the page or region belongs to another process")]
    NotOwner,
    /// Source not readable or destination not writable.
    #[error("the source is not readable or the destination not writable")]
    NoRight,
    /// The transfer would leave the region.
    #[error("the transfer would leave the region")]
    Bounds,
    /// Too many transfers of this context are waiting.
    #[error("the context's queue is full")]
    QueueFull,
    /// The context or the device is disabled.
    #[error("the context or the device is disabled")]
    Disabled,
    /// The peer is not reachable, or the import is stale.
    #[error("the link is down or the import is stale")]
    LinkDown,
    /// The peer's table does not allow the access.
    #[error("the peer does not allow the access")]
    Remote,
    /// Stopped by unregistration, reset or close.
    #[error("aborted by unregistration, reset or close")]
    Aborted,
    /// A bus address did not answer.
    #[error("a bus address did not answer")]
    BusError,
    /// The method needs to know which context runs, and the driver did not report this one.
    #[error("the driver did not report this context as running")]
    NotRunning,
    /// The arguments were passed through different contexts.
    #[error("another process passed arguments in between")]
    Mixed,
    /// Too many wrong keys were stored.
    #[error("too many wrong keys were stored")]
    BadKey,
    /// The method cannot carry this address or length.
    #[error("the method cannot carry this address or length")]
    NotAligned,
    /// The peer posted no buffer for the message in time.
    #[error("the peer has posted no buffer for the message")]
    NotReady,
    /// The message is longer than the posted buffer, or than the endpoint allows.
    #[error("the message is longer than the posted buffer, or than the endpoint allows")]
    TooLong,
    /// The next page of optimistic memory is not in memory; what came before it was moved.
    #[error("a page that is not pinned is not in memory")]
    NotResident,
    /// Nothing is mapped where the next page of optimistic memory would be.
    #[error("nothing is mapped where a page that is not pinned would be")]
    NoMapping,
    /// The next page of optimistic memory did not come in time.
    #[error("a page that is not pinned did not come in time")]
    NotLocked,
    /// The owner of the next page of optimistic memory may not access it in this way.
    #[error("the mapping of a page that is not pinned does not allow the access")]
    PageRight,
    /// The peer has ended the region, or its export.
    #[error("the peer has unregistered or unexported the region")]
    Revoked,
    /// The method stores to the source's shadow page, which is mapped for loads only.
    #[error("the method passes the source by a store, and the source is not writable")]
    SourceNotWritable,
    /// The method loads from the destination's shadow page, which is mapped for stores only.
    #[error(
        "the method loads from the destination's address, and the destination is not readable"
    )]
    DestinationNotReadable,
    /// The source's page is not mapped out to this destination.
    #[error("the source's page is not mapped out to this destination")]
    NotMappedOut,
    /// The initiation was restarted as often as allowed, and was disturbed each time.
    #[error("every attempt was disturbed by others")]
    Contended,
    /// There is no context: the kernel starts all transfers.
    #[error("there is no register context")]
    NoContext,
    /// The context's method starts no transfers, or cannot execute this operation.
    #[error("the context's method cannot do this")]
    OtherMethod,
    /// The load was not answered by a device.
    #[error("the device does not answer")]
    NoAnswer,
    /// A value that this library does not know.
    #[error("unknown status {0}")]
    Unknown(i64),
}

impl Refusal {
    /// Translates `enum uldma_dma_status`; none for success.
    pub fn from_status(status: u32) -> Option<Self> {
        Some(match status {
            uapi::ULDMA_DMA_OK => return None,
            uapi::ULDMA_DMA_NO_ARGS => Self::NoArgs,
            uapi::ULDMA_DMA_BAD_SIZE => Self::BadSize,
            uapi::ULDMA_DMA_BAD_ACCESS => Self::BadAccess,
            uapi::ULDMA_DMA_NOT_VALID => Self::NotValid,
            uapi::ULDMA_DMA_NOT_OWNER => Self::NotOwner,
            uapi::ULDMA_DMA_NO_RIGHT => Self::NoRight,
            uapi::ULDMA_DMA_BOUNDS => Self::Bounds,
            uapi::ULDMA_DMA_QUEUE_FULL => Self::QueueFull,
            uapi::ULDMA_DMA_DISABLED => Self::Disabled,
            uapi::ULDMA_DMA_LINK_DOWN => Self::LinkDown,
            uapi::ULDMA_DMA_REMOTE => Self::Remote,
            uapi::ULDMA_DMA_ABORTED => Self::Aborted,
            uapi::ULDMA_DMA_BUS_ERROR => Self::BusError,
            uapi::ULDMA_DMA_NOT_RUNNING => Self::NotRunning,
            uapi::ULDMA_DMA_MIXED => Self::Mixed,
            uapi::ULDMA_DMA_BAD_KEY => Self::BadKey,
            uapi::ULDMA_DMA_NOT_ALIGNED => Self::NotAligned,
            uapi::ULDMA_DMA_NOT_READY => Self::NotReady,
            uapi::ULDMA_DMA_TOO_LONG => Self::TooLong,
            uapi::ULDMA_DMA_NOT_RESIDENT => Self::NotResident,
            uapi::ULDMA_DMA_NO_MAPPING => Self::NoMapping,
            uapi::ULDMA_DMA_NOT_LOCKED => Self::NotLocked,
            uapi::ULDMA_DMA_PAGE_RIGHT => Self::PageRight,
            uapi::ULDMA_DMA_REVOKED => Self::Revoked,
            other => Self::Unknown(other.into()),
        })
    }

    /// Translates the value of the initiating load, when it is not a ticket.
    pub(crate) fn from_answer(answer: i64) -> Self {
        // No device answers so, but a bus where no device does.
        if answer == 0 {
            return Self::NoAnswer;
        }
        let status = answer
            .checked_neg()
            .and_then(|status| u32::try_from(status).ok());
        status
            .and_then(Self::from_status)
            .unwrap_or(Self::Unknown(answer))
    }

    /// Returns advice for the user, when known.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::QueueFull => "wait for earlier transfers first",
            Self::NoRight => "register with the access that the transfer needs",
            Self::LinkDown => "import again once the link is up",
            Self::Revoked => "import again what the peer exports now",
            Self::Remote => "does the peer export the region with this access?",
            Self::Disabled => "the driver was unbound or the context destroyed",
            Self::NotRunning => "start transfers in the process that took the context",
            Self::Mixed => "try again",
            Self::BadKey => "destroy the context and create a new one",
            Self::NotAligned => {
                "atomic operations: multiples of eight; single-store: those, in the first 2 MiB of \
                 the source; shrimp-1: the start of a page, and a multiple of eight"
            }
            Self::NotReady => "does the peer post buffers before messages are sent?",
            Self::TooLong => "send shorter messages, or have the peer post longer buffers",
            Self::NotResident | Self::NotLocked => "ask the owner of the memory by a message",
            Self::SourceNotWritable => "register the source for reading and writing",
            Self::DestinationNotReadable => "register the destination for reading and writing",
            Self::NotMappedOut => "map it out first (Context::map_out), or use another method",
            Self::Contended => "allow more retries, or have the kernel start it (Context::dma)",
            Self::NoContext => "use Context::dma",
            Self::NoAnswer => {
                "an administrator has disabled the device's memory space, or the device is gone"
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_translate_both_ways() {
        assert_eq!(Refusal::from_answer(-7), Refusal::Bounds);
        assert_eq!(Refusal::from_answer(-14), Refusal::NotRunning);
        assert_eq!(Refusal::from_answer(-15), Refusal::Mixed);
        assert_eq!(Refusal::from_answer(-16), Refusal::BadKey);
        assert_eq!(Refusal::from_answer(-17), Refusal::NotAligned);
        assert_eq!(Refusal::from_answer(0), Refusal::NoAnswer);
        assert_eq!(Refusal::from_answer(i64::MIN), Refusal::Unknown(i64::MIN));
        assert_eq!(Refusal::from_status(0), None);
        assert_eq!(Refusal::from_status(99), Some(Refusal::Unknown(99)));
    }
}
