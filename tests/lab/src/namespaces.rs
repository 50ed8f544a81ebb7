//! Two nodes in network namespaces of their own, with faults of the network itself.
//!
//! A pair of virtual interfaces joins the namespaces. The faults are three: the pair is unplugged
//! for a while, so that TCP must cope with lost packets; the system destroys a node's sockets and
//! informs the other node; or both at once, so that the other node is not informed. Needs root, and
//! the programs `ip`, `ss` and `tc`.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use chunkcomm_bench::failure::{Doing, Failure};
use chunkcomm_bench::options::values;
use chunkcomm_bench::stats::percentile_us;
use chunkcomm_bench::table::Row;
use chunkcomm_testkit::proxy::{Direction, Proxy};
use clap::Args;

use super::checks::longest_ns;
use super::processes::Process;
use super::{Lab, Pair, Promises};

/// Addresses of the two sides, of a network reserved for measurements.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 7, 1), Ipv4Addr::new(198, 18, 7, 2)];

/// Pause between two looks whether messages come again: 5 ms.
const LOOK: Duration = Duration::from_millis(5);

/// Plan of the scenario.
#[derive(Debug, Clone, Copy, Args)]
pub struct Plan {
    /// Number of faults of the network
    #[arg(long, value_name = "N", default_value = "20", value_parser = values::times)]
    pub faults: usize,
    /// Mean time for which messages pass before a fault
    #[arg(long, value_name = "DUR", default_value = "300ms", value_parser = values::some_time)]
    pub every: Duration,
    /// Mean time for which the network is unplugged
    #[arg(long, value_name = "DUR", default_value = "700ms", value_parser = values::some_time)]
    pub outage: Duration,
    /// Megabits a second that pass [default: as many as go]
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub mbit: Option<u64>,
    /// Encoded bytes of a message, at least 8
    #[arg(long = "size", value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    pub bytes: usize,
}

/// Fault of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing passes for a while.
    Unplug,
    /// The sockets of one side are destroyed; the other side is informed.
    Destroy(usize),
    /// The sockets of one side are destroyed while nothing passes: the other side is not informed.
    DestroyUnheard(usize),
}

const FAULTS: [Fault; 5] = [
    Fault::Unplug,
    Fault::Destroy(0),
    Fault::Destroy(1),
    Fault::DestroyUnheard(0),
    Fault::DestroyUnheard(1),
];

/// Returns the reason why this machine cannot run the scenario; `None` if it can.
pub fn why_not() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("only Linux has network namespaces".to_owned());
    }
    #[cfg(target_os = "linux")]
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let tools = [("ip", "-V"), ("ss", "-V"), ("tc", "-V")];
    let missing = tools.iter().find(|(tool, option)| quietly(&[tool, option]).is_err())?;
    Some(format!("the program {} is needed", missing.0))
}

/// Runs the scenario.
///
/// # Errors
/// If the namespaces cannot be made, or a process cannot be started or ends.
pub async fn run(
    lab: &mut Lab,
    plan: &Plan,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    row.set("payload_bytes", plan.bytes).set("mbit", plan.mbit);
    let net = Net::new(plan.mbit)?;
    let mut pair = net.pair(lab).await?;
    pair.begin(&[Direction::Forth], plan.bytes).await?;
    let mut resumes = Vec::new();
    for index in 0..plan.faults {
        tokio::time::sleep(lab.about(plan.every)).await;
        // The kinds in turn, each time shifted by 0 or 1 by the seed.
        let fault = FAULTS[(index + lab.random.below(2) as usize) % FAULTS.len()];
        let outage = lab.about(plan.outage);
        net.apply(fault, outage).await?;
        let limit = lab.dead + lab.late_max;
        let Some(gap) = goes_on(&mut pair, limit).await? else {
            promises.hold(false, || {
                format!("{fault:?} for {outage:?}: no message in {} s after it", limit.as_secs())
            });
            break;
        };
        resumes.push(gap.as_nanos() as u64);
    }
    let streams = pair.end(&[Direction::Forth], promises).await?.unwrap_or_default();
    for stream in &streams {
        promises.exactly_once(stream);
        row.set("messages", stream.taken.messages)
            .set("resumes", stream.sent.link.resumes.max(stream.taken.link.resumes))
            .set("packets_resent", stream.sent.link.packets_resent)
            .set("longest_gap_us", longest_ns(&stream.taken.silences) as f64 / 1e3);
    }
    row.set("faults", resumes.len())
        .set("goes_on_p50_us", percentile_us(&resumes, 50))
        .set("goes_on_max_us", percentile_us(&resumes, 100));
    idle(lab, &net, plan, promises, row).await
}

/// Destroys an idle connection without informing its dialler. The session lives on if the other
/// node sends something before its patience ends.
async fn idle(
    lab: &Lab,
    net: &Net,
    plan: &Plan,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    let mut pair = net.pair(lab).await?;
    net.apply(Fault::DestroyUnheard(1), plan.outage).await?;
    // The dialler's system asks after two tenths of the dead time; the acceptor sends after a
    // tenth.
    tokio::time::sleep(lab.dead / 10).await;
    pair.begin(&[Direction::Back], plan.bytes).await?;
    tokio::time::sleep(lab.dead).await;
    let streams = pair.end(&[Direction::Back], promises).await?.unwrap_or_default();
    for stream in &streams {
        promises.exactly_once(stream);
        row.set("idle_survived", stream.sent.error.is_none());
    }
    Ok(())
}

/// Returns the time until the receiver gets messages again; `None` after `limit`.
async fn goes_on(pair: &mut Pair, limit: Duration) -> Result<Option<Duration>, Failure> {
    let started = Instant::now();
    let mut before = None;
    while started.elapsed() < limit {
        let (_, taken) = pair.acceptor.usage().await?;
        let taken: u64 = taken.iter().sum();
        // Messages that arrived before the fault may be taken after it: so the count must grow
        // twice.
        match before {
            Some((count, steps)) if taken > count && steps > 0 => {
                return Ok(Some(started.elapsed()));
            }
            Some((count, steps)) if taken > count => before = Some((taken, steps + 1)),
            Some(_) => {}
            None => before = Some((taken, 0)),
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
}

/// Two namespaces; dropping it removes them.
struct Net {
    names: [String; 2],
    device: &'static str,
}

impl Net {
    fn new(mbit: Option<u64>) -> Result<Self, Failure> {
        let names = ["a", "b"].map(|side| format!("lab-{}-{side}", std::process::id()));
        // Dropped from here on, whichever step fails.
        let net = Self { names, device: "lab0" };
        let [a, b] = &net.names;
        for name in [a, b] {
            run_command(&["ip", "netns", "add", name])?;
        }
        let device = net.device;
        run_command(&[
            "ip", "-n", a, "link", "add", device, "type", "veth", "peer", "name", device, "netns",
            b,
        ])?;
        for (name, address) in net.names.iter().zip(ADDRESSES) {
            let address = format!("{address}/30");
            run_command(&["ip", "-n", name, "address", "add", &address, "dev", device])?;
            run_command(&["ip", "-n", name, "link", "set", "lo", "up"])?;
            run_command(&["ip", "-n", name, "link", "set", device, "up"])?;
            if let Some(mbit) = mbit {
                let rate = format!("{mbit}mbit");
                run_command(&[
                    "tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", "rate", &rate,
                    "burst", "128kb", "latency", "50ms",
                ])?;
            }
        }
        Ok(net)
    }

    /// Starts a node in each namespace, and a link between them.
    async fn pair(&self, lab: &Lab) -> Result<Pair, Failure> {
        let mut lab = lab.clone();
        lab.place.host = ADDRESSES[1].to_string();
        let mut dialler = Process::start_in(&lab, 0, Some(&self.names[0])).await?;
        let mut acceptor = Process::start_in(&lab, 1, Some(&self.names[1])).await?;
        let address: SocketAddr = acceptor.listen().await?;
        let (dialled, met) = tokio::join!(dialler.dial(1, &address), acceptor.meet(1));
        dialled.and(met)?;
        // No link passes this proxy: the faults are the network's.
        let proxy = Proxy::start(address).doing("starting the proxy")?;
        Ok(Pair { dialler, acceptor, proxy, ended: lab.ended() })
    }

    async fn apply(&self, fault: Fault, outage: Duration) -> Result<(), Failure> {
        match fault {
            Fault::Unplug => {
                self.plug(false)?;
                tokio::time::sleep(outage).await;
                self.plug(true)
            }
            Fault::Destroy(side) => self.destroy(side),
            Fault::DestroyUnheard(side) => {
                self.plug(false)?;
                self.destroy(side)?;
                tokio::time::sleep(outage).await;
                self.plug(true)
            }
        }
    }

    /// Plugs the first side in or out; the second side notices as well.
    fn plug(&self, up: bool) -> Result<(), Failure> {
        let state = if up { "up" } else { "down" };
        run_command(&["ip", "-n", &self.names[0], "link", "set", self.device, state])
    }

    fn destroy(&self, side: usize) -> Result<(), Failure> {
        let peer = ADDRESSES[1 - side].to_string();
        run_command(&["ip", "netns", "exec", &self.names[side], "ss", "-K", "dst", &peer])
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            // A namespace that was not made cannot be removed.
            let _ = quietly(&["ip", "netns", "delete", name]);
        }
    }
}

fn quietly(words: &[&str]) -> std::io::Result<std::process::Output> {
    Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output()
}

fn run_command(words: &[&str]) -> Result<(), Failure> {
    let doing = words.join(" ");
    let output = quietly(words).doing(&doing)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::broken(doing, String::from_utf8_lossy(&output.stderr).trim()))
}
