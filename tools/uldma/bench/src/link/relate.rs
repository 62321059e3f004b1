// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which figure is whose floor or rival.

use super::names::{Names, QUANTILES};
use super::sizes::{SHORTEST, SIZES};
use crate::figure::Figures;

/// Modes of connections, as names have them.
pub(crate) const MODES: [&str; 3] = ["", ".pull", ".unpinned"];

/// The same of ring channels.
const RING_MODES: [&str; 2] = ["", ".busy"];

/// Puts floors and rivals beside the figures of one run.
pub(crate) fn relate(figures: &mut Figures, names: Names<'_>) {
    for (size, _) in SIZES {
        for (quantile, _) in QUANTILES {
            let get = |who| figures.get(&names.rtt(who, size, quantile, ""));
            let (raw, ring, tcp) = (get("raw"), get("ring"), get("tcp"));
            // Bare words say nothing of longer messages.
            let floor = raw.filter(|_| size == SHORTEST);
            for mode in RING_MODES {
                figures.relate(&names.rtt("ring", size, quantile, mode), floor, tcp);
            }
            for mode in MODES {
                figures.relate(&names.rtt("conn", size, quantile, mode), ring, tcp);
            }
        }
        let get = |who| figures.get(&names.stream(who, size, ""));
        let (memcpy, tcp) = (get("memcpy"), get("tcp"));
        let engine = get("engine").or(memcpy);
        for mode in RING_MODES {
            figures.relate(&names.stream("ring", size, mode), memcpy, tcp);
        }
        figures.relate(&names.stream("conventional", size, ""), None, tcp);
        for mode in MODES {
            figures.relate(&names.stream("conn", size, mode), engine, tcp);
        }
    }
    let conventional = figures.get(&names.of("conventional.copies"));
    for mode in MODES {
        figures.relate(&names.of(&format!("conn.copies{mode}")), None, conventional);
        for what in ["irqs_per_mb", "irqs_per_message"] {
            let tcp = figures.get(&names.of(&format!("tcp.{what}")));
            figures.relate(&names.of(&format!("{what}{mode}")), None, tcp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_and_rivals_are_found() {
        let names = Names {
            prefix: "link",
            suffix: "",
        };
        let mut figures = Figures::default();
        for (name, value) in [
            ("link.raw.rtt.p50", 10.0),
            ("link.ring.rtt.p50", 15.0),
            ("link.ring.rtt.4k.p50", 30.0),
            ("link.tcp.rtt.p50", 1500.0),
            ("link.memcpy.stream.256k", 900.0),
            ("link.engine.stream.256k", 1000.0),
            ("link.conn.stream.256k", 950.0),
            ("link.conn.stream.256k.pull", 500.0),
            ("link.ring.stream.256k", 450.0),
            ("link.conventional.copies", 3.0),
            ("link.conn.copies", 1.0),
        ] {
            figures.add(name, value, "", None, None);
        }
        relate(&mut figures, names);
        let of = |name: &str| {
            let figure = figures.find(name).unwrap();
            (figure.floor, figure.rival)
        };
        assert_eq!(of("link.ring.rtt.p50"), (Some(10.0), Some(1500.0)));
        assert_eq!(of("link.ring.rtt.4k.p50"), (None, None));
        assert_eq!(of("link.conn.stream.256k").0, Some(1000.0));
        assert_eq!(of("link.conn.stream.256k.pull").0, Some(1000.0));
        assert_eq!(of("link.ring.stream.256k").0, Some(900.0));
        assert_eq!(of("link.conn.copies"), (None, Some(3.0)));
    }
}
