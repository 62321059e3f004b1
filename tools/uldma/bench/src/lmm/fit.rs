// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cost as something fixed plus something per page.

/// A line through costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fit {
    /// Cost of no page at all.
    pub(crate) fixed: f64,
    /// Cost of each page.
    pub(crate) page: f64,
}

/// Least squares of relative errors over (pages, cost): sizes span three powers of ten, and with
/// absolute errors the largest alone would decide. None for less than two different sizes.
pub(crate) fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(x, y) in points {
        let weight = 1.0 / (y * y);
        w += weight;
        wx += weight * x;
        wy += weight * y;
        wxx += weight * x * x;
        wxy += weight * x * y;
    }
    let determinant = w * wxx - wx * wx;
    let fit = Fit {
        fixed: (wxx * wy - wx * wxy) / determinant,
        page: (w * wxy - wx * wy) / determinant,
    };
    (fit.fixed.is_finite() && fit.page.is_finite()).then_some(fit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lmm::paper;

    #[test]
    fn a_line_is_found() {
        let points = [1.0, 2.0, 4.0, 8.0].map(|x| (x, 5.0 + 2.0 * x));
        let fit = fit(&points).unwrap();
        assert!((fit.fixed - 5.0).abs() < 1e-9 && (fit.page - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_line_needs_two_points() {
        assert_eq!(fit(&[(1.0, 5.0)]), None);
        assert_eq!(fit(&[]), None);
    }

    #[test]
    fn the_papers_tables_are_near_their_lines() {
        let near = |table: &[f64; 13], fixed: f64, page: f64| {
            let fit = fit(&paper::points(table)).unwrap();
            let text = format!("{fit:?} for {fixed} + {page}");
            assert!((fit.fixed / fixed - 1.0).abs() < 0.03, "{text}");
            assert!((fit.page / page - 1.0).abs() < 0.03, "{text}");
        };
        near(&paper::SECOND.register, 5.6, 1.32);
        near(&paper::SECOND.deregister, 3.8, 0.37);
        near(&paper::FIRST.register, 6.1, 1.31);
        near(&paper::FIRST.deregister, 4.3, 0.38);
    }
}
