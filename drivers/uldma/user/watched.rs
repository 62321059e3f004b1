// SPDX-License-Identifier: GPL-2.0

//! The condition on which an open file may have objects.

/// Token of an open file whose objects end with its address space, so that some may be made.
pub(crate) struct Watched(());

impl Watched {
    /// Creates the token. Only `OpenFile::watch()` does that, which registers the notifier of the end
    /// of the address space.
    pub(super) fn registered() -> Self {
        Self(())
    }
}
