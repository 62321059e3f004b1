// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opens the ends of each transport.

use std::net::IpAddr;

use super::carried;
use super::character::Port;
use super::conn::{Connected, Listening};
use super::conventional::{Reader, Writer};
use super::engine::{Engine, Target};
use super::memcpy::{Memcpy, Window};
use super::messages::{Accepting, Connecting};
use super::order::Kind;
use super::ring::Ring;
use super::tcp::{Client, Server};
use super::transport::{Far, Near, Opened, Setup};
use crate::failure::Failure;

/// Opens the end that measures; the other one is open.
pub(crate) fn near(
    setup: Setup<'_>,
    addresses: &[IpAddr],
    port: u16,
) -> Result<Box<dyn Near>, Failure> {
    Ok(match setup.kind {
        Kind::Raw | Kind::Ring | Kind::Polling => Box::new(Ring::near(setup)),
        Kind::Memcpy => Box::new(Memcpy::new(setup)?),
        Kind::Engine => Box::new(Engine::new(setup)?),
        Kind::Push | Kind::Pull | Kind::Unpinned => Box::new(Connected::new(setup)?),
        Kind::Carried => Box::new(carried::Connected::new(setup)?),
        Kind::Tcp => Box::new(Client::new(setup, addresses, port)?),
        Kind::Conventional => Box::new(Writer::new(setup)?),
        Kind::Character => Box::new(Port::new(setup)?),
        Kind::Messages(way) => Box::new(Connecting::new(setup, way)),
    })
}

/// Opens the end that answers, without waiting for the other one.
pub(crate) fn far(setup: Setup<'_>) -> Result<Opened, Failure> {
    let end: Box<dyn Far> = match setup.kind {
        Kind::Raw | Kind::Ring | Kind::Polling => Box::new(Ring::far(setup)?),
        Kind::Memcpy => Box::new(Window::new(setup)?),
        Kind::Engine => Box::new(Target::new(setup)?),
        Kind::Push | Kind::Pull | Kind::Unpinned => Box::new(Listening::new(setup)?),
        Kind::Carried => Box::new(carried::Listening::new(setup)?),
        Kind::Tcp => return Server::open(setup),
        Kind::Conventional => Box::new(Reader::new(setup)?),
        Kind::Character => Box::new(Port::new(setup)?),
        Kind::Messages(way) => Box::new(Accepting::new(setup, way)?),
    };
    Ok(end.into())
}
