// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tables for people, and aims that are met or missed.

use std::borrow::Cow;

use tabled::builder::Builder;
use tabled::settings::{object::Columns, Alignment, Style};

use crate::figure::Figures;

/// Microseconds of a figure in nanoseconds.
pub(crate) fn micro(figures: &Figures, name: &str) -> Option<f64> {
    figures.get(name).map(|value| value / 1e3)
}

/// A figure with three digits or so; a dash where there is none.
pub(crate) fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// One by the other, where there are both.
pub(crate) fn ratio(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    Some(value? / base?)
}

/// A table under a title; none without rows.
pub(crate) fn table(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let mut builder = Builder::new();
    builder.push_record(head.iter().copied());
    for row in rows {
        builder.push_record(row);
    }
    let mut table = builder.build();
    table
        .with(Style::psql())
        .modify(Columns::new(1..), Alignment::right());
    Some(format!("{title}\n{table}\n"))
}

/// What a figure should be.
pub(crate) struct Aim {
    pub(crate) what: Cow<'static, str>,
    /// None when it was not measured.
    pub(crate) value: Option<f64>,
    /// It should not be less.
    pub(crate) least: Option<f64>,
    /// It should not be more.
    pub(crate) most: Option<f64>,
}

impl Aim {
    fn row(self) -> Option<Vec<String>> {
        let value = self.value?;
        let met = self.least.is_none_or(|least| value >= least)
            && self.most.is_none_or(|most| value <= most);
        let limit = match (self.least, self.most) {
            (Some(least), Some(most)) if least == most => format!("= {least}"),
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (Some(least), None) => format!(">= {least}"),
            (None, Some(most)) => format!("<= {most}"),
            (None, None) => String::new(),
        };
        let verdict = if met { "met" } else { "missed" };
        Some(vec![
            self.what.into_owned(),
            number(Some(value)),
            limit,
            verdict.to_owned(),
        ])
    }
}

/// All aims of a report.
pub(crate) struct Aims(Vec<Aim>);

impl FromIterator<Aim> for Aims {
    fn from_iter<T: IntoIterator<Item = Aim>>(aims: T) -> Self {
        Self(aims.into_iter().collect())
    }
}

impl Aims {
    /// Those that were measured.
    pub(crate) fn table(self) -> Option<String> {
        let rows = self.0.into_iter().filter_map(Aim::row).collect();
        table("Aims", &["what", "worst", "aim", ""], rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aims_are_met_or_missed() {
        let aim = |value, least, most| Aim {
            what: "x".into(),
            value,
            least,
            most,
        };
        let verdict = |aim: Aim| aim.row().and_then(|mut row| row.pop());
        assert_eq!(verdict(aim(None, Some(1.0), None)), None);
        for (value, least, most, expected) in [
            (2.0, Some(1.0), None, "met"),
            (2.0, Some(3.0), None, "missed"),
            (2.0, None, Some(1.0), "missed"),
            (2.0, Some(2.0), Some(2.0), "met"),
            (2.5, Some(2.0), Some(2.4), "missed"),
        ] {
            let found = verdict(aim(Some(value), least, most));
            assert_eq!(found.as_deref(), Some(expected));
        }
    }
}
