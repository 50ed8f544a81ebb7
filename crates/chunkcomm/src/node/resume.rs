//! The start of a connection after its hellos: the session that it is for. Also redials
//! for sessions that are cut off.

use super::NodeShared;
use super::admission::Admission;
use super::hello::{self, OwnHello, Side};
use crate::Address;
use crate::driver::clock;
use crate::driver::connection::Redial;
use crate::driver::mail::{Command, LinkShared};
use crate::error::{HelloCause, LinkCause, LinkError};
use crate::proto::attempts::Offer;
use crate::proto::backoff::Backoff;
use crate::proto::causes::with_causes;
use crate::proto::hello::{Agreement, Hello};
use crate::proto::liveness::KeepAlive;
use crate::proto::resume::{Kind, RESUME_BYTES, Resume};
use crate::transport::spin::Spinner;
use crate::transport::{self, Home, Transport, exact};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Time that a peer has to name its session, and to answer: 5 s.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);

/// Most time for one attempt at another connection: 3 s. A new attempt follows.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(3);

fn broken(error: std::io::Error) -> HelloCause {
    // The dialler is done with TLS before the peer has judged it: the peer's verdict comes
    // here.
    match error.kind() {
        std::io::ErrorKind::InvalidData => HelloCause::Tls(Arc::new(error)),
        _ => HelloCause::Io(Arc::new(error)),
    }
}

async fn say(transport: &mut dyn Transport, word: &Resume) -> Result<(), HelloCause> {
    exact::write_all(transport, &word.encode()).await.map_err(broken)
}

async fn hear(transport: &mut dyn Transport) -> Result<Resume, HelloCause> {
    let mut bytes = [0; RESUME_BYTES];
    exact::read_exact(transport, &mut bytes).await.map_err(broken)?;
    Resume::decode(&bytes).map_err(HelloCause::Session)
}

/// Sends `word` and waits for the answer.
pub(super) async fn ask(
    transport: &mut dyn Transport,
    word: &Resume,
) -> Result<Resume, HelloCause> {
    let talk = async {
        say(transport, word).await?;
        hear(transport).await
    };
    clock::within(&Handle::current(), DEADLINE, talk).await.unwrap_or(Err(HelloCause::Timeout))
}

/// Waits up to `time` for the first word of a peer that dialled; `None` when the peer hung up,
/// as it had a session with this node already.
pub(super) async fn first_word(
    transport: &mut dyn Transport,
    time: Duration,
) -> Result<Option<Resume>, HelloCause> {
    match clock::within(&Handle::current(), time, hear(transport)).await {
        None => Err(HelloCause::Timeout),
        Some(Err(HelloCause::Io(_))) => Ok(None),
        Some(heard) => heard.map(Some),
    }
}

impl NodeShared {
    /// Answers the peer's word and gives the connection to the session that the peer names.
    pub(super) async fn answer(
        &self,
        mut transport: Box<dyn Transport>,
        theirs: &(Hello, Agreement),
        word: Resume,
    ) -> Result<(), HelloCause> {
        let peer = theirs.0.incarnation;
        let answer = |kind, received| Resume { kind, received, addressee: peer, ..word };
        let ours = word.addressee == self.own.hello.incarnation;
        let known = self.table.accepted(peer, word.session);
        match (word.kind, known) {
            (Kind::New, None) if ours && !self.table.is_closed() => {
                let sessions_max = self.settings.sessions_max;
                if !self.table.make_room_for_session(sessions_max) {
                    let sessions_max = sessions_max as u64;
                    say(&mut *transport, &answer(Kind::Unknown, sessions_max)).await?;
                    return Err(HelloCause::Full { sessions_max });
                }
                say(&mut *transport, &answer(Kind::Agreed, 0)).await?;
                let from = transport.came_from();
                let transport = self.spun(transport).map_err(broken)?;
                self.start_accepted(transport, theirs, word.session, from);
                Ok(())
            }
            (Kind::Again, Some(link)) if ours => {
                let (offer, received) = link.offer(word.attempt).await;
                say(&mut *transport, &answer(offer.kind(), received)).await?;
                if offer == Offer::Taken {
                    let transport = self.spun(transport).map_err(broken)?;
                    let (attempt, received) = (word.attempt, word.received);
                    link.command(Command::Adopt { attempt, received, transport });
                }
                Ok(())
            }
            (Kind::New | Kind::Again, _) => say(&mut *transport, &answer(Kind::Unknown, 0)).await,
            (kind, _) => {
                Err(HelloCause::Session(crate::proto::resume::ResumeError::Kind(kind as u8)))
            }
        }
    }
}

/// Dials the peer of one session again.
pub(super) struct Dialler {
    pub(super) own: OwnHello,
    pub(super) admission: Admission,
    pub(super) address: Address,
    pub(super) home: Home,
    pub(super) keep_alive: Option<KeepAlive>,
    pub(super) runtime: Handle,
    pub(super) spinner: Option<Arc<Spinner>>,
}

/// Result of an attempt at another connection.
enum Attempt {
    Made,
    /// This attempt failed, with the reason; another one may succeed.
    Failed(String),
    /// No attempt will succeed.
    Hopeless(LinkCause),
}

impl Redial for Arc<Dialler> {
    fn redial(&self, link: &Arc<LinkShared>, attempt: u32) {
        let again = Arc::clone(self).until_it_answers(Arc::clone(link), attempt);
        self.runtime.spawn(again);
    }
}

impl Dialler {
    async fn until_it_answers(self: Arc<Self>, link: Arc<LinkShared>, mut attempt: u32) {
        let seed = link.peer.session ^ u64::from(attempt) << 32;
        let mut backoff = Backoff::new(seed);
        let ended = poll_fn(|context| link.poll_ended(context));
        let trying = async {
            loop {
                clock::pause(backoff.wait()).await;
                attempt += 1;
                let made =
                    clock::within(&self.runtime, ATTEMPT_DEADLINE, self.attempt(&link, attempt));
                let timeout = || Attempt::Failed("the peer does not answer".to_owned());
                match made.await.unwrap_or_else(timeout) {
                    Attempt::Made => return,
                    Attempt::Failed(why) => link.set_trouble(why),
                    Attempt::Hopeless(cause) => {
                        let error = LinkError::new(link.peer.name.clone(), cause);
                        return link.command(Command::Abort(error));
                    }
                }
            }
        };
        tokio::pin!(ended);
        tokio::select! {
            biased;
            _ = &mut ended => {}
            () = trying => {}
        }
    }

    async fn attempt(&self, link: &Arc<LinkShared>, attempt: u32) -> Attempt {
        let keep_alive = self.keep_alive.as_ref();
        let transport = match transport::connect(&self.address, self.home, keep_alive).await {
            Ok(transport) => transport,
            Err(error) => return Attempt::Failed(error.to_string()),
        };
        let admitted = hello::admit(transport, &self.own, &self.admission, Side::Dialler);
        let (mut transport, theirs) = match admitted.await {
            Ok((transport, theirs, _)) => (transport, theirs),
            Err(cause) => return Attempt::Failed(with_causes(&cause)),
        };
        if theirs.incarnation != link.peer.incarnation {
            return Attempt::Hopeless(LinkCause::Restarted);
        }
        let (Offer::Taken, received) = link.offer(attempt).await else {
            return Attempt::Failed("the session is over here".to_owned());
        };
        let word = Resume {
            kind: Kind::Again,
            session: link.peer.session,
            attempt,
            received,
            addressee: theirs.incarnation,
        };
        let answer = match ask(&mut *transport, &word).await {
            Ok(answer) => answer,
            Err(cause) => return Attempt::Failed(with_causes(&cause)),
        };
        match answer.kind {
            Kind::Agreed => {}
            Kind::Unknown => return Attempt::Hopeless(LinkCause::Forgotten),
            _ => return Attempt::Failed("a later connection came before".to_owned()),
        }
        let adopted = match &self.spinner {
            Some(spinner) => spinner.adopt(transport),
            None => Ok(transport),
        };
        match adopted {
            Ok(transport) => {
                let received = answer.received;
                link.command(Command::Adopt { attempt, received, transport });
                Attempt::Made
            }
            Err(error) => Attempt::Failed(error.to_string()),
        }
    }
}
