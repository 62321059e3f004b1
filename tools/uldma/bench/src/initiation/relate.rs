// SPDX-License-Identifier: MIT OR Apache-2.0

//! What follows from the figures of all methods: ratios, and the cost model.

use uldma::Method;

use super::model::{fit, Model, Point};
use super::paper;
use crate::figure::Figures;

/// Adds `init.ratio.METHOD`, the kernel's time by the method's, and `init.model.*`.
pub(crate) fn relate(figures: &mut Figures) {
    let kernel = figures.get("init.kernel.time");
    for method in user_level() {
        let own = figures.get(&format!("init.{method}.time"));
        if let (Some(kernel), Some(own)) = (kernel, own) {
            let paper = paper::time(Method::Kernel).zip(paper::time(method));
            let paper = paper.map(|(kernel, own)| kernel / own);
            let name = format!("init.ratio.{method}");
            figures.add(name, kernel / own, "ratio", None, paper);
        }
    }
    if let Some(model) = model(figures) {
        for (part, value) in [
            ("fixed", model.fixed),
            ("store", model.store),
            ("load", model.load),
        ] {
            figures.add(format!("init.model.{part}"), value, "ns", None, None);
        }
    }
}

/// All but the kernel's.
pub(crate) fn user_level() -> impl Iterator<Item = Method> {
    Method::all().filter(|&method| method != Method::Kernel)
}

/// Stores, loads and shortest time of each method that was measured.
pub(crate) fn points(figures: &Figures) -> Vec<(Method, Point)> {
    user_level()
        .filter_map(|method| {
            let get = |what| figures.get(&format!("init.{method}.{what}"));
            let point = (get("mmio_stores")?, get("mmio_loads")?, get("min")?);
            Some((method, point))
        })
        .collect()
}

/// The cost model of this run.
pub(crate) fn model(figures: &Figures) -> Option<Model> {
    let points: Vec<Point> = points(figures)
        .into_iter()
        .map(|(_, point)| point)
        .collect();
    fit(&points)
}

/// Adds the shortest times of `from` as `latency.METHOD.NANOSECONDS`.
pub(crate) fn rename(from: &Figures, latency: u64, to: &mut Figures) {
    for method in Method::all() {
        if let Some(time) = from.get(&format!("init.{method}.min")) {
            to.add(
                format!("latency.{method}.{latency}"),
                time,
                "ns",
                None,
                None,
            );
        }
    }
}

/// Latency and time of a method, by latency, in nanoseconds.
pub(crate) fn by_latency(figures: &Figures, method: Method) -> Vec<(f64, f64)> {
    let prefix = format!("latency.{method}.");
    let mut points: Vec<(f64, f64)> = figures
        .starting_with(&prefix)
        .filter_map(|figure| {
            let latency = figure.name.strip_prefix(&prefix)?.parse().ok()?;
            Some((latency, figure.value))
        })
        .collect();
    points.sort_by(|left, right| left.0.total_cmp(&right.0));
    points
}

/// By how much the time of an initiation grows with the latency of an access: how many accesses the
/// method waits for. Least squares; none for less than two latencies.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut xy, mut xx) = (0.0, 0.0);
    for point in points {
        xy += (point.0 - x) * (point.1 - y);
        xx += (point.0 - x) * (point.0 - x);
    }
    (xx > 0.0).then(|| xy / xx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_the_model_are_found() {
        let mut figures = Figures::default();
        figures.add("init.kernel.time", 1000.0, "ns", None, None);
        for (method, stores, loads) in [
            (Method::ExtendedShadow, 1.0, 1.0),
            (Method::Key, 3.0, 1.0),
            (Method::Repeated5, 2.0, 3.0),
            (Method::SingleStore, 1.0, 0.0),
        ] {
            for (what, value) in [
                ("mmio_stores", stores),
                ("mmio_loads", loads),
                ("time", 10.0 + 40.0 * stores + 50.0 * loads),
                ("min", 10.0 + 40.0 * stores + 50.0 * loads),
            ] {
                figures.add(format!("init.{method}.{what}"), value, "", None, None);
            }
        }
        relate(&mut figures);
        let ratio = figures.find("init.ratio.extended-shadow").unwrap();
        assert_eq!(ratio.value, 10.0);
        assert!((ratio.rival.unwrap() - 16.7).abs() < 0.1);
        let load = figures.get("init.model.load").unwrap();
        assert!((load - 50.0).abs() < 1e-6, "{load}");
    }

    #[test]
    fn slopes_are_accesses() {
        let mut all = Figures::default();
        for (latency, time) in [(0, 900.0), (10_000, 50_900.0), (2_000, 10_900.0)] {
            let mut here = Figures::default();
            here.add("init.repeated-5.min", time, "ns", None, None);
            rename(&here, latency, &mut all);
        }
        let points = by_latency(&all, Method::Repeated5);
        assert_eq!(points[0], (0.0, 900.0));
        assert!((slope(&points).unwrap() - 5.0).abs() < 1e-9);
        assert_eq!(slope(&points[..1]), None);
    }
}
