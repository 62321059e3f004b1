// SPDX-License-Identifier: GPL-2.0

//! Whose a connection is: that of an open file, or of the listener that it waits at.

use core::ops::Deref;

use kernel::sync::Arc;

use super::{
    Connection,
    Site, //
};

/// The holder's end of a connection. There is one of each, and dropping it ends the connection:
/// its memory is taken out of reach soon, and the peer hears of the end.
pub(crate) struct ConnHandle(Arc<Connection>);

impl ConnHandle {
    /// The holder's end of a connection that was just made.
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }

    /// Ends the connection: its memory is out of reach when this returns.
    pub(crate) fn abandon(self, site: &Site<'_>, keep: bool) {
        self.0.abandon(site, keep);
    }
}

impl Deref for ConnHandle {
    type Target = Arc<Connection>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for ConnHandle {
    fn drop(&mut self) {
        // The next tick does the rest. Nothing is left to do after an end in another way.
        self.0.orphan();
    }
}
