// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts beside the times: system calls and pins. `make bench` reads the device's own counters between
//! the steps of `lmm-steps`.

use std::io::Write;
use std::path::Path;
use std::rc::Rc;

use uldma::region::Borrowed;
use uldma::Device;
use uldma_papers::tracer::Tracer;

use super::backend::{add, Backend, Locking, Ring, Uldma};
use super::memory::{Pages, Subject};
use super::series::LARGEST;
use super::verbs::{Domain, Verbs};
use crate::failure::Failure;
use crate::figure::Figures;

/// Registrations in one step.
const STEPS: usize = 64;
/// Pages of each of these.
const STEP_PAGES: usize = 16;
/// The steps, in order.
const STEP_NAMES: [&str; 7] = [
    "idle",
    "register.first",
    "register.again",
    "deregister.again",
    "deregister.first",
    "register.more",
    "cleanup",
];

/// Adds `lmm.syscalls.NAME`, to register and deregister once, and `lmm.pins.*` of 16 MiB.
pub(crate) fn measure(
    device: &Device,
    domain: Option<&Rc<Domain>>,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let subject = Subject::new(Pages::Private, LARGEST)?;
    syscalls("first", &mut Uldma::new(device), &subject, figures)?;
    syscalls("io_uring", &mut Ring::new()?, &subject, figures)?;
    syscalls("mlock-mode", &mut Locking::mlock(device), &subject, figures)?;
    if let Some(domain) = domain {
        syscalls("ibv_reg_mr", &mut Verbs::new(domain), &subject, figures)?;
    }

    let before = device.locked_memory()?;
    let first = add(device, subject.range())?;
    let between = device.locked_memory()?;
    let again = add(device, subject.range())?;
    let after = device.locked_memory()?;
    again.unregister()?;
    first.unregister()?;
    for (name, pins) in [
        ("first", between.pins - before.pins),
        ("again", after.pins - between.pins),
    ] {
        let name = format!("lmm.pins.{name}.16m");
        figures.add(name, pins as f64, "count");
    }
    Ok(())
}

fn syscalls(
    name: &str,
    backend: &mut dyn Backend,
    subject: &Subject,
    figures: &mut Figures,
) -> Result<(), Failure> {
    backend.begin(subject)?;
    let tracer = match Tracer::attach() {
        Ok(tracer) => tracer,
        Err(error) => {
            eprintln!("uldma-bench: system calls are not counted: {error}");
            return Ok(());
        }
    };
    let (result, count) = tracer.count(|| {
        backend.register(subject.range())?;
        backend.deregister()
    });
    result?;
    let total = count?.total as f64;
    figures.add(format!("lmm.syscalls.{name}"), total, "count");
    Ok(())
}

/// Registers and deregisters step by step, so that `make bench` can read the device's counters in
/// between. Each step begins with a write to the FIFO `go` and ends with a line with its name. The first
/// line is "ready".
pub(crate) fn steps(device: &Device, go: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::Io("steps", error);
    let subject = Subject::new(Pages::Private, STEPS * STEP_PAGES)?;
    let all = || -> Result<Vec<Borrowed>, Failure> {
        (0..STEPS)
            .map(|number| number * STEP_PAGES)
            .map(|start| add(device, subject.range().pages(start, start + STEP_PAGES)))
            .collect()
    };
    let none = |all: Vec<Borrowed>| all.into_iter().try_for_each(Borrowed::unregister);
    // The tables have their memory after this, as they have in all but the first moments.
    none(all()?)?;
    let (mut first, mut again) = (Vec::new(), Vec::new());
    writeln!(std::io::stdout(), "ready").map_err(failed)?;
    for step in STEP_NAMES {
        std::fs::read(go).map_err(failed)?;
        match step {
            "register.first" => first = all()?,
            "register.again" => again = all()?,
            "deregister.again" => none(std::mem::take(&mut again))?,
            "deregister.first" => none(std::mem::take(&mut first))?,
            "register.more" => first = all()?,
            "cleanup" => device.cleanup()?,
            _ => {}
        }
        writeln!(std::io::stdout(), "{step} {STEPS}").map_err(failed)?;
    }
    Ok(())
}
