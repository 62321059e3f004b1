// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma export`: exports memory to the peer until a signal arrives.

use std::os::fd::AsFd;
use std::time::Instant;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde::Serialize;
use uldma::region::Registered;
use uldma::{Access, Buffer, Peer};

use crate::args::{Common, Export};
use crate::failure::{Failure, Kind, Result};
use crate::file;
use crate::output;
use crate::schema::SCHEMA_VERSION;

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    name: String,
    bytes: u64,
    index: u32,
    pid: u32,
}

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &Export) -> Result<()> {
    let device = common.open()?;
    let buffer = match (&args.file, args.size) {
        (Some(path), _) => {
            let (buffer, length) = file::read(path)?;
            to_usize(length as u64)?;
            buffer
        }
        (None, size) => Buffer::new(to_usize(size.unwrap_or(0))?)?,
    };
    // From here on, signals end the wait below and not the process.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    let failed = |errno: nix::errno::Errno| Failure::io("wait for a signal", &errno.into());
    signals.thread_block().map_err(failed)?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).map_err(failed)?;

    let access: Access = args.access.into();
    let region = device.register(buffer, access)?;
    let export = match args.to {
        Some(node) => region.export_to(Peer::node(node), args.name, access)?,
        None => region.export(args.name, access)?,
    };
    let report = Report {
        schema_version: SCHEMA_VERSION,
        name: export.name().to_string(),
        bytes: region.length(),
        index: region.index(),
        pid: std::process::id(),
    };
    output::print(common.json, &report, |report| {
        format!(
            "exporting {} bytes as {} until a signal comes (process {})",
            report.bytes, report.name, report.pid
        )
    })?;

    let end = args.lifetime.map(|lifetime| Instant::now() + lifetime);
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) if end.is_none_or(|end| Instant::now() < end) => {}
            Ok(_) => break,
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    drop(export);
    let buffer = region.unregister()?;
    if let Some(path) = &args.out {
        std::fs::write(path, &buffer).map_err(|error| Failure::io(path.display(), &error))?;
    }
    Ok(())
}

fn to_usize(length: u64) -> Result<usize> {
    usize::try_from(length)
        .ok()
        .filter(|&length| length > 0)
        .ok_or_else(|| Failure::new(Kind::Failed, "there must be at least one byte to export"))
}
