//! The study's machines and tools: its tables 2, 3 and 5, and the world that follows from them.

use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use super::Picture;

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

/// Sizes of the messages in table 2, in bytes.
const SIZES: [f64; 3] = [16.0, 1024.0, 65536.0];

/// A machine of the study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Machine {
    /// SUN SLC.
    Slc,
    /// SPARCstation 2.
    Sparc,
    /// IBM RS6000-320.
    Rs,
    /// HP 9000/720.
    Hp,
}

impl Machine {
    /// Returns the seconds of the sequential fractal and of the ray tracing: tables 3 and 5; of the
    /// two machines in table 4, that table's.
    pub(super) fn seconds(self) -> [f64; 2] {
        match self {
            Self::Slc => [174.00, 1372.0],
            Self::Sparc => [43.95, 388.0],
            Self::Rs => [20.81, 323.0],
            Self::Hp => [17.21, 212.0],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Slc => "slc",
            Self::Sparc => "sparc",
            Self::Rs => "rs",
            Self::Hp => "hp",
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slc => "SLC",
            Self::Sparc => "SPARCstation 2",
            Self::Rs => "RS6000",
            Self::Hp => "HP 9000/720",
        })
    }
}

/// Software of the study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// PVM 2.4.0.
    Pvm,
    /// P4 1.2.
    P4,
    /// ANSA 4.0.
    Ansa,
    /// SR 2.0.
    Sr,
    /// Strand 88.
    Strand,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pvm => "PVM",
            Self::P4 => "P4",
            Self::Ansa => "ANSA",
            Self::Sr => "SR",
            Self::Strand => "Strand",
        })
    }
}

impl Tool {
    /// Returns the times of messages of [`SIZES`] between two such machines: table 2, in
    /// milliseconds. Table 2 has no HP, and RS6000 only with PVM and P4: *assumed* as the
    /// SPARCstation 2.
    fn times_ms(self, machine: Machine) -> [f64; 3] {
        match (self, machine) {
            (Self::Pvm, Machine::Slc) => [6.6, 9.5, 203.9],
            (Self::Pvm, Machine::Rs) => [8.9, 10.7, 190.8],
            (Self::Pvm, _) => [3.6, 5.5, 120.2],
            (Self::P4, Machine::Slc) => [2.4, 3.3, 107.9],
            (Self::P4, Machine::Rs) => [3.7, 4.3, 122.2],
            (Self::P4, _) => [1.2, 2.2, 71.9],
            (Self::Ansa, Machine::Slc) => [3.1, 6.1, 236.5],
            (Self::Ansa, _) => [1.6, 3.3, 213.1],
            (Self::Sr, Machine::Slc) => [6.2, 10.2, 150.7],
            (Self::Sr, _) => [5.1, 5.0, 98.8],
            (Self::Strand, Machine::Slc) => [30.1, 30.2, 146.2],
            (Self::Strand, _) => [30.0, 30.0, 124.8],
        }
    }

    /// Returns the time in milliseconds between sender and receiver in which neither works.
    fn latency_ms(self) -> f64 {
        if self == Self::Strand { STRAND_WAIT_MS } else { ETHERNET_MS }
    }

    /// Returns the cost of a packet in microseconds and of a byte in nanoseconds that sender and
    /// receiver share: the line through the small and the large message, less wire and wait.
    fn costs(self, machine: Machine) -> (f64, f64) {
        let [small, middle, large] = self.times_ms(machine);
        let byte_ms = (large - middle) / (SIZES[2] - SIZES[1]);
        let packet_ms = small - self.latency_ms() - SIZES[0] / BYTES_PER_SECOND * 1e3;
        (packet_ms * 1e3, (byte_ms - 1e3 / BYTES_PER_SECOND).max(0.0) * 1e6)
    }

    /// Returns the time that a message of `bytes` takes the processors of its two ends.
    pub(super) fn processor_time(self, machine: Machine, bytes: u64) -> Duration {
        let (packet_us, byte_ns) = self.costs(machine);
        Duration::from_secs_f64(packet_us / 1e6 + bytes as f64 * byte_ns / 1e9)
    }
}

/// Returns the world of these stations as TOML, the first one first.
pub(super) fn world(tool: Tool, picture: Picture, stations: &[Machine]) -> String {
    let latency_ms = tool.latency_ms();
    let mut text = format!(
        "[[segments]]\nname = \"ethernet\"\nkind = \"medium\"\nlatency = \"{latency_ms}ms\"\n\
         bytes_per_second = {BYTES_PER_SECOND}\nslot_time = \"51.2us\"\ncost_per_packet = \"0s\"\n\
         frame_bytes = 1460\nqueue_bytes = 65536\nwindow_bytes = 262144\n"
    );
    for (index, &machine) in stations.iter().enumerate() {
        let (packet_us, byte_ns) = tool.costs(machine);
        let speed = picture.seconds_on(Machine::Sparc) / picture.seconds_on(machine) * 1e3;
        let letter = char::from(b'a' + index as u8);
        // Writing into a string does not fail.
        let _ = write!(
            text,
            "[[hosts]]\nname = \"{}-{letter}\"\nsegments = [\"ethernet\"]\nspeed_permille = {speed:.0}\n",
            machine.name(),
        );
        for (way, part) in [("send", SENDER_PART), ("receive", 1.0 - SENDER_PART)] {
            let (packet_us, byte_ns) = (packet_us * part, byte_ns * part);
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

    /// The costs give the times of the small and the large message back. The middle one lies off
    /// their line, by up to 30 % with P4.
    #[test]
    fn costs_add_up_to_the_times_of_the_study() {
        for machine in [Machine::Sparc, Machine::Slc, Machine::Rs] {
            for tool in [Tool::Pvm, Tool::P4, Tool::Strand] {
                let (packet_us, byte_ns) = tool.costs(machine);
                let times = SIZES.into_iter().zip(tool.times_ms(machine));
                for ((bytes, expected), error_max) in times.zip([0.03, 0.3, 0.03]) {
                    let wire_ms = tool.latency_ms() + bytes / BYTES_PER_SECOND * 1e3;
                    let ms = packet_us / 1e3 + bytes * byte_ns / 1e6 + wire_ms;
                    let error = (ms - expected).abs() / expected;
                    assert!(error < error_max, "{tool} {machine} {bytes} B: {ms} for {expected}");
                }
            }
        }
    }
}
