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

/// An entry, and the share that is paid for it.
struct Entry<T> {
    object: Arc<T>,
    _share: Share,
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

    /// Fails unless there is room for one more connection; `user` is set if this side connects.
    ///
    /// # Errors
    ///
    /// `ENOSPC`.
    pub(super) fn check_room(&self, user: Option<Kuid>) -> Result {
        let given_up = user.map_or(0, |user| self.given_up(user));
        if self.count >= MAX_CONNECTIONS || given_up >= MAX_GIVEN_UP {
            return Err(ENOSPC);
        }
        Ok(())
    }

    /// Returns the number of connections that `user` abandoned and that the peer may still accept.
    fn given_up(&self, user: Kuid) -> usize {
        let given_up = self.connections().filter(|connection| {
            connection.given_up.load(Relaxed) && connection.user == Some(user)
        });
        given_up.count()
    }

    /// Adds the connection that `make` creates with the number it is passed. `share` is paid for
    /// the entry.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the table is full, `ENOMEM`; the errors of `make`.
    pub(super) fn add(
        &mut self,
        share: Share,
        make: impl FnOnce(u32) -> Result<Arc<Connection>>,
    ) -> Result<Arc<Connection>> {
        let id = self.connections.reserve()?;
        let made = make(id).and_then(|connection| {
            let entry = Entry {
                object: connection.clone(),
                _share: share,
            };
            self.connections.insert(id, entry)?;
            Ok(connection)
        });
        match made {
            Ok(_) => self.count += 1,
            Err(_) => self.connections.cancel(id),
        }
        made
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
            _share: share,
        };
        Ok(self.listeners.push(entry, GFP_KERNEL_ACCOUNT)?)
    }

    /// Removes `listener` and frees its port.
    pub(super) fn close_port(&mut self, listener: &Arc<Listener>) {
        self.listeners
            .retain(|entry| !Arc::ptr_eq(&entry.object, listener));
    }
}
