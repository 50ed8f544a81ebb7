//! Options that all programs of a cluster share.

use super::example::Example;
use std::path::PathBuf;
use std::process::Output;

const PROGRAMS: [Example; 7] = [
    Example { name: "cascade", file: env!("CARGO_BIN_EXE_cascade-program") },
    Example { name: "echo", file: env!("CARGO_BIN_EXE_echo-program") },
    Example { name: "mandelbrot", file: env!("CARGO_BIN_EXE_mandelbrot-program") },
    Example { name: "nodes", file: env!("CARGO_BIN_EXE_nodes-program") },
    Example { name: "parsort", file: env!("CARGO_BIN_EXE_parsort-program") },
    Example { name: "telemetry", file: env!("CARGO_BIN_EXE_telemetry-program") },
    Example { name: "wordcount", file: env!("CARGO_BIN_EXE_wordcount-program") },
];

fn hosts() -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cluster-options-hosts");
    std::fs::write(&path, "first slots=1\nsecond slots=1\n").unwrap();
    path.to_str().unwrap().to_owned()
}

/// The group of options is the same in each program.
#[test]
fn each_program_has_the_same_group() {
    let group = |program: &Example| {
        let help = program.prints(&["-h"]);
        let (_, group) = help.split_once("\nCluster:\n").unwrap_or_else(|| panic!("{help}"));
        let lines = group.lines().take_while(|line| line.starts_with(' '));
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    };
    let first = group(&PROGRAMS[0]);
    for option in ["--hosts <FILE>", "--nodes <N>", "--explain-launch"] {
        assert!(first.contains(option), "{first}");
    }
    for program in &PROGRAMS[1..] {
        assert_eq!(group(program), first, "{}", program.name);
    }
}

/// Each program prints the known facts of its place and starts nothing.
#[test]
fn each_program_explains_its_launch() {
    let hosts = hosts();
    for program in &PROGRAMS {
        let explained = program.prints(&["--explain-launch", "--nodes", "2", "--hosts", &hosts]);
        for word in ["first", "second", program.file] {
            assert!(explained.contains(word), "{word:?} is not in\n{explained}");
        }
        assert!(explained.contains("rank        none: "), "{explained}");
        // The number of nodes that each program starts by itself.
        let own = ["cascade", "echo", "parsort", "telemetry"].iter().zip([3, 4, 6, 2]);
        if let Some((_, nodes)) = own.into_iter().find(|(name, _)| **name == program.name) {
            let explained = program.prints(&["--explain-launch"]);
            assert!(explained.contains(&format!("nodes       {nodes}\n")), "{explained}");
        }
        let mut command = program.command(&["--explain-launch"]);
        command.env("CHUNKCOMM_RANK", "1").env("CHUNKCOMM_SIZE", "2");
        command.env("CHUNKCOMM_MANAGER", "127.0.0.1:9");
        let Output { status, stdout, stderr } = command.output().unwrap();
        let explained = String::from_utf8(stdout).unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        for word in ["1 of 2", "CHUNKCOMM_RANK=1", "127.0.0.1:9"] {
            assert!(explained.contains(word), "{word:?} is not in\n{explained}");
        }
    }
}

/// Each program takes the hosts of the file.
#[test]
fn each_program_starts_on_the_hosts_of_a_file() {
    let hosts = hosts();
    for program in &PROGRAMS {
        let paths: &[&str] = if program.name == "wordcount" { &["/dev/null"] } else { &[] };
        let mut command = program.command(&["--hosts", &hosts]);
        // `false` stands in for ssh; the error names the host.
        let output = command.args(paths).env("CHUNKCOMM_SSH", "false").output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("first") || told.contains("second"), "{told}");
    }
}
