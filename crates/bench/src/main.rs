//! `chunkperf`: measures the workspace; see `chunkperf --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    chunkcomm_bench::cli::main()
}
