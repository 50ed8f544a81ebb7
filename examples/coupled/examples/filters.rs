//! A picture through a chain of filters, one a node: each filters the rows that have landed while the
//! ones before it filter the next. Rank 0 compares the result with that of one process.
//!
//! ```text
//! cargo run --release --example filters -- --output edges.png --trace chain.json
//! ```
//!
//! The trace shows at what time each node filtered which rows; `chrome://tracing` and
//! <https://ui.perfetto.dev> open it.

use std::error::Error;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm::stats::trace::TraceEvents;
use chunkcomm::{Node, Peer};
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_examples::command_line::{numbers, parse_with, write_out};
use chunkcomm_examples::picture::{self, Pixel, check_output};
use chunkcomm_examples::program::failed;
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
use clap::Parser;

/// The picture of the example `mandelbrot`.
const PICTURE: &[u8] = include_bytes!("../../../docs/mandelbrot.png");
const DEADLINE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error>;

/// Sends a picture through a chain of filters, one a node: blur, edges, thicken, and again.
#[derive(Parser)]
#[command(name = "filters", version)]
struct Options {
    /// Nodes of this machine, the first of which reads the picture and takes the result
    #[arg(long, value_name = "N", value_parser = numbers::<u32>(2..=64), default_value_t = 4)]
    nodes: u32,

    /// PNG file to filter, in its shades of grey [default: a picture of the example mandelbrot]
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,

    /// Rows that a node filters before they may leave
    #[arg(long, value_name = "N", value_parser = numbers::<usize>(1..=16_384), default_value_t = 8)]
    rows: usize,

    /// PNG file for the result
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// JSON file for the trace
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// A filter of the chain.
struct Filter {
    name: &'static str,
    /// Rows and columns that it looks at beside its own, in each direction.
    reach: usize,
    /// Shade of a pixel, from those in its reach.
    shade: fn(&Shades<'_>, usize, usize) -> u8,
}

const FILTERS: [Filter; 3] = [
    Filter { name: "blur", reach: 4, shade: |shades, x, y| shades.mean(x, y, 4) },
    Filter { name: "edges", reach: 1, shade: |shades, x, y| shades.slope(x, y) },
    Filter { name: "thicken", reach: 3, shade: |shades, x, y| shades.lightest(x, y, 3) },
];

impl Filter {
    /// Returns the filter of a rank from 1 on.
    fn of(rank: u32) -> &'static Filter {
        &FILTERS[(rank as usize - 1) % FILTERS.len()]
    }

    /// Filters the rows from `first` on into `filtered`.
    fn filter(&self, shades: &Shades<'_>, first: usize, filtered: &mut [u8]) {
        for (row, y) in filtered.chunks_mut(shades.width).zip(first..) {
            for (shade, x) in row.iter_mut().zip(0..) {
                *shade = (self.shade)(shades, x, y);
            }
        }
    }
}

/// Shades of a picture, row by row; the rows of the end may be missing.
struct Shades<'a> {
    shades: &'a [u8],
    width: usize,
    height: usize,
}

impl Shades<'_> {
    /// Returns the shades in a square around a pixel; the border counts as often as it is passed.
    fn around(&self, x: usize, y: usize, reach: usize) -> impl Iterator<Item = u8> {
        let near = move |at: usize, end: usize| {
            (at..=at + 2 * reach).map(move |at| at.saturating_sub(reach).min(end - 1))
        };
        let row = |y: usize| &self.shades[y * self.width..(y + 1) * self.width];
        near(y, self.height).flat_map(move |y| near(x, self.width).map(move |x| row(y)[x]))
    }

    fn mean(&self, x: usize, y: usize, reach: usize) -> u8 {
        let sum: usize = self.around(x, y, reach).map(usize::from).sum();
        (sum / (2 * reach + 1).pow(2)) as u8
    }

    fn lightest(&self, x: usize, y: usize, reach: usize) -> u8 {
        self.around(x, y, reach).max().unwrap_or(0)
    }

    /// Returns how much the shade changes, by the operator of Sobel.
    fn slope(&self, x: usize, y: usize) -> u8 {
        let (mut across, mut down) = (0, 0);
        let weights = [1, 2, 1].iter().flat_map(|a| [1, 2, 1].map(|b| (*a, b))).enumerate();
        for ((index, (weight_y, weight_x)), shade) in weights.zip(self.around(x, y, 1)) {
            let (column, row, shade) =
                (index as i32 % 3 - 1, index as i32 / 3 - 1, i32::from(shade));
            across += column * weight_y * shade;
            down += row * weight_x * shade;
        }
        (across.abs() + down.abs()).min(255) as u8
    }
}

/// Time in which a node filtered rows, since all nodes were there: begin and length in nanoseconds, first
/// row.
type Span = (u64, u64, u64);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = parse_with(Options::check);
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed("filters", &*error),
    }
}

impl Options {
    fn check(&self) -> Result<(), String> {
        self.output.as_deref().map_or(Ok(()), check_output)
    }
}

async fn run(options: &Options) -> Result<(), Failure> {
    let cluster = Cluster::join(ClusterConfig::new().nodes(options.nodes)).await?;
    if cluster.rank() == 0 {
        lead(&cluster, options).await?;
    } else {
        follow(&cluster, options).await?;
    }
    Ok(cluster.end(DEADLINE).await?)
}

/// Sends the picture to rank 1 and takes the result from the last rank.
async fn lead(cluster: &Cluster, options: &Options) -> Result<(), Failure> {
    let ((width, height), shades) = grey(options.picture.as_deref())?;
    let (node, next) = (cluster.node(), cluster.peer(1).await?);
    for rank in 1..cluster.size() {
        let mut sizes = node.open::<(u32, u32)>(&cluster.peer(rank).await?, "size").await?;
        sizes.send_now(&(width, height)).await?;
    }
    cluster.barrier().await?;
    let began = Instant::now();
    let result = vec![0; shades.len()];
    let mut output =
        DeltaSender::open(node, &next, "shades", result.clone(), Increment::default()).await?;
    let mut all = output.next(shades.len().max(1))?.ok_or("the picture is empty")?;
    all.copy_from_slice(&shades);
    all.commit().await?;
    let result = DeltaReceiver::accept(node, "shades", result).await?.into_buffer().await?;
    let elapsed = began.elapsed();
    output.finish().await?;
    let mut chains = Vec::new();
    for _ in 1..cluster.size() {
        let (_, mut spans) = node.accept::<(u32, Vec<Span>)>("spans").await?;
        chains.push(spans.recv().await?.ok_or("a node has no spans")?);
    }

    let began = Instant::now();
    let expected = sequential(shades, (width, height), cluster.size());
    let alone = began.elapsed();
    if let Some(index) = (0..expected.len()).find(|index| expected[*index] != result[*index]) {
        return Err(format!("the shade of pixel {index} differs from that of one process").into());
    }
    if let Some(path) = &options.output {
        let pixels: Vec<Pixel> = result.iter().map(|shade| [*shade; 3]).collect();
        picture::save((width, height), &pixels, path)?;
    }
    if let Some(path) = &options.trace {
        let told = std::fs::write(path, trace(&mut chains));
        told.map_err(|error| format!("--trace {}: {error}", path.display()))?;
    }
    let report = format!(
        "{width}x{height} pixels through {} filters: {:.1} ms in a chain, {:.1} ms in one process\n\
         all pixels equal those of one process\n",
        cluster.size() - 1,
        elapsed.as_secs_f64() * 1e3,
        alone.as_secs_f64() * 1e3,
    );
    Ok(write_out(&report)?)
}

/// Filters what the rank before sends, for the next one.
async fn follow(cluster: &Cluster, options: &Options) -> Result<(), Failure> {
    let (node, rank) = (cluster.node(), cluster.rank());
    let next = cluster.peer((rank + 1) % cluster.size()).await?;
    let (first, mut sizes) = node.accept::<(u32, u32)>("size").await?;
    let (width, height) = sizes.recv().await?.ok_or("the picture has no size")?;
    let size = (width as usize, height as usize);
    cluster.barrier().await?;
    let spans = filter(node, &next, Filter::of(rank), size, options.rows).await?;
    let mut told = node.open::<(u32, Vec<Span>)>(&first, "spans").await?;
    Ok(told.send_now(&(rank, spans)).await?)
}

async fn filter(
    node: &Node,
    next: &Peer,
    filter: &Filter,
    (width, height): (usize, usize),
    rows: usize,
) -> Result<Vec<Span>, Failure> {
    let began = Instant::now();
    let buffer = vec![0_u8; width * height];
    let mut output =
        DeltaSender::open(node, next, "shades", buffer.clone(), Increment::default()).await?;
    let input = DeltaReceiver::accept(node, "shades", buffer).await?;
    let mut spans = Vec::new();
    for first in (0..height).step_by(rows) {
        let last = (first + rows).min(height);
        // The filter looks at rows below its own.
        let landed = input.wait(..(last + filter.reach).min(height) * width).await?;
        let begin = began.elapsed();
        let mut chunk = output.next((last - first) * width)?.ok_or("all rows are committed")?;
        filter.filter(&Shades { shades: landed, width, height }, first, &mut chunk);
        let (begin_ns, end_ns) = (begin.as_nanos() as u64, began.elapsed().as_nanos() as u64);
        spans.push((begin_ns, end_ns - begin_ns, first as u64));
        chunk.commit().await?;
    }
    output.finish().await?;
    Ok(spans)
}

/// Filters as the chain of `nodes` does, whole picture after whole picture.
fn sequential(mut shades: Vec<u8>, (width, height): (u32, u32), nodes: u32) -> Vec<u8> {
    let (width, height) = (width as usize, height as usize);
    for rank in 1..nodes {
        let mut filtered = vec![0; shades.len()];
        let source = Shades { shades: &shades, width, height };
        Filter::of(rank).filter(&source, 0, &mut filtered);
        shades = filtered;
    }
    shades
}

/// Reads a picture in shades of grey, with its sides; without a path the one that is built in.
fn grey(path: Option<&Path>) -> Result<((u32, u32), Vec<u8>), String> {
    let (size, pixels) = match path {
        Some(path) => picture::load(path)?,
        None => picture::decode(Cursor::new(PICTURE))?,
    };
    let weigh = |[r, g, b]: Pixel| 77 * u32::from(r) + 150 * u32::from(g) + 29 * u32::from(b);
    Ok((size, pixels.into_iter().map(|pixel| (weigh(pixel) >> 8) as u8).collect()))
}

/// Returns the spans of all nodes as a trace.
fn trace(chains: &mut [(u32, Vec<Span>)]) -> String {
    chains.sort_unstable_by_key(|(rank, _)| *rank);
    let mut events = TraceEvents::new();
    events.name_process(0, "filters");
    for (rank, spans) in chains {
        let (at, name) = ((0, *rank as usize), Filter::of(*rank).name);
        events.name_thread(at.0, at.1, &format!("rank {rank}: {name}"));
        for (begin_ns, lasts_ns, row) in spans {
            events.span(at, *begin_ns, *lasts_ns, name, &[("row", row)]);
        }
    }
    events.finish()
}
