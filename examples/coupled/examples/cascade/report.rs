//! The table of the times.

use std::time::Duration;

use chunkcomm_examples::command_line::ratio;

use super::options::Options;

pub(crate) struct Measured {
    pub(crate) delta_bytes: usize,
    pub(crate) sequential: Duration,
    pub(crate) whole: Vec<Duration>,
    pub(crate) delta: Vec<Duration>,
}

impl Measured {
    pub(crate) fn report(&self, nodes: usize, options: &Options) -> String {
        let elements = options.size / size_of::<f32>();
        let mut lines = vec![
            format!(
                "{nodes} nodes, {elements} numbers ({} bytes), compute {}, increments of {} bytes",
                options.size, options.compute, self.delta_bytes
            ),
            format!("{:<16} {:>12} {:>12} {:>10}", "", "median ms", "fastest ms", "speed-up"),
        ];
        let sequential = [self.sequential];
        let rows = [
            ("one process", &sequential[..]),
            ("whole buffers", &self.whole),
            ("deltas", &self.delta),
        ];
        for (name, times) in rows {
            let speedup = ratio(median_ms(&self.whole) / median_ms(times), 2);
            let (median, fastest) =
                (median_ms(times), times.iter().min().map_or(f64::NAN, |time| ms(*time)));
            lines.push(format!("{name:<16} {median:>12.3} {fastest:>12.3} {speedup:>10}"));
        }
        let results = 2 * (options.repeats + 1);
        lines.push(format!("all {results} results equal the sequential one, element by element"));
        lines.push(String::new());
        lines.join("\n")
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median_ms(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    (ms(low) + ms(high)) / 2.0
}
