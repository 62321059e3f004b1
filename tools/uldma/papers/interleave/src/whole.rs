// SPDX-License-Identifier: MIT OR Apache-2.0

//! Arguments that are passed whole, by words that only one process can write at a time: the
//! registers of the kernel's method, and the descriptors of a queue.
//!
//! Shadow addresses have no part in it. A store of [`crate::world::Word::Source`] or
//! [`crate::world::Word::Destination`] here writes one argument, a store of the size starts the
//! transfer, and a load returns 1 after a start. In a queue these are words of a descriptor in
//! memory, and the record in the status page.

use uldma_device::abi::Status;
use uldma_device::method::{Arguments, Machine, Reply, Request, ShadowRef};
use uldma_device::shadow::SizeWord;

/// The word that names a source.
pub const SOURCE: u64 = 1;
/// The word that names a destination.
pub const DESTINATION: u64 = 2;
/// Value of a load after a start.
pub const STARTED: u64 = 1;

/// One set of arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Registers {
    source: Option<ShadowRef>,
    destination: Option<ShadowRef>,
    started: bool,
}

/// Steps of the kernel's code.
const STEPS: u8 = 4;

/// Sets of arguments: one for all processes, or one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Whole {
    registers: [Registers; 4],
    /// The next step of the kernel's code for each process.
    next: [u8; 4],
    is_shared: bool,
}

impl Whole {
    /// Registers that all share, so that a lock has to keep others out. The kernel's code writes
    /// source, destination and size, and reads the status, and cannot be made to do otherwise.
    pub fn registers() -> Self {
        Self {
            registers: Default::default(),
            next: Default::default(),
            is_shared: true,
        }
    }

    /// A queue for each process, in memory that only its owner maps.
    pub fn queues() -> Self {
        Self {
            registers: Default::default(),
            next: Default::default(),
            is_shared: false,
        }
    }

    /// Returns the arguments that a process reaches by this step of the kernel's code.
    fn of(&mut self, context: u32, step: u8) -> Option<&mut Registers> {
        let mut number = context;
        if self.is_shared {
            let next = self.next.get_mut(usize::try_from(context).ok()?)?;
            if *next != step {
                return None;
            }
            *next = (*next + 1) % STEPS;
            number = 0;
        }
        self.registers.get_mut(usize::try_from(number).ok()?)
    }
}

impl Machine for Whole {
    fn store(&mut self, context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        let is_source = word == Some(SOURCE);
        let Some(registers) = self.of(context, if is_source { 0 } else { 1 }) else {
            return Reply::Refused(Status::BadAccess);
        };
        if is_source {
            registers.source = Some(at);
        } else {
            registers.destination = Some(at);
        }
        registers.started = false;
        Reply::Nothing
    }

    fn load(&mut self, _context: u32, _at: ShadowRef, _well_formed: bool) -> Reply {
        Reply::Nothing
    }

    fn page_store(&mut self, context: u32, _word: Option<u64>) -> Reply {
        let Some(registers) = self.of(context, 2) else {
            return Reply::Refused(Status::BadAccess);
        };
        let (Some(source), Some(destination)) = (registers.source, registers.destination) else {
            return Reply::Refused(Status::NoArgs);
        };
        registers.started = true;
        Reply::Start(Request::Copy(Arguments {
            source,
            destination,
            word: SizeWord::default(),
        }))
    }

    fn page_load(&mut self, context: u32) -> Reply {
        match self.of(context, STEPS - 1) {
            Some(registers) => Reply::Code(u64::from(registers.started) * STARTED),
            None => Reply::Refused(Status::BadAccess),
        }
    }

    fn forget(&mut self, context: u32) {
        if let Some(registers) = self.registers.get_mut(context as usize) {
            *registers = Registers::default();
        }
    }
}
