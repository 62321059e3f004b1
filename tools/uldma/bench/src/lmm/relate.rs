// SPDX-License-Identifier: MIT OR Apache-2.0

//! What follows from the times of all sizes: which figure is whose rival or floor, and the lines.

use super::fit::fit;
use super::series::{pages, SIZES};
use crate::figure::Figures;

/// A series of sizes, with its rival and its floor.
struct Series {
    name: &'static str,
    rival: Option<&'static str>,
    floor: Option<&'static str>,
}

const fn series(
    name: &'static str,
    rival: Option<&'static str>,
    floor: Option<&'static str>,
) -> Series {
    Series { name, rival, floor }
}

/// All of them; rivals and floors come first.
const ALL: [Series; 22] = [
    series("io_uring", None, None),
    series("mlock", None, None),
    series("ibv_reg_mr", None, None),
    series("ibv_reg_mr.again", None, Some("ibv_reg_mr")),
    series("first", Some("io_uring"), None),
    series("again", Some("io_uring"), Some("first")),
    series("cached", Some("io_uring"), Some("first")),
    series("mlock-mode", None, Some("first")),
    series("io_uring.shared", None, None),
    series("mlock.shared", None, None),
    series("ibv_reg_mr.shared", None, None),
    series("first.shared", Some("io_uring.shared"), None),
    series("alone.shared", Some("io_uring.shared"), None),
    series(
        "second.shared",
        Some("io_uring.shared"),
        Some("alone.shared"),
    ),
    series(
        "again.shared",
        Some("io_uring.shared"),
        Some("first.shared"),
    ),
    series("mlock-mode.shared", None, Some("first.shared")),
    series("shm-ctl.shared", None, Some("first.shared")),
    series("io_uring.huge", None, None),
    series("mlock.huge", None, None),
    series("ibv_reg_mr.huge", None, None),
    series("first.huge", Some("io_uring.huge"), None),
    series("again.huge", Some("io_uring.huge"), Some("first.huge")),
];

/// Puts rivals and floors beside the figures of all sizes, and adds `lmm.fit.register.NAME.fixed`,
/// `lmm.fit.register.NAME.page` and the same of `deregister`.
pub(crate) fn relate(figures: &mut Figures) {
    for what in ["register", "deregister"] {
        for series in ALL {
            relate_series(figures, what, &series);
        }
    }
}

fn relate_series(figures: &mut Figures, what: &str, series: &Series) {
    let mut points = Vec::new();
    for (index, size) in SIZES.into_iter().enumerate() {
        for kind in ["lmm", "lmm.min", "lmm.cold"].map(|kind| format!("{kind}.{what}")) {
            let get = |name: Option<&str>| figures.get(&format!("{kind}.{}.{size}", name?));
            let (floor, rival) = (get(series.floor), get(series.rival));
            figures.relate(&format!("{kind}.{}.{size}", series.name), floor, rival);
        }
        let value = figures.get(&format!("lmm.{what}.{}.{size}", series.name));
        points.extend(value.map(|value| (pages(index) as f64, value)));
    }
    if let Some(fit) = fit(&points) {
        for (part, value) in [("fixed", fit.fixed), ("page", fit.page)] {
            let name = |series: &str| format!("lmm.fit.{what}.{series}.{part}");
            let get = |other: Option<&str>| figures.get(&name(other?));
            let (floor, rival) = (get(series.floor), get(series.rival));
            figures.add(name(series.name), value, "ns", floor, rival);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_rivals_are_found() {
        let mut figures = Figures::default();
        for (index, size) in SIZES.into_iter().enumerate() {
            let pages = pages(index) as f64;
            for (name, fixed) in [("first", 300.0), ("io_uring", 100.0), ("again", 50.0)] {
                let value = fixed + 10.0 * pages;
                figures.add(
                    format!("lmm.register.{name}.{size}"),
                    value,
                    "ns",
                    None,
                    None,
                );
            }
        }
        relate(&mut figures);
        let of = |name: &str| figures.find(name).unwrap();
        assert_eq!(of("lmm.register.first.4k").rival, Some(110.0));
        assert_eq!(of("lmm.register.again.4k").floor, Some(310.0));
        let fixed = of("lmm.fit.register.first.fixed").value;
        assert!((fixed - 300.0).abs() < 1e-6, "{fixed}");
        let page = of("lmm.fit.register.io_uring.page").value;
        assert!((page - 10.0).abs() < 1e-6, "{page}");
        assert!(figures.find("lmm.fit.register.mlock.page").is_none());
    }
}
