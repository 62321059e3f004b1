// SPDX-License-Identifier: GPL-2.0

//! The loopback nodes, which exist as long as the module.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    str::CString,
    sync::Arc, //
};

use super::Node;
use crate::{
    device::{
        Binding,
        Shared, //
    },
    hw::loopback::{
        DoorbellRegistration,
        Loopback,
        OnDoorbell,
        Wire, //
    },
    kernel_ext::{
        bh_lock::bottom_halves_disabled,
        faux, //
    },
    params, //
};

/// The driver of one node.
struct Driver;

/// Handles the doorbell of a node.
struct DoorbellHandler(Arc<Shared>);

impl OnDoorbell for DoorbellHandler {
    fn rung(&self) {
        // Unlike an interrupt, this can come after the end of the binding.
        if let Some(guard) = self.0.gate.enter() {
            // Packets are received when it returns, as after an interrupt. Memory does not fail.
            let _ = bottom_halves_disabled(|| self.0.handle_doorbell(guard.dev()));
        }
    }
}

impl faux::Driver for Driver {
    /// The wire, and the number of the node.
    type Info = (Arc<Wire>, u32);
    type Data<'bound> = Node<'bound, DoorbellRegistration>;

    fn probe<'bound>(
        dev: &'bound Device<Bound>,
        (wire, number): Self::Info,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        pin_init::pin_init_scope(move || {
            let hw = Arc::new(Loopback::new(wire.clone(), number)?, GFP_KERNEL)?;
            let binding = Binding::new(dev, hw)?;
            let handler = Arc::new(DoorbellHandler(binding.shared().clone()), GFP_KERNEL)?;
            Ok(Node::new(dev, binding, wire.answer(number, handler)?, None))
        })
    }
}

/// The loopback nodes.
pub(super) struct Devices {
    _nodes: KVec<faux::Registration<Driver>>,
}

impl Devices {
    /// Creates the nodes that the module parameters request.
    pub(super) fn new() -> Result<Self> {
        let mut nodes = KVec::new();
        let (count, bytes) = params::loopback();
        if count > 0 {
            let wire = Wire::new(count, bytes)?;
            for number in 0..count {
                let name = CString::try_from_fmt(fmt!("uldma-loopback.{number}"))?;
                let node = faux::Registration::new(&name, (wire.clone(), number))?;
                nodes.push(node, GFP_KERNEL)?;
            }
        }
        Ok(Self { _nodes: nodes })
    }
}
