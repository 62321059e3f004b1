// SPDX-License-Identifier: GPL-2.0

//! The owner of a connection: an open file, or the listener in whose backlog it is.

use core::ops::Deref;

use kernel::sync::Arc;

use super::{
    ConnCtx, //
    Connection,
};

/// The owning handle of a connection, of which there is one. Dropping it ends the connection: its
/// memory is invalidated and the peer is notified soon.
pub(crate) struct ConnHandle(Arc<Connection>);

impl ConnHandle {
    /// Creates the handle of a new connection.
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }

    /// Ends the connection. When this returns, its memory is unreachable.
    pub(crate) fn abandon(self, ctx: &ConnCtx<'_>, keep: bool) {
        self.0.abandon(ctx, keep);
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
        // The next tick does the rest. After an orderly end nothing is left to do.
        self.0.orphan();
    }
}
