// SPDX-License-Identifier: MIT OR Apache-2.0

//! The control socket: one JSON request per line, one JSON reply per line.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::fault::Fault;
use crate::memory::GuestMemory;
use crate::model::Model;
use crate::stats::Report;

/// A request of the control socket.
#[derive(Debug, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Show all counters.
    Stats {},
    /// Plugs (`true`) or unplugs the cable of a node, or of all nodes; or restores or cuts one
    /// link.
    Link {
        /// True to plug or restore.
        up: bool,
        /// The node; all nodes if absent.
        node: Option<usize>,
        /// The peer, for the link between this node and it only.
        peer: Option<usize>,
    },
    /// Stops or resumes the engine: shorthand for the fault of this name.
    Stall {
        /// Stopped.
        on: bool,
        /// The node; all nodes if absent.
        node: Option<usize>,
    },
    /// Holds chunks between the look-up of their bus addresses and the access, or releases them.
    Hold {
        /// Held.
        on: bool,
        /// The node; all nodes if absent.
        node: Option<usize>,
        /// The context; all contexts if absent.
        context: Option<usize>,
    },
    /// Misbehave, or stop to.
    Fault {
        /// Kind of fault.
        kind: Fault,
        /// True to switch the fault on.
        on: bool,
        /// The node; all nodes if absent.
        node: Option<usize>,
    },
}

/// The answer.
#[derive(Debug, Default, Serialize)]
pub struct Reply {
    /// True if the request was carried out.
    pub ok: bool,
    /// Reason of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The counters, if the request asked for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<Report>,
}

impl Reply {
    fn done() -> Self {
        Self {
            ok: true,
            ..Self::default()
        }
    }

    fn refused(reason: impl ToString) -> Self {
        Self {
            error: Some(reason.to_string()),
            ..Self::default()
        }
    }
}

/// Applies an action to one node or to all nodes. The action returns true if the node exists.
fn at_nodes(
    device: &Device,
    node: Option<usize>,
    act: impl Fn(&mut Model, usize, &[&GuestMemory]) -> bool,
) -> Result<(), String> {
    device.with(|model, memories| {
        let all = 0..model.node_count();
        let nodes = node.map_or_else(|| all.collect(), |node| vec![node]);
        let mut nodes = nodes.into_iter();
        match nodes.find(|number| !act(model, *number, memories)) {
            Some(number) => Err(format!("there is no node {number}, or no such context")),
            None => Ok(()),
        }
    })
}

/// Switches a fault on or off, at one node or at all nodes.
pub fn set_fault(
    device: &Device,
    kind: Fault,
    node: Option<usize>,
    on: bool,
) -> Result<(), String> {
    at_nodes(device, node, |model, number, memories| {
        model.set_fault(number, kind, on, memories)
    })
}

/// Holds chunks of one context or of all, at one node or at all nodes, or releases them.
pub fn set_hold(
    device: &Device,
    node: Option<usize>,
    context: Option<usize>,
    on: bool,
) -> Result<(), String> {
    at_nodes(device, node, |model, number, memories| {
        model.set_hold(number, context, on, memories)
    })
}

/// Plugs or unplugs cables, or restores or cuts one link.
fn set_link(
    device: &Device,
    up: bool,
    node: Option<usize>,
    peer: Option<usize>,
) -> Result<(), String> {
    let known = device.with(|model, memories| {
        model.with_links(memories, |links| match (node, peer) {
            (None, None) => {
                links.plug(up);
                true
            }
            (Some(node), None) => links.plug_node(node, up),
            (Some(node), Some(peer)) => links.cut(node, peer, !up),
            (None, Some(_)) => false,
        })
    });
    known.then_some(()).ok_or("there is no such link".into())
}

/// Carries out one request.
pub fn handle(device: &Device, line: &str) -> Reply {
    let request = match serde_json::from_str(line) {
        Ok(request) => request,
        Err(error) => return Reply::refused(error),
    };
    let result = match request {
        Request::Stats {} => {
            return Reply {
                stats: Some(device.report()),
                ..Reply::done()
            }
        }
        Request::Link { up, node, peer } => set_link(device, up, node, peer),
        Request::Stall { on, node } => set_fault(device, Fault::Stall, node, on),
        Request::Hold { on, node, context } => set_hold(device, node, context, on),
        Request::Fault { kind, on, node } => set_fault(device, kind, node, on),
    };
    match result {
        Ok(()) => Reply::done(),
        Err(reason) => Reply::refused(reason),
    }
}

fn converse(device: &Device, stream: UnixStream) -> io::Result<()> {
    let mut replies = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let mut reply = serde_json::to_vec(&handle(device, &line?))?;
        reply.push(b'\n');
        replies.write_all(&reply)?;
    }
    Ok(())
}

/// Answers requests, forever.
pub fn serve(device: &Arc<Device>, listener: &UnixListener) {
    for stream in listener.incoming() {
        let device = Arc::clone(device);
        let spawned = stream.and_then(|stream| {
            std::thread::Builder::new().spawn(move || {
                if let Err(error) = converse(&device, stream) {
                    log::warn!("control: {error}");
                }
            })
        });
        if let Err(error) = spawned {
            log::warn!("control: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Method;
    use crate::engine::Speed;
    use crate::method::Compare;
    use crate::node::Shape;

    fn ask(device: &Device, line: &str) -> serde_json::Value {
        serde_json::to_value(handle(device, line)).unwrap()
    }

    fn device(nodes: usize) -> Device {
        let shape = Shape {
            contexts: 2,
            shadow_bits: 30,
            window_size: 1 << 15,
            methods: Method::ALL,
            compare: Compare::Full,
        };
        Device::new(shape, nodes, Speed::default()).unwrap()
    }

    #[test]
    fn cables_and_links() {
        let device = device(3);
        device.with(|model, memories| {
            for node in 0..3 {
                model.attach(node);
                model.set_enabled(node, true, memories);
            }
        });
        for (line, expected) in [
            (r#"{"cmd":"link","up":true}"#, [true, true, true]),
            (
                r#"{"cmd":"link","up":false,"node":2,"peer":0}"#,
                [true, false, true],
            ),
            (
                r#"{"cmd":"link","up":false,"node":1}"#,
                [false, false, false],
            ),
            (
                r#"{"cmd":"link","up":true,"node":0,"peer":2}"#,
                [false, true, false],
            ),
            (r#"{"cmd":"link","up":false}"#, [false, false, false]),
            (
                r#"{"cmd":"link","up":true,"node":0}"#,
                [false, false, false],
            ),
            (r#"{"cmd":"link","up":true}"#, [true, true, true]),
        ] {
            assert_eq!(ask(&device, line)["ok"], true, "{line}");
            let stats = ask(&device, r#"{"cmd":"stats"}"#);
            let found = [0, 1, 2].map(|link| stats["stats"]["links"][link]["up"] == true);
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn requests_and_refusals() {
        let device = device(2);
        assert_eq!(ask(&device, r#"{"cmd":"link","up":false}"#)["ok"], true);
        let on = r#"{"cmd":"fault","kind":"drop-completion","on":true,"node":1}"#;
        assert_eq!(ask(&device, on)["ok"], true);
        assert_eq!(ask(&device, r#"{"cmd":"stall","on":true}"#)["ok"], true);
        let stats = ask(&device, r#"{"cmd":"stats"}"#);
        assert_eq!(
            stats["stats"]["nodes"][1]["faults"],
            serde_json::json!(["drop-completion", "stall"])
        );
        assert_eq!(stats["stats"]["nodes"][0]["counters"]["shadow_loads"], 0);
        for line in [
            "",
            "{}",
            r#"{"cmd":"stall","on":true,"node":2}"#,
            r#"{"cmd":"stall","on":true,"node":18446744073709551615}"#,
            r#"{"cmd":"hold","on":true,"node":0,"context":2}"#,
            r#"{"cmd":"link","up":1}"#,
            r#"{"cmd":"link","up":true,"node":2}"#,
            r#"{"cmd":"link","up":true,"peer":1}"#,
            r#"{"cmd":"link","up":true,"node":1,"peer":1}"#,
            r#"{"cmd":"link","up":true,"node":0,"peer":2}"#,
            r#"{"cmd":"fault","kind":"no-such","on":true}"#,
            r#"{"cmd":"stats","extra":1}"#,
        ] {
            assert_eq!(ask(&device, line)["ok"], false, "{line}");
        }
    }
}
