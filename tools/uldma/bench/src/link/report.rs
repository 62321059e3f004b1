// SPDX-License-Identifier: MIT OR Apache-2.0

//! The figures as tables for people, and whether the aims are met.

use super::names::{Names, QUANTILES};
use super::relate::MODES;
use super::sizes::SIZES;
use crate::figure::Figures;
use crate::tables::{micro, number, ratio, table, Aim, Aims};

/// What joins the nodes: where names begin, and the word for people.
pub(crate) const BACKENDS: [(&str, &str); 3] = [
    ("link", "the adapter"),
    ("link.ivshmem", "ivshmem"),
    ("link.loopback", "the loopback"),
];
/// Sizes from which on a connection is to be as fast as the engine.
const LARGE: [&str; 4] = ["256k", "1m", "4m", "16m"];

/// Everything that was measured.
pub(crate) fn render(figures: &Figures) -> String {
    let mut parts = Vec::new();
    for (prefix, title) in BACKENDS {
        let names = Names { prefix, suffix: "" };
        parts.push(round_trips(figures, names, title));
        parts.push(streams(figures, names, title));
    }
    parts.push(ways(figures));
    parts.push(counts(figures));
    parts.push(aims(figures).table());
    let mut parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        parts.extend(missing(figures));
    }
    parts.join("\n")
}

/// Rows of all sizes that have any of these cells.
fn by_size(row: impl Fn(&str) -> Vec<Option<f64>>) -> Vec<Vec<String>> {
    SIZES
        .into_iter()
        .map(|(size, _)| (size, row(size)))
        .filter(|(_, cells)| cells.iter().any(Option::is_some))
        .map(|(size, cells)| {
            let cells = cells.into_iter().map(number);
            std::iter::once(size.to_owned()).chain(cells).collect()
        })
        .collect()
}

fn round_trips(figures: &Figures, names: Names<'_>, title: &str) -> Option<String> {
    let rows = by_size(|size| {
        let of = |who: &str, mode| {
            QUANTILES.map(|(quantile, _)| micro(figures, &names.rtt(who, size, quantile, mode)))
        };
        let (raw, [ring, ..], [tcp, ..]) = (of("raw", "")[0], of("ring", ""), of("tcp", ""));
        let mut row = vec![raw];
        row.extend(of("ring", ""));
        row.push(ratio(ring, raw));
        row.push(of("ring", ".busy")[0]);
        row.extend(of("conn", ""));
        row.push(of("conn", ".pull")[0]);
        row.extend([tcp, ratio(tcp, ring)]);
        row
    });
    table(
        &format!("Round trips over {title}, us"),
        &[
            "size",
            "bare words",
            "ring p50",
            "p99",
            "p99.9",
            "to bare",
            "only polling p50",
            "connection p50",
            "p99",
            "p99.9",
            "pull p50",
            "TCP p50",
            "TCP to ring",
        ],
        rows,
    )
}

fn streams(figures: &Figures, names: Names<'_>, title: &str) -> Option<String> {
    let rows = by_size(|size| {
        let of = |who, mode| figures.get(&names.stream(who, size, mode));
        let (memcpy, ring) = (of("memcpy", ""), of("ring", ""));
        let (engine, conn) = (of("engine", ""), of("conn", ""));
        vec![
            memcpy,
            ring,
            ratio(ring, memcpy),
            of("ring", ".busy"),
            engine,
            conn,
            ratio(conn, engine.or(memcpy)),
            of("conn", ".pull"),
            of("conn", ".unpinned"),
            of("conventional", ""),
            of("tcp", ""),
        ]
    });
    table(
        &format!("Streams over {title}, MB/s"),
        &[
            "size",
            "memcpy",
            "ring",
            "ratio",
            "only polling",
            "engine",
            "connection",
            "ratio",
            "pull",
            "not registered",
            "conventional",
            "TCP",
        ],
        rows,
    )
}

/// The runs that there are: what their names end with.
fn suffixes(figures: &Figures) -> Vec<String> {
    const NAME: &str = "link.ring.rtt.p50";
    figures
        .starting_with(NAME)
        .filter_map(|figure| figure.name.strip_prefix(NAME))
        .map(str::to_owned)
        .collect()
}

/// Idle and loaded, with and without interrupts, more or less moderated.
fn ways(figures: &Figures) -> Option<String> {
    let row = |prefix: &str, suffix: &str, mode: &str| {
        let names = Names { prefix, suffix };
        let rtt = |who, quantile, mode| micro(figures, &names.rtt(who, "8", quantile, mode));
        let stream = figures.get(&names.stream("conn", "256k", mode));
        let base = figures.get(&names.stream("engine", "256k", ""));
        let count = |what: &str| figures.get(&names.of(&format!("{what}{mode}")));
        stream?;
        let mut cells = Vec::new();
        if mode.is_empty() {
            cells.extend(["p50", "p99", "p999"].map(|quantile| rtt("ring", quantile, "")));
        } else {
            cells.extend([None; 3]);
        }
        cells.extend([
            rtt("conn", "p50", mode),
            rtt("conn", "p99", mode),
            stream,
            ratio(stream, base),
        ]);
        cells.extend(
            [
                "irqs_per_round_trip",
                "irqs_per_message",
                "doorbells_per_message",
                "irqs_per_mb",
            ]
            .map(count),
        );
        let name = match (suffix, mode) {
            ("", "") => "push, idle".to_owned(),
            (suffix, mode) => format!("{mode}{suffix}")
                .trim_start_matches('.')
                .replace('.', ", "),
        };
        let backend = prefix.strip_prefix("link.").map(|name| format!("{name}: "));
        let name = format!("{}{name}", backend.unwrap_or_default());
        let cells = cells.into_iter().map(number);
        Some(std::iter::once(name).chain(cells).collect::<Vec<_>>())
    };
    let mut rows = Vec::new();
    for suffix in suffixes(figures) {
        rows.extend(
            MODES
                .into_iter()
                .filter_map(|mode| row("link", &suffix, mode)),
        );
    }
    for (prefix, _) in &BACKENDS[1..] {
        rows.extend(MODES.into_iter().filter_map(|mode| row(prefix, "", mode)));
    }
    table(
        "Ways to run: 8 bytes there and back (us), 256 KiB in a stream (MB/s), interrupts and doorbells",
        &[
            "way",
            "ring p50",
            "p99",
            "p99.9",
            "connection p50",
            "p99",
            "stream",
            "to engine",
            "irqs by round trip",
            "by message of 4k",
            "doorbells",
            "irqs by MB",
        ],
        rows,
    )
}

/// Copies and what else is counted.
fn counts(figures: &Figures) -> Option<String> {
    let mut rows = Vec::new();
    for (prefix, title) in BACKENDS {
        let names = Names { prefix, suffix: "" };
        for (who, mode) in [
            ("conn", ""),
            ("conn", ".pull"),
            ("conn", ".unpinned"),
            ("conventional", ""),
        ] {
            let of = |what: &str| figures.get(&names.of(&format!("{who}.{what}{mode}")));
            let Some(copies) = of("copies") else { continue };
            let mut row = vec![format!("{title}: {who}{mode}")];
            let stream = figures.get(&names.stream(who, "256k", mode));
            let locks = of("locks_per_mb");
            row.extend(
                [
                    Some(copies),
                    stream,
                    of("control_messages_per_mb"),
                    of("event_irqs_per_mb"),
                    of("polls_per_mb"),
                    locks,
                ]
                .map(number),
            );
            rows.push(row);
        }
    }
    table(
        "Copies, and what else 256 KiB in a stream take",
        &[
            "who",
            "copies",
            "MB/s",
            "control messages by MB",
            "engine's irqs",
            "polls",
            "pins",
        ],
        rows,
    )
}

fn aim(what: &str, value: Option<f64>, least: Option<f64>, most: Option<f64>) -> Aim {
    Aim {
        what: what.to_owned().into(),
        value,
        least,
        most,
    }
}

fn all_aims(figures: &Figures) -> Vec<Aim> {
    let names = Names {
        prefix: "link",
        suffix: "",
    };
    let rtt = |who| figures.get(&names.rtt(who, "8", "p50", ""));
    let share = |who, base, size: &str| {
        let of = |who| figures.get(&names.stream(who, size, ""));
        ratio(of(who), of(base))
    };
    let paced = Names {
        suffix: ".paced",
        ..names
    };
    let of_paced = |who| figures.get(&paced.stream(who, "256k", ""));
    let connection = LARGE
        .into_iter()
        .filter_map(|size| share("conn", "engine", size))
        .reduce(f64::min);
    let copies = |mode: &str| figures.get(&names.of(&format!("conn.copies{mode}")));
    vec![
        aim(
            "round trip by ring: times that of bare words",
            ratio(rtt("ring"), rtt("raw")),
            None,
            Some(1.6),
        ),
        aim(
            "round trip by TCP: times that by ring",
            ratio(rtt("tcp"), rtt("ring")),
            Some(100.0),
            None,
        ),
        aim(
            "64k by ring: part of memcpy into the window",
            share("ring", "memcpy", "64k"),
            Some(0.8),
            None,
        ),
        aim(
            "from 256k by connection: part of the engine's rate",
            connection,
            Some(0.9),
            None,
        ),
        aim(
            "256k by connection: part of a paced engine's rate",
            ratio(of_paced("conn"), of_paced("engine")),
            Some(0.9),
            None,
        ),
        aim("copies by a connection", copies(""), Some(1.0), Some(1.0)),
        aim(
            "copies by a connection that pulls",
            copies(".pull"),
            Some(1.0),
            Some(1.0),
        ),
        aim(
            "copies by a conventional read and write",
            figures.get(&names.of("conventional.copies")),
            Some(3.0),
            Some(3.0),
        ),
        aim(
            "copies by a connection over the loopback",
            figures.get("link.loopback.conn.copies"),
            Some(1.0),
            Some(1.0),
        ),
        aim(
            "copies by a connection over ivshmem",
            figures.get("link.ivshmem.conn.copies"),
            Some(2.0),
            Some(2.0),
        ),
    ]
}

fn aims(figures: &Figures) -> Aims {
    Aims::from_iter(all_aims(figures))
}

/// What cannot be judged.
fn missing(figures: &Figures) -> Option<String> {
    let missing: Vec<String> = all_aims(figures)
        .into_iter()
        .filter(|aim| aim.value.is_none())
        .map(|aim| format!("  {}", aim.what))
        .collect();
    (!missing.is_empty()).then(|| format!("Not measured:\n{}\n", missing.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(values: &[(&'static str, f64)]) -> Figures {
        let mut figures = Figures::default();
        for &(name, value) in values {
            figures.add(name, value, "", None, None);
        }
        figures
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert_eq!(render(&Figures::default()), "");
    }

    #[test]
    fn aims_are_judged_by_the_worst_size() {
        let text = render(&figures(&[
            ("link.raw.rtt.p50", 1000.0),
            ("link.ring.rtt.p50", 1500.0),
            ("link.tcp.rtt.p50", 90_000.0),
            ("link.engine.stream.256k", 1000.0),
            ("link.conn.stream.256k", 950.0),
            ("link.engine.stream.1m", 1000.0),
            ("link.conn.stream.1m", 800.0),
            ("link.conn.copies", 1.0),
        ]));
        let verdict = |what: &str| {
            let mut lines = text.lines().map(|line| line.split('|').map(str::trim));
            lines.find_map(|mut cells| (cells.next() == Some(what)).then(|| cells.last()))
        };
        for (what, expected) in [
            ("round trip by ring: times that of bare words", "met"),
            ("round trip by TCP: times that by ring", "missed"),
            (
                "from 256k by connection: part of the engine's rate",
                "missed",
            ),
            ("copies by a connection", "met"),
        ] {
            assert_eq!(verdict(what), Some(Some(expected)), "{what}");
        }
    }

    #[test]
    fn what_was_not_measured_is_told() {
        let text = render(&figures(&[("link.ring.rtt.p50", 1500.0)]));
        let (_, missing) = text.split_once("Not measured:").unwrap();
        assert!(missing.contains("times that of bare words"));
        assert!(!text.contains("met"));
    }

    #[test]
    fn runs_are_found_by_their_names() {
        let figures = figures(&[
            ("link.ring.rtt.p50", 1.0),
            ("link.ring.rtt.p50.loaded", 2.0),
            ("link.conn.stream.256k", 1.0),
            ("link.conn.stream.256k.loaded", 1.0),
            ("link.conn.stream.256k.pull.loaded", 1.0),
        ]);
        assert_eq!(suffixes(&figures), ["", ".loaded"]);
        let text = ways(&figures).unwrap();
        assert!(text.contains("push, idle") && text.contains("pull, loaded"));
    }
}
