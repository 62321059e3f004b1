// SPDX-License-Identifier: MIT OR Apache-2.0

//! Table 1: the cost of an initiation by each method, in time, accesses to the device, and system
//! calls.

use std::time::Duration;

use uldma::measure::Clock;
use uldma::{ContextOptions, Device, Method};
use uldma_papers::tracer::Tracer;

use super::subject::{self, Subject, PAGES};
use crate::failure::Failure;
use crate::figure::Figures;
use crate::timing::times;

/// Passes over all methods, so that drift hits all.
const PASSES: usize = 5;
/// Batches that are timed in each pass: with [`PAGES`] operations each, the paper's 1,000.
const BATCHES: usize = 4;
/// First batches, which do not count: pages are mapped at the first touch.
const WARM_UP: usize = 2;
/// Attempts to count 1,000 initiations without a context switch between them.
const TRIES: usize = 10;
const NOPS_PER_BATCH: u32 = 100;

/// An ioctl that does nothing.
pub(crate) fn nop(device: &Device, figures: &mut Figures) -> Result<(), Failure> {
    let clock = Clock::start();
    let mut samples = Vec::new();
    for _ in 0..200 {
        let before = clock.ticks();
        for _ in 0..NOPS_PER_BATCH {
            device.nop()?;
        }
        samples.push(clock.ticks() - before);
    }
    let median = times(&clock, &samples, NOPS_PER_BATCH).median();
    figures.add("syscall.nop.time", median, "ns");
    Ok(())
}

/// Measures these methods. Those that a context cannot have here are reported and left out.
pub(crate) fn measure(
    number: u32,
    methods: &[Method],
    timeout: Duration,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let methods = present(number, methods, timeout)?;
    let kinds = [What::Arguments, What::Data, What::Together];
    measure_times(number, &methods, &kinds, timeout, figures)?;
    for &method in &methods {
        subject::with(number, method, arguments_only(), timeout, |subject| {
            accesses(method, subject, figures)?;
            syscalls(method, subject, figures)
        })
        .inspect_err(|_| eprintln!("uldma-bench: {method} failed"))?;
    }
    Ok(())
}

/// Measures only how long these methods take.
pub(crate) fn times_only(
    number: u32,
    methods: &[Method],
    timeout: Duration,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let methods = present(number, methods, timeout)?;
    measure_times(number, &methods, &[What::Arguments], timeout, figures)
}

/// Returns the methods that a context can have here.
fn present(number: u32, methods: &[Method], timeout: Duration) -> Result<Vec<Method>, Failure> {
    let mut present = Vec::new();
    for &method in methods {
        match subject::with(number, method, arguments_only(), timeout, |_| Ok(())) {
            Ok(()) => present.push(method),
            Err(Failure::Uldma(error)) if is_absent(&error) => {
                eprintln!("uldma-bench: no figures of {method}: {error}");
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(present)
}

/// A kind of timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Arguments are passed, and nothing is moved.
    Arguments,
    /// Transfers move their bytes meanwhile.
    Data,
    /// Descriptors are submitted together.
    Together,
}

impl What {
    fn name(self, method: Method) -> String {
        match self {
            Self::Arguments => format!("init.{method}"),
            Self::Data => format!("init.{method}.data"),
            Self::Together => format!("init.{method}.batch"),
        }
    }

    fn applies_to(self, method: Method) -> bool {
        match self {
            Self::Arguments => true,
            // The kernel's transfers always move their bytes, after the call has returned.
            Self::Data => !matches!(method, Method::Kernel | Method::FetchAdd),
            Self::Together => method == Method::Queue,
        }
    }

    fn options(self) -> ContextOptions {
        ContextOptions {
            no_data: self != Self::Data,
            ..Default::default()
        }
    }
}

/// Ticks of the batches, and how many transfers the kernel had to start.
#[derive(Default)]
struct Samples {
    ticks: Vec<u64>,
    by_kernel: u64,
}

/// Adds, for each method and with and without data, `NAME.time` (the median of the batches),
/// `NAME.mean` (the mean of all, as the paper has it) and `NAME.min` (the shortest batch, which a busy
/// machine disturbs least).
fn measure_times(
    number: u32,
    methods: &[Method],
    kinds: &[What],
    timeout: Duration,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let mut all: Vec<(Method, What, Samples)> = kinds
        .iter()
        .flat_map(|&what| methods.iter().map(move |&method| (method, what)))
        .filter(|(method, what)| what.applies_to(*method))
        .map(|(method, what)| (method, what, Samples::default()))
        .collect();
    let clock = Clock::start();
    for _ in 0..PASSES {
        for (method, what, samples) in &mut all {
            subject::with(number, *method, what.options(), timeout, |subject| {
                pass(*what, subject, &clock, samples)
            })
            .inspect_err(|_| eprintln!("uldma-bench: {method} failed"))?;
        }
    }
    for (method, what, samples) in all {
        add_times(&what.name(method), &clock, &samples.ticks, figures);
        if samples.by_kernel > 0 && method != Method::Kernel {
            let part = samples.by_kernel as f64 / (samples.ticks.len() * PAGES) as f64;
            let name = format!("{}.by_kernel", what.name(method));
            figures.add(name, part, "count");
        }
    }
    Ok(())
}

fn pass(
    what: What,
    subject: &mut Subject<'_>,
    clock: &Clock,
    samples: &mut Samples,
) -> Result<(), Failure> {
    for round in 0..WARM_UP + BATCHES {
        let before = clock.ticks();
        match what {
            What::Together => subject.queue_batch()?,
            What::Arguments | What::Data => subject.batch()?,
        }
        let ticks = clock.ticks() - before;
        let by_kernel = subject.wait()?;
        if round >= WARM_UP {
            samples.ticks.push(ticks);
            samples.by_kernel += by_kernel;
        }
    }
    Ok(())
}

/// Arguments only, as in the paper.
fn arguments_only() -> ContextOptions {
    What::Arguments.options()
}

/// Returns true if the device, the module or this system lacks the method.
fn is_absent(error: &uldma::Error) -> bool {
    use nix::errno::Errno;
    matches!(error, uldma::Error::Method { .. })
        || matches!(error.errno(), Some(Errno::EPERM | Errno::EOPNOTSUPP))
}

fn add_times(name: &str, clock: &Clock, samples: &[u64], figures: &mut Figures) {
    let batches = times(clock, samples, PAGES as u32);
    let all: u64 = samples.iter().sum();
    let mean = all as f64 * clock.rate() / (samples.len() * PAGES) as f64;
    for (what, value) in [
        ("time", batches.median()),
        ("mean", mean),
        ("min", batches.quantile(0.0)),
    ] {
        figures.add(format!("{name}.{what}"), value, "ns");
    }
}

/// Adds the device's counts of each initiation, from a run without disturbances.
fn accesses(
    method: Method,
    subject: &mut Subject<'_>,
    figures: &mut Figures,
) -> Result<(), Failure> {
    for _ in 0..TRIES {
        let (Some(before), disturbed) = (subject.stats()?, subject.context().disturbances()) else {
            return Ok(());
        };
        for _ in 0..PASSES * BATCHES {
            subject.batch()?;
            subject.wait()?;
        }
        // A context switch may have cleared arguments, which then were passed again.
        if subject.context().disturbances() != disturbed {
            continue;
        }
        let counted = subject.stats()?.unwrap_or_default().since(&before);
        let each = |count: u64| count as f64 / (PASSES * BATCHES * PAGES) as f64;
        for (what, value) in [
            ("mmio_stores", counted.stores()),
            ("mmio_loads", counted.loads()),
        ] {
            let name = format!("init.{method}.{what}");
            figures.add(name, each(value), "count");
        }
        return Ok(());
    }
    eprintln!("uldma-bench: {method} was disturbed each time that accesses were counted");
    Ok(())
}

/// Adds a tracer's counts of each initiation.
fn syscalls(
    method: Method,
    subject: &mut Subject<'_>,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let tracer = match Tracer::attach() {
        Ok(tracer) => tracer,
        Err(error) => {
            eprintln!("uldma-bench: system calls are not counted: {error}");
            return Ok(());
        }
    };
    let (result, count) = tracer.count(|| subject.batch());
    result?;
    subject.wait()?;
    let each = count?.total as f64 / PAGES as f64;
    let name = format!("init.{method}.syscalls");
    figures.add(name, each, "count");
    Ok(())
}
