// SPDX-License-Identifier: MIT OR Apache-2.0

//! Initiation methods: the ways in which the arguments of a transfer reach the device.
//!
//! [`Method`] names them. The other files of this folder have the accesses of each method, in the
//! paper's order; [`crate::Context`] selects one of them.

pub(crate) mod extended_shadow;
pub(crate) mod key;
pub(crate) mod pal;
pub(crate) mod refusal;
pub(crate) mod repeated;
pub(crate) mod shrimp_1;
pub(crate) mod single_store;

use std::fmt;
use std::str::FromStr;

use crate::sys::uapi;

pub use refusal::Refusal;
pub use repeated::Disturbances;

/// A way to start transfers, of those that *User-Level DMA without Operating System Kernel
/// Modification* compares and a few more.
///
/// `Documentation/uldma/initiation-methods.rst` describes each method and its protection.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use uldma::{ContextOptions, Device, Method};
///
/// let device = Device::open(0)?;
/// // One store of source, destination and length, on devices that have it.
/// match device.context_with(Method::SingleStore, ContextOptions::default()) {
///     Ok(context) => println!("{}", context.method()),
///     Err(error) => eprintln!("{error}: {:?}", error.hint()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// A system call (§2.2); needs no context.
    Kernel,
    /// One load from a page that is mapped out to another page (§2.4).
    Shrimp1,
    /// A store and a load of registers that all contexts share and that no context switch clears
    /// (§2.5). Not secure.
    Shrimp2,
    /// A store and a load of registers for each CPU, which a context switch clears (§2.5).
    Shrimp2Abort,
    /// A store and a load, where the context switch reports the running context (§2.6).
    Flash,
    /// [`Method::Flash`] with one register for all CPUs (§2.6). Not secure on more than one CPU.
    FlashSingle,
    /// The accesses of [`Method::Shrimp2`], restarted when the thread was interrupted in between
    /// (§2.7). Cooperative: it protects only programs that all restart, from each other. Not
    /// secure.
    Pal,
    /// A secret key is stored with each address (§3.1).
    Key,
    /// A store and a load whose addresses name the context (§3.2).
    ExtendedShadow,
    /// [`Method::ExtendedShadow`] with one set of registers for all contexts (§3.2).
    ExtendedShadowShared,
    /// Three accesses that pass arguments repeatedly (§3.3, fig. 5). Not secure.
    Repeated3,
    /// Four accesses that pass arguments repeatedly (§3.3, fig. 6). Not secure.
    Repeated4,
    /// Five accesses that pass arguments repeatedly (§3.3, fig. 7).
    Repeated5,
    /// One store, without a load. Not in the paper.
    SingleStore,
    /// Descriptors in memory, which the device polls: see [`crate::Queue`]. Not in the paper.
    Queue,
    /// Starts no transfers but an atomic addition (fn 3): see [`crate::Context::fetch_add`].
    FetchAdd,
}

/// Each method, its name, and its number in `enum uldma_method`.
const ALL: [(Method, &str, Option<u32>); 16] = [
    (Method::Kernel, "kernel", None),
    (
        Method::Shrimp1,
        "shrimp-1",
        Some(uapi::ULDMA_METHOD_SHRIMP_1),
    ),
    (
        Method::Shrimp2,
        "shrimp-2",
        Some(uapi::ULDMA_METHOD_SHRIMP_2),
    ),
    (
        Method::Shrimp2Abort,
        "shrimp-2-abort",
        Some(uapi::ULDMA_METHOD_SHRIMP_2_ABORT),
    ),
    (Method::Flash, "flash", Some(uapi::ULDMA_METHOD_FLASH)),
    (
        Method::FlashSingle,
        "flash-single",
        Some(uapi::ULDMA_METHOD_FLASH_SINGLE),
    ),
    (Method::Pal, "pal", Some(uapi::ULDMA_METHOD_PAL)),
    (Method::Key, "key", Some(uapi::ULDMA_METHOD_KEY)),
    (
        Method::ExtendedShadow,
        "extended-shadow",
        Some(uapi::ULDMA_METHOD_EXTENDED_SHADOW),
    ),
    (
        Method::ExtendedShadowShared,
        "extended-shadow-shared",
        Some(uapi::ULDMA_METHOD_EXTENDED_SHADOW_SHARED),
    ),
    (
        Method::Repeated3,
        "repeated-3",
        Some(uapi::ULDMA_METHOD_REPEATED_3),
    ),
    (
        Method::Repeated4,
        "repeated-4",
        Some(uapi::ULDMA_METHOD_REPEATED_4),
    ),
    (
        Method::Repeated5,
        "repeated-5",
        Some(uapi::ULDMA_METHOD_REPEATED_5),
    ),
    (
        Method::SingleStore,
        "single-store",
        Some(uapi::ULDMA_METHOD_SINGLE_STORE),
    ),
    (Method::Queue, "queue", Some(uapi::ULDMA_METHOD_QUEUE)),
    (
        Method::FetchAdd,
        "fetch-add",
        Some(uapi::ULDMA_METHOD_FETCH_ADD),
    ),
];

impl Method {
    /// Returns all methods, the kernel's first.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|entry| entry.0)
    }

    /// Returns its name, as programs accept and print it.
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// Returns its number in `enum uldma_method`; none for [`Method::Kernel`].
    pub fn number(self) -> Option<u32> {
        self.entry().2
    }

    /// Its bit in [`Methods`].
    fn bit(self) -> u32 {
        self.number()
            .and_then(|number| 1u32.checked_shl(number))
            .unwrap_or(0)
    }

    /// Returns true if other processes cannot misuse it. Methods that are not secure exist for
    /// comparison, and need a module that was loaded with `insecure_methods=1`.
    pub fn is_secure(self) -> bool {
        self.bit() & uapi::ULDMA_METHODS_INSECURE == 0
    }

    /// Returns true if the kernel must report the running context to the device at each context
    /// switch. It does so for one context of each address space.
    pub fn needs_sched_notify(self) -> bool {
        self.bit() & uapi::ULDMA_METHODS_SCHED_NOTIFY != 0
    }

    /// Returns true if addresses are passed by accesses to shadow pages.
    pub(crate) fn uses_shadow_pages(self) -> bool {
        !matches!(self, Self::Kernel | Self::Queue)
    }

    /// Returns true if the context page is one of its registers.
    pub(crate) fn uses_context_page(self) -> bool {
        matches!(self, Self::Key | Self::Queue)
    }

    fn entry(self) -> &'static (Self, &'static str, Option<u32>) {
        let found = ALL.iter().find(|entry| entry.0 == self);
        // A test checks that the table contains every method.
        found.unwrap_or(&ALL[0])
    }
}

impl fmt::Display for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The error for an unknown name of a method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such initiation method: {0}")]
pub struct UnknownMethod(String);

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let found = Self::all().find(|method| method.name() == name);
        found.ok_or_else(|| UnknownMethod(name.to_owned()))
    }
}

/// A set of methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods(u32);

impl Methods {
    /// Decodes a mask of `enum uldma_method`.
    pub(crate) fn from_mask(mask: u32) -> Self {
        Self(mask)
    }

    /// Returns true if the set contains the method; it always contains the kernel's.
    pub fn contains(self, method: Method) -> bool {
        method == Method::Kernel || self.0 & method.bit() != 0
    }

    /// Returns the methods of the set that this library knows, the kernel's first.
    pub fn iter(self) -> impl Iterator<Item = Method> {
        Method::all().filter(move |&method| self.contains(method))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_methods() {
        for method in Method::all() {
            assert_eq!(method.name().parse(), Ok(method));
            assert_eq!(method.to_string(), method.name());
        }
        assert_eq!(Method::all().count(), 16);
        let error = Method::from_str("magic").unwrap_err();
        assert_eq!(error.to_string(), "no such initiation method: magic");
        assert_eq!(
            format!("{:>8}|{:<8}", Method::Pal, Method::Key),
            "     pal|key     "
        );
    }

    /// Numbers and properties once more, as the header has them.
    #[test]
    fn the_header_and_this_file_agree() {
        let numbers: Vec<_> = Method::all().filter_map(Method::number).collect();
        assert_eq!(numbers, [6, 17, 7, 8, 18, 16, 2, 0, 1, 19, 20, 5, 3, 4, 9]);
        let insecure: Vec<_> = Method::all().filter(|method| !method.is_secure()).collect();
        assert_eq!(
            insecure,
            [
                Method::Shrimp2,
                Method::FlashSingle,
                Method::Pal,
                Method::Repeated3,
                Method::Repeated4
            ]
        );
        let announced: Vec<_> = Method::all()
            .filter(|method| method.needs_sched_notify())
            .collect();
        assert_eq!(
            announced,
            [Method::Shrimp2Abort, Method::Flash, Method::FlashSingle]
        );
    }

    #[test]
    fn a_mask_is_a_set() {
        let methods = Methods::from_mask((1 << 5) | 1);
        let all: Vec<_> = methods.iter().collect();
        assert_eq!(
            all,
            [Method::Kernel, Method::ExtendedShadow, Method::Repeated5]
        );
        assert!(!methods.contains(Method::Key));
        assert!(Methods::default().contains(Method::Kernel));
    }
}
