// SPDX-License-Identifier: GPL-2.0

//! The counters of one peer, for `ethtool -S`.

use kernel::{
    fmt,
    prelude::*,
    str::CString,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use crate::kernel_ext::net::net_device::{
    CounterName,
    COUNTER_NAME, //
};

/// One counter, which any context may read.
pub(super) struct Count(Atomic<u64>);

impl Default for Count {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl Count {
    /// Adds `amount`.
    pub(super) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    /// Returns the value.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one peer.
        #[derive(Default)]
        pub(super) struct Counters {
            $($(#[$doc])* pub(super) $name: Count,)*
        }

        impl Counters {
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Calls `put` with each value, in the order of the names.
            pub(super) fn values(&self, put: &mut dyn FnMut(u64)) {
                $(put(self.$name.get());)*
            }
        }
    };
}

counters! {
    /// Packets that were written for the peer.
    tx_packets,
    /// Bytes of these.
    tx_bytes,
    /// Packets of these that the engine moves.
    tx_engine,
    /// Packets that the engine did not move, and that were dropped.
    tx_engine_failed,
    /// Packets that were dropped because the peer has no network, or no room within the deadline.
    tx_dropped,
    /// Packets that were dropped because they are longer than what the peer takes.
    tx_too_long,
    /// Number of times that the queue stopped for lack of room.
    tx_stopped,
    /// Number of times that the stack stopped the queue by its limit of bytes on their way.
    tx_limited,
    /// Number of times that the peer made no room within the deadline.
    tx_stalled,
    /// Packets that the peer sent.
    rx_packets,
    /// Bytes of these.
    rx_bytes,
    /// Packets of these that are for groups.
    rx_multicast,
    /// Packets of these that the engine has moved.
    rx_engine,
    /// Packets that were dropped for lack of memory.
    rx_dropped,
    /// Packets that were dropped because their source is not the peer.
    rx_foreign,
    /// Packets that were dropped because their offloads do not fit them, or are not offered.
    rx_errors,
    /// Number of times that the peer's doorbell rang for packets.
    doorbells_rung,
    /// Number of times that the peer's doorbell rang for room.
    credits_rung,
    /// Interrupts after which there was something to do.
    interrupts,
    /// Polls.
    polls,
    /// Polls that found nothing.
    polls_in_vain,
    /// Polls that a timer was started for, so that the peer does not have to ring.
    timed_polls,
    /// Polls that an idle processor began, since there were packets.
    idle_polls,
    /// Rules that the peer broke.
    violations,
}

/// Returns the name of a counter.
///
/// # Errors
///
/// `EINVAL` if it is too long, `ENOMEM`.
pub(super) fn name(text: fmt::Arguments<'_>) -> Result<CounterName> {
    let text = CString::try_from_fmt(text)?;
    let text = text.to_bytes_with_nul();
    let mut padded = [0; COUNTER_NAME];
    let place = padded.get_mut(..text.len()).ok_or(EINVAL)?;
    place.copy_from_slice(text);
    Ok(padded)
}

/// Appends the names of the counters of node `node`.
pub(super) fn add_names(names: &mut KVec<CounterName>, node: u32) -> Result {
    for name in Counters::NAMES {
        names.push(self::name(fmt!("node{node}_{name}"))?, GFP_KERNEL)?;
    }
    Ok(())
}

#[kunit_tests(uldma_net_counters)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_a_name() -> Result {
        let mut names = KVec::new();
        add_names(&mut names, 7)?;
        let counters = Counters::default();
        counters.tx_packets.add(3);
        counters.violations.add(4);
        let mut values = KVec::new();
        counters.values(&mut |value| {
            let _ = values.push(value, GFP_KERNEL);
        });
        assert_eq!(values.len(), names.len());
        assert_eq!((values[0], values[values.len() - 1]), (3, 4));
        assert_eq!(&names[0][..17], b"node7_tx_packets\0");
        assert!(names.iter().all(|name| name[COUNTER_NAME - 1] == 0));
        Ok(())
    }
}
