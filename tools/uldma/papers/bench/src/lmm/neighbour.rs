// SPDX-License-Identifier: MIT OR Apache-2.0

//! A second process with the same shared memory, registered or not.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;

use uldma::region::Borrowed;
use uldma::{Access, Device, Memory};

use super::backend::{Backend, Uldma};
use super::memory::{Pages, Range, Subject};
use crate::failure::Failure;

fn failed(error: std::io::Error) -> Failure {
    Failure::Io("second process", error)
}

/// An order to the second process, and its answer when it has carried it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    segment: i32,
    /// The segment is to be registered.
    registered: bool,
}

impl Order {
    fn parse(line: &str) -> Option<Self> {
        let (segment, registered) = line.trim_end().split_once(' ')?;
        Some(Self {
            segment: segment.parse().ok()?,
            registered: registered.parse().ok()?,
        })
    }

    fn send(self, to: &mut impl Write) -> Result<(), Failure> {
        writeln!(to, "{} {}", self.segment, self.registered)
            .and_then(|()| to.flush())
            .map_err(failed)
    }
}

/// The second process; it ends with its input.
#[derive(Debug)]
struct Neighbour {
    process: Child,
    pipes: Option<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Neighbour {
    /// Starts this program anew.
    fn start(device: u32) -> Result<Self, Failure> {
        let mut process = Command::new("/proc/self/exe")
            .args(["--device", &device.to_string(), "lmm-neighbour"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let pipes = pipes.map(|(stdin, stdout)| (stdin, BufReader::new(stdout)));
        Ok(Self { process, pipes })
    }

    /// Gives an order, and waits until it has been carried out.
    fn order(&mut self, order: Order) -> Result<(), Failure> {
        let mut line = String::new();
        if let Some((stdin, stdout)) = &mut self.pipes {
            order.send(stdin)?;
            stdout.read_line(&mut line).map_err(failed)?;
        }
        if Order::parse(&line) == Some(order) {
            Ok(())
        } else {
            Err(failed(std::io::ErrorKind::InvalidData.into()))
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.pipes.take());
        let _ = self.process.wait();
    }
}

/// Runs the second process: carries out the orders of its input.
pub(crate) fn be_neighbour(device: &Device) -> Result<(), Failure> {
    let mut attached: Option<(i32, Memory)> = None;
    let mut held: Option<Borrowed> = None;
    for line in std::io::stdin().lines() {
        let order = Order::parse(&line.map_err(failed)?)
            .ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))?;
        held.take().map(Borrowed::unregister).transpose()?;
        let memory = match attached.take() {
            Some((segment, memory)) if segment == order.segment => memory,
            _ => Memory::attach(order.segment, true)?,
        };
        if order.registered {
            let all = 0..memory.length();
            held = Some(device.register_memory(&memory, all, Access::ReadWrite)?);
        }
        attached = Some((order.segment, memory));
        order.send(&mut std::io::stdout())?;
    }
    Ok(())
}

/// uldma beside the second process, which has registered the memory in the paper's Table 1, and has not
/// in Table 2. Before each registration this process sends an order to the second one and registers other
/// memory, so that caches are alike for both tables.
pub(crate) struct Beside {
    neighbour: Rc<RefCell<Neighbour>>,
    registers: bool,
    segment: i32,
    other: Subject,
    uldma: Uldma,
}

impl Beside {
    /// Returns the backend of Table 1 and that of Table 2.
    pub(crate) fn both(number: u32, device: &Device) -> Result<[Self; 2], Failure> {
        let neighbour = Rc::new(RefCell::new(Neighbour::start(number)?));
        let other = Subject::new(Pages::Private, 1)?;
        Ok([true, false].map(|registers| Self {
            neighbour: Rc::clone(&neighbour),
            registers,
            segment: -1,
            other: other.clone(),
            uldma: Uldma::new(device),
        }))
    }

    fn order(&self, registered: bool) -> Result<(), Failure> {
        self.neighbour.borrow_mut().order(Order {
            segment: self.segment,
            registered,
        })
    }
}

impl Backend for Beside {
    fn begin(&mut self, subject: &Subject) -> Result<(), Failure> {
        self.segment = subject.memory().segment_id().unwrap_or(-1);
        Ok(())
    }

    fn prepare(&mut self, _range: Range) -> Result<(), Failure> {
        self.order(self.registers)?;
        self.uldma.register(self.other.range())?;
        self.uldma.deregister()
    }

    fn register(&mut self, range: Range) -> Result<(), Failure> {
        self.uldma.register(range)
    }

    fn deregister(&mut self) -> Result<(), Failure> {
        self.uldma.deregister()
    }

    fn clean_up(&mut self) -> Result<(), Failure> {
        self.order(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_as_they_were_sent() {
        for registered in [false, true] {
            let order = Order {
                segment: 12,
                registered,
            };
            let mut line = Vec::new();
            order.send(&mut line).unwrap();
            assert_eq!(
                Order::parse(std::str::from_utf8(&line).unwrap()),
                Some(order)
            );
        }
        assert_eq!(Order::parse(""), None);
    }
}
