// SPDX-License-Identifier: MIT OR Apache-2.0

//! The figures as tables for people, beside the paper's, and whether the aims are met.

use super::fit::fit;
use super::paper;
use super::series::SIZES;
use crate::figure::Figures;
use crate::tables::{micro, number, ratio, table, Aim, Aims};

/// Everything that was measured.
pub(crate) fn render(figures: &Figures) -> String {
    [
        against_io_uring(figures, "", "private memory"),
        against_io_uring(figures, ".shared", "shared memory"),
        against_io_uring(figures, ".huge", "private memory of huge pages"),
        against_verbs(figures),
        papers_tables(figures),
        lines(figures),
        mlock_mode(figures, ".shared", "Figure 7: shared memory"),
        mlock_mode(figures, "", "Figure 8: private memory"),
        again(figures),
        many(figures),
        load(figures),
        counts(figures),
        aims(figures),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join("\n")
}

/// Rows of all sizes that have a figure `lmm.register.NAME.SIZE`.
fn sizes(
    figures: &Figures,
    name: &str,
    row: impl Fn(usize, &str) -> Vec<Option<f64>>,
) -> Vec<Vec<String>> {
    SIZES
        .into_iter()
        .enumerate()
        .filter(|(_, size)| {
            figures
                .get(&format!("lmm.register.{name}.{size}"))
                .is_some()
        })
        .map(|(index, size)| {
            let cells = row(index, size).into_iter().map(number);
            std::iter::once(size.to_owned()).chain(cells).collect()
        })
        .collect()
}

fn against_io_uring(figures: &Figures, kind: &str, what: &str) -> Option<String> {
    let rows = sizes(figures, &format!("first{kind}"), |_, size| {
        let of = |prefix: &str, who: &str| {
            micro(figures, &format!("lmm.{prefix}register.{who}{kind}.{size}"))
        };
        let (own, rival) = (of("", "first"), of("", "io_uring"));
        let shortest = (of("min.", "first"), of("min.", "io_uring"));
        let cold = (of("cold.", "first"), of("cold.", "io_uring"));
        let end = (of("de", "first"), of("de", "io_uring"));
        vec![
            own,
            rival,
            ratio(own, rival),
            ratio(shortest.0, shortest.1),
            ratio(cold.0, cold.1),
            of("", "mlock"),
            end.0,
            end.1,
            of("de", "mlock"),
        ]
    });
    table(
        &format!("First registration of {what}, median us"),
        &[
            "size",
            "register",
            "io_uring",
            "ratio",
            "of minima",
            "cold",
            "mlock",
            "deregister",
            "io_uring",
            "munlock",
        ],
        rows,
    )
}

/// ibv_reg_mr() beside uldma: of the three kinds of memory, and registered already.
fn against_verbs(figures: &Figures) -> Option<String> {
    let rows = sizes(figures, "ibv_reg_mr", |_, size| {
        let of = |what: &str, who: &str| micro(figures, &format!("lmm.{what}.{who}.{size}"));
        let mut row = Vec::new();
        for (own, rival) in [
            ("first", "ibv_reg_mr"),
            ("first.shared", "ibv_reg_mr.shared"),
            ("first.huge", "ibv_reg_mr.huge"),
            ("again", "ibv_reg_mr.again"),
        ] {
            let (own, rival) = (of("register", own), of("register", rival));
            row.extend([rival, ratio(own, rival)]);
        }
        row.extend([of("deregister", "ibv_reg_mr"), of("deregister", "first")]);
        row
    });
    let first = figures.starting_with("lmm.register.first.").next();
    if rows.is_empty() && first.is_some() {
        return Some("ibv_reg_mr(): not measured; what was printed before says why\n".to_owned());
    }
    table(
        "ibv_reg_mr() on soft-RoCE, median us, and uldma's time by its",
        &[
            "size",
            "private",
            "ratio",
            "shared",
            "ratio",
            "huge",
            "ratio",
            "again",
            "ratio",
            "deregister",
            "uldma's",
        ],
        rows,
    )
}

fn papers_tables(figures: &Figures) -> Option<String> {
    let rows = sizes(figures, "second.shared", |index, size| {
        let of =
            |what: &str, which: &str| micro(figures, &format!("lmm.{what}.{which}.shared.{size}"));
        let (first, second) = (of("register", "alone"), of("register", "second"));
        let paper = (
            paper::FIRST.register.get(index).copied(),
            paper::SECOND.register.get(index).copied(),
        );
        let difference = |pair: (Option<f64>, Option<f64>)| Some(pair.0? - pair.1?);
        vec![
            second,
            of("deregister", "second"),
            paper.1,
            paper::SECOND.deregister.get(index).copied(),
            first,
            of("deregister", "alone"),
            paper.0,
            paper::FIRST.deregister.get(index).copied(),
            difference((first, second)),
            difference(paper),
        ]
    });
    table(
        "Tables 1 and 2: shared memory that another process has registered, and that nobody has, \
         median us, beside the paper's",
        &[
            "size",
            "T1 register",
            "deregister",
            "paper",
            "paper",
            "T2 register",
            "deregister",
            "paper",
            "paper",
            "T2 - T1",
            "paper",
        ],
        rows,
    )
}

fn lines(figures: &Figures) -> Option<String> {
    let cells = |fixed: Option<f64>, page: Option<f64>| {
        [fixed, page, ratio(fixed, page)].map(number).to_vec()
    };
    let mut rows = Vec::new();
    for name in [
        "first",
        "first.shared",
        "second.shared",
        "alone.shared",
        "again",
        "again.shared",
        "cached",
        "first.huge",
        "io_uring",
        "io_uring.shared",
        "io_uring.huge",
        "ibv_reg_mr",
        "ibv_reg_mr.shared",
        "ibv_reg_mr.huge",
        "ibv_reg_mr.again",
        "mlock",
        "mlock-mode",
        "mlock-mode.shared",
        "shm-ctl.shared",
    ] {
        let of = |what: &str, part: &str| micro(figures, &format!("lmm.fit.{what}.{name}.{part}"));
        if of("register", "page").is_some() {
            let mut row = vec![name.to_owned()];
            row.extend(cells(of("register", "fixed"), of("register", "page")));
            row.extend(cells(of("deregister", "fixed"), of("deregister", "page")));
            rows.push(row);
        }
    }
    if !rows.is_empty() {
        for (name, paper) in [
            ("paper: Table 1", &paper::SECOND),
            ("paper: Table 2", &paper::FIRST),
        ] {
            let mut row = vec![name.to_owned()];
            for column in [&paper.register, &paper.deregister] {
                let line = fit(&paper::points(column));
                row.extend(cells(
                    line.map(|line| line.fixed),
                    line.map(|line| line.page),
                ));
            }
            rows.push(row);
        }
    }
    table(
        "Fixed cost, cost per page, and their ratio, us",
        &[
            "series",
            "register",
            "per page",
            "ratio",
            "deregister",
            "per page",
            "ratio",
        ],
        rows,
    )
}

fn mlock_mode(figures: &Figures, kind: &str, title: &str) -> Option<String> {
    let rows = sizes(figures, &format!("mlock-mode{kind}"), |_, size| {
        let of = |who: &str| micro(figures, &format!("lmm.register.{who}{kind}.{size}"));
        let (plain, mode) = (of("first"), of("mlock-mode"));
        vec![
            plain,
            mode,
            ratio(mode, plain),
            mode.zip(plain).map(|(mode, plain)| mode - plain),
            of("shm-ctl"),
            of("mlock"),
            of("io_uring"),
        ]
    });
    table(
        &format!("{title} with and without mlock() by the library, median us"),
        &[
            "size",
            "without",
            "with",
            "ratio",
            "difference",
            "shmctl()",
            "mlock alone",
            "io_uring",
        ],
        rows,
    )
}

fn again(figures: &Figures) -> Option<String> {
    let rows = sizes(figures, "again", |_, size| {
        let of = |name: &str| micro(figures, &format!("lmm.{name}.{size}"));
        let first = of("register.first");
        vec![
            first,
            of("register.again"),
            ratio(first, of("register.again")),
            of("register.cached"),
            ratio(first, of("register.cached")),
            of("deregister.first"),
            of("deregister.again"),
            of("deregister.cached"),
        ]
    });
    table(
        "Registered already, and pins found in the cache, private memory, median us",
        &[
            "size",
            "first",
            "again",
            "times less",
            "cached",
            "times less",
            "deregister",
            "again",
            "cached",
        ],
        rows,
    )
}

fn many(figures: &Figures) -> Option<String> {
    let rows = (0..6)
        .map(|power| 10_usize.pow(power))
        .map(|count| {
            let of = |name: &str| figures.find(&format!("lmm.{name}.{count}"));
            let mut row = vec![count.to_string()];
            for name in ["pages", "lmas", "lmas.new"] {
                let figure = of(name);
                row.push(number(figure.map(|figure| figure.value / 1e3)));
                row.push(number(
                    figure
                        .and_then(|figure| figure.rival)
                        .map(|rival| rival / 1e3),
                ));
            }
            row
        })
        .filter(|row| row[1..].iter().any(|cell| cell != "-"))
        .collect();
    table(
        "One more registration of one page, with so many pages locked, or so many areas, median us",
        &[
            "pages, areas",
            "pages",
            "io_uring",
            "areas",
            "io_uring",
            "not locked",
            "io_uring",
        ],
        rows,
    )
}

fn load(figures: &Figures) -> Option<String> {
    let rows = ["merge", "apart"]
        .into_iter()
        .filter(|kind| figures.get(&format!("lmm.load.{kind}.register")).is_some())
        .map(|kind| {
            let of = |name: &str| figures.get(&format!("lmm.load.{kind}.{name}"));
            let mut row = vec![kind.to_owned()];
            row.extend(["areas.most", "areas.left", "memory"].map(|name| number(of(name))));
            row.extend(
                ["register", "deregister", "whole"]
                    .map(|name| number(of(name).map(|value| value / 1e3))),
            );
            row
        })
        .collect();
    table(
        "Areas merged or left apart, under the same load",
        &[
            "areas",
            "most",
            "left",
            "KiB",
            "register us",
            "deregister us",
            "whole again us",
        ],
        rows,
    )
}

fn counts(figures: &Figures) -> Option<String> {
    let rows = [
        "lmm.syscalls.",
        "lmm.pins.",
        "lmm.cache.",
        "lmm.mmio.",
        "lmm.invalidations.",
    ]
    .into_iter()
    .flat_map(|prefix| figures.starting_with(prefix))
    .map(|figure| vec![figure.name.to_string(), number(Some(figure.value))])
    .collect();
    table("Counts, each of one registration", &["what", "count"], rows)
}

/// The worst of some ratios.
fn worst(ratios: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    ratios.flatten().reduce(f64::max)
}

fn aims(figures: &Figures) -> Option<String> {
    let first = |kind: &str, sizes: &[&str]| {
        let of = |size: &&str| {
            let name = |who: &str| format!("lmm.register.{who}{kind}.{size}");
            ratio(figures.get(&name("first")), figures.get(&name("io_uring")))
        };
        worst(sizes.iter().map(of))
    };
    let (small, large) = SIZES.split_at(4);
    let again = ratio(
        figures.get("lmm.register.first.16m"),
        figures.get("lmm.register.again.16m"),
    );
    let growth = |name: &str| {
        let get = |count: u32| figures.get(&format!("lmm.{name}.min.{count}"));
        ratio(get(100_000), get(10))
    };
    let rows = [
        (
            "first, private, to 32k: times io_uring's",
            first("", small),
            1.5,
            true,
        ),
        (
            "first, private, from 64k: times io_uring's",
            first("", large),
            1.2,
            true,
        ),
        (
            "first, shared, to 32k: times io_uring's",
            first(".shared", small),
            1.5,
            true,
        ),
        (
            "first, shared, from 64k: times io_uring's",
            first(".shared", large),
            1.2,
            true,
        ),
        ("16m again: times cheaper than first", again, 50.0, false),
        (
            "one more with 100,000 pages: times that with 10",
            growth("pages"),
            1.5,
            true,
        ),
        (
            "one more with 100,000 areas: times that with 10",
            growth("lmas"),
            3.0,
            true,
        ),
        (
            "accesses to the device to register",
            figures.get("lmm.mmio.register.first"),
            0.0,
            true,
        ),
    ]
    .into_iter()
    .map(|(what, value, aim, most)| Aim {
        what: what.into(),
        value,
        least: (!most).then_some(aim),
        most: most.then_some(aim),
    });
    Aims::from_iter(rows).table()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_left_out() {
        assert_eq!(render(&Figures::default()), "");
    }

    #[test]
    fn a_rival_that_is_missing_is_told() {
        let mut figures = Figures::default();
        figures.add("lmm.register.first.4k".to_owned(), 10.0, "ns", None, None);
        assert!(render(&figures).contains("ibv_reg_mr(): not measured"));
        figures.add(
            "lmm.register.ibv_reg_mr.4k".to_owned(),
            20.0,
            "ns",
            None,
            None,
        );
        let text = render(&figures);
        assert!(text.contains("ibv_reg_mr() on soft-RoCE") && text.contains("0.50"));
    }

    #[test]
    fn aims_are_judged_by_the_worst_size() {
        let mut figures = Figures::default();
        for (size, value) in [("4k", 14.0), ("8k", 16.0), ("64k", 11.0)] {
            figures.add(
                format!("lmm.register.first.{size}"),
                value,
                "ns",
                None,
                None,
            );
            figures.add(
                format!("lmm.register.io_uring.{size}"),
                10.0,
                "ns",
                None,
                None,
            );
        }
        let text = render(&figures);
        let line = |what: &str| text.lines().find(|line| line.contains(what)).unwrap();
        assert!(line("private, to 32k").contains("missed"));
        assert!(line("private, from 64k").contains("met"));
        assert!(!text.contains("Figure 7"));
    }
}
