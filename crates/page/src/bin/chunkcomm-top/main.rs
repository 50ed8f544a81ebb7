//! Shows the page of an address in a terminal: members, links, farms and what else reports. `q` ends.
//!
//! ```text
//! chunkcomm-top 'http://127.0.0.1:8080/?token=...'
//! ```
//!
//! Without a terminal it prints the present state once.

mod client;
mod screen;
mod tables;

use client::Client;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

const USAGE: &str = "usage: chunkcomm-top ADDRESS

Shows the page of a running program in a terminal; q ends. ADDRESS is the one that the program printed,
with its token: 'http://127.0.0.1:8080/?token=...'. Without a terminal it prints the present state once.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address] = &arguments[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if matches!(address.as_str(), "-h" | "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let done = Client::new(address).and_then(|client| {
        if std::io::stdout().is_terminal() {
            return screen::show(&client);
        }
        let text = tables::text(&client.state()?);
        std::io::stdout().write_all(text.as_bytes())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chunkcomm-top: {error}");
            ExitCode::FAILURE
        }
    }
}
