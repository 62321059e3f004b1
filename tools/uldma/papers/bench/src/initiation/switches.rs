// SPDX-License-Identifier: MIT OR Apache-2.0

//! The paper's verification run (§4.4): processes that pass arguments repeatedly, on one CPU and in turns
//! of 10 ms, and the cost of a switch between them for each.
//!
//! The CPU switches between processes at any of their accesses. The device answers a disturbed process
//! FAIL, or an unexpected code, and the process begins anew; both count as errors. Errors by switch show
//! whether the device's state machine is the printed one, on any machine.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use uldma::memory::Kind;
use uldma::{ContextOptions, Memory, Method};

use super::realtime::{self, RoundRobin};
use super::subject;
use crate::failure::Failure;
use crate::figure::Figures;

/// Numbers of processes that take turns, as in the paper.
const PROCESSES: [usize; 3] = [2, 3, 4];
/// Duration of each run.
const SECONDS: Duration = Duration::from_secs(10);
/// Operations between two readings of the clock.
const STRIDE: usize = 64;

/// Counts of one process or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Times that this process ran after another one.
    switches: u64,
    started: u64,
    errors: u64,
    fails: u64,
    by_kernel: u64,
}

impl Count {
    fn add(self, other: Self) -> Self {
        Self {
            switches: self.switches + other.switches,
            started: self.started + other.started,
            errors: self.errors + other.errors,
            fails: self.fails + other.fails,
            by_kernel: self.by_kernel + other.by_kernel,
        }
    }

    fn line(self) -> String {
        format!(
            "{} {} {} {} {}",
            self.switches, self.started, self.errors, self.fails, self.by_kernel
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            switches: next()?,
            started: next()?,
            errors: next()?,
            fails: next()?,
            by_kernel: next()?,
        })
    }
}

/// One of the processes, which run this program, too.
struct Worker {
    process: Child,
    go: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

fn failed(error: std::io::Error) -> Failure {
    Failure::Io("a process of the verification run", error)
}

impl Worker {
    fn start(number: u32, segment: i32) -> Result<Self, Failure> {
        let mut process = Command::new("/proc/self/exe")
            .args(["--device", &number.to_string(), "initiation-worker"])
            .arg(segment.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(go), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed(std::io::ErrorKind::BrokenPipe.into()));
        };
        let mut worker = Self {
            process,
            go: Some(go),
            answers: BufReader::new(answers),
        };
        match worker.answer()?.trim() {
            "ready" => Ok(worker),
            _ => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn answer(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed)?;
        Ok(line)
    }

    fn count(&mut self) -> Result<Count, Failure> {
        let line = self.answer()?;
        Count::parse(&line).ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.go.take());
        // After an answer it ends by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Adds `switch.N.*` for each number of processes and `switch.*` for all, per 100 switches.
pub(crate) fn measure(number: u32, figures: &mut Figures) -> Result<(), Failure> {
    if realtime::cpus()?.len() < 2 {
        // The first process would leave no CPU for the others to begin on.
        eprintln!("uldma-bench: no verification run: it needs a second CPU");
        return Ok(());
    }
    let _settings = match realtime::Settings::for_round_robin() {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("uldma-bench: no verification run: {error} (it has to be root)");
            return Ok(());
        }
    };
    let mut all = Count::default();
    for processes in PROCESSES {
        let count = run(number, processes)?;
        add(&format!("switch.{processes}"), count, figures);
        let each_second = |count: u64| count as f64 / SECONDS.as_secs_f64();
        for (what, value) in [
            ("switches_per_s", count.switches),
            ("errors_per_s", count.errors),
            ("started_per_s", count.started),
        ] {
            let name = format!("switch.{processes}.{what}");
            figures.add(name, each_second(value), "1/s");
        }
        all = all.add(count);
    }
    add("switch", all, figures);
    Ok(())
}

fn add(name: &str, count: Count, figures: &mut Figures) {
    for (what, value) in [
        ("errors_per_100", count.errors),
        ("fails_per_100", count.fails),
        ("by_kernel_per_100", count.by_kernel),
    ] {
        if count.switches > 0 {
            let value = value as f64 * 100.0 / count.switches as f64;
            figures.add(format!("{name}.{what}"), value, "count");
        }
    }
}

/// One run: all processes on one CPU.
fn run(number: u32, processes: usize) -> Result<Count, Failure> {
    let memory = Memory::new(Kind::SysV, 4096)?;
    let segment = memory
        .segment_id()
        .ok_or_else(|| failed(std::io::ErrorKind::Unsupported.into()))?;
    let mut workers = (0..processes)
        .map(|_| Worker::start(number, segment))
        .collect::<Result<Vec<_>, _>>()?;
    for worker in &mut workers {
        if let Some(go) = &mut worker.go {
            go.write_all(b"go\n").map_err(failed)?;
        }
    }
    let mut all = Count::default();
    for worker in &mut workers {
        all = all.add(worker.count()?);
    }
    Ok(all)
}

/// Runs one of the processes.
pub(crate) fn take_turns(number: u32, segment: i32, timeout: Duration) -> Result<(), Failure> {
    let last_runner = Memory::attach(segment, true)?;
    let me = std::process::id().to_ne_bytes();
    let options = ContextOptions {
        no_data: true,
        ..Default::default()
    };
    subject::with(number, Method::Repeated5, options, timeout, |subject| {
        // Pages are mapped at the first touch.
        subject.batch()?;
        subject.wait()?;
        print("ready")?;
        let mut go = String::new();
        std::io::stdin().read_line(&mut go).map_err(failed)?;
        let mut last = [0; 4];
        let before = subject.context().disturbances();
        let mut count = Count::default();
        let turns = RoundRobin::enter()?;
        let end = Instant::now() + SECONDS;
        while Instant::now() < end {
            for number in 0..STRIDE {
                last_runner.read(0, &mut last)?;
                if last != me {
                    last_runner.write(0, &me)?;
                    // The very first process runs after no other.
                    count.switches += u64::from(last != [0; 4]);
                }
                let transfer = subject.one(number)?;
                count.started += 1;
                count.by_kernel += u64::from(transfer.via == Method::Kernel);
            }
        }
        drop(turns);
        let after = subject.context().disturbances();
        count.errors = after.attempts - before.attempts;
        count.fails = after.fails - before.fails;
        print(&count.line())
    })
}

fn print(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_arrive() {
        let count = Count {
            switches: 1,
            started: 2,
            errors: 3,
            fails: 4,
            by_kernel: 5,
        };
        assert_eq!(Count::parse(&count.line()), Some(count));
        assert_eq!(Count::parse("1 2 3 4"), None);
        assert_eq!(count.add(count).fails, 8);
    }

    #[test]
    fn errors_are_counted_by_switch() {
        let mut figures = Figures::default();
        let count = Count {
            switches: 500,
            errors: 555,
            fails: 480,
            ..Default::default()
        };
        add("switch.2", count, &mut figures);
        assert_eq!(figures.get("switch.2.errors_per_100"), Some(111.0));
        assert_eq!(figures.get("switch.2.fails_per_100"), Some(96.0));
        add("none", Count::default(), &mut figures);
        assert_eq!(figures.get("none.errors_per_100"), None);
    }
}
