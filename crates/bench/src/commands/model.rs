//! `chunkperf model`: the cost model of "Dynamic chunking in Eden" (sections 3.1 and 4.1), fitted
//! on this machine.
//!
//! Sending a message takes `lambda + beta * bytes` on either path; the lines are fitted to
//! saturated streams of several sizes. The *plain* path is one packet and one write a message, the
//! *chunked* path gathers. Equation (2) of the paper splits the chunked path's time for one message
//! into:
//!
//! * its share of a packet, `lambda * packets / messages`;
//! * its bytes, `(beta + T_copy) * bytes`;
//! * `T_var` for the work of gathering on each message.
//!
//! The packets are counted, and the rest gives `T_copy` and `T_var`. Equation (5) then predicts the
//! saving by gathering, at a size that was kept out of the fit.

use clap::Args;

use super::Verdict;
use crate::failure::Failure;
use crate::fit::{Line, Point};
use crate::harness::near::{Bench, Setting};
use crate::harness::protocol::PolicyKind;
use crate::harness::slices::{self, Contender, Outcome, Plan, Slice, name_of};
use crate::options::{Common, values};
use crate::ours::stream::{StreamKind, near};
use crate::pair;
use crate::stats::median;
use crate::table::{Row, write_out};

/// Sizes of the fit, in bytes: all of the same kind of message, and none above the largest that is
/// staged in a ring. They at least double, so that each of the two terms rules at some sizes.
const SIZES: [usize; 9] = [24, 48, 96, 192, 384, 768, 1536, 3072, 6144];

/// Messages of the first warm-up.
const FIRST_TRY: u64 = 10_000;

/// Options of `chunkperf model`.
#[derive(Debug, Args)]
pub struct ModelArgs {
    #[command(flatten)]
    common: Common,
    /// Encoded bytes of the messages for which the saving is predicted; not part of the fit
    #[arg(long, value_name = "B", default_value = "32", value_parser = values::message_bytes)]
    size: usize,
    /// Messages of all counted slices, a size and path [default: as many as take two seconds]
    #[arg(long, value_name = "N", value_parser = values::count)]
    messages: Option<u64>,
}

/// Both paths at one size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    bytes: f64,
    /// Microseconds a message, one packet each.
    plain_us: f64,
    /// Microseconds a message, gathered.
    chunked_us: f64,
    /// Packets a message, gathered.
    packets: f64,
}

/// The model's terms.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Model {
    plain: Line,
    chunked: Line,
    copy_us_per_byte: f64,
    variable_us: f64,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &ModelArgs) -> Result<Verdict, Failure> {
    let setting = args.common.setting()?;
    let plan = Plan::new(args.messages, FIRST_TRY, true)?;
    let mut bench = pair::start(&setting)?;
    let mut fitted = Vec::new();
    for bytes in SIZES.into_iter().filter(|&bytes| bytes != args.size) {
        fitted.push(measure(&mut bench, &setting, &plan, bytes)?);
    }
    let kept_out = measure(&mut bench, &setting, &plan, args.size)?;
    let model = Model::of(&fitted)
        .ok_or_else(|| Failure::broken("fitting the model", "the measured times make no line"))?;
    let points: Vec<_> = fitted.iter().map(|it| Point::relative(it.bytes, it.plain_us)).collect();
    let mut row = args.row("plain", &model.plain, &points, &kept_out);
    row.set("copy_us_per_byte", None::<f64>)
        .set("variable_us", None::<f64>)
        .set("crossover_bytes", None::<f64>)
        .set("saving_predicted_us", None::<f64>)
        .set("saving_measured_us", None::<f64>)
        .set("messages_per_packet", 1)
        .print(args.common.json);
    let points: Vec<_> = fitted.iter().map(|it| Point::relative(it.bytes, it.chunked_us)).collect();
    if !args.common.json {
        write_out("\n");
    }
    let mut row = args.row("chunked", &model.chunked, &points, &kept_out);
    row.set("copy_us_per_byte", model.copy_us_per_byte)
        .set("variable_us", model.variable_us)
        .set("crossover_bytes", model.plain.meets(&model.chunked))
        .set("saving_predicted_us", model.saving_us(&kept_out))
        .set("saving_measured_us", kept_out.plain_us - kept_out.chunked_us)
        .set("messages_per_packet", 1.0 / kept_out.packets)
        .print(args.common.json);
    Ok(Verdict::Fine)
}

/// Streams on both paths in turn.
fn measure(
    bench: &mut Bench,
    setting: &Setting,
    plan: &Plan,
    bytes: usize,
) -> Result<Measured, Failure> {
    let kind = |policy| StreamKind::of(bytes, setting.node(policy));
    let mut chunked = near(bench, kind(PolicyKind::Chunked))?;
    let mut plain: Option<Box<dyn Contender>> = Some(near(bench, kind(PolicyKind::Unbuffered))?);
    let outcome = slices::run(bench, &mut *chunked, plain.as_mut(), plan)?;
    Ok(Measured {
        bytes: bytes as f64,
        plain_us: us_per_message(&outcome.baseline),
        chunked_us: us_per_message(&outcome.ours),
        packets: packets_per_message(&outcome),
    })
}

fn us_per_message(slices: &[Slice]) -> f64 {
    let times: Vec<f64> = slices.iter().map(|slice| 1e6 / slice.rate()).collect();
    median(&times)
}

/// Returns the packets that carry messages, a message. Packets of acknowledgements and credit are
/// alike on both paths.
fn packets_per_message(outcome: &Outcome) -> f64 {
    let Some(stats) = &outcome.stats else { return f64::NAN };
    stats.message_packets_sent as f64 / stats.messages_sent as f64
}

impl Model {
    fn of(measured: &[Measured]) -> Option<Self> {
        let line = |us: &dyn Fn(&Measured) -> f64| {
            let points: Vec<_> =
                measured.iter().map(|it| Point::relative(it.bytes, us(it))).collect();
            Line::through(&points)
        };
        let plain = line(&|it| it.plain_us)?;
        let chunked = line(&|it| it.chunked_us)?;
        // The times without the packets' own cost, each weighted by the whole time that it is a
        // part of.
        let rest: Vec<_> = measured
            .iter()
            .map(|it| Point {
                y: it.chunked_us - plain.intercept * it.packets,
                ..Point::relative(it.bytes, it.chunked_us)
            })
            .collect();
        let rest = Line::through(&rest)?;
        let copy_us_per_byte = rest.slope - plain.slope;
        Some(Self { plain, chunked, copy_us_per_byte, variable_us: rest.intercept })
    }

    /// Returns the saving a message by equation (5), without its constant: a node is set up once.
    fn saving_us(&self, at: &Measured) -> f64 {
        let saved = 1.0 - at.packets;
        (self.plain.intercept - self.variable_us) * saved
            - self.variable_us * at.packets
            - self.copy_us_per_byte * at.bytes
    }
}

impl ModelArgs {
    fn row(&self, path: &str, line: &Line, points: &[Point], kept_out: &Measured) -> Row {
        let mut row = self.common.row("model");
        row.set("path", path)
            .set("lambda_us", line.intercept)
            .set("beta_us_per_byte", line.slope)
            .set("fit_error", line.relative_error(points))
            .set("sizes", points.len())
            .set("payload_bytes", kept_out.bytes)
            .set("session", name_of(self.common.session));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET_BYTES: f64 = 65_536.0;

    /// Returns times that follow the model to the last digit.
    fn exact(model: &Model, bytes: f64) -> Measured {
        let packets = bytes / PACKET_BYTES;
        let slope = model.plain.slope + model.copy_us_per_byte;
        Measured {
            bytes,
            plain_us: model.plain.at(bytes),
            chunked_us: model.plain.intercept * packets + slope * bytes + model.variable_us,
            packets,
        }
    }

    #[test]
    fn the_terms_are_found_again() {
        let plain = Line { intercept: 4.0, slope: 0.000_3 };
        let made = Model { plain, chunked: plain, copy_us_per_byte: 0.000_1, variable_us: 0.015 };
        let measured: Vec<_> = SIZES.iter().map(|&bytes| exact(&made, bytes as f64)).collect();
        let found = Model::of(&measured).unwrap();
        let near = |found: f64, made: f64| assert!((found / made - 1.0).abs() < 1e-9, "{found}");
        near(found.plain.intercept, 4.0);
        near(found.plain.slope, 0.000_3);
        near(found.copy_us_per_byte, 0.000_1);
        near(found.variable_us, 0.015);
        // The line of the chunked path has the packets' cost in its slope.
        near(found.chunked.intercept, 0.015);
        near(found.chunked.slope, 0.000_4 + 4.0 / PACKET_BYTES);
        // At any size, the fitted ones or not, the prediction is the difference.
        for bytes in [24.0, 32.0, 1000.0, 6144.0] {
            let at = exact(&made, bytes);
            near(found.saving_us(&at), at.plain_us - at.chunked_us);
        }
    }

    #[test]
    fn large_copies_make_the_paths_cross() {
        let plain = Line { intercept: 60.0, slope: 0.1 };
        let made = Model { plain, chunked: plain, copy_us_per_byte: 0.02, variable_us: 36.0 };
        let measured: Vec<_> = SIZES.iter().map(|&bytes| exact(&made, bytes as f64)).collect();
        let found = Model::of(&measured).unwrap();
        let crossing = found.plain.meets(&found.chunked).unwrap();
        let at = exact(&made, crossing);
        assert!((at.plain_us - at.chunked_us).abs() < 1e-6, "{crossing}");
    }
}
