//! Shows the page of an address in a terminal: members, links, farms and what else reports. `q` ends.
//!
//! ```text
//! chunkcomm-top        # asks for the address
//! ```
//!
//! Without a terminal it prints the present state once.

mod client;
mod screen;
mod tables;

use client::Client;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

/// Environment variable with the token of the page.
const TOKEN_VARIABLE: &str = "CHUNKCOMM_PAGE_TOKEN";

const USAGE: &str = "usage: chunkcomm-top [ADDRESS]

Shows the page of a running program in a terminal; q ends. It asks for the address that the program printed, as a line of
its standard input: http://127.0.0.1:8080/#..., of which the part behind # is the token. ADDRESS is given without
the token, since every user of the machine can list arguments; the token is then taken from CHUNKCOMM_PAGE_TOKEN, or asked
for. Without a terminal it prints the present state once.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = match &arguments[..] {
        [] => None,
        [address] if matches!(address.as_str(), "-h" | "--help") => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [address] => Some(address.as_str()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = client(address).and_then(|client| {
        if io::stdout().is_terminal() {
            return screen::show(&client);
        }
        let text = tables::text(&client.state()?);
        io::stdout().write_all(text.as_bytes())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chunkcomm-top: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Takes the address from the arguments, or asks for it; and so the token.
fn client(address: Option<&str>) -> io::Result<Client> {
    let Some(address) = address else {
        return Client::new(&asked("the address that the program printed: ")?, None);
    };
    if client::parts(address).1.is_some() {
        let text = "every user of the machine can see an argument: give the address without #... and the token as a \
                    line of standard input";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let token = match std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()) {
        Some(token) => token,
        None => asked("the token, or the whole address: ")?,
    };
    Client::new(address, Some(token.trim()))
}

/// Reads a line of standard input; asks for it on a terminal.
fn asked(question: &str) -> io::Result<String> {
    if io::stdin().is_terminal() {
        eprint!("{question}");
    }
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
