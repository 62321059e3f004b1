// SPDX-License-Identifier: GPL-2.0

//! The table of the connections and listeners of one device.
//!
//! Each entry has its share of the ledger, which is returned with the entry: a connection without
//! an owner, whose end the peer has not confirmed, is paid for as long as it has an entry.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    task::Kuid, //
};

use super::{
    Connection,
    Listener, //
};
use crate::{
    kernel_ext::errno::eaddrinuse,
    user_abi::{
        handles::Handles,
        ledger::Share, //
    }, //
};

/// Maximum number of connections of a device.
pub(crate) const MAX_CONNECTIONS: usize = 1024;
/// Maximum number of listeners of a device.
pub(crate) const MAX_LISTENERS: usize = 1024;
/// Maximum number of connections that one user has abandoned before the peer answered.
const MAX_GIVEN_UP: usize = 16;

/// What a user, and perhaps a peer, have paid for an entry.
pub(super) type Shares = (Share, Option<Share>);

/// An entry, and what is paid for it.
struct Entry<T> {
    object: Arc<T>,
    _shares: Shares,
}

/// The connections by number, and the listeners.
pub(super) struct Table {
    connections: Handles<Entry<Connection>>,
    count: usize,
    listeners: KVec<Entry<Listener>>,
}

impl Table {
    /// Creates an empty table.
    pub(super) fn new() -> Self {
        Self {
            connections: Handles::new(),
            count: 0,
            listeners: KVec::new(),
        }
    }

    /// Returns how many connections there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the connections, in no order.
    pub(super) fn connections(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.connections.iter().map(|entry| &entry.object)
    }

    /// Returns the connection of number `id`.
    pub(super) fn connection(&self, id: u32) -> Option<&Arc<Connection>> {
        let entry = self.connections.get(id).ok();
        entry.map(|entry| &entry.object)
    }

    /// Reserves the number of a connection, which counts from now on; `user` is set if this side
    /// connects.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the table is full or the user has abandoned too many, `ENOMEM`.
    pub(super) fn reserve(&mut self, user: Option<Kuid>) -> Result<u32> {
        let given_up = user.map_or(0, |user| self.given_up(user));
        if self.count >= MAX_CONNECTIONS || given_up >= MAX_GIVEN_UP {
            return Err(ENOSPC);
        }
        let id = self.connections.reserve()?;
        self.count += 1;
        Ok(id)
    }

    /// Gives the reserved number `id` back.
    pub(super) fn cancel(&mut self, id: u32) {
        self.connections.cancel(id);
        self.count -= 1;
    }

    /// Returns the number of connections that `user` abandoned and that the peer may still accept.
    fn given_up(&self, user: Kuid) -> usize {
        let given_up = self.connections().filter(|connection| {
            connection.given_up.load(Relaxed) && connection.user == Some(user)
        });
        given_up.count()
    }

    /// Adds a connection with its reserved number. `shares` are paid for the entry.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the number is not reserved.
    pub(super) fn insert(&mut self, connection: Arc<Connection>, shares: Shares) -> Result {
        let id = connection.id;
        let entry = Entry {
            object: connection,
            _shares: shares,
        };
        self.connections.insert(id, entry)
    }

    /// Removes connection `id`. Returns true if it was in the table.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        let removed = self.connections.remove(id).is_ok();
        self.count -= usize::from(removed);
        removed
    }

    /// Returns the listener at `port`.
    pub(super) fn listener(&self, port: u32) -> Option<&Arc<Listener>> {
        let mut listeners = self.listeners.iter().map(|entry| &entry.object);
        listeners.find(|listener| listener.port() == port)
    }

    /// Adds `listener`. `share` is paid for the entry.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if the port has a listener, `ENOSPC`, `ENOMEM`.
    pub(super) fn listen(&mut self, listener: Arc<Listener>, share: Share) -> Result {
        if self.listener(listener.port()).is_some() {
            return Err(eaddrinuse());
        }
        if self.listeners.len() >= MAX_LISTENERS {
            return Err(ENOSPC);
        }
        let entry = Entry {
            object: listener,
            _shares: (share, None),
        };
        Ok(self.listeners.push(entry, GFP_KERNEL)?)
    }

    /// Removes `listener` and frees its port.
    pub(super) fn close_port(&mut self, listener: &Arc<Listener>) {
        self.listeners
            .retain(|entry| !Arc::ptr_eq(&entry.object, listener));
    }
}
