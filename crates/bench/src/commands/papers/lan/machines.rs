//! The paper's machines and tools: its tables 2, 3 and 5, and the world that follows from them.

use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use super::farm::Setup;
use super::numbers;

/// Payload of the Ethernet of 10 Mbit/s, in bytes a second: 1460 of 1538 bytes of a frame.
const BYTES_PER_SECOND: f64 = 1_186_605.0;

/// Latency of the Ethernet, in milliseconds. *Assumed*, as in the preset `ethernet-10m-sparc`.
const ETHERNET_MS: f64 = 0.1;

/// Time that a message of Strand waits, in milliseconds: messages up to 3 KiB take 30 ms, whatever
/// their size and the machine (section 3). *Assumed*: all but what P4 needs on the SPARCstation 2 is
/// a wait, in which the processors do other work.
const STRAND_WAIT_MS: f64 = 28.8;

/// Part of a message's cost that its sender has; the rest is the receiver's. *Assumed*.
const SENDER_PART: f64 = 0.5;

/// Sizes of the messages in table 2 whose times make a line, in bytes.
const SIZES: [f64; 2] = [16.0, 65536.0];

/// A machine of the paper, in the order of its numbers in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    Slc,
    /// SPARCstation 2.
    Sparc,
    /// RS6000-320.
    Rs,
    /// HP 9000/720.
    Hp,
}

impl Machine {
    /// Returns the seconds of the sequential fractal and of the ray tracing: tables 3 and 5; of the
    /// two machines in table 4, that table's.
    pub(super) fn seconds(self) -> [f64; 2] {
        ["table-3", "table-5"].map(|id| numbers(id)[self as usize])
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["SLC", "SPARCstation 2", "RS6000", "HP"][*self as usize])
    }
}

/// Software of the paper, in the order of table 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Strand,
    Pvm,
    Sr,
    Linda,
    Ansa,
    P4,
}

/// All tools.
pub(super) const TOOLS: [Tool; 6] =
    [Tool::Strand, Tool::Pvm, Tool::Sr, Tool::Linda, Tool::Ansa, Tool::P4];

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["Strand", "PVM", "SR", "Linda", "ANSA", "P4"][*self as usize])
    }
}

impl Tool {
    /// Returns this tool's place in a line of table 2 as the list has it. The table has no HP, and RS6000 only
    /// with PVM and P4: *assumed* as the SPARCstation 2.
    pub(super) fn place(self, machine: Machine) -> usize {
        match (machine, self) {
            (Machine::Slc, _) => TOOLS.len() + self as usize,
            (Machine::Rs, Self::Pvm) => 2 * TOOLS.len(),
            (Machine::Rs, Self::P4) => 2 * TOOLS.len() + 1,
            _ => self as usize,
        }
    }

    /// Returns the milliseconds of messages of [`SIZES`] between two such machines.
    pub(super) fn times_ms(self, machine: Machine) -> [f64; 2] {
        let (small, large) = numbers("table-2").split_at(numbers("table-2").len() / 2);
        [small, large].map(|times| times[self.place(machine)])
    }

    /// Returns the time in milliseconds between sender and receiver in which neither works.
    fn latency_ms(self) -> f64 {
        if self == Self::Strand { STRAND_WAIT_MS } else { ETHERNET_MS }
    }

    /// Returns the cost of a packet in microseconds and of a byte in nanoseconds that sender and
    /// receiver share: the line through the small and the large message, less wire and wait.
    fn costs(self, machine: Machine) -> (f64, f64) {
        let [small, large] = self.times_ms(machine);
        let byte_ms = (large - small) / (SIZES[1] - SIZES[0]);
        let packet_ms = small - self.latency_ms() - SIZES[0] * byte_ms;
        (packet_ms * 1e3, (byte_ms - 1e3 / BYTES_PER_SECOND).max(0.0) * 1e6)
    }

    /// Returns the time that a message of `bytes` takes the processors of its two ends.
    pub(super) fn processor_time(self, machine: Machine, bytes: u64) -> Duration {
        let (packet_us, byte_ns) = self.costs(machine);
        Duration::from_secs_f64(packet_us / 1e6 + bytes as f64 * byte_ns / 1e9)
    }
}

/// Returns the world of these stations as TOML, the farmer's first.
pub(super) fn world(setup: &Setup) -> String {
    let Setup { tool, picture, stations, changed, .. } = setup;
    let sections = setup.sections();
    let mut text = String::new();
    for section in 0..sections {
        // Writing into a string does not fail.
        let _ = write!(
            text,
            "[[segments]]\nname = \"cable{section}\"\nkind = \"medium\"\nlatency = \"{}ms\"\n\
             bytes_per_second = {}\nslot_time = \"51.2us\"\ncost_per_packet = \"0s\"\n\
             frame_bytes = 1460\nqueue_bytes = 65536\nwindow_bytes = 262144\n",
            tool.latency_ms(),
            BYTES_PER_SECOND * changed.wire,
        );
        if section > 0 {
            let _ = writeln!(text, "[[bridges]]\nbetween = [\"cable0\", \"cable{section}\"]");
        }
    }
    for (index, &machine) in stations.iter().enumerate() {
        let (packet_us, byte_ns) = tool.costs(machine);
        let speed = picture.seconds_on(Machine::Sparc) / picture.seconds_on(machine);
        let farmer = if index == 0 { changed.farmer_costs } else { 1.0 };
        let costs = farmer * changed.costs / changed.power;
        let [high, low] = [index / 26, index % 26].map(|digit| char::from(b'a' + digit as u8));
        let _ = write!(
            text,
            "[[hosts]]\nname = \"host-{high}{low}\"\nsegments = [\"cable{}\"]\ncores = 1\n\
             speed_permille = {:.0}\n",
            setup.section_of(index),
            speed * changed.power * 1e3,
        );
        for (way, part) in [("send", SENDER_PART), ("receive", 1.0 - SENDER_PART)] {
            let [packet_us, byte_ns] = [packet_us, byte_ns].map(|cost| cost * part * costs);
            let _ = write!(
                text,
                "{way}_cost_per_packet = \"{packet_us:.1}us\"\n{way}_cost_per_byte = \"{byte_ns:.1}ns\"\n"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The costs give the times of both messages back.
    #[test]
    fn costs_add_up_to_the_times_of_the_paper() {
        for machine in [Machine::Sparc, Machine::Slc, Machine::Rs] {
            for tool in TOOLS {
                let (packet_us, byte_ns) = tool.costs(machine);
                for (bytes, expected) in SIZES.into_iter().zip(tool.times_ms(machine)) {
                    let wire_ms = tool.latency_ms() + bytes / BYTES_PER_SECOND * 1e3;
                    let ms = packet_us / 1e3 + bytes * byte_ns / 1e6 + wire_ms;
                    let error = (ms - expected).abs() / expected;
                    assert!(error < 0.01, "{tool} {machine} {bytes} B: {ms} for {expected}");
                }
            }
        }
    }
}
