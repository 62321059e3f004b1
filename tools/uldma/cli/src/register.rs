// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma register`: registers memory of any kind and shows the kernel's state of it.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde::Serialize;
use uldma::device::Event;
use uldma::region::{RegionInfo, Registered};
use uldma::{Access, Device, Memory};
use uldma_papers::registrar::{Action, Area, Registrar, Segment};

use crate::args::{Common, Disturbance, ModeArg, Register};
use crate::charge::Cost;
use crate::failure::{Failure, Kind, Result};
use crate::lmm::LockedState;
use crate::output;
use crate::schema::SCHEMA_VERSION;

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    kind: String,
    bytes: u64,
    mode: ModeArg,
    /// Predicted charge of the first registration.
    before: Cost,
    registrations: Vec<Registration>,
    /// State of the first of them.
    region: Info,
    /// None if not requested.
    blocks: Option<Vec<Block>>,
    registered: LockedState,
    went_stale: Option<WentStale>,
    unregistered: LockedState,
    /// With the pin cache: one more registration, after all had ended.
    again: Option<Registration>,
}

/// One registration.
#[derive(Debug, Serialize)]
struct Registration {
    handle: u32,
    index: u32,
    /// Lock or unlock action afterwards, in the mode that has it.
    action: Option<&'static str>,
    syscalls: u64,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Info {
    address: String,
    bytes: u64,
    pages: u64,
    areas: u32,
    stale: u64,
}

#[derive(Debug, Serialize)]
struct Block {
    address: String,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct WentStale {
    then: Disturbance,
    /// Stale bytes according to the event.
    event_bytes: u64,
    /// Stale bytes according to the region.
    region_bytes: u64,
}

impl From<&RegionInfo> for Info {
    fn from(info: &RegionInfo) -> Self {
        Self {
            address: format!("{:#x}", info.address),
            bytes: info.length,
            pages: info.pages,
            areas: info.areas,
            stale: info.stale,
        }
    }
}

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &Register) -> Result<()> {
    let device = common.open()?;
    let memory = args.memory.map()?;
    let access = Access::from(args.memory.access);
    if args.cache {
        device.set_pin_cache(true)?;
    }
    let (mode, mechanism) = args.mode();
    let registrar = Registrar::new(&device, mechanism);
    // Read once per memory, and neither counted nor timed.
    let segment = registrar.segment(&memory)?;
    let before = match mode {
        ModeArg::Optimistic => Cost::default(),
        _ => Cost::ask(&device, &memory, &args.memory)?,
    };
    let bytes = memory.length();

    let (first, registration) = register(&registrar, &memory, segment.as_ref(), access)?;
    let mut registrations = vec![registration];
    let mut others = Vec::new();
    for _ in 1..args.times {
        let (area, registration) = register(&registrar, &memory, segment.as_ref(), access)?;
        others.push(area);
        registrations.push(registration);
    }
    let region = Info::from(&first.region().query()?);
    let blocks = blocks(&first, args)?;
    let registered = LockedState::from(&device.locked_memory()?);

    let (memory, went_stale) = match args.then {
        Some(then) => {
            let (memory, went_stale) = go_stale(common, &device, memory, &first, then)?;
            (memory, Some(went_stale))
        }
        None => (Some(memory), None),
    };
    for area in others.into_iter().chain([first]) {
        area.unregister()?;
    }
    let again = match &memory {
        Some(memory) if args.cache => {
            Some(register(&registrar, memory, segment.as_ref(), access)?.1)
        }
        _ => None,
    };
    let report = Report {
        schema_version: SCHEMA_VERSION,
        kind: args.memory.kind(),
        bytes,
        mode,
        before,
        registrations,
        region,
        blocks,
        registered,
        went_stale,
        unregistered: LockedState::from(&device.locked_memory()?),
        again,
    };
    output::print(common.json, &report, words)
}

fn register(
    registrar: &Registrar,
    memory: &Memory,
    segment: Option<&Segment>,
    access: Access,
) -> uldma::Result<(Area, Registration)> {
    let (calls, start) = (uldma::measure::calls(), Instant::now());
    let area = registrar.register(memory, segment, 0..memory.length(), access)?;
    let seconds = start.elapsed().as_secs_f64();
    let registration = Registration {
        handle: area.region().handle(),
        index: area.region().index(),
        action: area.answer().map(|answer| match answer.action {
            Action::Nop => "nop",
            Action::Lock => "lock",
            Action::Unlock => "unlock",
        }),
        syscalls: uldma::measure::calls() - calls,
        seconds,
    };
    Ok((area, registration))
}

fn blocks(area: &Area, args: &Register) -> uldma::Result<Option<Vec<Block>>> {
    let blocks = match (args.blocks, args.pages) {
        (true, _) => area.region().blocks()?,
        (_, true) => area.region().pages()?,
        _ => return Ok(None),
    };
    let block = |block: uldma::region::Block| Block {
        address: format!("{:#x}", block.address),
        bytes: block.length,
    };
    blocks
        .map(|item| item.map(block))
        .collect::<uldma::Result<_>>()
        .map(Some)
}

/// Makes the memory of the region stale, and waits for the event.
fn go_stale(
    common: &Common,
    device: &Device,
    memory: Memory,
    area: &Area,
    then: Disturbance,
) -> Result<(Option<Memory>, WentStale)> {
    let memory = match then {
        Disturbance::Unmap => {
            drop(memory);
            None
        }
        Disturbance::Discard => {
            memory.discard()?;
            Some(memory)
        }
    };
    let event_bytes = wait_stale(device, area.region().handle(), common.timeout)?;
    let went_stale = WentStale {
        then,
        event_bytes,
        region_bytes: area.region().query()?.stale,
    };
    Ok((memory, went_stale))
}

fn wait_stale(device: &Device, region: u32, timeout: Duration) -> Result<u64> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        for event in device.wait_events(left)? {
            match event {
                Event::Stale { handle, bytes } if handle == region => return Ok(bytes),
                _ => {}
            }
        }
        if left.is_zero() {
            let message = format!("no event reported the region as stale within {timeout:?}");
            return Err(Failure::new(Kind::Timeout, message));
        }
    }
}

fn words(report: &Report) -> String {
    let mut text = format!(
        "{} bytes of {} memory: {}\n",
        report.bytes,
        report.kind,
        report.before.words()
    );
    let mut line = |what: &str, value: String| {
        let _ = writeln!(text, "  {what:<12} {value}");
    };
    for registration in &report.registrations {
        line("registered", registration.words());
    }
    let region = &report.region;
    line(
        "region",
        format!(
            "{} bytes at {} (pages: {}, areas: {}), {} bytes stale",
            region.bytes, region.address, region.pages, region.areas, region.stale
        ),
    );
    for block in report.blocks.iter().flatten() {
        line(
            "block",
            format!("{} bytes at bus address {}", block.bytes, block.address),
        );
    }
    line("locked", report.registered.words());
    if let Some(stale) = &report.went_stale {
        let how = match stale.then {
            Disturbance::Unmap => "unmapped",
            Disturbance::Discard => "discarded",
        };
        line(
            how,
            format!(
                "the event reports {} stale bytes, the region {}",
                stale.event_bytes, stale.region_bytes
            ),
        );
    }
    line("unregistered", report.unregistered.words());
    if let Some(again) = &report.again {
        line("once more", again.words());
    }
    text
}

impl Registration {
    fn words(&self) -> String {
        let mut text = format!(
            "handle {:#x}, index {} (system calls: {}, {:.6} s)",
            self.handle, self.index, self.syscalls, self.seconds
        );
        if let Some(action) = self.action {
            let _ = write!(text, ", action {action}");
        }
        text
    }
}
