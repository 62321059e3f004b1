// SPDX-License-Identifier: MIT OR Apache-2.0

//! The figures as drawings: both axes logarithmic, as costs span four powers of ten.

use std::path::Path;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::combinators::IntoLogRange;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, PathElement};
use plotters::series::LineSeries;
use plotters::style::{Color, Palette, Palette99, BLACK, WHITE};

use super::series::{pages, SIZES};
use crate::failure::Failure;
use crate::figure::Figures;

const SIZE: (u32, u32) = (900, 560);

/// One line: its name, and its points.
type Line = (String, Vec<(f64, f64)>);

/// A drawing with the names of its axes.
struct Drawing {
    file: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    lines: Vec<Line>,
}

/// Draws everything that was measured, as `lmm-*.svg` in `directory`.
pub(crate) fn draw(figures: &Figures, directory: &Path) -> Result<(), Failure> {
    let by_size = |file, title, lines| Drawing {
        file,
        title,
        x: "KiB",
        y: "us",
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
            lines: many(figures),
        },
    ];
    for drawing in drawings {
        if drawing.lines.iter().any(|(_, points)| !points.is_empty()) {
            let path = directory.join(drawing.file);
            draw_one(&path, &drawing).map_err(|error| {
                Failure::Io("drawing", std::io::Error::other(error.to_string()))
            })?;
        }
    }
    Ok(())
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

/// From below the lowest to above the highest.
fn span(values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let (low, high) = bounds(values);
    low / 1.3..high * 1.3
}

/// The same from power of ten to power of ten, so that there is always a number at the axis.
fn decades(values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let (low, high) = bounds(values);
    10_f64.powf(low.log10().floor())..10_f64.powf(high.log10().ceil())
}

fn bounds(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    (low, values.fold(low, f64::max))
}

fn draw_one(path: &Path, drawing: &Drawing) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let points = || {
        drawing
            .lines
            .iter()
            .flat_map(|(_, points)| points.iter().copied())
    };
    let (x, y) = (
        span(points().map(|point| point.0)),
        decades(points().map(|point| point.1)),
    );
    let mut chart = ChartBuilder::on(&area)
        .caption(drawing.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(x.log_scale(), y.log_scale())?;
    let plain = |value: &f64| format!("{value}");
    chart
        .configure_mesh()
        .x_desc(drawing.x)
        .y_desc(drawing.y)
        .x_label_formatter(&plain)
        .y_label_formatter(&plain)
        .draw()?;
    for (number, (name, points)) in drawing.lines.iter().enumerate() {
        let style = Palette99::pick(number).stroke_width(2);
        let line = LineSeries::new(points.iter().copied(), style);
        chart
            .draw_series(line)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        let dots = points
            .iter()
            .map(|&point| Circle::new(point, 3, style.filled()));
        chart.draw_series(dots)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
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
