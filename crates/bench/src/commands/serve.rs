//! `chunkperf serve`: the far end for measurements from another host; and the hidden far end of
//! a local pair.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use clap::Args;

use super::Verdict;
use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::harness::protocol::GREETING;
use crate::pair::{self, FAR_COMMAND};

/// Time after which a silent stranger is turned away: 5 s.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// Most connections without a greeting, and most near ends that wait to be served: 256 of each.
const GREETINGS_MAX: usize = 256;

/// Options of `chunkperf serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address on which to wait for near ends; beyond loopback only with the option below
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7600", value_parser = crate::options::values::listen_address)]
    listen: SocketAddr,
    /// Serve everyone who can reach this host: without admission and encryption
    #[arg(long)]
    insecure_bind_beyond_loopback: bool,
    /// Number of near ends after which to end [default: never]
    #[arg(long, value_name = "N", value_parser = crate::options::values::count)]
    runs: Option<u64>,
}

/// Serves one near end after the other, each with a process of its own.
///
/// # Errors
/// If the address cannot be listened on.
pub fn run(args: &ServeArgs) -> Result<Verdict, Failure> {
    if !args.listen.ip().is_loopback() && !args.insecure_bind_beyond_loopback {
        return Err(Failure::Refused(format!(
            "--listen {} is reachable by strangers: allowed are loopback addresses, and others \
             with --insecure-bind-beyond-loopback",
            args.listen
        )));
    }
    let listener =
        TcpListener::bind(args.listen).doing(&format!("listening on {}", args.listen))?;
    let address = listener.local_addr().doing("asking for the port")?;
    eprintln!("chunkperf: serving on {address}");
    let (greeted, near_ends) = sync_channel(GREETINGS_MAX);
    thread::spawn(move || accept(&listener, &greeted));
    let runs = args.runs.and_then(|runs| usize::try_from(runs).ok()).unwrap_or(usize::MAX);
    for (stream, peer) in near_ends.iter().take(runs) {
        if let Err(failure) = serve_one(stream) {
            eprintln!("chunkperf: {peer}: {failure}");
        }
    }
    Ok(Verdict::Fine)
}

/// Hands over the connections that greet, for ever. Each has a thread for its greeting, so that a
/// silent one delays no other.
fn accept(listener: &TcpListener, greeted: &SyncSender<(TcpStream, SocketAddr)>) {
    // One clone for each connection that has not greeted.
    let waiting = Arc::new(());
    loop {
        let accepted = listener.accept().and_then(|(stream, peer)| {
            if Arc::strong_count(&waiting) > GREETINGS_MAX {
                return Err(io::Error::other("too many have not greeted"));
            }
            let (greeted, place) = (greeted.clone(), Arc::clone(&waiting));
            thread::Builder::new().spawn(move || {
                let admitted = admit(&stream);
                drop(place);
                match admitted {
                    // The send fails when the program is ending and serves no more.
                    Ok(()) => drop(greeted.send((stream, peer))),
                    Err(error) => eprintln!("chunkperf: {peer} turned away: {error}"),
                }
            })
        });
        // A passing shortage does not end the server.
        if let Err(error) = accepted {
            eprintln!("chunkperf: turned away: {error}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Reads the first word of a near end, no byte more, and not for ever.
fn admit(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    let mut word = [0; GREETING.len() + 1];
    io::Read::read_exact(&mut &*stream, &mut word)?;
    stream.set_read_timeout(None)?;
    if word.strip_suffix(b"\n") == Some(GREETING.as_bytes()) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "no chunkperf of this version"))
}

/// Serves one near end by a process of its own: it starts clean, and a failure there breaks nothing
/// here.
fn serve_one(stream: TcpStream) -> Result<(), Failure> {
    let host = stream.local_addr().doing("asking for this host's address")?.ip().to_string();
    let output = stream.try_clone().doing("sharing the control connection")?;
    let mut child = machine::this_program()?
        .args([FAR_COMMAND, "--host", &host])
        .stdin(Stdio::from(OwnedFd::from(stream)))
        .stdout(Stdio::from(OwnedFd::from(output)))
        .spawn()
        .doing("starting the far end")?;
    child.wait().doing("waiting for the far end").map(|_| ())
}

/// Options of the far end.
#[derive(Debug, Args)]
pub struct FarArgs {
    /// Address to listen on, whatever address the near end names
    #[arg(long)]
    host: Option<String>,
}

/// Runs the far end: commanded over standard input, answering on standard output.
///
/// # Errors
/// If the near end breaks off.
pub fn far(args: &FarArgs) -> Result<Verdict, Failure> {
    machine::die_with_parent();
    pair::serve(io::stdin(), io::stdout(), args.host.clone())?;
    Ok(Verdict::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn a_silent_stranger_delays_no_near_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (greeted, near_ends) = sync_channel(GREETINGS_MAX);
        thread::spawn(move || accept(&listener, &greeted));
        let mut silent = TcpStream::connect(address).unwrap();
        let mut near = TcpStream::connect(address).unwrap();
        near.write_all(format!("{GREETING}\n").as_bytes()).unwrap();
        let (_, peer) = near_ends.recv().unwrap();
        assert_eq!(peer, near.local_addr().unwrap());
        // The stranger's time is not over.
        silent.set_nonblocking(true).unwrap();
        assert_eq!(silent.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
