// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mixes of device and actors that are searched.

use crate::actor::Actor;
use crate::bracket::{Program, Transfer};
use crate::device::Device;
use crate::driver::{Role, Run};
use crate::mm::Event;
use crate::mutation::Mutation;
use crate::state::{State, ACTORS, BRACKETS};

/// The actors beside the two brackets of the device, and what the device suffers.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Its name.
    pub name: &'static str,
    /// The actors.
    pub roles: [Role; ACTORS],
    /// The transfers of the brackets.
    pub transfers: [Transfer; BRACKETS],
    /// The entry is valid at first.
    pub filled: bool,
    /// DMA mappings have an end.
    pub iommu: bool,
    /// The device may stop, and go on.
    pub sick: bool,
    /// The device may be reset.
    pub reset: bool,
}

const WRITE: Transfer = Transfer {
    accesses: 1,
    write: true,
};

const READ: Transfer = Transfer {
    accesses: 1,
    write: false,
};

const BATCH: Transfer = Transfer {
    accesses: 2,
    write: true,
};

const UNMAP: Role = Role::Notify(Event::Unmap);
const PROTECT: Role = Role::Notify(Event::Protect);
const FILL: Role = Role::Fill { write: false };

const PLAIN: Mix = Mix {
    name: "",
    roles: [Role::Idle; ACTORS],
    transfers: [WRITE, READ],
    filled: true,
    iommu: false,
    sick: false,
    reset: false,
};

impl Mix {
    /// All mixes.
    pub const ALL: [Self; 18] = [
        Self {
            name: "batch",
            roles: [UNMAP, Role::Idle, Role::Idle],
            transfers: [BATCH, READ],
            ..PLAIN
        },
        Self {
            name: "mapped",
            roles: [UNMAP, Role::Idle, Role::Idle],
            transfers: [BATCH, READ],
            iommu: true,
            ..PLAIN
        },
        Self {
            name: "first fill",
            roles: [FILL, UNMAP, Role::Idle],
            filled: false,
            ..PLAIN
        },
        Self {
            name: "refill",
            roles: [UNMAP, FILL, Role::Idle],
            transfers: [WRITE, WRITE],
            ..PLAIN
        },
        Self {
            name: "protect",
            roles: [PROTECT, FILL, UNMAP],
            ..PLAIN
        },
        Self {
            name: "upgrade",
            roles: [PROTECT, FILL, Role::Fill { write: true }],
            transfers: [WRITE, WRITE],
            iommu: true,
            ..PLAIN
        },
        Self {
            name: "two notifiers",
            roles: [UNMAP, UNMAP, FILL],
            transfers: [WRITE, WRITE],
            ..PLAIN
        },
        Self {
            name: "reaper",
            roles: [Role::Reap, FILL, UNMAP],
            ..PLAIN
        },
        Self {
            name: "eviction",
            roles: [Role::Evict, FILL, UNMAP],
            iommu: true,
            ..PLAIN
        },
        Self {
            name: "eviction and reaper",
            roles: [Role::Evict, FILL, Role::Reap],
            iommu: true,
            ..PLAIN
        },
        Self {
            name: "unbind",
            roles: [Role::Unbind, UNMAP, FILL],
            ..PLAIN
        },
        Self {
            name: "sick",
            roles: [UNMAP, UNMAP, Role::Idle],
            transfers: [WRITE, WRITE],
            sick: true,
            ..PLAIN
        },
        Self {
            name: "sick and filled",
            roles: [UNMAP, FILL, Role::Idle],
            sick: true,
            iommu: true,
            ..PLAIN
        },
        Self {
            name: "sick and unbind",
            roles: [UNMAP, Role::Unbind, Role::Evict],
            sick: true,
            ..PLAIN
        },
        Self {
            name: "reset",
            roles: [UNMAP, FILL, Role::Idle],
            reset: true,
            ..PLAIN
        },
        Self {
            name: "reset and unbind",
            roles: [Role::Unbind, UNMAP, Role::Evict],
            reset: true,
            ..PLAIN
        },
        Self {
            name: "unbind and reaper",
            roles: [Role::Unbind, Role::Reap, FILL],
            iommu: true,
            ..PLAIN
        },
        Self {
            name: "sick and reaper",
            roles: [Role::Reap, UNMAP, Role::Idle],
            sick: true,
            ..PLAIN
        },
    ];

    /// Returns the mix of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|mix| mix.name == name)
    }

    /// Returns the search's subject, and its first state.
    pub fn run(&self, mutation: Option<Mutation>) -> (Run, State) {
        let quiesces = self.sick || self.reset || self.roles.contains(&Role::Unbind);
        let run = Run {
            roles: self.roles,
            program: Program::new(self.transfers, [self.iommu, quiesces], mutation),
            sick: self.sick,
            reset: self.reset,
            mutation,
        };
        let actors = self.roles.map(|role| {
            let mut actor = Actor::default();
            if role == Role::Idle {
                actor.end();
            }
            actor
        });
        (run, State::new(self.filled, Device::default(), actors))
    }
}
