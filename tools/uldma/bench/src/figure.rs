// SPDX-License-Identifier: MIT OR Apache-2.0

//! Figures, and how they are printed.

use std::borrow::Cow;
use std::io::Write;

use serde::{Deserialize, Serialize};
use tabled::builder::Builder;
use tabled::settings::{object::Columns, Alignment, Style};

use crate::failure::Failure;

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: Cow<'static, str>,
    pub(crate) value: f64,
    pub(crate) unit: Cow<'static, str>,
    /// What this machine can do at best.
    pub(crate) floor: Option<f64>,
    /// What one would use instead.
    pub(crate) rival: Option<f64>,
    /// Value by floor, or by rival where there is no floor.
    pub(crate) ratio: Option<f64>,
    /// What runs the nodes, as the file with the figures says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) accelerator: Option<Cow<'static, str>>,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    /// Adds one.
    pub(crate) fn add(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: f64,
        unit: &'static str,
        floor: Option<f64>,
        rival: Option<f64>,
    ) {
        let mut figure = Figure {
            name: name.into(),
            value,
            unit: unit.into(),
            floor,
            rival,
            ratio: None,
            accelerator: None,
        };
        figure.relate();
        self.0.push(figure);
    }

    /// Those that [`Figures::print`] printed as JSON.
    pub(crate) fn parse(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json).map(Self)
    }

    /// Whether the nodes were emulated when any of these was measured.
    pub(crate) fn are_emulated(&self) -> bool {
        let emulator = |figure: &Figure| figure.accelerator.as_deref() == Some("tcg");
        self.0.iter().any(emulator)
    }

    /// A figure.
    pub(crate) fn find(&self, name: &str) -> Option<&Figure> {
        self.0.iter().find(|figure| figure.name == name)
    }

    /// The figures whose names start so.
    pub(crate) fn starting_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Figure> {
        let starts = move |figure: &&Figure| figure.name.starts_with(prefix);
        self.0.iter().filter(starts)
    }

    /// Value of a figure.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.find(name).map(|figure| figure.value)
    }

    /// Puts floor and rival beside a figure, if there is such a figure.
    pub(crate) fn relate(&mut self, name: &str, floor: Option<f64>, rival: Option<f64>) {
        if let Some(figure) = self.0.iter_mut().find(|figure| figure.name == name) {
            (figure.floor, figure.rival) = (floor, rival);
            figure.relate();
        }
    }

    /// Prints an array of JSON, or a table.
    pub(crate) fn print(&self, json: bool) -> Result<(), Failure> {
        let text = if json {
            serde_json::to_string_pretty(&self.0)
                .map_err(|error| Failure::Io("JSON", error.into()))?
        } else {
            self.table()
        };
        writeln!(std::io::stdout(), "{text}").map_err(|error| Failure::Io("standard output", error))
    }

    fn table(&self) -> String {
        let number = |value: f64| match value.abs() {
            size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
            _ => format!("{value:.3}"),
        };
        let or_dash = |value: Option<f64>| value.map_or("-".to_owned(), number);
        let mut builder = Builder::new();
        builder.push_record(["figure", "value", "unit", "floor", "rival", "ratio"]);
        for figure in &self.0 {
            builder.push_record([
                figure.name.to_string(),
                number(figure.value),
                figure.unit.to_string(),
                or_dash(figure.floor),
                or_dash(figure.rival),
                or_dash(figure.ratio),
            ]);
        }
        let mut table = builder.build();
        table
            .with(Style::psql())
            .modify(Columns::new(1..), Alignment::right());
        table.modify(Columns::one(2), Alignment::left());
        table.to_string()
    }
}

impl Figure {
    fn relate(&mut self) {
        let base = self.floor.or(self.rival);
        self.ratio = base
            .filter(|&base| base > 0.0)
            .map(|base| self.value / base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_to_the_floor_first() {
        let mut figures = Figures::default();
        figures.add("one", 2.0, "ns", Some(1.0), Some(4.0));
        figures.add("other", 2.0, "ns", None, Some(4.0));
        let ratios = [0, 1].map(|index| figures.0[index].ratio);
        assert_eq!(ratios, [Some(2.0), Some(0.5)]);
    }

    #[test]
    fn absent_ones_are_null() {
        let mut figures = Figures::default();
        figures.add("x.y", 1.5, "ns", None, None);
        let json = serde_json::to_string(&figures.0).unwrap();
        let expected =
            r#"[{"name":"x.y","value":1.5,"unit":"ns","floor":null,"rival":null,"ratio":null}]"#;
        assert_eq!(json, expected);
        assert!(figures.table().contains("x.y"));
    }
}
