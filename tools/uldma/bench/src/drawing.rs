// SPDX-License-Identifier: MIT OR Apache-2.0

//! Drawings of figures, as SVG.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext, SeriesLabelPosition};
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, PathElement};
use plotters::series::LineSeries;
use plotters::style::{Color, Palette, Palette99, BLACK, WHITE};

use crate::failure::Failure;

const SIZE: (u32, u32) = (900, 560);

/// One line: its name, and its points.
pub(crate) type Line = (String, Vec<(f64, f64)>);

/// What both axes are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// They begin with zero.
    Linear,
    /// They go by powers of ten.
    Logarithmic,
}

/// A drawing with the names of its axes.
pub(crate) struct Drawing {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) scale: Scale,
    pub(crate) lines: Vec<Line>,
}

impl Drawing {
    /// Writes it to its file in `directory`, if there is anything to draw.
    pub(crate) fn draw(&self, directory: &Path) -> Result<(), Failure> {
        if self.lines.iter().all(|(_, points)| points.is_empty()) {
            return Ok(());
        }
        self.draw_at(&directory.join(self.file))
            .map_err(|error| Failure::Io("drawing", std::io::Error::other(error.to_string())))
    }

    fn draw_at(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut builder = ChartBuilder::on(&area);
        builder
            .caption(self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64);
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let (x, y) = (points().map(|point| point.0), points().map(|point| point.1));
        match self.scale {
            Scale::Linear => self.fill(builder.build_cartesian_2d(upto(x), upto(y))?)?,
            Scale::Logarithmic => {
                let (x, y) = (span(x).log_scale(), decades(y).log_scale());
                self.fill(builder.build_cartesian_2d(x, y)?)?;
            }
        }
        area.present()?;
        Ok(())
    }

    fn fill<'a, X, Y>(
        &self,
        mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    ) -> Result<(), Box<dyn Error>>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let plain = |value: &f64| format!("{value}");
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&plain)
            .y_label_formatter(&plain)
            .draw()?;
        for (number, (name, points)) in self.lines.iter().enumerate() {
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
        Ok(())
    }
}

/// From zero to above the highest.
fn upto(values: impl Iterator<Item = f64>) -> Range<f64> {
    0.0..values.fold(f64::MIN_POSITIVE, f64::max) * 1.1
}

/// From below the lowest to above the highest.
fn span(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let (low, high) = bounds(values);
    low / 1.3..high * 1.3
}

/// The same from power of ten to power of ten, so that there is always a number at the axis.
fn decades(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let (low, high) = bounds(values);
    10_f64.powf(low.log10().floor())..10_f64.powf(high.log10().ceil())
}

fn bounds(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    (low, values.fold(low, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_scales_are_drawn() {
        let directory = std::env::temp_dir().join(format!("uldma-drawing-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let drawing = Drawing {
                file: "drawing.svg",
                title: "A title",
                x: "x",
                y: "y",
                scale,
                lines: vec![("a line".into(), vec![(1.0, 2.0), (10.0, 200.0)])],
            };
            drawing.draw(&directory).unwrap();
            let drawn = std::fs::read_to_string(directory.join(drawing.file)).unwrap();
            assert!(drawn.starts_with("<svg") && drawn.contains("a line"));
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
