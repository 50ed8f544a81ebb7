//! Pictures of curves.

use plotters::prelude::*;

use crate::failure::Failure;

/// Size of a picture in pixels.
const SIZE: (u32, u32) = (640, 400);

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
            let digits = if value.abs() >= 10.0 {
                0
            } else if value.abs() >= 1.0 {
                1
            } else {
                3
            };
            format!("{value:.digits$}")
        };
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(range(|at| at.0, x_log), range(|at| at.1, y_log))?;
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
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
            chart.draw_series(dots)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        area.present()?;
        drop(chart);
        Ok(())
    }
}
