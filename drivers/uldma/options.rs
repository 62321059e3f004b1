// SPDX-License-Identifier: GPL-2.0

//! What the administrator chose when the module was loaded.

use crate::{
    lmm,
    module_parameters, //
};

/// How locked memory is managed.
pub(crate) fn lmm() -> lmm::Options {
    lmm::Options {
        merge: *module_parameters::merge.value() != 0,
        cache: lmm::Limits {
            locks: *module_parameters::pin_cache_locks.value(),
            bytes: *module_parameters::pin_cache_bytes.value(),
        },
    }
}

/// Milliseconds for which an opener keeps a context that another wants.
pub(crate) fn context_slice_ms() -> i64 {
    (*module_parameters::context_slice_ms.value()).into()
}

/// Whether contexts can have initiation methods by which other processes can misuse them.
pub(crate) fn insecure_methods() -> bool {
    *module_parameters::insecure_methods.value() != 0
}

/// Regions and imports that one opener can have.
pub(crate) fn max_opener_regions() -> usize {
    *module_parameters::max_opener_regions.value()
}
