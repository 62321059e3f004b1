// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts how often processes that share one machine of five accesses disturb each other: the
//! paper's verification run (section 4.4), without the clock.
//!
//! Some processes take turns on one CPU, each starting transfers as fast as it can. A switch can
//! happen between any two accesses. Rates per switch do not depend on any speed, so they can be
//! compared with the paper's counts per second, which had 100 switches each.

use uldma_device::abi::{REPEATED_FAIL, REPEATED_OK1, REPEATED_OK2};
use uldma_device::method::{Compare, Machine, Repeated, Reply, ShadowRef};

/// Rates of the processes' results.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Wrong values, per 100 switches.
    pub errors_per_100: f64,
    /// FAIL, per 100 switches.
    pub fails_per_100: f64,
}

/// Accesses of a turn, on average; the outcome does not depend on it as long as there are many.
const TURN: u64 = 500;

/// Reproducible pseudo-random numbers (Marsaglia's xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Runs `processes` processes for `switches` switches, on the prototype's machine or one that re-arms.
pub fn run(processes: u32, switches: u64, rearming: bool) -> Rates {
    let mut machine = Repeated::five(Compare::Full);
    if rearming {
        machine = machine.rearming();
    }
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut next = vec![0; processes as usize];
    let (mut errors, mut fails) = (0u64, 0u64);
    for switch in 0..switches {
        let who = (switch % u64::from(processes)) as u32;
        let Some(step) = next.get_mut(who as usize) else {
            break;
        };
        for _ in 0..TURN / 2 + numbers.next() % TURN {
            match access(&mut machine, who, *step) {
                Ok(after) => *step = after,
                Err(reported) => {
                    errors += 1;
                    fails += u64::from(reported == REPEATED_FAIL);
                    *step = 0;
                }
            }
        }
    }
    let rate = |count: u64| count as f64 * 100.0 / switches as f64;
    Rates {
        errors_per_100: rate(errors),
        fails_per_100: rate(fails),
    }
}

/// Makes access number `step` of a process. Returns the number of the next one, or the final value.
fn access(machine: &mut Repeated, who: u32, step: usize) -> Result<usize, u64> {
    let (source, destination) = (
        ShadowRef::of_entry(2 * who, 0),
        ShadowRef::of_entry(2 * who + 1, 0),
    );
    let (reply, due) = match step {
        0 | 2 => {
            machine.store(who, destination, Some(8));
            return Ok(step + 1);
        }
        1 => (machine.load(who, source, true), REPEATED_OK1),
        3 => (machine.load(who, source, true), REPEATED_OK2),
        _ => match machine.load(who, destination, true) {
            Reply::Start(_) => return Ok(0),
            reply => (reply, u64::MAX),
        },
    };
    match reply {
        Reply::Code(reported) if reported == due => Ok(step + 1),
        Reply::Code(reported) => Err(reported),
        // A transfer was started where an intermediate answer was due; the library restarts.
        _ => Err(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const SWITCHES: u64 = 20_000;

    /// The paper counted 112 to 115 errors and 93 to 97 times FAIL in 100 switches.
    #[test]
    fn the_prototype_errs_as_often_as_the_paper_says() {
        for processes in 2..=4 {
            let rates = run(processes, SWITCHES, false);
            let errors = rates.errors_per_100;
            let fails = rates.fails_per_100;
            assert!((110.0..=115.0).contains(&errors), "{processes}: {rates:?}");
            assert!((93.0..=97.0).contains(&fails), "{processes}: {rates:?}");
        }
    }

    /// The report of measurements prints the rates of two processes beside those of the paper.
    #[test]
    fn the_report_has_these_rates() {
        let file = "../../../../scripts/nodes/report/paper.py";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(path).unwrap();
        for (name, rearming) in [("SIMULATED", false), ("REARMING", true)] {
            let rates = run(2, 100_000, rearming);
            let (errors, fails) = (rates.errors_per_100, rates.fails_per_100);
            let line = format!("\n{name} = ({errors:.1}, {fails:.1})\n");
            assert!(text.contains(&line), "{file} has not:{line}");
        }
    }

    #[test]
    fn a_machine_that_rearms_does_not() {
        for processes in 2..=4 {
            let rates = run(processes, SWITCHES, true);
            assert!(rates.errors_per_100 < 106.0, "{processes}: {rates:?}");
            assert!(rates.fails_per_100 < 60.0, "{processes}: {rates:?}");
        }
    }
}
