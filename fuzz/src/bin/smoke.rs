//! Runs every fuzz target on random and mutated inputs, by a seed.
//!
//! ```text
//! cargo run -p chunkcomm-fuzz --bin smoke -- [--inputs N] [--seed S] [--target NAME] [--input HEX]
//! ```
//!
//! An input that makes a target panic is printed; run it alone by `--target` and `--input`.
//! `--write-seeds FOLDER` writes the inputs that the mutations start from, for another engine.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chunkcomm::proto::random::Random;
use chunkcomm_fuzz::{TARGETS, Target};

const INPUTS_DEFAULT: u64 = 20_000;
const SEED_DEFAULT: u64 = 1;
const INPUT_BYTES_MAX: usize = 600;

struct Options {
    inputs: u64,
    seed: u64,
    target: Option<String>,
    input: Option<Vec<u8>>,
    write_seeds: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(fault) => {
            eprintln!("smoke: {fault}");
            return ExitCode::from(2);
        }
    };
    let chosen =
        |target: &&Target| options.target.as_deref().is_none_or(|name| name == target.name);
    let mut failed = false;
    for target in TARGETS.iter().filter(chosen) {
        failed |= match (&options.input, &options.write_seeds) {
            (Some(input), _) => fails(target, input),
            (None, Some(folder)) => !write_seeds(target, folder),
            (None, None) => !smoke(target, &options),
        };
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let (inputs, seed) = (INPUTS_DEFAULT, SEED_DEFAULT);
    let mut options = Options { inputs, seed, target: None, input: None, write_seeds: None };
    while let Some(option) = args.next() {
        let value = args.next().ok_or_else(|| format!("{option} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{option} {value}: not a number"));
        match option.as_str() {
            "--inputs" => options.inputs = number()?,
            "--seed" => options.seed = number()?,
            "--target" if TARGETS.iter().any(|target| target.name == value) => {
                options.target = Some(value);
            }
            "--target" => {
                let names = TARGETS.map(|target| target.name).join(", ");
                return Err(format!("--target {value}: allowed are {names}"));
            }
            "--input" => options.input = Some(from_hex(&value)?),
            "--write-seeds" => options.write_seeds = Some(value.into()),
            _ => {
                return Err(format!(
                    "{option}: allowed are --inputs N, --seed S, --target NAME, --input HEX and \
                     --write-seeds FOLDER"
                ));
            }
        }
    }
    Ok(options)
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let byte = |pair: &[u8]| {
        let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    bytes.ok_or_else(|| format!("--input {text}: not pairs of hexadecimal digits"))
}

/// Returns whether all inputs pass.
fn smoke(target: &Target, options: &Options) -> bool {
    let mut corpus = (target.seeds)();
    let mut inputs = Inputs(Random::new(options.seed));
    for index in 0..options.inputs {
        let input = inputs.next(&corpus);
        if fails(target, &input) {
            let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!(
                "{} fails by seed {} at input {index}; alone: --target {} --input {hex}",
                target.name, options.seed, target.name
            );
            return false;
        }
        // Now and then a mutant becomes a start for further ones.
        if index % 64 == 0 && corpus.len() < 256 {
            corpus.push(input);
        }
    }
    println!("{}: {} inputs by seed {} pass", target.name, options.inputs, options.seed);
    true
}

/// Returns whether all seeds are written.
fn write_seeds(target: &Target, folder: &Path) -> bool {
    let written = fs::create_dir_all(folder).and_then(|()| {
        let mut seeds = (target.seeds)().into_iter().enumerate();
        seeds.try_for_each(|(index, seed)| fs::write(folder.join(format!("seed-{index}")), seed))
    });
    if let Err(error) = &written {
        eprintln!("smoke: {}: {error}", folder.display());
    }
    written.is_ok()
}

fn fails(target: &Target, input: &[u8]) -> bool {
    catch_unwind(|| (target.run)(input)).is_err()
}

struct Inputs(Random);

impl Inputs {
    fn byte(&mut self) -> u8 {
        self.0.next_u64() as u8
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound.max(1) as u64) as usize
    }

    /// Returns random bytes one time in eight, otherwise an input of the corpus with some changes.
    fn next(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        if corpus.is_empty() || self.below(8) == 0 {
            let len = self.below(INPUT_BYTES_MAX);
            return (0..len).map(|_| self.byte()).collect();
        }
        let mut input = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(6) {
            self.change(&mut input, corpus);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];
        let at = self.below(input.len());
        match self.below(7) {
            0 => input.truncate(at),
            1 => input.insert(at, self.byte()),
            2 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len());
                input.splice(at.., other[from..].iter().copied());
            }
            3 => input.extend_from_within(at..),
            _ if input.is_empty() => {}
            4 => input[at] ^= 1 << self.below(8),
            5 => input[at] = EDGES[self.below(EDGES.len())],
            _ => input[at] = self.byte(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TARGETS, options, smoke};

    #[test]
    fn every_target_passes() {
        let options = options(std::iter::empty()).expect("none is needed");
        for target in &TARGETS {
            assert!(smoke(target, &options), "{}", target.name);
        }
    }
}
