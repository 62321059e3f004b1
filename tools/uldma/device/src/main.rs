// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-device`: serves the uldma PCI device to QEMU guests.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uldma_device::abi::Method;
use uldma_device::device::Device;
use uldma_device::engine::Speed;
use uldma_device::fault::Fault;
use uldma_device::layout::{Lanes, DEFAULT_CONTEXTS, LANE_STEP, MAX_CONTEXTS, MAX_NODES};
use uldma_device::method::Compare;
use uldma_device::node::{Shape, LARGEST_PAGE_SHIFT};
use uldma_device::ratelimit::RateLimitedLog;
use uldma_device::socket::Sockets;
use uldma_device::{backend, control};

/// Model of the uldma PCI device, served over vfio-user.
///
/// Prints "ready" once all sockets listen, and runs until SIGTERM or SIGINT.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Socket of a node; to be given once for each of 2 to 8 nodes
    #[arg(long, value_name = "PATH", required = true)]
    socket: Vec<PathBuf>,

    /// Socket for requests in JSON, one per line
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Register contexts per node, including the kernel's
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CONTEXTS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CONTEXTS)))]
    contexts: u32,

    /// Bytes of the window, with the sections of all nodes; a power of two
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = window_size)]
    window_size: u64,

    /// log2 of the bytes of shadow space
    #[arg(long, value_name = "BITS", default_value_t = 35,
          value_parser = clap::value_parser!(u32).range(20..=44))]
    shadow_bits: u32,

    /// Write the counters to this file at the end, in JSON
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,

    /// Nanoseconds from an initiation to its first byte
    #[arg(long, value_name = "NS", default_value_t = 0)]
    delay_ns: u64,

    /// Bytes per second of all transfers together; unlimited if absent
    #[arg(long, value_name = "BYTES",
          value_parser = clap::value_parser!(u64).range(1..))]
    bandwidth: Option<u64>,

    /// Nanoseconds by which the host may run the device late without making an engine with a
    /// bandwidth slower
    #[arg(long, value_name = "NS", default_value_t = Speed::LATE.as_nanos() as u64)]
    late_ns: u64,

    /// Initiation methods that contexts can have; all if absent
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = method,
          long_help = method_help())]
    methods: Option<Vec<Method>>,

    /// Bits of two addresses that repeated passing compares
    #[arg(long, value_name = "WHICH", default_value = "full")]
    compare_bits: Compare,

    /// Nanoseconds for which an empty queue of descriptors is polled continuously
    #[arg(long, value_name = "NS", default_value_t = 50_000)]
    poll_ns: u64,

    /// Nanoseconds for which an empty queue is polled at all before the device stops polling it
    #[arg(long, value_name = "NS", default_value_t = 10_000_000)]
    doze_ns: u64,

    /// Nanoseconds, at most, between two polls of a queue that is no longer polled continuously
    #[arg(long, value_name = "NS", default_value_t = Speed::NAP.as_nanos() as u64)]
    nap_ns: u64,

    /// Minimum nanoseconds between two interrupts of a node
    #[arg(long, value_name = "NS", default_value_t = 0)]
    interrupt_ns: u64,

    /// Limit of how often per second the link of two nodes comes up
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..))]
    link_ups: u32,

    /// Nanoseconds between two interrupts of the fault "storm"
    #[arg(long, value_name = "NS", default_value_t = Speed::STORM.as_nanos() as u64)]
    storm_ns: u64,

    /// Minimum nanoseconds of each access to the function
    #[arg(long, value_name = "NS", default_value_t = 0)]
    access_ns: u64,

    /// Count what caches of so many page entries, of half as many and so on would have of each node's; a
    /// power of two, or 0 to count nothing
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = tlb_entries)]
    tlb: usize,

    /// Inject a fault from the start, at one node or at all
    #[arg(long, value_name = "KIND[@NODE]", value_parser = fault, long_help = fault_help())]
    fault: Vec<(Fault, Option<usize>)>,
}

fn window_size(text: &str) -> Result<u64, String> {
    let size: u64 = text.parse().map_err(|error| format!("{error}"))?;
    if size.is_power_of_two() && (2 * LANE_STEP..=1 << 40).contains(&size) {
        Ok(size)
    } else {
        Err("not a power of two from 131072 to 2^40".into())
    }
}

fn tlb_entries(text: &str) -> Result<usize, String> {
    let entries: usize = text.parse().map_err(|error| format!("{error}"))?;
    if entries == 0 || entries.is_power_of_two() && entries <= 1 << 20 {
        Ok(entries)
    } else {
        Err("neither 0 nor a power of two up to 2^20".into())
    }
}

fn method(text: &str) -> Result<Method, String> {
    Method::of_name(text).ok_or_else(|| format!("no such method '{text}'"))
}

fn method_help() -> String {
    let names: Vec<_> = Method::all().map(Method::name).collect();
    format!(
        "Initiation methods that contexts can have, of {}",
        names.join(", ")
    )
}

fn fault(text: &str) -> Result<(Fault, Option<usize>), String> {
    let (kind, node) = match text.split_once('@') {
        Some((kind, node)) => (kind, Some(node)),
        None => (text, None),
    };
    let node = node
        .map(|node| node.parse().map_err(|_| format!("no node '{node}'")))
        .transpose()?;
    let kind = Fault::from_str(kind, false).map_err(|_| format!("no such fault '{kind}'"))?;
    Ok((kind, node))
}

fn fault_help() -> String {
    let mut help =
        String::from("Inject a fault from the start, at one node or at all; repeatable:\n");
    for kind in Fault::value_variants() {
        if let Some(value) = kind.to_possible_value() {
            let what = value.get_help().map(ToString::to_string);
            help += &format!("  {}: {}\n", value.get_name(), what.unwrap_or_default());
        }
    }
    help
}

fn run(options: &Options) -> io::Result<()> {
    // From here on signals wait for the loop below, so the sockets are always removed.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let shape = Shape {
        contexts: options.contexts,
        shadow_bits: options.shadow_bits,
        window_size: options.window_size,
        methods: options.methods.as_ref().map_or(Method::ALL, |methods| {
            methods.iter().fold(0, |mask, method| mask | method.bit())
        }),
        compare: options.compare_bits,
    };
    let speed = Speed {
        access: Duration::from_nanos(options.access_ns),
        poll: Duration::from_nanos(options.poll_ns),
        doze: Duration::from_nanos(options.doze_ns),
        nap: Duration::from_nanos(options.nap_ns),
        interrupt: Duration::from_nanos(options.interrupt_ns),
        storm: Duration::from_nanos(options.storm_ns),
        link_ups: options.link_ups,
        delay: Duration::from_nanos(options.delay_ns),
        bandwidth: options.bandwidth,
        late: Duration::from_nanos(options.late_ns),
    };
    let device = Arc::new(Device::new(shape, options.socket.len(), speed)?);
    if options.tlb > 0 {
        device.count_translations(options.tlb);
    }
    for (kind, node) in &options.fault {
        control::set_fault(&device, *kind, *node, true).map_err(io::Error::other)?;
    }

    let mut sockets = Sockets::default();
    let thread = |name: &str| thread::Builder::new().name(name.into());
    for (node, path) in options.socket.iter().enumerate() {
        let listener = sockets.listen(path)?;
        let device = Arc::clone(&device);
        thread(&format!("node-{node}")).spawn(move || backend::serve(device, node, listener))?;
    }
    if let Some(path) = &options.control {
        let listener = sockets.listen(path)?;
        let device = Arc::clone(&device);
        thread("control").spawn(move || control::serve(&device, &listener))?;
    }
    device.start()?;

    println!("ready");
    io::stdout().flush()?;
    signals.forever().next();

    if let Some(path) = &options.stats {
        let report = device.report();
        let mut json = serde_json::to_vec_pretty(&report)?;
        json.push(b'\n');
        fs::write(path, json)?;
    }
    Ok(())
}

/// Returns true if a window of `size` bytes has room for the lanes of `nodes` nodes.
fn has_lanes(size: u64, nodes: usize) -> bool {
    Lanes::new(nodes as u32, size / nodes.next_power_of_two() as u64).is_some()
}

/// Limits the rate of messages about panics, which a guest may cause repeatedly.
fn limit_panics() {
    let errors = RateLimitedLog::default();
    std::panic::set_hook(Box::new(move |panic| errors.error(format_args!("{panic}"))));
}

fn main() -> ExitCode {
    env_logger::init();
    limit_panics();
    let options = Options::parse();
    let contexts_bits = options.contexts.next_power_of_two().ilog2();
    let nodes = options.socket.len();
    let problem = if !(2..=MAX_NODES).contains(&nodes) {
        Some("--socket must be given once for each of 2 to 8 nodes")
    } else if !has_lanes(options.window_size, nodes) {
        Some("--window-size leaves less than 64 KiB of window for each two nodes")
    } else if options.shadow_bits < contexts_bits + LARGEST_PAGE_SHIFT {
        Some("--shadow-bits leaves less than a page of shadow space for each context")
    } else {
        None
    };
    let result = match problem {
        Some(problem) => Err(io::Error::other(problem)),
        None => run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("uldma-device: {error}");
            ExitCode::FAILURE
        }
    }
}
