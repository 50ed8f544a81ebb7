//! The example programs on virtual LANs: the results of real runs, and twice the same run.

use std::path::PathBuf;
use std::process::Output;

use super::example::Example;
use super::nodes::NODES;
use super::wordcount::{WORDCOUNT, long_text};
use super::{
    cascade, convolution, echo, fft2d, histogram, kmeans, mandelbrot, multiblock, parsort,
};

/// Words of a run on the LAN of 1 Gbit/s.
const LAN: [&str; 2] = ["--lan", "virtual:lan-1g"];

/// Runs a program; returns what it prints, and the line about the run without its real time.
fn once(program: &Example, options: &[&str]) -> (String, String) {
    let Output { status, stdout, stderr } = program.command(options).output().unwrap();
    let told = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{options:?}: {told}");
    let line = told.lines().next().unwrap();
    let (before, rest) = line.split_once(" s of virtual time in ").expect(line);
    let (_, digest) = rest.split_once(" s, digest ").expect(line);
    (String::from_utf8(stdout).unwrap(), format!("{before} {digest}"))
}

/// Runs a program on a virtual LAN, which must be the same twice; returns what it prints.
fn printed(program: &Example, options: &[&str]) -> String {
    let first = once(program, options);
    assert_eq!(once(program, options), first, "{options:?}");
    first.0
}

/// Returns a path in the folder that cargo gives to integration tests.
fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Writes a world of this many hosts at 1 Mbyte/s; returns the option for it.
fn slow_lan(count: u32) -> String {
    let hosts = format!("[[hosts]]\nname = \"slow\"\ncount = {count}\nsegments = [\"lan\"]\n");
    let lan = "[[segments]]\nname = \"lan\"\nkind = \"switch\"\nbytes_per_second = 1_000_000\n";
    let path = path(&format!("slow-{count}.toml"));
    std::fs::write(&path, format!("{hosts}{lan}")).unwrap();
    format!("--lan=virtual:{}", path.display())
}

#[test]
fn cascade_takes_the_work_of_its_filters() {
    let options = ["--nodes", "6", "--size", "1MiB", "--repeats", "1"];
    let table = printed(&cascade::CASCADE, &[&LAN[..], &options].concat());
    assert!(table.contains("all 4 results equal the sequential one"), "{table}");
    let row = |name: &str| -> Vec<f64> {
        let row = table.lines().find_map(|line| line.strip_prefix(name)).expect(&table);
        row.split_whitespace().map(|cell| cell.parse().unwrap()).collect()
    };
    // 20 ns an element for each node, in microseconds.
    assert_eq!(row("one process")[0], 31.458, "{table}");
    assert!(row("deltas")[2] > 4.0, "{table}");
}

#[test]
fn convolution_is_that_of_a_real_lan() {
    let output = path("convolution-of-a-virtual-lan.png");
    let output = format!("--output={}", output.display());
    for form in [&["--ranks=2,1,3,1"][..], &["--data-parallel", "--nodes=5"]] {
        let options = ["--shape=30x22", "--images=5", "--check", "--flop=40", "--packing=17"];
        let options = [&options[..], form, &[&output]].concat();
        let rows = |report: String| -> Vec<String> {
            report.lines().filter(|row| !row.starts_with("time ")).map(str::to_owned).collect()
        };
        let printed = printed(&convolution::CONVOLUTION, &[&LAN[..], &options].concat());
        assert!(printed.contains("3300 elements differ"), "{printed}");
        assert_eq!(rows(printed), rows(convolution::CONVOLUTION.prints(&options)));
    }
}

#[test]
fn echo_gathers_or_not() {
    let options = ["--items", "300", "--words", "1,50", "--repeat", "1"];
    let table = printed(&echo::ECHO, &[&LAN[..], &options].concat());
    assert!(table.starts_with("300 items there and back; each came back as it was\n"), "{table}");
    for row in echo::rows(&table) {
        let [packets, gathered] = [2, 4].map(|column| row[column].parse::<u64>().unwrap());
        assert!((300..320).contains(&packets) && gathered < 100, "{table}");
    }
}

/// A transform takes what its rows, its messages and its packing take, on hosts of the SP2.
#[test]
fn fft2d_transforms_what_it_does_on_a_real_lan() {
    let options =
        ["--shape=96x250", "--arrays=3", "--check", "--json", "--flop=40", "--packing=17"];
    let sp2 = ["--lan", "virtual:sp2"];
    for form in [&["--ranks=3,2"][..], &["--nodes=5", "--data-parallel"]] {
        let line = printed(&fft2d::FFT2D, &[&sp2[..], &options, form].concat());
        let real = fft2d::FFT2D.prints(&[&options[..], form].concat());
        let [told, real]: [serde_json::Value; 2] =
            [line, real].map(|line| serde_json::from_str(&line).unwrap());
        for key in ["difference", "ranks", "form", "arrays"] {
            assert_eq!(told[key], real[key]);
        }
        // 5 n log2 n operations for each row and each column.
        let work = |rows: usize, n: f64| rows as f64 * 5.0 * n * n.log2() * 40e-9;
        let expected = match form.len() {
            1 => vec![work(32, 250.0), work(125, 96.0)],
            _ => vec![work(20, 250.0) + work(50, 96.0)],
        };
        for (seconds, expected) in told["compute_seconds"].as_array().unwrap().iter().zip(expected)
        {
            let seconds = seconds.as_f64().unwrap();
            // Other tasks share the core of a host.
            assert!((0.99..1.6).contains(&(seconds / expected)), "{seconds}, not {expected}");
        }
    }
}

/// The counts of a band leave a host while it computes the next one.
#[test]
fn histogram_is_complete_when_the_picture_is() {
    let output = path("histogram-of-a-virtual-lan.png");
    let output = format!("--output={}", output.display());
    let options = ["--nodes", "4", "--check", &output];
    let report = printed(&histogram::HISTOGRAM, &[&LAN[..], &options].concat());
    let [pixel, behind] = histogram::times(&report);
    assert!(behind.abs() < pixel / 50.0, "{report}");
}

#[test]
fn kmeans_finds_the_same_clusters() {
    let output = path("clusters-of-a-virtual-lan.png");
    let output = format!("--output={}", output.display());
    let options = ["--points", "2000", "--nodes", "5", "--check", &output];
    let report = printed(&kmeans::KMEANS, &[&LAN[..], &options].concat());
    assert_eq!(report, kmeans::KMEANS.prints(&options));
}

#[test]
fn mandelbrot_renders_the_same_picture() {
    let size = ["--size", "120x90", "--nodes", "4"];
    let (real, _) = mandelbrot::rendered("of-a-real-lan.png", &size);
    let (picture, report) =
        mandelbrot::rendered("of-a-virtual-lan.png", &[&LAN[..], &size].concat());
    assert!(picture == real, "{report}");
    assert!(report.contains("farm            3 x node, "), "{report}");
    let output = path("twice.png");
    let output = ["--no-progress", "--output", output.to_str().unwrap(), "--size", "40x30"];
    // Without a number there are the hosts of the world.
    let report = printed(&mandelbrot::MANDELBROT, &[&LAN[..], &output].concat());
    assert!(report.contains("farm            7 x node, "), "{report}");
}

#[test]
fn multiblock_solves_with_the_same_bits() {
    let output = path("multiblock-of-a-virtual-lan.png");
    let output = format!("--output={}", output.display());
    // Without times, of which a virtual LAN has its own.
    let untimed = |report: &str| {
        let lines = report.lines().filter(|line| !line.starts_with("time "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for form in [&["--ranks=3,1,2"][..], &["--nodes=5", "--data-parallel"]] {
        let options = [&["--side=24", "--check", &output][..], form].concat();
        let report = printed(&multiblock::MULTIBLOCK, &[&LAN[..], &options].concat());
        assert_eq!(untimed(&report), untimed(&multiblock::MULTIBLOCK.prints(&options)));
    }
}

/// The paper: blocks that are computed at once take less time than blocks in turn.
#[test]
fn multiblock_is_faster_with_a_group_a_block() {
    let output = path("multiblock-of-the-sp2.png");
    let output = format!("--output={}", output.display());
    let seconds = |nodes: &str, form: &[&str]| {
        let options = ["--lan=virtual:sp2", "--flop=40", "--packing=17.24", "--nodes", nodes];
        let further = ["--side=96", "--sweeps=12", "--tolerance=0", "--json", &output];
        let line = printed(&multiblock::MULTIBLOCK, &[&options[..], &further, form].concat());
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        line["seconds_a_sweep"].as_f64().unwrap()
    };
    for nodes in ["9", "18"] {
        let (concurrent, in_turn) = (seconds(nodes, &[]), seconds(nodes, &["--data-parallel"]));
        assert!(concurrent < in_turn, "{nodes} nodes: {concurrent} s, {in_turn} s");
    }
}

/// The measurements take longer than a node has to end.
#[test]
fn nodes_measures_the_described_network() {
    let options = [&*slow_lan(3), "--mebibytes", "40", "--round-trips", "2"];
    let table = printed(&NODES, &options);
    let rows: Vec<Vec<&str>> = table.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 4, "{table}");
    for (rank, row) in rows[1..].iter().enumerate() {
        assert_eq!(
            row[..3],
            [&*format!("{rank}"), &format!("slow{rank}"), &format!("{}", rank + 1)]
        );
        assert_eq!(row.ends_with(&["1", "MB/s"]), rank > 0, "{table}");
    }
}

#[test]
fn parsort_sorts() {
    let options = ["--count", "2000", "--chunk", "50", "--repeat", "1"];
    let table = printed(&parsort::PARSORT, &[&LAN[..], &options].concat());
    assert!(table.starts_with("2000 numbers, 2 workers; all sorted right\n"), "{table}");
    let rows = parsort::rows(&table);
    assert_eq!(rows.len(), 6, "{table}");
    let packets = |at: usize| rows[at].3;
    assert!(packets(0) >= 2000 && packets(3) < 200, "{table}");
}

#[test]
fn wordcount_counts_as_on_a_real_lan() {
    let text = path("counted.txt");
    std::fs::write(&text, long_text(2_000)).unwrap();
    let options = ["--nodes", "4", "--top", "5", text.to_str().unwrap()];
    let counted = |out: &str| out.lines().take(6).map(str::to_owned).collect::<Vec<_>>();
    let out = printed(&WORDCOUNT, &[&LAN[..], &options].concat());
    assert_eq!(counted(&out), counted(&WORDCOUNT.prints(&options)));
    assert!(out.ends_with("a sequential program counts the same\n"), "{out}");
}

#[test]
fn a_trace_is_written_and_changes_nothing() {
    let trace = path("trace.json");
    let output = path("traced.png");
    let common = ["--size", "40x30", "--no-progress", "--output", output.to_str().unwrap()];
    let common = [&LAN[..], &common, &["--nodes", "3"]].concat();
    let traced = [&common[..], &["--trace", trace.to_str().unwrap()]].concat();
    let program = mandelbrot::MANDELBROT;
    assert_eq!(once(&program, &traced), once(&program, &common));
    let told = String::from_utf8(program.command(&traced).output().unwrap().stderr).unwrap();
    assert!(told.contains("\nhost   cores  computing") && told.contains("\nnode2 "), "{told}");
    let events = std::fs::read_to_string(trace).unwrap();
    let events: serde_json::Value = serde_json::from_str(&events).unwrap();
    assert!(events["traceEvents"].as_array().unwrap().len() > 100);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let telemetry = Example { name: "telemetry" };
    let slow = slow_lan(2);
    for (program, options, told) in [
        (&NODES, &["--lan", "virtual"][..], "allowed are real, virtual:NAME and virtual:FILE"),
        (&NODES, &["--lan", "virtual:lan-2g"], "lan-2g is neither a file nor a preset"),
        (&NODES, &["--trace", "x"], "allowed with --lan virtual:NAME"),
        (&NODES, &[&slow, "--explain-launch"], "allowed with --lan real"),
        (&NODES, &[&slow, "--hosts", "x"], "allowed with --lan real"),
        (&cascade::CASCADE, &[&slow, "--nodes", "1"], "allowed are 2 and more"),
        (&telemetry, &[&slow], "has HTTP clients"),
    ] {
        let Output { status, stdout, stderr } = program.command(options).output().unwrap();
        let error = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{options:?}: {error}");
        assert!(error.contains(told) && stdout.is_empty(), "{options:?}: {error}");
    }
    // One host is no chain: known only when the world is.
    let output = cascade::CASCADE.command(&[&slow_lan(1)]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.ends_with("cascade: a chain of 1 node: at least 2 are needed\n"), "{error}");
}
