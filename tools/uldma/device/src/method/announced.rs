// SPDX-License-Identifier: MIT OR Apache-2.0

//! Methods that need to know which context runs, which the operating system reports at each context
//! switch: SHRIMP-2 as published, which drops half-passed arguments at a switch ("user-level DMA"
//! paper, section 2.5), and FLASH, which keeps them apart (section 2.6).

use std::collections::BTreeMap;

use super::latch::Latch;
use super::{Machine, Reply, ShadowRef};
use crate::abi::Status;

const NOT_RUNNING: Reply = Reply::Refused(Status::NotRunning);

/// The running contexts, by CPU. A context can run on several CPUs, as a process can have several
/// threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Running {
    by_cpu: BTreeMap<u32, u32>,
}

impl Running {
    fn set(&mut self, cpu: u32, context: Option<u32>) {
        match context {
            Some(context) => self.by_cpu.insert(cpu, context),
            None => self.by_cpu.remove(&cpu),
        };
    }

    /// Returns a CPU that the context runs on.
    fn cpu_of(&self, context: u32) -> Option<u32> {
        self.cpus_of(context).next()
    }

    fn cpus_of(&self, context: u32) -> impl Iterator<Item = u32> + '_ {
        let found = self.by_cpu.iter().filter(move |(_, on)| **on == context);
        found.map(|(cpu, _)| *cpu)
    }
}

/// SHRIMP-2 with a latch for each CPU, which every context switch there clears. Accesses belong to
/// the CPU on which their context runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shrimp2Abort {
    running: Running,
    latches: BTreeMap<u32, Latch>,
}

impl Machine for Shrimp2Abort {
    fn store(&mut self, context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        // With several CPUs the device cannot tell which of them made this access. A later load may
        // be checked against another CPU, which must not have an earlier store then.
        self.forget(context);
        match self.running.cpu_of(context) {
            Some(cpu) => self.latches.entry(cpu).or_default().store(at, word),
            None => NOT_RUNNING,
        }
    }

    fn load(&mut self, context: u32, at: ShadowRef, well_formed: bool) -> Reply {
        match self.running.cpu_of(context) {
            Some(cpu) => self.latches.entry(cpu).or_default().load(at, well_formed),
            None => NOT_RUNNING,
        }
    }

    fn running(&mut self, cpu: u32, context: Option<u32>) {
        self.latches.remove(&cpu);
        self.running.set(cpu, context);
    }

    fn forget(&mut self, context: u32) {
        for cpu in self.running.cpus_of(context) {
            self.latches.remove(&cpu);
        }
    }
}

/// FLASH: the arguments of a process are kept while others run, and never mixed with theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flash {
    running: Running,
    latches: BTreeMap<u32, Latch>,
}

impl Machine for Flash {
    fn store(&mut self, context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        if self.running.cpu_of(context).is_none() {
            return NOT_RUNNING;
        }
        self.latches.entry(context).or_default().store(at, word)
    }

    fn load(&mut self, context: u32, at: ShadowRef, well_formed: bool) -> Reply {
        if self.running.cpu_of(context).is_none() {
            return NOT_RUNNING;
        }
        let latch = self.latches.entry(context).or_default();
        latch.load(at, well_formed)
    }

    fn running(&mut self, cpu: u32, context: Option<u32>) {
        self.running.set(cpu, context);
    }

    fn forget(&mut self, context: u32) {
        self.latches.remove(&context);
    }
}

/// FLASH with one register for the running context of all CPUs, as in the paper. With several CPUs,
/// accesses count as those of the context that was switched to last on any CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlashSingle {
    current: Option<u32>,
    latches: BTreeMap<u32, Latch>,
}

impl FlashSingle {
    fn latch(&mut self) -> Option<&mut Latch> {
        Some(self.latches.entry(self.current?).or_default())
    }

    /// Drops all arguments.
    pub fn clear(&mut self) {
        self.latches.clear();
    }
}

impl Machine for FlashSingle {
    fn store(&mut self, _context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        let latch = self.latch();
        latch.map_or(NOT_RUNNING, |latch| latch.store(at, word))
    }

    fn load(&mut self, _context: u32, at: ShadowRef, well_formed: bool) -> Reply {
        let latch = self.latch();
        latch.map_or(NOT_RUNNING, |latch| latch.load(at, well_formed))
    }

    fn running(&mut self, _cpu: u32, context: Option<u32>) {
        self.current = context;
    }

    /// The context's store may have been credited to another context, so all arguments are dropped.
    fn forget(&mut self, _context: u32) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arguments, Request};
    use super::*;
    use crate::shadow::SizeWord;
    use proptest::prelude::*;

    const VICTIM: u32 = 1;
    const MALLORY: u32 = 2;

    fn page(entry: u32) -> ShadowRef {
        ShadowRef::of_entry(entry, 0)
    }

    fn copy(source: u32, destination: u32) -> Reply {
        Reply::Start(Request::Copy(Arguments {
            source: page(source),
            destination: page(destination),
            word: SizeWord::unpack(8),
        }))
    }

    fn store(machine: &mut impl Machine, context: u32, entry: u32) -> Reply {
        machine.store(context, page(entry), Some(8))
    }

    fn load(machine: &mut impl Machine, context: u32, entry: u32) -> Reply {
        machine.load(context, page(entry), true)
    }

    /// D-027: a switch between the accesses aborts.
    #[test]
    fn shrimp_2_abort_on_one_cpu() {
        let mut machine = Shrimp2Abort::default();
        assert_eq!(store(&mut machine, VICTIM, 11), NOT_RUNNING);
        machine.running(0, Some(VICTIM));
        assert_eq!(store(&mut machine, VICTIM, 11), Reply::Nothing);
        assert_eq!(load(&mut machine, VICTIM, 10), copy(10, 11));
        store(&mut machine, VICTIM, 11);
        machine.running(0, Some(MALLORY));
        assert_eq!(
            load(&mut machine, MALLORY, 12),
            Reply::Refused(Status::NoArgs)
        );
        assert_eq!(load(&mut machine, VICTIM, 10), NOT_RUNNING);
        machine.running(0, Some(VICTIM));
        assert_eq!(
            load(&mut machine, VICTIM, 10),
            Reply::Refused(Status::NoArgs)
        );
        store(&mut machine, VICTIM, 11);
        machine.forget(VICTIM);
        assert_eq!(
            load(&mut machine, VICTIM, 10),
            Reply::Refused(Status::NoArgs)
        );
        machine.running(0, None);
        assert_eq!(load(&mut machine, VICTIM, 10), NOT_RUNNING);
    }

    #[test]
    fn cpus_do_not_meet() {
        let mut machine = Shrimp2Abort::default();
        machine.running(0, Some(VICTIM));
        machine.running(1, Some(MALLORY));
        store(&mut machine, VICTIM, 11);
        assert_eq!(
            load(&mut machine, MALLORY, 12),
            Reply::Refused(Status::NoArgs)
        );
        assert_eq!(load(&mut machine, VICTIM, 10), copy(10, 11));
    }

    /// D-028: what a process passed is there when it is switched back in.
    #[test]
    fn flash_goes_on_after_a_switch() {
        let mut machine = Flash::default();
        machine.running(0, Some(VICTIM));
        store(&mut machine, VICTIM, 11);
        machine.running(0, Some(MALLORY));
        assert_eq!(
            load(&mut machine, MALLORY, 12),
            Reply::Refused(Status::NoArgs)
        );
        assert_eq!(load(&mut machine, VICTIM, 10), NOT_RUNNING);
        machine.running(1, Some(VICTIM));
        assert_eq!(load(&mut machine, VICTIM, 10), copy(10, 11));
    }

    /// D-029: right on one CPU, wrong on two.
    #[test]
    fn flash_with_one_register_mixes_on_two_cpus() {
        let mut machine = FlashSingle::default();
        assert_eq!(store(&mut machine, VICTIM, 11), NOT_RUNNING);
        machine.running(0, Some(VICTIM));
        store(&mut machine, VICTIM, 11);
        machine.running(0, Some(MALLORY));
        assert_eq!(
            load(&mut machine, MALLORY, 12),
            Reply::Refused(Status::NoArgs)
        );
        machine.running(0, Some(VICTIM));
        assert_eq!(load(&mut machine, VICTIM, 10), copy(10, 11));

        machine.running(1, Some(MALLORY));
        assert_eq!(store(&mut machine, VICTIM, 11), Reply::Nothing);
        assert_eq!(load(&mut machine, MALLORY, 12), copy(12, 11));
        store(&mut machine, VICTIM, 11);
        machine.forget(VICTIM);
        assert_eq!(
            load(&mut machine, MALLORY, 12),
            Reply::Refused(Status::NoArgs)
        );
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Switch(u32, Option<u32>),
        Store(u32),
        Load(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u32..2, prop::option::of(0u32..3)).prop_map(|(cpu, who)| Step::Switch(cpu, who)),
            (0u32..3).prop_map(Step::Store),
            (0u32..3).prop_map(Step::Load),
        ]
    }

    proptest! {
        /// Whatever is switched where, what is started has both arguments of one context, which
        /// runs.
        #[test]
        fn nothing_is_mixed(steps in prop::collection::vec(step(), 0..60)) {
            let mut abort = Shrimp2Abort::default();
            let mut flash = Flash::default();
            let mut cpus = [None; 2];
            for step in steps {
                match step {
                    Step::Switch(cpu, who) => {
                        cpus[cpu as usize] = who;
                        abort.running(cpu, who);
                        flash.running(cpu, who);
                    }
                    Step::Store(who) => {
                        let runs = cpus.contains(&Some(who));
                        let expected = if runs { Reply::Nothing } else { NOT_RUNNING };
                        prop_assert_eq!(store(&mut abort, who, 10 + who), expected);
                        prop_assert_eq!(store(&mut flash, who, 10 + who), expected);
                    }
                    Step::Load(who) => {
                        let own = copy(20 + who, 10 + who);
                        let strict = load(&mut abort, who, 20 + who);
                        let kept = load(&mut flash, who, 20 + who);
                        for reply in [strict, kept] {
                            prop_assert!(reply == own || matches!(reply, Reply::Refused(_)));
                        }
                        let runs = cpus.contains(&Some(who));
                        prop_assert_eq!(kept == NOT_RUNNING, !runs);
                        prop_assert_eq!(strict == NOT_RUNNING, !runs);
                    }
                }
            }
        }
    }
}
