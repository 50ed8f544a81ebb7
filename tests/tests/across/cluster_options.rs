//! Command lines of the programs that run as a cluster, and the options that these share.

use super::example::Example;
use chunkcomm_testkit::Scratch;
use std::process::Output;

const PROGRAMS: [Example; 15] = [
    Example { name: "cascade" },
    Example { name: "convolution" },
    Example { name: "echo" },
    Example { name: "fft2d" },
    Example { name: "histogram" },
    Example { name: "kmeans" },
    Example { name: "mandelbrot" },
    Example { name: "models" },
    Example { name: "multiblock" },
    Example { name: "nodes" },
    Example { name: "parsort" },
    Example { name: "raytracer" },
    Example { name: "redistribute" },
    Example { name: "telemetry" },
    Example { name: "wordcount" },
];

fn hosts() -> Scratch {
    let file = Scratch::new("hosts");
    std::fs::write(&file, "first slots=1\nsecond slots=1\n").unwrap();
    file
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
    for option in ["--hosts <FILE>", "--nodes <N>", "--explain-launch", "--lan <LAN>"] {
        assert!(first.contains(option), "{first}");
    }
    for program in &PROGRAMS[1..] {
        assert_eq!(group(program), first, "{}", program.name);
    }
}

/// Each program prints the known facts of its place and starts nothing.
#[test]
fn each_program_explains_its_launch() {
    let file = hosts();
    let hosts = file.to_str().unwrap();
    for program in &PROGRAMS {
        let explained = program.prints(&["--explain-launch", "--nodes", "2", "--hosts", hosts]);
        for word in ["first", "second", program.file().to_str().unwrap()] {
            assert!(explained.contains(word), "{word:?} is not in\n{explained}");
        }
        assert!(explained.contains("rank        none: "), "{explained}");
        // The number of nodes that each program starts by itself.
        let own = [
            ("cascade", 3),
            ("convolution", 4),
            ("echo", 4),
            ("fft2d", 4),
            ("histogram", 4),
            ("kmeans", 4),
            ("models", 3),
            ("multiblock", 9),
            ("parsort", 6),
            ("redistribute", 4),
            ("telemetry", 2),
        ];
        if let Some((_, nodes)) = own.into_iter().find(|(name, _)| *name == program.name) {
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
    let file = hosts();
    let hosts = file.to_str().unwrap();
    for program in &PROGRAMS {
        let paths: &[&str] = if program.name == "wordcount" { &["/dev/null"] } else { &[] };
        let mut command = program.command(&["--hosts", hosts]);
        // `false` stands in for ssh; the error names the host.
        let output = command.args(paths).env("CHUNKCOMM_SSH", "false").output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("first") || told.contains("second"), "{told}");
    }
}

/// Options whose value may be any text.
const FREE: [&str; 11] = [
    "--hosts",
    "--file",
    "--events",
    "--image",
    "--journal",
    "--kernel",
    "--make",
    "--npy",
    "--output",
    "--timeline",
    "--trace",
];

/// Returns the options of a program that take a value, by its help.
fn valued_options(program: &Example) -> Vec<String> {
    let help = program.prints(&["-h"]);
    let options = help.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let option = words.next().filter(|word| word.starts_with("--"))?;
        words.next().filter(|value| value.starts_with('<'))?;
        (!FREE.contains(&option)).then(|| option.to_owned())
    });
    options.collect()
}

/// Each option refuses meaningless values and says what is allowed.
#[test]
fn every_option_of_every_program_says_what_is_allowed() {
    for program in &PROGRAMS {
        let options = valued_options(program);
        assert!(options.contains(&"--nodes".to_owned()), "{}: {options:?}", program.name);
        for option in options {
            for wrong in ["nope", "", "-1", "99999999999999999999999", "1:2:3"] {
                let option = format!("{option}={wrong}");
                let output = program.command(&["--explain-launch", &option]).output().unwrap();
                let told = String::from_utf8(output.stderr).unwrap();
                let allowed = told.contains("allowed") || told.contains("possible values: ");
                assert!(allowed, "{} {option}: {told}", program.name);
                assert_eq!(output.status.code(), Some(2), "{} {option}: {told}", program.name);
            }
        }
    }
}

#[test]
fn options_that_do_not_go_together_say_so() {
    let refused = |name: &str, words: &[&str], told: &str| {
        let program = PROGRAMS.iter().find(|program| program.name == name).unwrap();
        let output = program.command(&["--explain-launch"]).args(words).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name} {words:?}: {error}");
        assert!(error.contains(told), "{name} {words:?}: {error}");
    };
    refused("cascade", &["--nodes", "1"], "allowed are 2 and more");
    refused("echo", &["--nodes", "1"], "allowed are 2 nodes and more");
    refused("kmeans", &["--make", "x", "y"], "cannot be used with");
    refused("kmeans", &["--die", "1:1", "--lan", "virtual:lan-1g"], "allowed is --lan real");
    refused("multiblock", &["--die", "1:1", "--lan", "virtual:lan-1g"], "allowed is --lan real");
    refused("multiblock", &["--ranks", "1,1,1", "--data-parallel"], "cannot be used with");
    refused("parsort", &["--nodes", "1"], "allowed are 2 nodes and more");
    refused("parsort", &["--count", "7", "--file", "x"], "cannot be used with");
    refused("parsort", &["--file", "x", "--seed", "7"], "cannot be used with");
    refused("parsort", &["--sweep", "--chunk", "7"], "cannot be used with");
    refused("redistribute", &["one.npy"], "allowed is one file with --shape");
    refused("telemetry", &["--nodes", "3"], "allowed are 2");
    let parsort = PROGRAMS.iter().find(|program| program.name == "parsort").unwrap();
    parsort.prints(&["--explain-launch", "--nodes", "1", "--policy", "chunked"]);
}
