// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/uldmaN/`: counters of a device.

use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*,
    str::CString,
    sync::Arc, //
};

use crate::{
    device::Shared,
    kernel_ext::wakeup,
    link::{
        progress_worker::ProgressOps,
        quarantine::Held,
        TICK_MS, //
    },
    mem::tpt::leaked, //
};

/// The files of one device.
#[pin_data]
pub(crate) struct Files {
    #[pin]
    usage: File<Arc<Shared>>,
    #[pin]
    health: File<Arc<Shared>>,
    #[pin]
    intake: File<Arc<Shared>>,
    #[pin]
    quarantine: File<Arc<Shared>>,
    #[pin]
    fences: File<Arc<Shared>>,
    #[pin]
    optimistic: File<Arc<Shared>>,
    _dir: Dir,
}

impl Files {
    /// Creates the files of device `number`.
    pub(crate) fn new(number: u32, shared: Arc<Shared>) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let dir = Dir::new(&CString::try_from_fmt(fmt!("uldma{number}"))?);
            Ok(try_pin_init!(Self {
                usage <- dir.read_callback_file(c"usage", shared.clone(), &show_usage),
                health <- dir.read_callback_file(c"health", shared.clone(), &show_health),
                intake <- dir.read_callback_file(c"intake", shared.clone(), &show_intake),
                quarantine <- dir.read_callback_file(c"quarantine", shared.clone(), &show_quarantine),
                fences <- dir.read_callback_file(c"fences", shared.clone(), &show_fences),
                optimistic <- dir.read_callback_file(c"optimistic", shared, &show_optimistic),
                _dir: dir.clone(),
            }))
        })
    }
}

fn show_health(shared: &Arc<Shared>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let health = shared.hw.health().report();
    writeln!(f, "sick {}", u8::from(health.sick))?;
    writeln!(f, "timeouts {}", health.timeouts)?;
    writeln!(f, "recoveries {}", health.recoveries)?;
    writeln!(f, "kept_pages {}", health.kept_pages)?;
    writeln!(f, "kept_contexts {}", health.kept_contexts)?;
    writeln!(f, "kept_endpoints {}", health.kept_endpoints)?;
    writeln!(f, "reset {}", u8::from(health.reset))
}

fn show_intake(shared: &Arc<Shared>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let stats = shared.worker.stats();
    writeln!(f, "doorbells {}", stats.doorbells)?;
    writeln!(f, "unmasked {}", stats.unmasked)?;
    writeln!(f, "found {}", stats.found)?;
    writeln!(f, "moderated {}", stats.moderated)?;
    writeln!(f, "passes {}", stats.passes)?;
    let cost = shared.link.doorbell_cost().as_nanos();
    writeln!(f, "doorbell_ns {cost}")?;
    let measured = shared.link.is_measured();
    writeln!(f, "doorbell_measured {}", u8::from(measured))?;
    writeln!(f, "doorbell_followed {}", shared.link.followed())?;
    let cost = shared.completion_cost().as_nanos();
    writeln!(f, "completion_ns {cost}")?;
    writeln!(f, "timer_ns {}", wakeup::cost().as_nanos())?;
    writeln!(f, "thread_ns {}", wakeup::cost_by_thread().as_nanos())
}

fn show_fences(shared: &Arc<Shared>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fences = shared.tpt.fences();
    writeln!(f, "all {}", fences.all)?;
    writeln!(f, "by_invalidation {}", fences.invalidations)
}

fn show_optimistic(shared: &Arc<Shared>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let counts = shared.optimistic.counts();
    writeln!(f, "requests {}", counts.requests)?;
    writeln!(f, "dropped {}", counts.dropped)?;
    writeln!(f, "answered {}", counts.answered)?;
    writeln!(f, "filled {}", counts.filled)?;
    writeln!(f, "faulted {}", counts.faulted)?;
    writeln!(f, "ended {}", counts.ended)?;
    writeln!(f, "evicted {}", counts.evicted)?;
    writeln!(f, "told {}", counts.told)?;
    writeln!(f, "entered {}", counts.entered)?;
    writeln!(f, "limit {}", counts.limit)
}

fn show_quarantine(shared: &Arc<Shared>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let held = shared.quarantine();
    for peer in shared.link.peers() {
        let Held {
            count,
            bytes,
            ticks,
        } = held.of(peer.node());
        let node = peer.node();
        let ms = u64::from(ticks).saturating_mul(TICK_MS.into());
        writeln!(f, "node {node} holds {count}, {bytes} bytes, {ms} ms")?;
    }
    Ok(())
}

fn show_usage(shared: &Arc<Shared>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let geometry = shared.hw.geometry();
    let usage = shared.tpt.usage();
    writeln!(f, "open_files {}", shared.open_files())?;
    writeln!(f, "spaces {}", shared.lmm.spaces())?;
    writeln!(
        f,
        "contexts {} of {}, wanted by {} more",
        shared.contexts.used(),
        geometry.contexts - 1,
        shared.contexts.detached()
    )?;
    writeln!(
        f,
        "regions {} of {}",
        usage.regions,
        geometry.region_capacity - 1
    )?;
    writeln!(f, "pages {} of {}", usage.pages, geometry.page_capacity)?;
    writeln!(
        f,
        "endpoints {} of {}",
        shared.endpoints.used(),
        geometry.endpoint_capacity
    )?;
    writeln!(f, "cached {}", shared.lmm.cached())?;
    writeln!(f, "leaked {}", leaked())?;
    writeln!(f, "connections {}", shared.connections.count())?;
    writeln!(f, "unsaid {}", shared.segments.unreported())?;
    writeln!(
        f,
        "window {} of {}",
        shared.window_alloc.used(),
        geometry.lanes.section()
    )
}
