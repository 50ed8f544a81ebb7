//! The report of rank 0.

use chunkcomm_examples::farm_report::Report;

use super::options::Options;
use super::solve::Solved;

/// Returns the sides of the blocks as a text.
fn shape(options: &Options) -> String {
    options.geometry().blocks().map(|it| format!("{0} x {0}", it.side)).join(", ")
}

fn form(options: &Options) -> &'static str {
    if options.data_parallel { "data-parallel" } else { "concurrent" }
}

/// Returns one line of JSON about a run: the ranks of its groups, what they found, how many values were checked.
pub(crate) fn json(
    options: &Options,
    groups: &[usize],
    solved: &Solved,
    checked: Option<usize>,
) -> String {
    let mut line = serde_json::json!({
        "program": "multiblock",
        "form": form(options),
        "ranks": groups,
        "shape": shape(options),
        "seconds": solved.seconds,
        "seconds_a_sweep": solved.seconds_a_sweep,
        "sweeps": solved.sweeps,
        "residual": solved.residual(),
    });
    if let Some(elements) = checked {
        line["elements_checked"] = elements.into();
    }
    format!("{line}\n")
}

/// Returns the same as a table.
pub(crate) fn table(
    options: &Options,
    groups: &[usize],
    solved: &Solved,
    checked: Option<usize>,
) -> String {
    let mut report = Report::default();
    report.row("blocks", shape(options));
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    report.row("ranks", format_args!("{}, {}", groups.join(" + "), form(options)));
    report.row("sweeps", solved.sweeps);
    report.row("residual", format_args!("{:.3e} of the first", solved.residual()));
    let (seconds, ms) = (solved.seconds, 1e3 * solved.seconds_a_sweep);
    report.row("time", format_args!("{seconds:.4} s, {ms:.4} ms a sweep"));
    report.row("written", options.output.display());
    if let Some(path) = &options.npy {
        report.row("", path.display());
    }
    if let Some(elements) = checked {
        report.row(
            "check",
            format_args!("{elements} values equal those of one process, bit for bit"),
        );
    }
    report.text().to_owned()
}
