//! Instructions of a program, counted by callgrind while its clock stands still.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use chunkcomm_testkit::Scratch;

use crate::baseline::mpich::output_of;
use crate::failure::{Doing, Failure};

/// The clock that stands still, which is compiled by gcc and preloaded.
const STILL: &str = include_str!("still.c");

/// Functions that switch counting on while they run: the one of `chunkcomm_instructions`.
const COUNTED: &str = "*chunkcomm_instructions*counted*";

/// Settings of glibc by which counts depend neither on the processor nor on when other threads run:
/// - copies by SSE2. Callgrind counts a `rep movsb` as an instruction for each byte.
/// - caches of freed memory that never fill. Where they do, the layout of memory counts.
const TUNABLES: &str = "glibc.cpu.hwcaps=-ERMS,-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load:\
                        glibc.malloc.tcache_count=65535";

/// Longest time of a program under callgrind: 2 min.
const DEADLINE: Duration = Duration::from_secs(120);

/// Line of the processor's cache, as a power of two: 64 bytes.
const LINE_SHIFT: u32 = 6;

/// Instructions that callgrind has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    /// Output of the program.
    output: String,
    /// Executions of each instruction, by its object file's number and its address there.
    executions: HashMap<(usize, u64), u64>,
}

impl Counted {
    /// Reads what callgrind has written with `--dump-instr=yes` and names and places uncompressed.
    pub(super) fn read(text: &str, output: String) -> Result<Self, Failure> {
        let (mut objects, mut object, mut is_call) = (Vec::new(), 0, false);
        let mut executions = HashMap::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("ob=") {
                let known = objects.iter().position(|known| *known == name);
                object = known.unwrap_or_else(|| {
                    objects.push(name);
                    objects.len() - 1
                });
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if line.starts_with("0x") && !std::mem::take(&mut is_call) {
                // The line behind `calls=` has the instructions of the function that is called, again.
                let (address, count) = instruction(line).ok_or_else(|| {
                    Failure::broken("reading callgrind's file", format!("no count is '{line}'"))
                })?;
                *executions.entry((object, address)).or_default() += count;
            }
        }
        Ok(Self { output, executions })
    }

    /// Returns the numbers that the program has printed.
    pub(super) fn printed<const COUNT: usize>(&self) -> Result<[u64; COUNT], Failure> {
        let words: Vec<_> =
            self.output.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        let why = || format!("{COUNT} numbers are needed, not '{}'", self.output.trim());
        words.try_into().map_err(|_| Failure::broken("reading the counted program's output", why()))
    }

    /// Returns the number of instructions that were executed.
    pub(super) fn instructions(&self) -> u64 {
        self.executions.values().sum()
    }

    /// Returns the number of distinct lines of 64 bytes with an instruction that was executed this often.
    pub(super) fn lines(&self, executions_min: u64) -> u64 {
        let often = self.executions.iter().filter(|(_, count)| **count >= executions_min);
        let lines: HashSet<_> = often.map(|((object, at), _)| (object, at >> LINE_SHIFT)).collect();
        lines.len() as u64
    }
}

/// Parses `ADDRESS LINE COUNT`.
fn instruction(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split(' ');
    let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let count = words.nth(1)?.parse().ok()?;
    Some((address, count))
}

/// Callgrind with a clock that stands still.
pub(super) struct Callgrind {
    folder: Scratch,
}

impl Callgrind {
    /// Compiles the clock.
    pub(super) fn new() -> Result<Self, Failure> {
        let mut version = Command::new("valgrind");
        version.arg("--version");
        output_of(version, "valgrind", DEADLINE).map_err(|failure| {
            Failure::Refused(format!("{failure}; valgrind is needed: apt-get install valgrind"))
        })?;
        let folder = Scratch::new("callgrind");
        std::fs::create_dir(&folder).doing("making a folder for callgrind")?;
        std::fs::write(folder.join("still.c"), STILL).doing("writing the clock's source")?;
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-shared", "-fPIC", "-o"]);
        gcc.arg(folder.join("still.so")).arg(folder.join("still.c"));
        output_of(gcc, "gcc", DEADLINE)?;
        Ok(Self { folder })
    }

    /// Runs a program, and counts while its function for the counted rounds runs.
    pub(super) fn count(&self, program: &Path, arguments: &[&str]) -> Result<Counted, Failure> {
        let out = self.folder.join("out");
        let option = |name: &str, value: &Path| {
            let mut option = OsString::from(name);
            option.push(value);
            option
        };
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args(["--tool=callgrind", "--dump-instr=yes", "--compress-strings=no"])
            .args(["--compress-pos=no", &format!("--toggle-collect={COUNTED}")])
            .arg(option("--callgrind-out-file=", &out))
            .arg(program)
            .args(arguments)
            .env("LD_PRELOAD", self.folder.join("still.so"))
            .env("GLIBC_TUNABLES", TUNABLES);
        let doing = format!("{} {}", program.display(), arguments.join(" "));
        let output = output_of(valgrind, &doing, DEADLINE)?;
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let counted =
            Counted::read(&std::fs::read_to_string(&out).doing("reading counts")?, output)?;
        if counted.instructions() == 0 {
            let why = format!("callgrind met no function {COUNTED}; are the symbols stripped?");
            return Err(Failure::broken(doing, why));
        }
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# callgrind format
events: Ir
summary: 60

ob=/lib/libc.so.6
fn=main
cob=/usr/bin/program
calls=1 0x271d0 29
0x1000 7 900

fn=copy
0x103f 0 10
0x1040 0 10
jump=3
ob=/usr/bin/program
fn=rounds
0x1000 0 20
0x1004 0 1
ob=/lib/libc.so.6
fn=copy
0x1040 0 19
";

    #[test]
    fn instructions_and_lines_are_counted_without_calls() {
        let counted = Counted::read(FILE, "7 2\n".to_owned()).expect("a file of callgrind");
        assert_eq!(counted.instructions(), 60);
        assert_eq!([1, 10, 11, 29, 30].map(|often| counted.lines(often)), [3, 3, 2, 1, 0]);
        assert_eq!(counted.printed(), Ok([7, 2]));
        assert!(counted.printed::<3>().is_err());
    }

    #[test]
    fn a_wrong_line_is_named() {
        let wrong = Counted::read("0x10 0 many\n", String::new()).expect_err("no number");
        assert!(wrong.to_string().contains("0x10 0 many"), "{wrong}");
    }
}
