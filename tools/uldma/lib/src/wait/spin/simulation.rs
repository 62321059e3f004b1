// SPDX-License-Identifier: MIT OR Apache-2.0

//! Simulates waiters that poll and sleep on processors that they share.
//!
//! *Pairs* answer each other as fast as they can: the time that one waits depends on the other. A
//! *single* waiter gets events at times that do not depend on it, so that its cost can be compared
//! with the least cost of a waiter that knows the times in advance. All times are nanoseconds.

use std::collections::VecDeque;

use super::adaptive::Adaptive;

/// Time that a program computes between a message and its answer.
const ANSWER: u64 = 300;
/// Time slice of a processor while several threads are ready.
const SLICE: u64 = 3_000_000;
/// Time before the first message, in wake-ups.
const PAUSE: u64 = 100;
/// Messages of each waiter of a pair.
const MESSAGES: usize = 400;
/// Messages where waiters are preempted, so that each runs many times.
const MANY_MESSAGES: usize = 20_000;
/// Messages after which both of a pair have to find all by polling.
const RECOVERY: usize = 8;
/// Messages where the wake-up is underestimated: probes have to become long first.
const LATE: usize = 300;
/// Events of a single waiter.
const EVENTS: usize = 20_000;

/// Decides how long to poll.
trait Policy {
    fn begin(&mut self, _rang: bool) {}
    fn limit(&self) -> u64;
    fn found(&mut self, polled: u64);
    fn slept(&mut self, polled: u64, slept: u64);
}

impl Policy for Adaptive {
    fn begin(&mut self, rang: bool) {
        Self::begin(self, rang);
    }

    fn limit(&self) -> u64 {
        Self::limit(self)
    }

    fn found(&mut self, polled: u64) {
        Self::found(self, polled);
    }

    fn slept(&mut self, polled: u64, _slept: u64) {
        Self::slept(self, polled);
    }
}

/// The policy that this one replaced: numbers of polls, and a constant that decides which sleep was
/// short.
struct ByConstant {
    looks: u64,
}

impl ByConstant {
    const LOOK: u64 = 100;
    const LEAST: u64 = 64;
    const MOST: u64 = 6144;
    const SHORT: u64 = 200_000;

    fn aim(&mut self, looks: u64) {
        let aim = looks.max(Self::LEAST);
        let looks = (3 * self.looks + aim) / 4;
        self.looks = looks.min(Self::MOST);
    }
}

impl Policy for ByConstant {
    fn limit(&self) -> u64 {
        self.looks * Self::LOOK
    }

    fn found(&mut self, polled: u64) {
        self.aim(polled / Self::LOOK * 4);
    }

    fn slept(&mut self, _polled: u64, slept: u64) {
        let aim = if slept < Self::SHORT {
            self.looks * 4
        } else {
            self.looks / 4
        };
        self.aim(aim);
    }
}

/// Reproducible random numbers.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About `mean`: from half to one and a half of it with `jitter`, and five times that now and then.
    fn around(&mut self, mean: u64, jitter: bool) -> u64 {
        if !jitter {
            return mean;
        }
        let outlier = if self.unit() < 0.02 { 5.0 } else { 1.0 };
        (mean as f64 * (0.5 + self.unit()) * outlier) as u64
    }
}

#[derive(Clone, Copy, Debug)]
enum WaiterState {
    Computing { left: u64 },
    Polling { since: u64, left: u64 },
    Sleeping { polled: u64, since: u64 },
}

struct Waiter<P> {
    policy: P,
    state: WaiterState,
    has_message: bool,
    wakes_at: Option<u64>,
    /// It rang the other's doorbell for its last message.
    rang: bool,
    /// For each message, whether it slept for it.
    slept: Vec<bool>,
}

impl<P: Policy> Waiter<P> {
    fn poll(&mut self, now: u64) {
        self.policy.begin(self.rang);
        let left = self.policy.limit();
        self.state = WaiterState::Polling { since: now, left };
    }

    fn take(&mut self, slept: bool) {
        self.has_message = false;
        self.slept.push(slept);
        self.state = WaiterState::Computing { left: ANSWER };
    }

    /// Returns the nanoseconds until it ends its current activity, if it continues to run.
    fn left(&self) -> u64 {
        match self.state {
            WaiterState::Computing { left } => left,
            WaiterState::Polling { .. } if self.has_message => 0,
            WaiterState::Polling { left, .. } => left,
            WaiterState::Sleeping { .. } => u64::MAX,
        }
    }

    fn advance(&mut self, time: u64) {
        match &mut self.state {
            WaiterState::Computing { left } | WaiterState::Polling { left, .. } => {
                *left = left.saturating_sub(time);
            }
            WaiterState::Sleeping { .. } => {}
        }
    }
}

/// Waiters and the processors on which they run.
#[derive(Clone, Copy, Debug)]
struct Machine {
    wakeup: u64,
    jitter: bool,
    processors: usize,
    waiters: usize,
}

/// Waiters 2n and 2n + 1 answer each other.
struct Pairs<P> {
    machine: Machine,
    random: Random,
    now: u64,
    waiters: Vec<Waiter<P>>,
    ready: VecDeque<usize>,
    /// Waiters on processors, and when their slices end.
    running: Vec<(usize, u64)>,
}

impl<P: Policy> Pairs<P> {
    fn new(machine: Machine, policy: impl Fn() -> P) -> Self {
        let waiter = |number: usize| {
            let mut waiter = Waiter {
                policy: policy(),
                // So long that all others sleep when the first messages arrive.
                state: WaiterState::Computing {
                    left: PAUSE * machine.wakeup,
                },
                has_message: false,
                wakes_at: None,
                rang: false,
                slept: Vec::new(),
            };
            if number % 2 == 1 {
                waiter.poll(0);
            }
            waiter
        };
        Self {
            machine,
            random: Random(88_172_645_463_325_252),
            now: 0,
            waiters: (0..machine.waiters).map(waiter).collect(),
            ready: (0..machine.waiters).collect(),
            running: Vec::new(),
        }
    }

    /// Runs until each waiter has got that many messages.
    fn run(mut self, messages: usize) -> Self {
        while self
            .waiters
            .iter()
            .any(|waiter| waiter.slept.len() < messages)
        {
            self.step();
        }
        self
    }

    /// Advances to the next event.
    fn step(&mut self) {
        while self.running.len() < self.machine.processors {
            let Some(number) = self.ready.pop_front() else {
                break;
            };
            self.running.push((number, self.now + SLICE));
        }
        let next = self.next();
        let time = next - self.now;
        self.now = next;
        for &(number, _) in &self.running {
            self.waiters[number].advance(time);
        }
        for (number, slice_end) in std::mem::take(&mut self.running) {
            if !self.settle(number) {
                continue;
            }
            if self.now >= slice_end && !self.ready.is_empty() {
                self.ready.push_back(number);
            } else {
                self.running.push((number, slice_end));
            }
        }
        self.wake();
    }

    fn next(&self) -> u64 {
        let ends = self.running.iter().flat_map(|&(number, slice_end)| {
            let end = self.now.saturating_add(self.waiters[number].left());
            let slice = (!self.ready.is_empty()).then_some(slice_end.max(self.now));
            std::iter::once(end).chain(slice)
        });
        let wakes = self.waiters.iter().filter_map(|waiter| waiter.wakes_at);
        ends.chain(wakes)
            .min()
            .expect("a pair never waits for good")
    }

    /// Executes the next step of a running waiter. Returns true if it still runs.
    fn settle(&mut self, number: usize) -> bool {
        let now = self.now;
        let waiter = &mut self.waiters[number];
        match waiter.state {
            WaiterState::Computing { left: 0 } => {
                self.send(number);
                self.waiters[number].poll(now);
            }
            WaiterState::Polling { since, .. } if waiter.has_message => {
                waiter.policy.found(now - since);
                waiter.take(false);
            }
            WaiterState::Polling { since, left: 0 } => {
                let polled = now - since;
                waiter.state = WaiterState::Sleeping { polled, since: now };
                return false;
            }
            _ => {}
        }
        true
    }

    fn send(&mut self, from: usize) {
        let wakeup = self.random.around(self.machine.wakeup, self.machine.jitter);
        let peer = &mut self.waiters[from ^ 1];
        peer.has_message = true;
        let rings = matches!(peer.state, WaiterState::Sleeping { .. });
        if rings {
            peer.wakes_at.get_or_insert(self.now + wakeup);
        }
        self.waiters[from].rang = rings;
    }

    fn wake(&mut self) {
        let now = self.now;
        for (number, waiter) in self.waiters.iter_mut().enumerate() {
            let WaiterState::Sleeping { polled, since } = waiter.state else {
                continue;
            };
            if waiter.wakes_at.is_some_and(|at| at <= now) {
                waiter.wakes_at = None;
                waiter.policy.slept(polled, now - since);
                waiter.take(true);
                self.ready.push_back(number);
            }
        }
    }

    /// Messages before the last that a waiter slept for, of the waiter with the most.
    fn recovery(&self) -> usize {
        let last = |waiter: &Waiter<P>| {
            waiter
                .slept
                .iter()
                .rposition(|slept| *slept)
                .map_or(0, |last| last + 1)
        };
        self.waiters.iter().map(last).max().unwrap_or(0)
    }

    /// The mean round trip in wake-ups: two when both sides sleep for each message, on free processors.
    fn round_trip(&self) -> f64 {
        let messages: usize = self.waiters.iter().map(|waiter| waiter.slept.len()).sum();
        let time = self.now - PAUSE * self.machine.wakeup;
        let per_waiter = messages as f64 / self.waiters.len() as f64;
        time as f64 / per_waiter / self.machine.wakeup as f64
    }
}

/// Waiters begin after up to so many events: as many as all lengths of probes take.
const PHASES: u32 = 210;

/// Returns the cost of a waiter for events after `gaps` nanoseconds each, relative to the least
/// possible.
fn spent(policy: impl Policy, wakeup: u64, gap: impl FnMut(&mut Random) -> u64) -> f64 {
    spent_after(policy, wakeup, |_| false, gap)
}

/// Returns the same where the waiter has rung before those waits for which `rang` returns true.
fn spent_after(
    mut policy: impl Policy,
    wakeup: u64,
    rang: impl Fn(usize) -> bool,
    mut gap: impl FnMut(&mut Random) -> u64,
) -> f64 {
    let mut random = Random(88_172_645_463_325_252);
    let (mut ours, mut least) = (0, 0);
    for number in 0..EVENTS {
        policy.begin(rang(number));
        let (limit, gap) = (policy.limit(), gap(&mut random));
        least += gap.min(wakeup);
        if gap <= limit {
            ours += gap;
            policy.found(gap);
        } else {
            ours += limit + wakeup;
            policy.slept(limit, gap - limit + wakeup);
        }
    }
    ours as f64 / least as f64
}

const WAKEUPS: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Returns the machines whose numbers of waiters and processors satisfy `wanted`.
fn machines(wanted: impl Fn(usize, usize) -> bool) -> Vec<Machine> {
    let mut machines = Vec::new();
    for wakeup in WAKEUPS {
        for processors in [1, 2, 4, 8] {
            for waiters in [2, 4, 8] {
                if !wanted(waiters, processors) {
                    continue;
                }
                for jitter in [false, true] {
                    machines.push(Machine {
                        wakeup,
                        jitter,
                        processors,
                        waiters,
                    });
                }
            }
        }
    }
    machines
}

/// A waiter that has slept for that many events.
fn discouraged(wakeup: u64, events: u32) -> Adaptive {
    let mut policy = Adaptive::new(wakeup);
    for _ in 0..events {
        let limit = policy.limit();
        policy.slept(limit);
    }
    policy
}

/// Measured wake-ups, in percent of the true ones: something else may run while they are measured, or later.
const MEASURED: [u64; 5] = [10, 25, 100, 200, 800];

/// Where answers are faster than a wake-up, both sides poll within a few messages, from any start.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes half an hour without --release")]
fn pairs_that_answer_quickly_come_back_to_polling() {
    println!("wake-up in ns, processors, waiters, jitter: recovery, by measured/true wake-up");
    for machine in machines(|waiters, processors| waiters <= processors) {
        let mut row = Vec::new();
        for percent in MEASURED {
            let measured = machine.wakeup * percent / 100;
            if measured <= 2 * ANSWER {
                row.push(format!("{percent}%: -"));
                continue;
            }
            let recovery = (0..PHASES)
                .step_by(15)
                .map(|events| Pairs::new(machine, || discouraged(measured, events)))
                .map(|pairs| pairs.run(MESSAGES).recovery())
                .max()
                .unwrap_or(0);
            row.push(format!("{percent}%: {recovery}"));
            let bound = if percent < 100 { LATE } else { RECOVERY };
            assert!(
                recovery <= bound,
                "{machine:?} measured {percent} %: {recovery}"
            );
        }
        println!(
            "{:>10} {:>2} {:>2} {:>5}: {}",
            machine.wakeup,
            machine.processors,
            machine.waiters,
            machine.jitter,
            row.join("  ")
        );
    }
}

/// With fewer processors than waiters, one can run only while another sleeps. Compared with
/// sleeping at once, each waiter adds at most one wake-up per message: the time that it polls
/// without success.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes half an hour without --release")]
fn processors_are_shared() {
    for machine in machines(|waiters, processors| waiters > processors) {
        let sleeping = Pairs::new(machine, || Adaptive::new(0))
            .run(MANY_MESSAGES)
            .round_trip();
        let ours = Pairs::new(machine, || discouraged(machine.wakeup, PHASES))
            .run(MANY_MESSAGES)
            .round_trip();
        println!("{machine:?}: {ours:.2}, sleeping at once {sleeping:.2}");
        let share = machine.waiters as f64 / machine.processors as f64;
        assert!(
            ours <= sleeping + share,
            "{machine:?}: {ours:.2} {sleeping:.2}"
        );
    }
}

/// Where events take longer than a wake-up, or arrive at any time: at most twice the optimum.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes half an hour without --release")]
fn no_waiter_spends_more_than_twice_the_optimum() {
    for wakeup in WAKEUPS {
        let mut count = 0;
        let mut every = move |n: u64, rare: u64, often: u64| {
            count += 1;
            if count % n == 0 {
                rare
            } else {
                often
            }
        };
        let exponential =
            |random: &mut Random, mean: u64| (-random.unit().ln() * mean as f64) as u64;
        let policy = || Adaptive::new(wakeup);
        let late = |random: &mut Random| wakeup + exponential(random, wakeup);
        let patterns = [
            (
                "rang, just too late",
                spent_after(policy(), wakeup, |_| true, |_| 2 * wakeup + 1),
            ),
            (
                "rang, random",
                spent_after(policy(), wakeup, |_| true, late),
            ),
            (
                "rang each other time",
                spent_after(policy(), wakeup, |number| number % 2 == 0, late),
            ),
            ("just too late", spent(policy(), wakeup, |_| wakeup + 1)),
            ("twice", spent(policy(), wakeup, |_| 2 * wakeup)),
            ("20 times", spent(policy(), wakeup, |_| 20 * wakeup)),
            (
                "random, mean 1",
                spent(policy(), wakeup, |r| exponential(r, wakeup)),
            ),
            (
                "random, mean 3",
                spent(policy(), wakeup, |r| exponential(r, 3 * wakeup)),
            ),
            (
                "bursts",
                spent(policy(), wakeup, |_| every(10, 50 * wakeup, wakeup / 50)),
            ),
            (
                "alternating",
                spent(policy(), wakeup, |_| every(2, 5 * wakeup, wakeup / 100)),
            ),
        ];
        println!(
            "{wakeup:>10} ns: {}",
            patterns
                .map(|(name, ratio)| format!("{name} {ratio:.2}"))
                .join(", ")
        );
        for (name, ratio) in patterns {
            assert!(ratio <= 2.01, "{wakeup} ns, {name}: {ratio}");
        }
    }
}

/// A doorbell takes ten times as long as a timer where machines are emulated. A waiter that goes by the
/// timer, and does not know that it has rung, never polls for long enough.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes half an hour without --release")]
fn the_cost_of_a_timer_leaves_both_asleep() {
    struct ByTimer(Adaptive);

    impl Policy for ByTimer {
        fn limit(&self) -> u64 {
            self.0.limit()
        }

        fn found(&mut self, polled: u64) {
            self.0.found(polled);
        }

        fn slept(&mut self, polled: u64, _slept: u64) {
            self.0.slept(polled);
        }
    }

    let machine = Machine {
        wakeup: 1_000_000,
        jitter: true,
        processors: 4,
        waiters: 2,
    };
    let recovery = |wakeup: u64| {
        let pairs = Pairs::new(machine, || ByTimer(Adaptive::new(wakeup)));
        pairs.run(MESSAGES).recovery()
    };
    let (timer, doorbell) = (recovery(machine.wakeup / 50), recovery(machine.wakeup));
    assert!(timer >= MESSAGES, "{timer}");
    assert!(doorbell <= 2 * RECOVERY, "{doorbell}");
}

/// The simulation sees the collapse that a constant brings.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes half an hour without --release")]
fn a_constant_leaves_both_asleep() {
    let machine = Machine {
        wakeup: 1_000_000,
        jitter: true,
        processors: 4,
        waiters: 2,
    };
    let pairs = Pairs::new(machine, || ByConstant {
        looks: ByConstant::LEAST,
    })
    .run(MESSAGES);
    assert!(pairs.recovery() >= MESSAGES, "{}", pairs.recovery());
    assert!(pairs.round_trip() > 1.5, "{}", pairs.round_trip());
    // On that machine, but where a wake-up is cheaper than the constant, it does well.
    let quick = Machine {
        wakeup: 50_000,
        ..machine
    };
    let pairs = Pairs::new(quick, || ByConstant {
        looks: ByConstant::LEAST,
    })
    .run(MESSAGES);
    assert!(pairs.recovery() <= RECOVERY, "{}", pairs.recovery());
}
