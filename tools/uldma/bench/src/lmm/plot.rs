// SPDX-License-Identifier: MIT OR Apache-2.0

//! The figures as drawings: both axes logarithmic, as costs span four powers of ten.

use std::path::Path;

use super::series::{pages, SIZES};
use crate::drawing::{Drawing, Line, Scale};
use crate::failure::Failure;
use crate::figure::Figures;

/// Draws everything that was measured, as `lmm-*.svg` in `directory`.
pub(crate) fn draw(figures: &Figures, directory: &Path) -> Result<(), Failure> {
    let by_size = |file, title, lines| Drawing {
        file,
        title,
        x: "KiB",
        y: "us",
        scale: Scale::Logarithmic,
        lines,
    };
    let drawings = [
        by_size(
            "lmm-register.svg",
            "Registration of private memory",
            lines(
                figures,
                "register",
                &[
                    "first",
                    "io_uring",
                    "first.huge",
                    "io_uring.huge",
                    "ibv_reg_mr",
                    "ibv_reg_mr.again",
                    "mlock",
                    "cached",
                    "again",
                ],
            ),
        ),
        by_size(
            "lmm-deregister.svg",
            "Deregistration of private memory",
            lines(
                figures,
                "deregister",
                &[
                    "first",
                    "io_uring",
                    "ibv_reg_mr",
                    "again",
                    "cached",
                    "mlock",
                ],
            ),
        ),
        by_size(
            "lmm-table1-2.svg",
            "Tables 1 and 2: registration of shared memory",
            lines(
                figures,
                "register",
                &[
                    "alone.shared",
                    "second.shared",
                    "io_uring.shared",
                    "ibv_reg_mr.shared",
                    "again.shared",
                ],
            ),
        ),
        by_size(
            "lmm-figure7.svg",
            "Figure 7: shared memory with and without mlock() by the library",
            lines(
                figures,
                "register",
                &[
                    "first.shared",
                    "mlock-mode.shared",
                    "shm-ctl.shared",
                    "mlock.shared",
                    "io_uring.shared",
                ],
            ),
        ),
        by_size(
            "lmm-figure8.svg",
            "Figure 8: private memory with and without mlock() by the library",
            {
                let mut all = lines(
                    figures,
                    "register",
                    &["first", "mlock-mode", "mlock", "io_uring"],
                );
                all.extend(relation(&all));
                all
            },
        ),
        Drawing {
            file: "lmm-lmas.svg",
            title: "One more registration of one page",
            x: "pages locked, or locked memory areas",
            y: "us",
            scale: Scale::Logarithmic,
            lines: many(figures),
        },
    ];
    drawings
        .iter()
        .try_for_each(|drawing| drawing.draw(directory))
}

/// Microseconds over KiB of some series.
fn lines(figures: &Figures, what: &str, names: &[&str]) -> Vec<Line> {
    let points = |name: &str| {
        SIZES
            .into_iter()
            .enumerate()
            .filter_map(|(index, size)| {
                let value = figures.get(&format!("lmm.{what}.{name}.{size}"))?;
                Some((pages(index) as f64 * 4.0, value / 1e3))
            })
            .collect()
    };
    names
        .iter()
        .map(|&name| (name.to_owned(), points(name)))
        .collect()
}

/// The paper's bottommost line: the second series by the first.
fn relation(lines: &[Line]) -> Option<Line> {
    let [(_, plain), (_, mode), ..] = lines else {
        return None;
    };
    let points = plain
        .iter()
        .zip(mode)
        .map(|(plain, mode)| (plain.0, mode.1 / plain.1));
    Some(("with by without (no unit)".to_owned(), points.collect()))
}

/// Microseconds over pages, areas.
fn many(figures: &Figures) -> Vec<Line> {
    [
        ("pages", "pages locked"),
        ("lmas", "areas, page is locked"),
        ("lmas.new", "areas, page is not locked"),
    ]
    .into_iter()
    .map(|(name, label)| {
        let points = (0..6).map(|power| 10_f64.powi(power)).filter_map(|count| {
            let value = figures.get(&format!("lmm.{name}.{count}"))?;
            Some((count, value / 1e3))
        });
        (label.to_owned(), points.collect())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_has_its_lines() {
        let directory = std::env::temp_dir().join(format!("uldma-plot-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let mut figures = Figures::default();
        for (index, size) in SIZES.into_iter().enumerate() {
            let value = 1e3 * (10.0 + pages(index) as f64);
            figures.add(
                format!("lmm.register.first.{size}"),
                value,
                "ns",
                None,
                None,
            );
        }
        draw(&figures, &directory).unwrap();
        let drawn = std::fs::read_to_string(directory.join("lmm-register.svg")).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(drawn.starts_with("<svg") && drawn.contains("first"));
    }
}
