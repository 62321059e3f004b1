// SPDX-License-Identifier: MIT OR Apache-2.0

//! One side of a message connection before the two are connected.

use std::time::Duration;

use nix::errno::Errno;

use super::engine::Engine;
use super::exchange::Exchanges;
use super::handshake::Handshake;
use super::put_memory::Inbound;
use super::window::Window;
use super::window_slots::Pio;
use super::{MessageConnection, MessageOptions, Path};
use crate::channel::Channel;
use crate::connection::{ConnectionKind, Offer};
use crate::device::Device;
use crate::error::peer::Peer;
use crate::error::{Error, Result};
use crate::ring::{Geometry, Violation};
use crate::transfer::endpoint::{Endpoint, EndpointName};

/// Version of the messages over the channel, and of the private data.
const VERSION: u16 = 6;

/// Bytes of the channel's ring where the device matches messages: handshake and credits.
const CONTROL: u64 = 4096;

/// Returns the offer of the connection of the channel. Its ring carries the messages, too, where the device
/// matches none.
pub(super) fn offer(device: &Device, options: &MessageOptions) -> Result<Offer> {
    let query = device.query()?;
    let (_, most_endpoints) = query.user.endpoints;
    let capacity = match most_endpoints {
        0 => Window::capacity(options.piece(query.page_size, query.max_transfer)),
        _ => CONTROL,
    };
    let ring = Geometry::of(capacity).ok_or_else(|| Error::capacity(capacity))?;
    Ok(Offer::of_ring(ConnectionKind::MESSAGE, VERSION, ring))
}

/// What a side has made for its peer, which learns of it by the handshake.
#[derive(Debug)]
pub(super) struct Side {
    device: Device,
    options: MessageOptions,
    exchanges: Exchanges,
    endpoint: Option<(Endpoint, Pio)>,
    inbound: Option<Inbound>,
    handshake: Handshake,
}

impl Side {
    /// Makes a side for the peer `node`, in an open file of its own.
    ///
    /// # Errors
    ///
    /// Those of [`Device::endpoint`], [`Device::register`] and [`Device::export_to`].
    pub(super) fn new(device: &Device, node: u32, options: MessageOptions) -> Result<Self> {
        let exchanges = Exchanges::new(device, options.exchange_from);
        let device = device.reopen()?;
        let query = device.query()?;
        // A device that cannot reach the window leaves `PIO` to the processors.
        let endpoint = match Pio::new(&device, Peer::node(node), &options)? {
            Some(pio) => endpoint(&device, query.max_transfer)?.map(|it| (it, pio)),
            None => None,
        };
        let name = endpoint.as_ref().map(|(it, _)| it.name());
        let inbound = match endpoint {
            Some(_) => Inbound::new(&device, node, &options)?,
            None => None,
        };
        let handshake = Handshake {
            receiving: options.receiving,
            piece: options.piece(query.page_size, query.max_transfer),
            endpoint: name.unwrap_or_else(|| no_endpoint(query.node)),
            through_window: name.is_none(),
            inbound: inbound.as_ref().map(Inbound::named),
        };
        Ok(Self {
            device,
            options,
            exchanges,
            endpoint,
            inbound,
            handshake,
        })
    }

    /// Returns what the peer has to know.
    pub(super) fn handshake(&self) -> &Handshake {
        &self.handshake
    }

    /// Returns true if the device of this side moves messages.
    pub(super) fn has_engine(&self) -> bool {
        self.endpoint.is_some()
    }

    /// Makes the connection over a channel to `node`, which has said `peer`. Does not wait for its program.
    ///
    /// # Errors
    ///
    /// [`Error::Violation`] when the peer breaks the rules; [`Error::Technique`] for a technique that
    /// cannot be used; those of [`Device::context_with`], [`Device::register`] and
    /// [`Endpoint::connect`].
    pub(super) fn connection(
        self,
        channel: Channel,
        node: u32,
        peer: Handshake,
    ) -> Result<MessageConnection> {
        if peer.endpoint.node != node {
            return Err(Violation::Handshake.into());
        }
        let both = (&self.handshake, &peer);
        let (device, options) = (self.device, self.options);
        let path = match self.endpoint.filter(|_| !peer.through_window) {
            Some((endpoint, pio)) => {
                let ends = (endpoint, pio, channel);
                let memory = (self.exchanges, self.inbound);
                let engine = Engine::new(device, memory, ends, both, options)?;
                Path::Engine(Box::new(engine))
            }
            None => {
                options.check_window()?;
                Path::Window(Box::new(Window::new(device, channel, both, &options)))
            }
        };
        Ok(MessageConnection { path })
    }
}

/// Creates an endpoint; none if the device has no engine.
fn endpoint(device: &Device, most: u64) -> Result<Option<Endpoint>> {
    // With credits, no message has to wait for its buffer.
    let is_missing = |error: &Error| error.errno() == Some(Errno::EOPNOTSUPP);
    match device.endpoint(most, Duration::ZERO) {
        Err(error) if is_missing(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the name of a side without an endpoint.
fn no_endpoint(node: u32) -> EndpointName {
    EndpointName {
        node,
        index: 0,
        generation: 0,
    }
}
