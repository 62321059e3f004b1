// SPDX-License-Identifier: MIT OR Apache-2.0

//! The figures as drawings, by size: both axes logarithmic.

use std::path::Path;

use super::names::Names;
use super::report::BACKENDS;
use super::sizes::SIZES;
use crate::drawing::{Drawing, Line, Scale};
use crate::failure::Failure;
use crate::figure::Figures;

/// Files and titles by backend: round trips, and streams.
const FILES: [[(&str, &str); 2]; BACKENDS.len()] = [
    [
        ("link-rtt.svg", "Round trips over the adapter, median"),
        ("link-stream.svg", "Streams over the adapter"),
    ],
    [
        ("link-ivshmem-rtt.svg", "Round trips over ivshmem, median"),
        ("link-ivshmem-stream.svg", "Streams over ivshmem"),
    ],
    [
        (
            "link-loopback-rtt.svg",
            "Round trips over the loopback, median",
        ),
        ("link-loopback-stream.svg", "Streams over the loopback"),
    ],
];

/// Draws everything that was measured, as `link-*.svg` in `directory`.
pub(crate) fn draw(figures: &Figures, directory: &Path) -> Result<(), Failure> {
    for ((prefix, _), [rtt, stream]) in BACKENDS.into_iter().zip(FILES) {
        let names = Names { prefix, suffix: "" };
        let drawing = |(file, title), y, lines| Drawing {
            file,
            title,
            x: "bytes",
            y,
            scale: Scale::Logarithmic,
            lines,
        };
        drawing(rtt, "us", round_trips(figures, names)).draw(directory)?;
        drawing(stream, "MB/s", streams(figures, names)).draw(directory)?;
    }
    Ok(())
}

/// A line for each of some kinds that has points.
fn lines(
    kinds: &[(&str, &str, &str)],
    point: impl Fn(&str, &str, &str) -> Option<f64>,
) -> Vec<Line> {
    let points = |who, mode| -> Vec<(f64, f64)> {
        SIZES
            .into_iter()
            .filter_map(|(size, bytes)| Some((bytes as f64, point(who, size, mode)?)))
            .collect()
    };
    kinds
        .iter()
        .map(|&(title, who, mode)| (title.to_owned(), points(who, mode)))
        .filter(|(_, points)| !points.is_empty())
        .collect()
}

fn round_trips(figures: &Figures, names: Names<'_>) -> Vec<Line> {
    let kinds = [
        ("bare words", "raw", ""),
        ("ring channel", "ring", ""),
        ("connection", "conn", ""),
        ("connection that pulls", "conn", ".pull"),
        ("TCP", "tcp", ""),
    ];
    lines(&kinds, |who, size, mode| {
        let time = figures.get(&names.rtt(who, size, "p50", mode))?;
        Some(time / 1e3)
    })
}

fn streams(figures: &Figures, names: Names<'_>) -> Vec<Line> {
    let kinds = [
        ("memcpy into the window", "memcpy", ""),
        ("ring channel", "ring", ""),
        ("engine alone", "engine", ""),
        ("connection", "conn", ""),
        ("connection that pulls", "conn", ".pull"),
        ("conventional", "conventional", ""),
        ("TCP", "tcp", ""),
    ];
    lines(&kinds, |who, size, mode| {
        figures.get(&names.stream(who, size, mode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_by_size() {
        let mut figures = Figures::default();
        for (name, value) in [
            ("link.ring.rtt.p50", 2000.0),
            ("link.ring.rtt.4k.p50", 8000.0),
            ("link.conn.stream.1m.pull", 500.0),
        ] {
            figures.add(name, value, "", None, None);
        }
        let names = Names {
            prefix: "link",
            suffix: "",
        };
        let expected = vec![("ring channel".to_owned(), vec![(8.0, 2.0), (4096.0, 8.0)])];
        assert_eq!(round_trips(&figures, names), expected);
        let streams = streams(&figures, names);
        assert_eq!(streams.len(), 1);
        assert_eq!(streams[0].1, [(1_048_576.0, 500.0)]);
    }
}
