// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counters that a driver gives to `ethtool -S`. Netlink does not have them, only the ioctl.

use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{socket, AddressFamily, SockFlag, SockType};

/// `ETHTOOL_GSSET_INFO`: the number of names in sets of names.
const SET_INFO: u32 = 0x37;
/// `ETHTOOL_GSTRINGS`: the names of a set.
const STRINGS: u32 = 0x1b;
/// `ETHTOOL_GSTATS`: the values of counters.
const STATS: u32 = 0x1d;
/// `ETH_SS_STATS`: the set of names of counters.
const SET: u32 = 1;
/// `ETH_GSTRING_LEN`: bytes of a name, filled up by zeros.
const NAME: usize = 32;
/// Most counters of an interface; others are taken for an error.
const MOST: usize = 1 << 16;

nix::ioctl_readwrite_bad!(
    /// Has the driver of an interface fill in a structure.
    siocethtool,
    libc::SIOCETHTOOL,
    libc::ifreq
);

/// Returns two words of a structure of the kernel, which it has one behind the other.
fn pair(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// An interface, by its name.
struct Interface {
    socket: OwnedFd,
    name: [libc::c_char; libc::IF_NAMESIZE],
}

impl Interface {
    fn new(text: &str) -> nix::Result<Self> {
        let mut name = [0; libc::IF_NAMESIZE];
        // The last byte is the end of the name.
        if text.len() >= name.len() {
            return Err(Errno::ENODEV);
        }
        for (place, byte) in name.iter_mut().zip(text.bytes()) {
            *place = libc::c_char::from_ne_bytes([byte]);
        }
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
        Ok(Self { socket, name })
    }

    /// Has the kernel answer the request that `words` begin with.
    ///
    /// # Safety
    ///
    /// `words` must be a structure of the request, with room for what the structure says that it has.
    unsafe fn ask(&self, words: &mut [u64]) -> nix::Result<()> {
        let mut request = libc::ifreq {
            ifr_name: self.name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_data: words.as_mut_ptr().cast(),
            },
        };
        // SAFETY: The structure is alive, and has room, as the function requires.
        unsafe { siocethtool(self.socket.as_raw_fd(), &raw mut request) }.map(drop)
    }

    /// Returns the number of counters.
    fn count(&self) -> nix::Result<usize> {
        let mut words = [pair(SET_INFO, 0), 1 << SET, 0];
        // SAFETY: It is a `struct ethtool_sset_info` with room for one set.
        unsafe { self.ask(&mut words) }?;
        let [a, b, c, d, ..] = words[2].to_ne_bytes();
        // The kernel clears the bits of sets that the interface lacks.
        let number = if words[1] == 0 {
            0
        } else {
            u32::from_ne_bytes([a, b, c, d])
        };
        let number = usize::try_from(number).map_err(|_| Errno::EOVERFLOW)?;
        (number <= MOST).then_some(number).ok_or(Errno::EOVERFLOW)
    }

    /// Returns the names of `count` counters; those behind the last one of the driver are empty.
    fn names(&self, count: usize) -> nix::Result<Vec<String>> {
        const HEAD: usize = 3 * size_of::<u32>();
        let length = u32::try_from(count).map_err(|_| Errno::EOVERFLOW)?;
        let mut words = vec![0; (HEAD + count * NAME).div_ceil(size_of::<u64>())];
        if let [first, second, ..] = &mut words[..] {
            *first = pair(STRINGS, SET);
            *second = pair(length, 0);
        }
        // SAFETY: It is a `struct ethtool_gstrings` with room for `length` names.
        unsafe { self.ask(&mut words) }?;
        let bytes: Vec<_> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let names = bytes.get(HEAD..).unwrap_or_default();
        let names = names.chunks_exact(NAME).map(|name| {
            let end = name.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(&name[..end.unwrap_or(NAME)]).into_owned()
        });
        Ok(names.take(count).collect())
    }

    /// Returns the values of `count` counters.
    fn values(&self, count: usize) -> nix::Result<Vec<u64>> {
        let length = u32::try_from(count).map_err(|_| Errno::EOVERFLOW)?;
        let mut words = vec![0; 1 + count];
        words[0] = pair(STATS, length);
        // SAFETY: It is a `struct ethtool_stats` with room for `length` values.
        unsafe { self.ask(&mut words) }?;
        Ok(words.split_off(1))
    }
}

/// Reads names and values of all counters of interface `name`.
///
/// # Errors
///
/// `ENODEV` if there is no such interface, `EOPNOTSUPP` if its driver has no counters.
pub(super) fn counters(name: &str) -> nix::Result<Vec<(String, u64)>> {
    let interface = Interface::new(name)?;
    let count = interface.count()?;
    let names = interface.names(count)?;
    let values = interface.values(count)?;
    let counters = names.into_iter().zip(values);
    Ok(counters.filter(|(name, _)| !name.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_counters_is_an_error() {
        // The loopback has no driver that would have any.
        for name in ["lo", "no such", "a name that is far too long"] {
            let error = counters(name).unwrap_err();
            assert!(
                [Errno::EOPNOTSUPP, Errno::ENODEV].contains(&error),
                "{name}: {error}"
            );
        }
    }

    #[test]
    fn words_are_in_the_order_of_the_structure() {
        let bytes = pair(1, 2).to_ne_bytes();
        assert_eq!(bytes[..4], 1u32.to_ne_bytes());
        assert_eq!(bytes[4..], 2u32.to_ne_bytes());
    }
}
