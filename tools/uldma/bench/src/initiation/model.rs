// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cost of an initiation as something fixed, something for each store and something for each load.

/// What it is made of, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Model {
    /// Without any access to the device.
    pub(crate) fixed: f64,
    pub(crate) store: f64,
    pub(crate) load: f64,
}

impl Model {
    /// What it says of so many stores and loads.
    pub(crate) fn cost(self, stores: f64, loads: f64) -> f64 {
        self.fixed + stores * self.store + loads * self.load
    }
}

/// An initiation: its stores, its loads, and its cost.
pub(crate) type Point = (f64, f64, f64);

/// Least squares of relative errors, for methods differ by more than a power of ten; none where the
/// points do not tell stores, loads and the rest apart.
pub(crate) fn fit(points: &[Point]) -> Option<Model> {
    // Normal equations: three rows of four.
    let mut rows = [[0.0; 4]; 3];
    for &(stores, loads, cost) in points {
        let weight = 1.0 / (cost * cost);
        let terms = [1.0, stores, loads, cost];
        for (row, left) in rows.iter_mut().zip(terms) {
            for (cell, right) in row.iter_mut().zip(terms) {
                *cell += weight * left * right;
            }
        }
    }
    let [fixed, store, load] = solve(rows)?;
    Some(Model { fixed, store, load })
}

/// Gauss and Jordan, with the largest element of each column first.
fn solve(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    // Relative to what the rows begin with: the unit is of no account.
    let tiny = 1e-9
        * rows
            .iter()
            .flatten()
            .fold(0.0, |most: f64, x| most.max(x.abs()));
    for column in 0..3 {
        let largest = (column..3).max_by(|&left, &right| {
            let (left, right): (f64, f64) = (rows[left][column], rows[right][column]);
            left.abs().total_cmp(&right.abs())
        })?;
        rows.swap(column, largest);
        let pivot = rows[column];
        if pivot[column].abs() <= tiny {
            return None;
        }
        for (number, row) in rows.iter_mut().enumerate() {
            if number != column {
                let factor = row[column] / pivot[column];
                for (cell, above) in row.iter_mut().zip(pivot) {
                    *cell -= factor * above;
                }
            }
        }
    }
    Some([0, 1, 2].map(|number| rows[number][3] / rows[number][number]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_found() {
        let is = Model {
            fixed: 20.0,
            store: 300.0,
            load: 700.0,
        };
        let points: Vec<Point> = [(1.0, 1.0), (3.0, 1.0), (2.0, 3.0), (1.0, 0.0), (0.0, 0.0)]
            .into_iter()
            .map(|(stores, loads)| (stores, loads, is.cost(stores, loads)))
            .collect();
        let found = fit(&points).unwrap();
        for (found, is) in [
            (found.fixed, is.fixed),
            (found.store, is.store),
            (found.load, is.load),
        ] {
            assert!((found / is - 1.0).abs() < 1e-6, "{found} {is}");
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_not() {
        let line: Vec<Point> = (1..5)
            .map(|count| (f64::from(count), f64::from(count), f64::from(count)))
            .collect();
        assert_eq!(fit(&line), None);
        assert_eq!(fit(&[]), None);
    }
}
