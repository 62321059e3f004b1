// SPDX-License-Identifier: MIT OR Apache-2.0

//! The figures as tables for people, beside the paper's, and whether the aims are met.

use uldma::Method;

use super::relate::{by_latency, model, points, slope, user_level};
use super::{model::Model, paper};
use crate::figure::Figures;
use crate::tables::{micro, number, ratio, table, Aim, Aims};

/// What an emulator distorts.
const EMULATED: &str = "\
The nodes are emulated: an access to the device leaves the guest and is carried out by another process, so
it costs more than a system call, where on the paper's machine it cost a fraction of one. Times and
ratios to the kernel's therefore say little of real devices; accesses, system calls and errors by switch
do, and the cost model says what each access costs here.\n";

/// Everything that was measured.
pub(crate) fn render(figures: &Figures) -> String {
    [
        table_1(figures),
        cost_model(figures),
        latencies(figures),
        switches(figures),
        (figures.are_emulated() && !points(figures).is_empty()).then(|| EMULATED.to_owned()),
        aims(figures),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join("\n")
}

fn table_1(figures: &Figures) -> Option<String> {
    let kernel = micro(figures, "init.kernel.time");
    let paper_kernel = paper::time(Method::Kernel);
    let row = |name: &str, method: Option<Method>| {
        let of = |what: &str| figures.get(&format!("init.{name}.{what}"));
        let time = micro(figures, &format!("init.{name}.time"))?;
        let paper = method.and_then(paper::time);
        let mut row = vec![name.to_owned()];
        let cells = [
            Some(time),
            micro(figures, &format!("init.{name}.min")),
            micro(figures, &format!("init.{name}.mean")),
            micro(figures, &format!("init.{name}.data.time")),
            paper,
            of("mmio_stores").or_else(|| of("control_stores")),
            of("mmio_loads").or_else(|| of("control_loads")),
            of("syscalls"),
            ratio(kernel, Some(time)),
            ratio(paper_kernel, paper),
        ];
        row.extend(cells.map(number));
        Some(row)
    };
    let mut rows: Vec<Vec<String>> = Method::all()
        .filter_map(|method| row(method.name(), Some(method)))
        .collect();
    rows.extend(row("queue.batch", None));
    if let Some(nop) = micro(figures, "syscall.nop.time") {
        let mut row = vec!["(empty ioctl)".to_owned(), number(Some(nop))];
        row.resize(11, "-".to_owned());
        rows.push(row);
    }
    table(
        "Table 1: one initiation, us, arguments only; the paper's times beside",
        &[
            "method",
            "median",
            "shortest",
            "mean",
            "with data",
            "paper",
            "stores",
            "loads",
            "syscalls",
            "kernel by it",
            "paper",
        ],
        rows,
    )
}

fn cost_model(figures: &Figures) -> Option<String> {
    let model = model(figures)?;
    let mut rows: Vec<Vec<String>> = points(figures)
        .into_iter()
        .map(|(method, (stores, loads, time))| {
            let said = model.cost(stores, loads);
            vec![
                method.to_string(),
                number(Some(time / 1e3)),
                number(Some(said / 1e3)),
                number(Some(time / said)),
            ]
        })
        .collect();
    rows.extend(kernel_row(figures, model));
    table(
        &format!(
            "Cost model: {} us + {} us for each store + {} us for each load",
            number(Some(model.fixed / 1e3)),
            number(Some(model.store / 1e3)),
            number(Some(model.load / 1e3)),
        ),
        &["method", "shortest us", "model us", "ratio"],
        rows,
    )
}

/// Of the kernel, the model knows the accesses, and what an empty system call costs.
fn kernel_row(figures: &Figures, model: Model) -> Option<Vec<String>> {
    let (stores, loads) = paper::KERNEL_ACCESSES;
    let said = figures.get("syscall.nop.time")? + model.cost(stores, loads);
    let time = figures.get("init.kernel.min")?;
    Some(vec![
        "kernel: empty ioctl, 3 stores, 1 load".to_owned(),
        number(Some(time / 1e3)),
        number(Some(said / 1e3)),
        number(Some(time / said)),
    ])
}

fn latencies(figures: &Figures) -> Option<String> {
    let rows = Method::all()
        .filter_map(|method| {
            let points = by_latency(figures, method);
            let slope = slope(&points)?;
            let (stores, loads) = match method {
                Method::Kernel => paper::KERNEL_ACCESSES,
                _ => paper::accesses(method),
            };
            let mut row = vec![method.to_string()];
            row.push(number(points.first().map(|point| point.1 / 1e3)));
            row.push(number(points.last().map(|point| point.1 / 1e3)));
            row.push(number(Some(slope)));
            row.push(number(Some(stores + loads)));
            Some(row)
        })
        .collect();
    table(
        "A slower device: us at the shortest and the longest latency, and growth by latency",
        &["method", "shortest", "longest", "growth", "accesses"],
        rows,
    )
}

fn switches(figures: &Figures) -> Option<String> {
    let mut rows: Vec<Vec<String>> = ["2", "3", "4"]
        .into_iter()
        .filter_map(|processes| {
            let of = |what: &str| figures.get(&format!("switch.{processes}.{what}"));
            let errors = of("errors_per_100")?;
            let mut row = vec![format!("{processes} processes")];
            let cells = [
                Some(errors),
                of("fails_per_100"),
                of("switches_per_s"),
                of("errors_per_s"),
                of("started_per_s"),
            ];
            row.extend(cells.map(number));
            Some(row)
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let range = |(least, most): (f64, f64)| format!("{least}-{most}");
    let dash = || "-".to_owned();
    rows.push(vec![
        "the paper".into(),
        range(paper::ERRORS),
        range(paper::FAILS),
        "100".into(),
        range(paper::ERRORS),
        dash(),
    ]);
    for (name, (errors, fails)) in [
        ("its machine, simulated", paper::SIMULATED),
        ("a re-arming one, simulated", paper::REARMING),
    ] {
        let mut row = vec![name.to_owned(), number(Some(errors)), number(Some(fails))];
        row.resize(6, dash());
        rows.push(row);
    }
    table(
        "Verification run: repeated-5 in turns of 10 ms on one CPU",
        &[
            "",
            "errors per 100 switches",
            "FAILs per 100",
            "switches/s",
            "errors/s",
            "started/s",
        ],
        rows,
    )
}

fn aims(figures: &Figures) -> Option<String> {
    // What else the machine does prolongs some batches, and not the same for all methods.
    let time = |name: &str| figures.get(&format!("init.{name}.min"));
    let median = |name: &str| figures.get(&format!("init.{name}.time"));
    let mut aims = vec![
        Aim {
            what: "kernel by queue, shortest times".into(),
            value: ratio(time("kernel"), time("queue")),
            least: Some(50.0),
            most: None,
        },
        Aim {
            what: "kernel by queue, submitted together, shortest".into(),
            value: ratio(time("kernel"), time("queue.batch")),
            least: Some(50.0),
            most: None,
        },
        Aim {
            what: "descriptors per second, in the model".into(),
            value: figures.get("model.queue.rate"),
            least: Some(5e6),
            most: None,
        },
        Aim {
            // One lucky batch of either would decide otherwise: both wait for the device.
            what: "single-store by extended-shadow, medians".into(),
            value: ratio(median("single-store"), median("extended-shadow")),
            least: None,
            most: Some(1.0),
        },
    ];
    for method in user_level() {
        let (stores, loads) = paper::accesses(method);
        let of = |what: &str| figures.get(&format!("init.{method}.{what}"));
        for (what, count) in [
            ("mmio_stores", stores),
            ("mmio_loads", loads),
            ("syscalls", 0.0),
        ] {
            let value = of(what);
            // A device that sleeps has to be woken, once at most; how often depends on who else runs.
            let wakes = method == Method::Queue && what == "mmio_stores";
            let (least, most) = if wakes {
                (None, 1.0)
            } else {
                (Some(count), count)
            };
            aims.push(Aim {
                what: format!("{method}: {what}").into(),
                value,
                least,
                most: Some(most),
            });
        }
    }
    for (what, around) in [
        ("errors_per_100", (108.0, 116.0)),
        ("fails_per_100", (92.0, 99.0)),
    ] {
        aims.push(Aim {
            what: format!("switch: {what}").into(),
            value: figures.get(&format!("switch.{what}")),
            least: Some(around.0),
            most: Some(around.1),
        });
    }
    Aims::from_iter(aims).table()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let mut figures = Figures::default();
        for (name, value) in [
            ("init.kernel.time", 25_000.0),
            ("init.kernel.min", 20_000.0),
            ("init.repeated-5.time", 5_000.0),
            ("init.repeated-5.mmio_stores", 2.0),
            ("init.repeated-5.mmio_loads", 3.5),
            ("init.queue.min", 100.0),
            ("switch.2.errors_per_100", 111.0),
            ("switch.errors_per_100", 111.0),
            ("switch.fails_per_100", 48.0),
        ] {
            figures.add(name, value, "", None, None);
        }
        figures
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        assert_eq!(render(&Figures::default()), "");
        let text = render(&figures());
        assert!(text.contains("Table 1") && text.contains("Verification run"));
        assert!(!text.contains("Cost model") && !text.contains("single-store"));
    }

    #[test]
    fn aims_are_judged() {
        let text = render(&figures());
        let line = |what: &str| text.lines().find(|line| line.contains(what)).unwrap();
        assert!(line("kernel by queue").contains("met"));
        assert!(line("repeated-5: mmio_stores").contains("met"));
        assert!(line("repeated-5: mmio_loads").contains("missed"));
        assert!(line("switch: errors_per_100").contains("met"));
        assert!(line("switch: fails_per_100").contains("missed"));
    }

    #[test]
    fn the_papers_times_are_beside_ours() {
        let text = render(&figures());
        let line = text.lines().find(|line| line.contains(" repeated-5 "));
        let line = line.unwrap();
        assert!(line.contains("4.60") && line.contains("5.46"), "{line}");
    }
}
