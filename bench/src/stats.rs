//! Numbers made of measurements.

/// The value in the middle; the lower one of two.
///
/// # Panics
/// If there are no values.
#[must_use]
pub fn median(mut values: Vec<u64>) -> u64 {
    assert!(!values.is_empty(), "no values");
    values.sort_unstable();
    values[(values.len() - 1) / 2]
}

/// A straight line through points by least squares: what each step costs, what comes before the first, and how much of
/// the variation the line explains (1 is all).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Cost of one more.
    pub slope: f64,
    /// Cost of none.
    pub intercept: f64,
    /// Share of the variation that the line explains.
    pub r_squared: f64,
}

impl Line {
    /// Fits a line to `(x, y)`.
    #[must_use]
    pub fn fit(points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let sum =
            |value: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, y)| value(x - mean_x, y - mean_y)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        let slope = xy / xx;
        let r_squared = if yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) };
        Self { slope, intercept: mean_y - slope * mean_x, r_squared }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3]), 3);
        assert_eq!(median(vec![9, 1, 5]), 5);
        assert_eq!(median(vec![9, 1, 5, 4]), 4);
    }

    #[test]
    fn lines() {
        let line = Line::fit(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]);
        assert_eq!(line, Line { slope: 2.0, intercept: 1.0, r_squared: 1.0 });
        let bent = Line::fit(&[(0.0, 0.0), (1.0, 1.0), (2.0, 4.0), (3.0, 9.0)]);
        assert!(bent.r_squared < 0.95);
    }
}
