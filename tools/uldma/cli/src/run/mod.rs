// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma run`: starts a program whose sockets to other nodes go over uldma.
//!
//! This process holds the connections, so they outlive the program's forks and its end. The program
//! has TCP connections to it by the loopback interface, and preloads a library that replaces
//! connect() and listen(): `Documentation/uldma/sockets.rst`.

mod busy;
mod calls;
mod flow;
mod frame;
pub(crate) mod nodes;
#[allow(
    dead_code,
    reason = "the library that is preloaded uses the other half"
)]
#[path = "../../../preload/src/protocol.rs"]
mod protocol;
mod report;
mod served;
mod sockets;

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::signal::{kill, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use self::calls::Calls;
use self::nodes::Nodes;
use self::report::Totals;
use self::sockets::Sockets;
use crate::args::{Common, Run};
use crate::failure::{Failure, Kind, Result};

const LIBRARY: &str = "libuldma_preload.so";
const PRELOAD: &str = "LD_PRELOAD";

/// Runs the verb. Returns the exit code of the program.
pub(crate) fn run(common: &Common, args: &Run) -> Result<u8> {
    let device = common.open()?;
    let library = library()?;
    let failed = |error: &io::Error| Failure::io("start", error);
    let kept = signals();
    kept.thread_block().map_err(|errno| failed(&errno.into()))?;
    let signals = SignalFd::with_flags(&kept, SfdFlags::SFD_CLOEXEC);
    let signals = signals.map_err(|errno| failed(&errno.into()))?;
    let calls = Calls::new().map_err(|error| failed(&error))?;
    let nodes = Nodes::new(device.query()?.node, args.peers.iter().copied());
    let sockets = Arc::new(Sockets {
        device,
        nodes,
        stream: args.stream(common.timeout),
        timeout: common.timeout,
        most: args.connections.into(),
        count: AtomicUsize::new(0),
        busy: Arc::default(),
        ports: Mutex::default(),
        totals: Totals::default(),
    });
    for &port in &args.serve {
        let served = sockets.listen(port);
        served.map_err(|errno| Failure::io(format!("port {port}"), &errno.into()))?;
    }
    let name = calls.name().to_owned();
    let shared = Arc::clone(&sockets);
    thread::spawn(move || calls.answer(&shared));
    let child = start(args, &library, &name, &kept)?;
    let status = wait(child, &signals)?;
    // What is not carried by then is lost.
    let _ = sockets.busy.wait_idle(common.timeout);
    let code = exit_code(status);
    if common.json {
        let report = sockets.totals.report(code);
        let text = serde_json::to_string(&report);
        eprintln!(
            "{}",
            text.map_err(|error| Failure::io("JSON", &error.into()))?
        );
    }
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Finds the library: beside this program, or in the `lib` beside its directory.
fn library() -> Result<PathBuf> {
    let own = env::current_exe().map_err(|error| Failure::io("find this program", &error))?;
    let beside = own.parent().map(|it| it.join(LIBRARY));
    let in_lib = own.parent().and_then(|it| it.parent());
    let in_lib = in_lib.map(|it| it.join("lib").join(LIBRARY));
    let found = [beside, in_lib]
        .into_iter()
        .flatten()
        .find(|it| it.is_file());
    found.ok_or_else(|| Failure {
        kind: Kind::Failed,
        message: format!("there is no {LIBRARY}"),
        hint: Some(format!("it belongs beside {}, or in ../lib", own.display())),
    })
}

/// The signals that [`wait`] gets.
fn signals() -> SigSet {
    [
        Signal::SIGCHLD,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGHUP,
    ]
    .into_iter()
    .collect()
}

/// Starts the program, which inherits the signals of this thread: it gets them as usual.
fn start(args: &Run, library: &Path, name: &str, kept: &SigSet) -> Result<Child> {
    let mut preload = OsString::from(library);
    if let Some(others) = env::var_os(PRELOAD).filter(|it| !it.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(&args.program);
    command
        .args(&args.arguments)
        .env(PRELOAD, preload)
        .env(protocol::VARIABLE, name);
    let failed = |error: &io::Error| Failure::io(args.program.display(), error);
    kept.thread_unblock()
        .map_err(|errno| failed(&errno.into()))?;
    let started = command.spawn();
    kept.thread_block().map_err(|errno| failed(&errno.into()))?;
    started.map_err(|error| failed(&error))
}

/// Waits for the end of the program, and passes signals to it. Those of a terminal it has already.
fn wait(mut child: Child, signals: &SignalFd) -> Result<ExitStatus> {
    let failed = |error: io::Error| Failure::io("wait for the program", &error);
    let pid = i32::try_from(child.id()).map(Pid::from_raw);
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        let Some(info) = signals
            .read_signal()
            .map_err(|errno| failed(errno.into()))?
        else {
            continue;
        };
        let number = i32::try_from(info.ssi_signo).unwrap_or(0);
        if let (Ok(signal), Ok(pid)) = (Signal::try_from(number), pid) {
            if signal != Signal::SIGCHLD && info.ssi_pid != 0 {
                let _ = kill(pid, signal);
            }
        }
    }
}

/// Returns the exit code that shells report.
fn exit_code(status: ExitStatus) -> i32 {
    let by_signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(by_signal).unwrap_or(1)
}
