// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tables of attacks, for the documentation.

use std::fmt::Write;

use crate::methods::Method;
use crate::search::{Findings, Harm};
use crate::world::{Cpus, Process, Setting, Sharing};

/// Accesses of attackers in one order; the longest attack that the paper shows has four.
pub const LIMIT: usize = 5;

/// A row: its name, and the findings.
type Row = (String, Findings);

fn heading(harm: Harm) -> &'static str {
    match harm {
        Harm::Mixed => "other data is written to memory of V",
        Harm::Leaked => "memory of V that M may not read is copied elsewhere",
        Harm::ReportedFailed => "it runs, V reads that it does not",
        Harm::ReportedStarted => "V reads that it runs, and it does not",
        Harm::KeyTaken => "a guessed key is taken",
    }
}

fn cell(method: Method, findings: &Findings, harm: Harm) -> String {
    match findings.harms.get(&harm) {
        Some(way) => {
            let moves: Vec<String> = way.iter().map(|made| format!("``{made}``")).collect();
            format!("**broken**: {}", moves.join(", "))
        }
        None if harm == Harm::KeyTaken && method != Method::Key => "no keys".into(),
        None => "ok".into(),
    }
}

fn list_table(title: &str, first: &str, harms: &[Harm], rows: &[(Method, Row)]) -> String {
    let mut text = format!(".. list-table:: {title}\n   :header-rows: 1\n\n   * - {first}\n");
    for harm in harms {
        let _ = writeln!(text, "     - {}", heading(*harm));
    }
    for (method, (name, findings)) in rows {
        let _ = writeln!(text, "   * - {name}");
        for harm in harms {
            let _ = writeln!(text, "     - {}", cell(*method, findings, *harm));
        }
    }
    text
}

/// Searches for attacks on all methods.
fn attacks(attackers: &[Process], sharing: Sharing) -> Vec<(Method, Row)> {
    let mut rows = Vec::new();
    for method in Method::ALL {
        let setting = Setting {
            attackers,
            sharing,
            cpus: Cpus::One,
            locked: method.has_lock(),
            limit: LIMIT,
        };
        let one = method.search(setting);
        if method.needs_sched_notify() || method.restarts() {
            let many = method.search(Setting {
                cpus: Cpus::Many,
                ..setting
            });
            rows.push((method, (format!("{}, one CPU", method.name()), one)));
            rows.push((method, (format!("{}, more CPUs", method.name()), many)));
        } else {
            rows.push((method, (method.name().into(), one)));
        }
    }
    rows
}

/// Searches for attacks on `repeated-5` by an attacker that shares a page with the victim. If
/// `locked`, both take turns by a lock.
fn shared(locked: bool) -> Vec<(Method, Row)> {
    let kinds = [
        ("reads A", Sharing::ReadSource),
        ("reads and writes A", Sharing::WriteSource),
        ("reads B", Sharing::ReadDestination),
        ("reads and writes B", Sharing::WriteDestination),
    ];
    let row = |(name, sharing): (&str, Sharing)| {
        let method = Method::Repeated5;
        let found = method.search(Setting {
            attackers: &[Process::Mallory],
            sharing,
            cpus: Cpus::One,
            locked,
            limit: LIMIT,
        });
        let how = if locked { ", with the lock" } else { "" };
        (method, (format!("M {name}{how}"), found))
    };
    kinds.into_iter().map(row).collect()
}

/// The results of all searches.
#[derive(Debug)]
pub struct Study {
    /// One attacker, with its own pages only.
    alone: Vec<(Method, Row)>,
    /// Two attackers that cooperate.
    together: Vec<(Method, Row)>,
    /// An attacker that may read A.
    reading: Vec<(Method, Row)>,
    /// An attacker with any right on A or B, against `repeated-5`.
    shared: Vec<(Method, Row)>,
    /// The same, and both use a lock.
    locked: Vec<(Method, Row)>,
}

impl Study {
    /// Runs all searches.
    pub fn new() -> Self {
        let two = [Process::Mallory, Process::Trudy];
        Self {
            alone: attacks(&[Process::Mallory], Sharing::Nothing),
            together: attacks(&two, Sharing::Nothing),
            reading: attacks(&[Process::Mallory], Sharing::ReadSource),
            shared: shared(false),
            locked: shared(true),
        }
    }

    /// The file `Documentation/uldma/initiation-attacks.rst`.
    pub fn document(&self) -> String {
        let states = |rows: &[(Method, Row)]| -> usize {
            rows.iter().map(|(_, (_, found))| found.states).sum()
        };
        let pairs = self.alone.iter().zip(&self.together);
        let more: Vec<&str> = pairs
            .filter(|((_, (_, one)), (_, (_, two)))| !one.harms.keys().eq(two.harms.keys()))
            .map(|((_, (name, _)), _)| name.as_str())
            .collect();
        let both = match more.as_slice() {
            [] => "can do nothing that one alone cannot".into(),
            more => format!("can do more than one alone to: {}", more.join(", ")),
        };
        format!(
            ".. SPDX-License-Identifier: GPL-2.0\n\
             .. Generated by uldma-interleave; do not edit.\n\n\
             These are all orders of the victim's accesses and up to {LIMIT} of the attacker: {} states. Two\n\
             attackers (T is the other), who make as many accesses together ({} states), {both}.\n\n\
             {}\n{}\n{}\n{}",
            states(&self.alone),
            states(&self.together),
            list_table("M has its own pages only", "method", &Harm::ALL, &self.alone),
            list_table("M may read A as well", "method", &Harm::ALL, &self.reading),
            list_table("M shares a page with V: repeated-5", "M", &Harm::ALL, &self.shared),
            list_table(
                "M shares a page with V: repeated-5, and both use SharedLock",
                "M",
                &Harm::ALL,
                &self.locked
            ),
        )
    }
}

impl Default for Study {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::whole::Whole;

    static STUDY: LazyLock<Study> = LazyLock::new(Study::new);

    fn is_broken(row: &(Method, Row)) -> bool {
        !row.1 .1.harms.is_empty()
    }

    /// The search must confirm the methods that are called secure.
    #[test]
    fn the_secure_methods_are_those_that_nobody_breaks() {
        let all = [&STUDY.alone, &STUDY.together, &STUDY.reading];
        for method in Method::ALL {
            let rows = all.iter().flat_map(|rows| rows.iter());
            let broken = rows.filter(|(other, _)| *other == method).any(is_broken);
            assert_eq!(broken, !method.is_secure(), "{method:?}");
        }
    }

    fn way(rows: &[(Method, Row)], name: &str, harm: Harm) -> Vec<String> {
        let row = rows.iter().find(|(_, (row, _))| row == name);
        let way = row.and_then(|(_, (_, found))| found.harms.get(&harm));
        way.map_or_else(Vec::new, |way| {
            way.iter().map(ToString::to_string).collect()
        })
    }

    /// The attacks of the papers, in as many accesses or fewer.
    #[test]
    fn known_attacks_are_found() {
        let rows = &STUDY.alone;
        assert_eq!(way(rows, "shrimp-2", Harm::Mixed), ["V st B", "M ld C"]);
        assert_eq!(way(rows, "pal, one CPU", Harm::Mixed), ["V st B", "M ld C"]);
        // Figure 5 has two accesses more, which are not needed.
        let mixed = ["V ld A", "M ld C", "M ld C", "V st B", "M ld C"];
        assert_eq!(way(rows, "repeated-3", Harm::Mixed), mixed);
        // D-054 has six; the victim's second attempt is what completes the attacker's sequence.
        let leaked = way(rows, "repeated-3", Harm::Leaked);
        assert!((1..=6).contains(&leaked.len()), "{leaked:?}");
        assert!(way(rows, "flash-single, one CPU", Harm::Mixed).is_empty());
        assert!(!way(rows, "flash-single, more CPUs", Harm::Mixed).is_empty());
        // An attacker without rights on A needs the victim's second attempt for it.
        assert_eq!(way(rows, "repeated-4", Harm::ReportedFailed).len(), 7);
        // Figure 6.
        let reported = way(&STUDY.reading, "repeated-4", Harm::ReportedFailed);
        assert_eq!(reported, ["V st B", "V ld A", "V st B", "M ld A", "V ld A"]);
    }

    /// D-062: five accesses are safe from processes that have any right on A, and none on B.
    #[test]
    fn limits_of_five_accesses() {
        let broken: Vec<bool> = STUDY.shared.iter().map(is_broken).collect();
        assert_eq!(broken, [false, false, true, true]);
    }

    /// D-088: whatever right M has on A or B, a lock leaves it nothing.
    #[test]
    fn a_lock_ends_what_sharing_permits() {
        let broken: Vec<bool> = STUDY.locked.iter().map(is_broken).collect();
        assert_eq!(broken, [false; 4]);
        // The lock delays M, and takes none of its accesses away.
        for ((_, (name, locked)), (_, (_, shared))) in STUDY.locked.iter().zip(&STUDY.shared) {
            assert!(
                locked.states > shared.states / 4,
                "{name}: {}",
                locked.states
            );
        }
    }

    /// D-083: the kernel's method is as secure as its lock, and a queue as its memory.
    #[test]
    fn without_its_lock_the_kernel_mixes_arguments() {
        let setting = Setting {
            attackers: &[Process::Mallory],
            sharing: Sharing::Nothing,
            cpus: Cpus::One,
            locked: false,
            limit: LIMIT,
        };
        let found = Method::Kernel.search(setting).harms;
        for harm in [Harm::Mixed, Harm::Leaked, Harm::ReportedStarted] {
            assert!(found.contains_key(&harm), "{harm:?}: {found:?}");
        }
        let shared = crate::search::search(Method::Queue, Whole::registers(), setting).harms;
        assert!(shared.contains_key(&Harm::Mixed), "{shared:?}");
    }

    #[test]
    fn the_documentation_has_these_tables() {
        let file = "../../../../Documentation/uldma/initiation-attacks.rst";
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == STUDY.document(),
            "again: cargo run -p uldma-interleave -- table > {}",
            path.display()
        );
    }
}
