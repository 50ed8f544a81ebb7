//! Straight lines through measured points.

/// A line `intercept + slope * x`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// The value at 0.
    pub intercept: f64,
    /// The growth of the value a unit of x.
    pub slope: f64,
}

/// One measured point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The value that was set.
    pub x: f64,
    /// The value that was measured.
    pub y: f64,
    /// The weight of the point.
    pub weight: f64,
}

impl Point {
    /// Makes a point of weight 1.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, weight: 1.0 }
    }

    /// Makes a point weighted by its relative error. If the values span orders of magnitude, the
    /// largest alone would otherwise decide the line.
    pub fn relative(x: f64, y: f64) -> Self {
        Self { x, y, weight: 1.0 / (y * y) }
    }
}

impl Line {
    /// Returns the line with the least weighted sum of squares; `None` for fewer than two different
    /// x.
    pub fn through(points: &[Point]) -> Option<Self> {
        let sum = |of: &dyn Fn(&Point) -> f64| points.iter().map(|p| p.weight * of(p)).sum::<f64>();
        let weight = sum(&|_| 1.0);
        let (mean_x, mean_y) = (sum(&|p| p.x) / weight, sum(&|p| p.y) / weight);
        // Taken about the means, so that large x do not drown the differences between them.
        let spread = sum(&|p| (p.x - mean_x).powi(2));
        let slope = sum(&|p| (p.x - mean_x) * (p.y - mean_y)) / spread;
        slope.is_finite().then_some(Self { intercept: mean_y - slope * mean_x, slope })
    }

    /// Returns the line's value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// Returns the x at which another line meets this one, if it is positive.
    pub fn meets(&self, other: &Self) -> Option<f64> {
        let x = (self.intercept - other.intercept) / (other.slope - self.slope);
        (x.is_finite() && x > 0.0).then_some(x)
    }

    /// Returns the root of the mean square of the relative errors at the points.
    pub fn relative_error(&self, points: &[Point]) -> f64 {
        let squares = points.iter().map(|p| ((self.at(p.x) - p.y) / p.y).powi(2)).sum::<f64>();
        (squares / points.len() as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line = Line { intercept: 3.5, slope: 0.25 };

    #[test]
    fn a_line_is_found_again_whatever_its_points_count() {
        for make in [Point::new, Point::relative] {
            let points: Vec<_> =
                [0.0, 16.0, 48.0, 1024.0, 65_536.0].iter().map(|&x| make(x, LINE.at(x))).collect();
            let found = Line::through(&points).unwrap();
            assert!((found.intercept - LINE.intercept).abs() < 1e-9, "{found:?}");
            assert!((found.slope - LINE.slope).abs() < 1e-12, "{found:?}");
            assert!(found.relative_error(&points) < 1e-9);
        }
    }

    #[test]
    fn errors_of_both_signs_cancel() {
        let points: Vec<_> = [(0.0, 1.0), (1.0, -1.0), (2.0, -1.0), (3.0, 1.0)]
            .iter()
            .map(|&(x, error)| Point::new(x, LINE.at(x) + error))
            .collect();
        let found = Line::through(&points).unwrap();
        assert!((found.slope - LINE.slope).abs() < 1e-12);
        assert!((found.intercept - LINE.intercept).abs() < 1e-12);
    }

    #[test]
    fn one_point_makes_no_line() {
        assert_eq!(Line::through(&[]), None);
        assert_eq!(Line::through(&[Point::new(1.0, 2.0), Point::new(1.0, 3.0)]), None);
    }

    #[test]
    fn lines_meet_ahead_or_not_at_all() {
        let steeper = Line { intercept: 1.0, slope: 0.5 };
        assert_eq!(LINE.meets(&steeper), Some(10.0));
        assert_eq!(LINE.meets(&Line { intercept: 1.0, slope: 0.125 }), None);
        assert_eq!(LINE.meets(&LINE), None);
    }
}
