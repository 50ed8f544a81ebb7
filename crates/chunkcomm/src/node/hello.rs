//! The way of a connection to a link: both ends send a hello and judge the other's, then do
//! what [`super::admission`] asks for.

use super::admission::Admission;
use super::slots::Slot;
use crate::driver::{clock, entropy};
use crate::error::HelloCause;
use crate::proto::Time;
use crate::proto::credential::{Hellos, Role};
use crate::proto::hello::{Agreement, Disagreement, HELLO_BYTES, Hello, LAYERS_MAX, LayerVersion};
use crate::proto::limits::PACKET_BYTES_MIN;
use crate::proto::plain::Plain;
use crate::transport::{Transport, exact};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Time that a stranger has for its hello and its proof: 5 s.
const HELLO_DEADLINE: Duration = Duration::from_secs(5);

/// Time that a peer has for the TLS handshake after its proof: 5 s.
const TLS_DEADLINE: Duration = Duration::from_secs(5);

/// The hello of this node, with the names that its layers have here.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnHello {
    pub(super) hello: Hello,
    /// The name of each layer in the hello; empty for an empty place.
    pub(super) layer_names: [&'static str; LAYERS_MAX],
}

impl OwnHello {
    /// Returns this hello for a new connection.
    fn on(&self, admission: &Admission) -> Result<[u8; HELLO_BYTES], HelloCause> {
        let mut hello = Hello { flags: self.hello.flags | admission.flags(), ..self.hello };
        entropy::fill(&mut hello.nonce)
            .map_err(|error| HelloCause::System(Arc::new(io::Error::other(error))))?;
        Ok(hello.encode())
    }

    /// Judges the peer's hello.
    fn judge(
        &self,
        admission: &Admission,
        theirs: &[u8; HELLO_BYTES],
    ) -> Result<(Hello, Agreement), HelloCause> {
        let ours = Hello { flags: self.hello.flags | admission.flags(), ..self.hello };
        let theirs = Hello::decode(theirs).map_err(HelloCause::Wrong)?;
        let agreement = self.agree(&ours, &theirs).map_err(HelloCause::Disagreement)?;
        Ok((theirs, agreement))
    }

    fn agree(&self, ours: &Hello, theirs: &Hello) -> Result<Agreement, Disagreement> {
        let agreement = Hello::agree(ours, theirs).map_err(|why| self.named(why))?;
        let smallest = PACKET_BYTES_MIN as u32;
        if theirs.packet_bytes_max < smallest {
            return Err(Disagreement::Packets { smallest, theirs: theirs.packet_bytes_max });
        }
        Ok(agreement)
    }

    /// Adds the name of the layer that the ends disagree on.
    fn named(&self, mut why: Disagreement) -> Disagreement {
        if let Disagreement::Layer { hash, name, .. } = &mut why {
            let mut layers = self.hello.layers.iter().zip(self.layer_names);
            *name = layers.find(|(own, _)| own.hash == *hash).map(|(_, name)| name);
        }
        why
    }

    /// Returns the version of each layer of this node by which it talks to a peer. Without an
    /// agreement on a layer it is the layer's oldest.
    pub(super) fn layer_versions(&self, agreement: &Agreement) -> [LayerVersion; LAYERS_MAX] {
        self.hello.layers.map(|own| LayerVersion {
            hash: own.hash,
            version: agreement.layer(own.hash).unwrap_or(own.oldest),
        })
    }
}

/// The side of a connection that this node is on.
#[derive(Clone, Copy)]
pub(super) enum Side<'a> {
    /// This node dialled.
    Dialler,
    /// The peer dialled and has this place until it is admitted.
    Acceptor(&'a Slot),
}

impl Side<'_> {
    fn role(self) -> Role {
        match self {
            Side::Dialler => Role::Dialler,
            Side::Acceptor(_) => Role::Acceptor,
        }
    }
}

/// Exchanges hellos, and the proofs and TLS that `admission` asks for. Returns the
/// connection for the link, the peer's hello and the agreement of both.
///
/// Until the peer has proved itself this holds some hundred bytes: the peer's bytes cause
/// no allocation, and nothing of TLS exists.
pub(super) async fn admit(
    mut transport: Box<dyn Transport>,
    own: &OwnHello,
    admission: &Admission,
    side: Side<'_>,
) -> Result<(Box<dyn Transport>, Hello, Agreement), HelloCause> {
    let here = Handle::current();
    let begun = clock::now();
    let mut heard = false;
    let mut hellos = Hellos::new(side.role(), [0; HELLO_BYTES], [0; HELLO_BYTES]);
    let greeting = greet(&mut *transport, own, admission, side, &mut hellos, &mut heard);
    let greeted = clock::within(&here, HELLO_DEADLINE, greeting).await;
    let timeout = if heard { HelloCause::ProofTimeout } else { HelloCause::Timeout };
    greeted.ok_or(timeout)??;
    // A peer that has proved nothing is still a stranger, with a stranger's time.
    let time = if admission.proves() { TLS_DEADLINE } else { strangers_time(begun) };
    if let Side::Acceptor(slot) = side
        && admission.proves()
    {
        slot.proved();
    }
    // In a box of its own: nothing of TLS is there before the proofs.
    let securing = Box::pin(admission.secure(transport, side.role(), &hellos));
    let secured = clock::within(&here, time, securing).await;
    let transport = secured.ok_or(HelloCause::TlsTimeout)??;
    if let Side::Acceptor(slot) = side
        && admission.protects()
    {
        slot.proved();
    }
    // Judged again, not kept since `greet`: a stranger must not cost that memory.
    let (theirs, agreement) = own.judge(admission, hellos.of_mut(side.role().other()))?;
    Ok((transport, theirs, agreement))
}

/// Returns the time that a stranger who connected at `connected` has left.
pub(super) fn strangers_time(connected: Time) -> Duration {
    let spent = Duration::from_micros(clock::now().micros_since(connected));
    HELLO_DEADLINE.saturating_sub(spent)
}

/// Exchanges everything that has a fixed size: hellos and proofs. Sets `heard` once the peer's
/// hello is accepted.
async fn greet(
    transport: &mut dyn Transport,
    own: &OwnHello,
    admission: &Admission,
    side: Side<'_>,
    hellos: &mut Hellos,
    heard: &mut bool,
) -> Result<(), HelloCause> {
    let role = side.role();
    *hellos.of_mut(role) = own.on(admission)?;
    exact::write_all(transport, hellos.of_mut(role)).await.map_err(broken)?;
    read_hello(transport, side, hellos.of_mut(role.other())).await?;
    own.judge(admission, hellos.of_mut(role.other()))?;
    *heard = true;
    admission.prove(transport, role, hellos).await
}

async fn read_some(transport: &mut dyn Transport, room: &mut [u8]) -> io::Result<usize> {
    match poll_fn(|context| transport.poll_read(context, room)).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

async fn read_hello(
    transport: &mut dyn Transport,
    side: Side<'_>,
    bytes: &mut [u8; HELLO_BYTES],
) -> Result<(), HelloCause> {
    let mut at = 0;
    while at < HELLO_BYTES {
        at += read_some(transport, &mut bytes[at..]).await.map_err(broken)?;
        if let Side::Acceptor(slot) = side {
            slot.speaks();
        }
        if !Hello::may_start_with(&bytes[..at]) {
            // Another program talks here: it is turned away at its first bytes.
            return Err(Hello::decode(bytes)
                .map_or_else(HelloCause::Wrong, |_| broken(io::ErrorKind::InvalidData.into())));
        }
    }
    Ok(())
}

fn broken(error: io::Error) -> HelloCause {
    HelloCause::Io(Arc::new(error))
}

/// Returns the name to show for a peer: its own, with [`Plain`] characters only, or the beginning
/// of its incarnation.
pub(super) fn display_name(hello: &Hello) -> String {
    match hello.node.as_str() {
        "" => default_name(hello.incarnation),
        name => Plain(name).to_string(),
    }
}

/// Returns the name of a node that has no other.
pub(super) fn default_name(incarnation: u128) -> String {
    format!("node-{:08x}", incarnation >> 96)
}
