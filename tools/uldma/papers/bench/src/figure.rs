// SPDX-License-Identifier: MIT OR Apache-2.0

//! Figures, and their JSON. `scripts/nodes/report` compares, prints and draws them.

use std::io::Write;

use serde::Serialize;

use crate::failure::Failure;

/// A measured value.
#[derive(Debug, Serialize)]
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    #[serde(flatten)]
    bases: Bases,
}

/// Values that were measured beside another one, to compare it with.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Bases {
    /// The lowest value that this machine can reach.
    pub(crate) floor: Option<f64>,
    /// The value of what one would use instead.
    pub(crate) rival: Option<f64>,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    /// Adds a figure.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.add_beside(name, value, unit, Bases::default());
    }

    /// Adds a figure and what to compare it with.
    pub(crate) fn add_beside(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        bases: Bases,
    ) {
        self.0.push(Figure {
            name: name.into(),
            value,
            unit,
            bases,
        });
    }

    /// Returns the value of a figure.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        let figure = self.0.iter().find(|figure| figure.name == name)?;
        Some(figure.value)
    }

    /// Prints them as an array of JSON.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(&self.0)
            .map_err(|error| Failure::Io("JSON", error.into()))?;
        writeln!(std::io::stdout(), "{text}").map_err(|error| Failure::Io("standard output", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_ones_are_null() {
        let mut figures = Figures::default();
        figures.add("x.y", 1.5, "ns");
        let json = serde_json::to_string(&figures.0).unwrap();
        let expected = r#"[{"name":"x.y","value":1.5,"unit":"ns","floor":null,"rival":null}]"#;
        assert_eq!(json, expected);
        assert_eq!(figures.get("x.y"), Some(1.5));
    }
}
