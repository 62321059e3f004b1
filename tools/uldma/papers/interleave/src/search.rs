// SPDX-License-Identifier: MIT OR Apache-2.0

//! The search: all states that machine and processes can be in together, nearest first.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::Hash;

use uldma_device::method::{Machine, Reply, Request};

use crate::methods::{Expect, Method, Step};
use crate::world::{Access, Cpus, Page, Process, Setting, Sharing, Word};

/// Number of restarts of the victim. Attacks can use an access of one attempt in the next.
const RETRIES: usize = 1;

/// Something that must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Harm {
    /// Other memory than A is copied to the victim's.
    Mixed,
    /// The victim's memory is copied to other memory than B.
    Leaked,
    /// A is copied to B, and the victim reads that it is not.
    ReportedFailed,
    /// The victim reads that A is copied to B, and it is not.
    ReportedStarted,
    /// A guessed key is taken.
    KeyTaken,
}

impl Harm {
    /// All kinds.
    pub const ALL: [Harm; 5] = [
        Self::Mixed,
        Self::Leaked,
        Self::ReportedFailed,
        Self::ReportedStarted,
        Self::KeyTaken,
    ];
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A process makes an access.
    Access(Process, Access),
    /// The kernel switches to a process, on its own CPU, and reports that to the device.
    Switch(Process),
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(process, access) => write!(f, "{process} {access}"),
            Self::Switch(process) => write!(f, "{process} runs"),
        }
    }
}

/// The shortest way to each harm that can be done, and the number of states that were tried.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The ways.
    pub harms: BTreeMap<Harm, Vec<Move>>,
    /// Different states.
    pub states: usize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct SearchState<M> {
    machine: M,
    /// The running process, where all share a CPU.
    running: Option<Process>,
    /// The process that has the lock, if they take one.
    holder: Option<Process>,
    /// Steps that the victim has made.
    made: usize,
    /// Remaining restarts of the victim.
    retries: usize,
    /// The victim's final belief: whether the transfer was started.
    reported: Option<bool>,
    /// The wanted transfer was started.
    ran: bool,
    left: usize,
}

/// A state, the one before it, and the step between them.
struct Node<M> {
    state: SearchState<M>,
    from: Option<(usize, Move)>,
}

/// Searches from `machine` on.
pub(crate) fn search<M>(method: Method, machine: M, setting: Setting<'_>) -> Findings
where
    M: Machine + Clone + Eq + Hash,
{
    let Setting {
        attackers,
        sharing,
        cpus,
        locked,
        limit,
    } = setting;
    let program = method.program();
    let mut moves: Vec<Move> = Vec::new();
    for attacker in attackers {
        let accesses = accesses(method, *attacker, sharing).into_iter();
        moves.extend(accesses.map(|access| Move::Access(*attacker, access)));
    }
    let mut state = SearchState {
        machine,
        running: None,
        holder: None,
        made: 0,
        retries: RETRIES,
        reported: None,
        ran: false,
        left: limit,
    };
    if method.needs_sched_notify() && cpus == Cpus::Many {
        for process in std::iter::once(&Process::Victim).chain(attackers) {
            state
                .machine
                .running(process.context(), Some(process.context()));
            moves.push(Move::Switch(*process));
        }
    }
    let mut seen = HashSet::from([state.clone()]);
    let mut nodes = vec![Node { state, from: None }];
    let mut findings = Findings::default();
    let mut next = 0;
    while let Some(node) = nodes.get(next) {
        let state = node.state.clone();
        let step = program.get(state.made).filter(|_| state.reported.is_none());
        let victim = step.map(|(access, _)| Move::Access(Process::Victim, *access));
        let others = moves.iter().copied().filter(|_| state.left > 0);
        let all = victim.into_iter().chain(others);
        for made in all.filter(|made| state.admits(*made)) {
            let mut after = state.clone();
            let Some(harms) = after.make(method, made, &program, sharing, cpus) else {
                continue;
            };
            for harm in harms {
                findings.harms.entry(harm).or_insert_with(|| {
                    let mut way = vec![made];
                    way.extend(way_back(&nodes, next));
                    way.reverse();
                    way
                });
            }
            for after in after.sections(method, made, locked) {
                if seen.insert(after.clone()) {
                    let from = Some((next, made));
                    nodes.push(Node { state: after, from });
                }
            }
        }
        next += 1;
    }
    findings.states = nodes.len();
    findings
}

/// The moves that led to a node, the last one first.
fn way_back<M>(nodes: &[Node<M>], node: usize) -> impl Iterator<Item = Move> + '_ {
    let mut at = node;
    std::iter::from_fn(move || {
        let (before, made) = nodes.get(at)?.from?;
        at = before;
        Some(made)
    })
}

/// Returns all accesses of an attacker.
fn accesses(method: Method, attacker: Process, sharing: Sharing) -> Vec<Access> {
    let own: &[Page] = match attacker {
        Process::Victim => &[],
        Process::Mallory => &[Page::C, Page::D],
        Process::Trudy => &[Page::E, Page::F],
    };
    let (loads, stores) = match attacker {
        Process::Mallory => (sharing.loads(), sharing.stores()),
        _ => (&[][..], &[][..]),
    };
    let (words, uses_page) = method.alphabet(attacker);
    let mut accesses: Vec<Access> = own.iter().chain(loads).copied().map(Access::Load).collect();
    // Words name sources, too, so that no store has to be possible.
    let named = if method.is_whole() { loads } else { &[] };
    let named = named.iter().chain(method.names());
    for page in own.iter().chain(stores).chain(named) {
        accesses.extend(words.iter().map(|word| Access::Store(*page, *word)));
    }
    if uses_page {
        accesses.extend([Access::PageStore(Word::Size), Access::PageLoad]);
    }
    accesses
}

impl<M: Machine + Clone> SearchState<M> {
    /// Returns true if no other process has the lock.
    fn admits(&self, made: Move) -> bool {
        match made {
            Move::Access(process, _) => self.holder.is_none_or(|holder| holder == process),
            Move::Switch(_) => true,
        }
    }

    /// Returns the states after an access with respect to the lock: the process holds it, has
    /// released it, or may have done either.
    fn sections(self, method: Method, made: Move, locked: bool) -> Vec<Self> {
        let Move::Access(process, access) = made else {
            return vec![self];
        };
        if !locked {
            return vec![self];
        }
        let with = |holder| Self {
            holder,
            ..self.clone()
        };
        let (held, released) = (with(Some(process)), with(None));
        match process {
            // Each attempt is a section.
            Process::Victim if self.made == 0 || self.reported.is_some() => vec![released],
            Process::Victim => vec![held],
            // The kernel's code ends with the status.
            _ if method.has_lock() && access == Access::PageLoad => vec![released],
            _ if method.has_lock() => vec![held],
            _ => vec![held, released],
        }
    }

    /// Makes a step. Returns the harm that it does; none if the kernel's code has no such step.
    fn make(
        &mut self,
        method: Method,
        made: Move,
        program: &[Step],
        sharing: Sharing,
        cpus: Cpus,
    ) -> Option<Vec<Harm>> {
        let (process, access) = match made {
            Move::Access(process, access) => (process, access),
            Move::Switch(process) => {
                self.left -= 1;
                let context = process.context();
                self.machine.running(context, Some(context));
                return Some(Vec::new());
            }
        };
        if cpus == Cpus::One && self.running != Some(process) {
            self.running = Some(process);
            self.machine.running(0, Some(process.context()));
        }
        if process.is_attacker() {
            self.left -= 1;
            if method.restarts() && cpus == Cpus::One && self.reported.is_none() {
                self.made = 0;
            }
        }
        let reply = self.access(method, process, access);
        if method.has_lock() && matches!(reply, Reply::Refused(_)) {
            return None;
        }
        let transfer = match reply {
            Reply::Start(request) => transfer(method, process, sharing, request),
            _ => None,
        };
        let mut harms = Vec::new();
        if let Some((from, to)) = transfer {
            if (from, to) == method.wanted() {
                self.ran = true;
            } else if to.is_victims() && !sharing.may_write(to) {
                harms.push(Harm::Mixed);
            } else if from.is_victims() && !sharing.may_read(from) {
                harms.push(Harm::Leaked);
            }
        }
        if process == Process::Victim && !self.observe(program, reply, transfer.is_some()) {
            if self.ran {
                harms.push(Harm::ReportedFailed);
            }
            self.ran = false;
        }
        match self.reported {
            Some(false) if self.ran => harms.push(Harm::ReportedFailed),
            Some(true) if !self.ran => harms.push(Harm::ReportedStarted),
            _ => {}
        }
        let guess = matches!(access, Access::Store(_, Word::Guess));
        if guess && !matches!(reply, Reply::Refused(_)) {
            harms.push(Harm::KeyTaken);
        }
        Some(harms)
    }

    /// Passes the value of the victim's last access to it. Returns false if it restarts.
    fn observe(&mut self, program: &[Step], reply: Reply, started: bool) -> bool {
        let Some((_, expected)) = program.get(self.made) else {
            return true;
        };
        let as_expected = match expected {
            Expect::Nothing => true,
            Expect::Code(code) => reply == Reply::Code(*code),
            Expect::Start => started,
        };
        self.made += 1;
        if !as_expected && self.retries > 0 {
            self.retries -= 1;
            self.made = 0;
            return false;
        }
        if !as_expected {
            self.reported = Some(false);
        } else if self.made == program.len() {
            self.reported = Some(true);
        }
        true
    }

    fn access(&mut self, method: Method, process: Process, access: Access) -> Reply {
        let context = process.context();
        let machine = &mut self.machine;
        match access {
            Access::Store(page, word) => {
                machine.store(context, page.named(), Some(method.encode(word)))
            }
            Access::Load(page) => machine.load(context, page.named(), true),
            Access::PageStore(word) => machine.page_store(context, Some(method.encode(word))),
            Access::PageLoad => machine.page_load(context),
        }
    }
}

/// The memory that a request copies, and where to, if the device's checks let it.
fn transfer(
    method: Method,
    process: Process,
    sharing: Sharing,
    request: Request,
) -> Option<(Page, Page)> {
    let (from, to) = match request {
        Request::Copy(arguments) => (
            Page::of(arguments.source)?,
            Page::of(arguments.destination)?,
        ),
        Request::Put { destination, word } => {
            let source = word.src_region.checked_sub(1)?;
            let source = Page::ALL.get(usize::try_from(source).ok()?)?;
            (*source, Page::of(destination)?)
        }
        Request::MappedOut { source, .. } => {
            let from = Page::of(source)?;
            (from, from.mapped_out())
        }
        Request::FetchAdd { at } => (Page::of(at)?, Page::of(at)?),
    };
    let own = |page: Page| page.owner() == process;
    if method.is_of_one_process() && !(own(from) && own(to)) {
        return None;
    }
    // What an attacker has registered of the victim's memory has the attacker's rights.
    let shared = |page: Page| page.memory() != page;
    if shared(to) && !sharing.may_write(to.memory()) {
        return None;
    }
    Some((from.memory(), to.memory()))
}
