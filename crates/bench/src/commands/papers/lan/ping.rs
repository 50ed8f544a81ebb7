//! Messages between two stations (section 3).

use bytes::Bytes;
use chunkcomm::host::Instant;
use chunkcomm_cluster::Cluster;
use chunkcomm_simulation::WorldSpec;

use super::farm::Setup;
use super::machines::{Machine, TOOLS, Tool, world};
use super::{is_near, numbers, percent};
use crate::commands::papers::{Curves, Found, Scene};
use crate::failure::{Doing, Failure};
use crate::fit::{Line, Point};
use crate::lan::{LanArgs, run_world};
use crate::stats::median;
use crate::table::{Column, Row, column};

use chunkcomm_farm::settings::Model;

/// Bytes of the messages: those of table 2, and more for the curves of figures 2 and 3.
const LENGTHS: [usize; 9] = [16, 256, 1024, 3072, 8192, 16384, 32768, 49152, 65536];

/// Round trips of a length; the first is not timed.
const TURNS: u32 = 4;

/// Difference at which a time counts as the paper's.
const NEAR: f64 = 0.1;

/// Pairs of stations of table 2.
const PAIRS: [(&str, [Machine; 2]); 4] = [
    ("SPARCstation 2", [Machine::Sparc; 2]),
    ("SLC", [Machine::Slc; 2]),
    ("RS6000", [Machine::Rs; 2]),
    ("mixed", [Machine::Sparc, Machine::Slc]),
];

const MACHINE_COLUMNS: [Column; 3] = [
    column("machine", "machine", 0),
    column("fractal", "fractal, s", 0),
    column("rays", "rays, s", 0),
];

/// Milliseconds of all lengths one way.
type Times = Vec<f64>;

/// Runs the ping-pong of all tools and pairs.
pub(super) fn ping(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let mut times: Vec<(Tool, usize, Times)> = Vec::new();
    let mut rows = Vec::new();
    for (pair, &(name, stations)) in PAIRS.iter().enumerate() {
        for tool in TOOLS {
            let is_there = pair != 2 || matches!(tool, Tool::Pvm | Tool::P4);
            if is_there && (!scene.settings.quick || tool == Tool::P4) {
                let ms = times_ms(tool, stations)?;
                let mut row = Row::default();
                row.set("tool", tool.to_string()).set("stations", name);
                row.set("b16", ms[0]).set("b1024", ms[2]).set("b3072", ms[3]).set("b65536", ms[8]);
                let [small, large] = tool.times_ms(stations[0]);
                let is_equal = stations[0] == stations[1];
                row.set("table_16", is_equal.then_some(small));
                row.set("table_65536", is_equal.then_some(large));
                rows.push(row);
                times.push((tool, pair, ms));
            }
        }
    }
    let columns = [
        column("tool", "tool", 0),
        column("stations", "stations", 0),
        column("b16", "16 B, ms", 0),
        column("b1024", "1 KB, ms", 0),
        column("b3072", "3 KB, ms", 0),
        column("b65536", "64 KB, ms", 0),
        column("table_16", "table 2, 16 B", 0),
        column("table_65536", "table 2, 64 KB", 0),
    ];
    found.table("messages", &columns, rows);
    found.table("machines: table 3, table 5", &MACHINE_COLUMNS, machines());
    if scene.settings.quick {
        return Ok(());
    }
    let of = |tool: Tool, pair: usize| {
        let it = times.iter().find(|it| it.0 == tool && it.1 == pair);
        it.map_or(&[][..], |it| &it.2)
    };
    let curve = |tool: Tool| {
        let points = LENGTHS.iter().zip(of(tool, 0));
        (tool.to_string(), points.map(|(&bytes, &ms)| (bytes as f64, ms)).collect())
    };
    found.curves(Curves {
        name: "messages",
        title: "Figures 2 and 3: between two SPARCstation 2".to_owned(),
        x: ("bytes", true),
        y: ("ms", true),
        lines: TOOLS.map(curve).to_vec(),
    });
    let near = |pairs: Vec<(f64, f64)>| {
        let count = pairs.iter().filter(|(ours, theirs)| is_near(*ours, *theirs, NEAR)).count();
        (count == pairs.len(), format!("{count} of {} within 10 %", pairs.len()))
    };
    let equal = [0, 1, 2].into_iter().flat_map(|pair| TOOLS.map(|tool| (tool, pair)));
    let equal = equal.filter(|&(tool, pair)| !of(tool, pair).is_empty());
    let one_kbyte = equal.map(|(tool, pair)| {
        let theirs = numbers("one-kbyte")[tool.place(PAIRS[pair].1[0])];
        (of(tool, pair)[2], theirs)
    });
    let (holds, ours) = near(one_kbyte.collect());
    found.verdict("one-kbyte", holds, ours);
    let mixed = numbers("mixed-pair").chunks(TOOLS.len()).zip([0, 2, 8]);
    let mixed = mixed.flat_map(|(theirs, length)| {
        TOOLS.into_iter().zip(theirs).map(move |(tool, theirs)| (of(tool, 3)[length], *theirs))
    });
    let (holds, ours) = near(mixed.collect());
    found.verdict("mixed-pair", holds, ours);
    order(found, |tool, pair, length| of(tool, pair)[length]);
    // Gains of a pair of SPARCstation 2 against another pair, over tools and the lengths of table 2.
    let gain = |pair| {
        let all = TOOLS.into_iter().flat_map(|tool| [0, 2, 8].map(|length| (tool, length)));
        let all = all.map(|(tool, length)| 1.0 - of(tool, 0)[length] / of(tool, pair)[length]);
        median(&all.collect::<Vec<_>>())
    };
    for (id, pair) in [("sparc-10-percent", 3), ("sparc-20-percent", 1)] {
        let (ours, theirs) = (gain(pair), numbers(id)[0] / 100.0);
        found.verdict(id, is_near(ours, theirs, 0.5), format!("{} in the middle", percent(ours)));
    }
    let loses = |tool| of(tool, 2).iter().zip(of(tool, 0)).all(|(rs, sparc)| rs > sparc);
    let strongest =
        [Machine::Slc, Machine::Sparc].iter().all(|it| it.seconds()[0] > Machine::Rs.seconds()[0]);
    let factor = of(Tool::Pvm, 2)[8] / of(Tool::Pvm, 0)[8];
    let ours = format!("PVM's 64 KB: {factor:.2} times");
    found.verdict("rs-disappoints", strongest && loses(Tool::Pvm) && loses(Tool::P4), ours);
    // Error of the line through the times of a tool; Strand's from 8 KB on.
    let error = |tool: Tool| {
        let points = LENGTHS.iter().zip(of(tool, 0)).skip(if tool == Tool::Strand { 4 } else { 0 });
        let points: Vec<_> = points.map(|(&at, &ms)| Point::relative(at as f64, ms)).collect();
        Line::through(&points).map_or(f64::NAN, |line| line.relative_error(&points))
    };
    let lines = [Tool::Pvm, Tool::P4, Tool::Ansa, Tool::Linda, Tool::Strand];
    let error = lines.into_iter().map(error).fold(0.0, f64::max);
    found.verdict("nearly-linear", error < NEAR, format!("lines are {} off", percent(error)));
    let (most, least) = (of(Tool::Strand, 0)[3], of(Tool::Strand, 0)[0]);
    let flat = is_near(most, numbers("strand-30-ms")[0], NEAR);
    found.verdict("strand-30-ms", flat, format!("{least:.1} to {most:.1} ms"));
    Ok(())
}

/// Judges the orders of the tools.
fn order(found: &mut Found, of: impl Fn(Tool, usize, usize) -> f64) {
    use super::machines::Tool::{Ansa, Linda, P4, Pvm, Sr, Strand};
    let by_time = |pair, length| {
        let mut tools = TOOLS;
        tools.sort_by(|one, other| of(*one, pair, length).total_cmp(&of(*other, pair, length)));
        tools
    };
    let told = |tools: [Tool; 6]| tools.map(|tool| tool.to_string()).join(" ");
    let [small, large] = [by_time(0, 0), by_time(0, 8)];
    let equal = (0..2).flat_map(|pair| (0..LENGTHS.len()).map(move |length| (pair, length)));
    let first = equal.filter(|&(pair, length)| by_time(pair, length)[0] == P4).count();
    let ours = format!("in {first} of {}", 2 * LENGTHS.len());
    found.verdict("p4-fastest", first == 2 * LENGTHS.len(), ours);
    found.verdict("order-small", small == [P4, Ansa, Linda, Sr, Pvm, Strand], told(small));
    found.verdict("order-large", large == [P4, Linda, Strand, Sr, Pvm, Ansa], told(large));
    let [strand, ansa] = [Strand, Ansa].map(|tool| of(tool, 0, 8));
    found.verdict("strand-beats-ansa", strand < ansa, format!("{strand:.0}, {ansa:.0} ms"));
    let other = by_time(1, 8);
    found.verdict("order-by-hardware", other != large, told(other));
}

/// Returns the milliseconds of messages of [`LENGTHS`] one way: half of a round trip.
fn times_ms(tool: Tool, stations: [Machine; 2]) -> Result<Times, Failure> {
    let setup = Setup { stations: stations.to_vec(), ..Setup::of(tool, stations[0], 2, Model::B) };
    let world = WorldSpec::from_toml(&world(&setup)).doing("reading the world of the paper")?;
    let lan = LanArgs { lan: String::new(), trace: None, check: false };
    let ran = run_world(&lan, &world, 2, |cluster| async move { play(&cluster).await })?;
    Ok(ran.results.into_iter().next().unwrap_or_default())
}

/// Sends messages to the other rank and back.
async fn play(cluster: &Cluster) -> Result<Times, Failure> {
    let (node, doing) = (cluster.node(), "playing ping-pong");
    if cluster.rank() > 0 {
        let (_, mut ends) = node.accept_duplex_bytes("ping").await.doing(doing)?;
        while let Some(message) = ends.recv().await.doing(doing)? {
            ends.send(message).await.doing(doing)?;
        }
        return Ok(Vec::new());
    }
    let peer = cluster.peer(1).await.doing(doing)?;
    let mut ends = node.open_duplex_bytes(&peer, "ping").await.doing(doing)?;
    let mut times = Vec::new();
    for bytes in LENGTHS {
        let message = Bytes::from(vec![0_u8; bytes]);
        let mut begun = Instant::now();
        for turn in 0..TURNS {
            if turn == 1 {
                begun = Instant::now();
            }
            ends.send(message.clone()).await.doing(doing)?;
            ends.recv().await.doing(doing)?;
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3 / f64::from(2 * (TURNS - 1)));
    }
    Ok(times)
}

/// Returns the machines of the paper and the seconds of its sequential programs.
fn machines() -> Vec<Row> {
    const NAMES: [&str; 6] = ["SLC", "SPARCstation 2", "RS6000", "HP", "T800", "Intel 486"];
    let [fractal, rays] = ["table-3", "table-5"].map(numbers);
    let rows = NAMES.into_iter().zip(fractal.iter().zip(rays)).map(|(name, (fractal, rays))| {
        let mut row = Row::default();
        row.set("machine", name).set("fractal", *fractal).set("rays", *rays);
        row
    });
    rows.collect()
}
