//! An HTTP service that ships events to a collector on another node, which writes them:
//!
//! ```text
//! cargo run --release --example telemetry -- --http 127.0.0.1:8080 --events events.jsonl
//! curl -d '{"source": "door", "name": "opened", "value": 1}' http://127.0.0.1:8080/events
//! curl http://127.0.0.1:8080/metrics
//! cargo run --release --example telemetry -- --demo 10000
//! ```
//!
//! The program is the library's module [`chunkcomm_examples::telemetry`].

fn main() -> std::process::ExitCode {
    chunkcomm_examples::telemetry::run()
}
