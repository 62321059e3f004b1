// SPDX-License-Identifier: MIT OR Apache-2.0

//! The figures as drawings.

use std::path::Path;

use uldma::Method;

use super::relate::{by_latency, model, points};
use crate::drawing::{Drawing, Line, Scale};
use crate::failure::Failure;
use crate::figure::Figures;

/// Draws everything that was measured, as `initiation-*.svg` in `directory`.
pub(crate) fn draw(figures: &Figures, directory: &Path) -> Result<(), Failure> {
    [
        Drawing {
            file: "initiation-accesses.svg",
            title: "One initiation, by the accesses to the device that it makes",
            x: "stores and loads",
            y: "us",
            scale: Scale::Linear,
            lines: accesses(figures),
        },
        Drawing {
            file: "initiation-latency.svg",
            title: "One initiation, by the time that the device adds to each access",
            x: "us for each access",
            y: "us",
            scale: Scale::Linear,
            lines: latencies(figures),
        },
    ]
    .iter()
    .try_for_each(|drawing| drawing.draw(directory))
}

/// A dot for each method, and what the model says of each.
fn accesses(figures: &Figures) -> Vec<Line> {
    let all = points(figures);
    let mut lines: Vec<Line> = all
        .iter()
        .map(|&(method, (stores, loads, time))| {
            (method.to_string(), vec![(stores + loads, time / 1e3)])
        })
        .collect();
    if let Some(model) = model(figures) {
        let mut said: Vec<(f64, f64)> = all
            .iter()
            .map(|&(_, (stores, loads, _))| (stores + loads, model.cost(stores, loads) / 1e3))
            .collect();
        said.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1)));
        lines.push(("cost model".to_owned(), said));
    }
    lines
}

fn latencies(figures: &Figures) -> Vec<Line> {
    Method::all()
        .map(|method| {
            let micro = |(latency, time)| (latency / 1e3, time / 1e3);
            let points = by_latency(figures, method).into_iter().map(micro);
            (method.to_string(), points.collect::<Vec<_>>())
        })
        .filter(|(_, points)| !points.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_drawn() {
        let directory = std::env::temp_dir().join(format!("uldma-init-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let mut figures = Figures::default();
        for (name, value) in [
            ("init.key.min", 4e3),
            ("init.key.mmio_stores", 3.0),
            ("init.key.mmio_loads", 1.0),
            ("latency.key.0", 4e3),
            ("latency.key.5000", 24e3),
        ] {
            figures.add(name, value, "", None, None);
        }
        draw(&figures, &directory).unwrap();
        for file in ["initiation-accesses.svg", "initiation-latency.svg"] {
            let drawn = std::fs::read_to_string(directory.join(file)).unwrap();
            assert!(drawn.contains("key"), "{file}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
