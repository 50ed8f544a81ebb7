//! Pictures of curves.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::failure::Failure;

/// Size of a picture in pixels.
const SIZE: (u32, u32) = (760, 400);

/// Pixels of the curves; their names stand behind.
const CURVES_WIDTH: u32 = 580;

/// Most marks of an axis.
const MARKS_MAX: usize = 9;

/// Curves over one axis.
#[derive(Debug, Clone)]
pub struct Curves {
    /// Name of the file, without its paper and its ending.
    pub name: &'static str,
    /// Heading.
    pub title: String,
    /// Name of the axis below, and whether it is logarithmic.
    pub x: (&'static str, bool),
    /// Name of the axis beside, and whether it is logarithmic.
    pub y: (&'static str, bool),
    /// Names and points.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Curves {
    /// Returns the picture as SVG.
    ///
    /// # Errors
    /// If there are no points, or one has no place on the axes.
    pub fn to_svg(&self) -> Result<String, Failure> {
        let mut svg = String::new();
        let points = self.lines.iter().flat_map(|(_, points)| points);
        let is_there = |value: f64, log: bool| value.is_finite() && (!log || value > 0.0);
        let mut points = points.map(|(x, y)| is_there(*x, self.x.1) && is_there(*y, self.y.1));
        if !points.next().is_some_and(|first| first && points.all(|it| it)) {
            return Err(Failure::broken("drawing curves", "a point is missing or has no place"));
        }
        self.draw(&mut svg).map_err(|error| Failure::broken("drawing curves", error))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let ((x_name, x_log), (y_name, y_log)) = (self.x, self.y);
        let scaled = |value: f64, log: bool| if log { value.log10() } else { value };
        let lines: Vec<Vec<(f64, f64)>> = self
            .lines
            .iter()
            .map(|(_, points)| {
                points.iter().map(|(x, y)| (scaled(*x, x_log), scaled(*y, y_log))).collect()
            })
            .collect();
        let range = |of: fn(&(f64, f64)) -> f64, log: bool| {
            let values = lines.iter().flatten().map(of);
            let least = values.clone().fold(if log { f64::INFINITY } else { 0.0 }, f64::min);
            least..values.fold(f64::NEG_INFINITY, f64::max).max(least + 1e-9)
        };
        let told = |value: &f64, log: bool| {
            let value = if log { 10_f64.powf(*value) } else { *value };
            // Marks have few digits; the rest is rounding.
            let rounded = (value * 1e6).round() / 1e6;
            rounded.to_string()
        };
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (left, right) = area.split_horizontally(CURVES_WIDTH);
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(
                Axis::new(range(|at| at.0, x_log), x_log),
                Axis::new(range(|at| at.1, y_log), y_log),
            )?;
        chart
            .configure_mesh()
            .x_desc(x_name)
            .y_desc(y_name)
            .x_label_formatter(&|value| told(value, x_log))
            .y_label_formatter(&|value| told(value, y_log))
            .light_line_style(WHITE)
            .draw()?;
        for (index, (points, (name, _))) in lines.into_iter().zip(&self.lines).enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            let dots = points.clone().into_iter().map(|at| Circle::new(at, 2, colour.filled()));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
            chart.draw_series(dots)?;
            let y = 48 + 20 * index as i32;
            right.draw(&PathElement::new([(4, y), (24, y)], colour.stroke_width(2)))?;
            right.draw(&Text::new(name.as_str(), (30, y - 6), ("sans-serif", 12)))?;
        }
        area.present()?;
        drop(chart);
        Ok(())
    }
}

/// An axis, and its marks.
struct Axis {
    range: Range<f64>,
    marks: Vec<f64>,
}

impl Axis {
    fn new(range: Range<f64>, log: bool) -> Self {
        Self { marks: marks(&range, log), range }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range.clone()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Returns the marks of an axis, of a logarithmic one as logarithms: multiples of 1, 2 or 5 and a power of 10.
fn marks(range: &Range<f64>, log: bool) -> Vec<f64> {
    let is_within = |mark: &f64| (range.start - 1e-9..=range.end + 1e-9).contains(mark);
    let powers = || (-9..=9).map(|power| 10_f64.powi(power));
    if log {
        let of = |factors: &[f64]| -> Vec<f64> {
            let all = powers().flat_map(|power| factors.iter().map(move |it| (it * power).log10()));
            all.filter(is_within).collect()
        };
        let fine = of(&[1.0, 2.0, 5.0]);
        return if fine.len() > MARKS_MAX { of(&[1.0]) } else { fine };
    }
    let steps = powers().flat_map(|power| [power, 2.0 * power, 5.0 * power]);
    let count = |step: f64| (range.end / step) as usize + 1;
    let step = steps.into_iter().find(|step| count(*step) <= MARKS_MAX).unwrap_or(range.end);
    (0..count(step)).map(|index| index as f64 * step).collect()
}
