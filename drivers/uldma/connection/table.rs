// SPDX-License-Identifier: GPL-2.0

//! The places of connections and listeners of one device.
//!
//! Each place has its share of the ledger, which is given back with the place: a connection that its
//! program has left, and of which the peer has not let go, is paid for as long as it takes a place.

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

/// Connections that a device can have.
pub(crate) const MAX_CONNECTIONS: usize = 1024;
/// Listeners that a device can have.
pub(crate) const MAX_LISTENERS: usize = 1024;
/// Connections that one user can have given up before the peer had answered.
const MAX_GIVEN_UP: usize = 16;

/// What has a place, and what is paid for it.
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
    /// No connections, and no listeners.
    pub(super) fn new() -> Self {
        Self {
            connections: Handles::new(),
            count: 0,
            listeners: KVec::new(),
        }
    }

    /// How many connections there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The connections, in no order.
    pub(super) fn connections(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.connections.iter().map(|entry| &entry.object)
    }

    /// The connection of number `id`.
    pub(super) fn connection(&self, id: u32) -> Option<&Arc<Connection>> {
        let entry = self.connections.get(id).ok();
        entry.map(|entry| &entry.object)
    }

    /// Fails unless there is a place for one more connection, of `user` if it is this side that
    /// connects.
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

    /// How many connections `user` gave up that the peer may still make.
    fn given_up(&self, user: Kuid) -> usize {
        let given_up = self.connections().filter(|connection| {
            connection.given_up.load(Relaxed) && connection.user == Some(user)
        });
        given_up.count()
    }

    /// Gives the connection that `make` makes a number, which it is told, and a place, for which
    /// `share` is paid.
    ///
    /// # Errors
    ///
    /// Those of [`Handles::reserve`] and of `make`.
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

    /// Takes the place of connection `id` away; whether it had one.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        let removed = self.connections.remove(id).is_ok();
        self.count -= usize::from(removed);
        removed
    }

    /// The listener at `port`.
    pub(super) fn listener(&self, port: u32) -> Option<&Arc<Listener>> {
        let mut listeners = self.listeners.iter().map(|entry| &entry.object);
        listeners.find(|listener| listener.port() == port)
    }

    /// Gives `listener` its port, for which `share` is paid.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `ENOSPC`, `ENOMEM`.
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

    /// Lets the port of `listener` be used anew.
    pub(super) fn close_port(&mut self, listener: &Arc<Listener>) {
        self.listeners
            .retain(|entry| !Arc::ptr_eq(&entry.object, listener));
    }
}
