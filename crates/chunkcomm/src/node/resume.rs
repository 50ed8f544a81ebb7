//! The start of a connection after its hellos: the session that it is for. Also redials
//! for sessions that are cut off.

use super::NodeShared;
use super::admission::Admission;
use super::hello::{self, OwnHello, Side};
use super::same_host::SameHost;
use crate::Address;
use crate::driver::clock;
use crate::driver::connection::{Dial, Redial};
use crate::driver::mail::{Command, LinkShared};
use crate::driver::tasks;
use crate::error::HelloCause;
use crate::explain::Way;
use crate::proto::causes::with_causes;
use crate::proto::hello::{Agreement, Hello};
use crate::proto::liveness::KeepAlive;
use crate::proto::resume::{Kind, RESUME_BYTES, Resume, Wish};
use crate::transport::spin::Spinner;
use crate::transport::{self, Home, Transport, exact};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Time that a peer has to name its session, and to answer: 5 s.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);

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
    Resume::decode(&bytes).map_err(HelloCause::Wrong)
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
        way: Way,
    ) -> Result<(), HelloCause> {
        let peer = theirs.0.incarnation;
        let known = self.table.accepted(peer, word.session);
        let answer = |kind, received| word.answer(kind, received, peer);
        let wish = word.wish(self.own.hello.incarnation, known.is_some());
        match (wish.map_err(HelloCause::Wrong)?, known) {
            (Wish::Begin, _) if !self.table.is_closed() => {
                let own = self.own.hello.incarnation;
                let agreed = word.is_only().then(|| self.table.agrees(own, peer));
                if let Some(None) = agreed {
                    return say(&mut *transport, &answer(Kind::Stale, 0)).await;
                }
                let sessions_max = self.settings.limits.sessions_max;
                if !self.table.make_room_for_session(sessions_max) {
                    let sessions_max = sessions_max as u64;
                    say(&mut *transport, &answer(Kind::Unknown, sessions_max)).await?;
                    return Err(HelloCause::Full { sessions_max });
                }
                say(&mut *transport, &answer(Kind::Agreed, 0)).await?;
                let from = transport.came_from();
                let transport = self.spun(transport).map_err(broken)?;
                self.start_accepted(transport, theirs, word.session, from, way);
                drop(agreed);
                Ok(())
            }
            (Wish::GoOn, Some(link)) if link.peer.shown.is_same(&transport.shown()) => {
                let answer = link.offered(word).await;
                say(&mut *transport, &answer).await?;
                if answer.kind == Kind::Agreed {
                    let transport = self.spun(transport).map_err(broken)?;
                    let (attempt, received) = (word.attempt, word.received);
                    link.set_way(way);
                    link.command(Command::Adopt { attempt, received, transport });
                }
                Ok(())
            }
            _ => say(&mut *transport, &answer(Kind::Unknown, 0)).await,
        }
    }
}

/// Dials the peer of one session again.
pub(super) struct Dialler {
    pub(super) own: OwnHello,
    pub(super) admission: Admission,
    pub(super) same_host: SameHost,
    pub(super) address: Address,
    pub(super) home: Home,
    pub(super) keep_alive: Option<KeepAlive>,
    pub(super) runtime: Handle,
    pub(super) spinner: Option<Arc<Spinner>>,
}

impl Redial for Arc<Dialler> {
    fn dial(&self, link: &Arc<LinkShared>, attempt: u32) -> Dial {
        let (dialler, link) = (Arc::clone(self), Arc::clone(link));
        let dialled = async move {
            if let Err(why) = dialler.attempt(&link, attempt).await {
                link.command(Command::DialFailed { attempt, why });
            }
        };
        Dial(tasks::spawn_boxed(&self.runtime, Box::pin(dialled)).abort_handle())
    }
}

impl Dialler {
    /// Makes connection `attempt` and gives it to the driver.
    ///
    /// # Errors
    ///
    /// The text says why there is none.
    async fn attempt(&self, link: &Arc<LinkShared>, attempt: u32) -> Result<(), String> {
        let keep_alive = self.keep_alive.as_ref();
        let connected = transport::connect(&self.address, self.home, keep_alive).await;
        let transport = connected.map_err(|error| error.to_string())?;
        let admitted = hello::admit(transport, &self.own, &self.admission, Side::Dialler).await;
        let (transport, theirs, _) = admitted.map_err(|cause| with_causes(&cause))?;
        // Another certificate is that of another process, whatever incarnation that claims.
        let is_same = link.peer.shown.is_same(&transport.shown());
        let incarnation = if is_same { theirs.incarnation } else { !link.peer.incarnation };
        let (address, admission) = (&self.address, &self.admission);
        let (mut transport, way) = if incarnation == link.peer.incarnation {
            self.same_host.shorter(address, transport, &theirs, &self.own, admission).await
        } else {
            (transport, Way::Other)
        };
        let Some(word) = link.greeted(attempt, incarnation).await else {
            return Ok(());
        };
        let answer = ask(&mut *transport, &word).await.map_err(|cause| with_causes(&cause))?;
        if !matches!(answer.kind, Kind::Agreed | Kind::Unknown) {
            return Err("a later connection came before".to_owned());
        }
        let transport = match &self.spinner {
            Some(spinner) => spinner.adopt(transport).map_err(|error| error.to_string())?,
            None => transport,
        };
        link.set_way(way);
        link.command(Command::Answered { attempt, answer, transport });
        Ok(())
    }
}
