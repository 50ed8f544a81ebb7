//! How a connection becomes a link: both ends send a hello, then judge the
//! other's.

use crate::driver::clock;
use crate::error::HelloCause;
use crate::proto::hello::{Agreement, Disagreement, HELLO_BYTES, Hello};
use crate::proto::limits::PACKET_BYTES_MIN;
use crate::transport::Transport;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

/// A stranger has so long to say who it is.
const HELLO_DEADLINE: Duration = Duration::from_secs(5);

/// Exchanges hellos; says what the peer's was and what both can do.
pub(super) async fn exchange(
    transport: &mut dyn Transport,
    ours: &Hello,
) -> Result<(Hello, Agreement), HelloCause> {
    let talk = async {
        write_all(transport, &ours.encode()).await?;
        read_hello(transport).await
    };
    let here = tokio::runtime::Handle::current();
    let theirs = match clock::within(&here, HELLO_DEADLINE, talk).await {
        None => return Err(HelloCause::Timeout),
        Some(Err(cause)) => return Err(cause),
        Some(Ok(bytes)) => Hello::decode(&bytes).map_err(HelloCause::Wrong)?,
    };
    let agreement = Hello::agree(ours, &theirs).map_err(HelloCause::Disagreement)?;
    let smallest = PACKET_BYTES_MIN as u32;
    if theirs.packet_bytes_max < smallest {
        let theirs = theirs.packet_bytes_max;
        return Err(HelloCause::Disagreement(Disagreement::Packets { smallest, theirs }));
    }
    Ok((theirs, agreement))
}

async fn write_all(transport: &mut dyn Transport, bytes: &[u8]) -> Result<(), HelloCause> {
    let mut at = 0;
    while at < bytes.len() {
        let rest = [IoSlice::new(&bytes[at..])];
        let written = poll_fn(|context| transport.poll_write(context, &rest)).await;
        match written {
            Ok(0) => return Err(broken(io::ErrorKind::WriteZero.into())),
            Ok(count) => at += count,
            Err(error) => return Err(broken(error)),
        }
    }
    Ok(())
}

async fn read_hello(transport: &mut dyn Transport) -> Result<[u8; HELLO_BYTES], HelloCause> {
    let mut bytes = [0; HELLO_BYTES];
    let mut at = 0;
    while at < HELLO_BYTES {
        let room = &mut bytes[at..];
        match poll_fn(|context| transport.poll_read(context, room)).await {
            Ok(0) => return Err(broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => at += count,
            Err(error) => return Err(broken(error)),
        }
        if !Hello::may_start_with(&bytes[..at]) {
            // Something else talks here: it is turned away at its first bytes.
            return Err(Hello::decode(&bytes)
                .map_or_else(HelloCause::Wrong, |_| broken(io::ErrorKind::InvalidData.into())));
        }
    }
    Ok(bytes)
}

fn broken(error: io::Error) -> HelloCause {
    HelloCause::Io(Arc::new(error))
}

/// The name to call a peer by: its own, or what its incarnation begins with.
pub(super) fn display_name(hello: &Hello) -> String {
    match hello.node.as_str() {
        "" => format!("node-{:08x}", hello.incarnation >> 96),
        name => name.to_owned(),
    }
}
