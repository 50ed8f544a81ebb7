//! The example `telemetry`, where the tests of this package find it.

fn main() -> std::process::ExitCode {
    chunkcomm_examples::telemetry::run()
}
