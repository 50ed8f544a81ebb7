//! Errors of `chunkcomm-cluster`.

use super::chunkcomm::{connect, link, lost, refused, type_refused};
use super::{Texts, address, errors, label, said, words};
use chunkcomm::error::{CredentialError, LinkCause, TypeRefused};
use chunkcomm::proto::codec::{DecodeError, EncodeError};
use chunkcomm::{CloseError, LinkError, NodeError, OpenError, RecvError, SendError};
use chunkcomm_cluster::call::{ServeError, ServiceCloseError};
use chunkcomm_cluster::cluster::{
    AgreeError, BarrierError, Death, End, EndError, JoinError, Member, NameError, NodeId,
    Objection, Refusal,
};
use chunkcomm_cluster::launch::LaunchError;
use chunkcomm_cluster::process::ProcessError;
use chunkcomm_cluster::proto::call::calls::Unasked;
use chunkcomm_cluster::registry::{Difference, FunctionError, Signature, TypeFingerprint};
use chunkcomm_cluster::{CallError, HandOverError, TravelError};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn all(texts: &mut Texts) {
    calls(texts);
    services(texts);
    functions(texts);
    processes(texts);
    ends(texts);
    members(texts);
    joining(texts);
    refusals(texts);
    launching(texts);
}

fn calls(texts: &mut Texts) {
    let service = || Arc::<str>::from("squ\"ares");
    let text = || "no\nroot".to_owned();
    let peer = || "peer".to_owned();
    errors!(
        texts,
        CallError::Failed { service: service(), text: text() },
        CallError::Panicked { service: service(), text: text() },
        CallError::Timeout { service: service(), after: Duration::from_millis(1500) },
        CallError::Overloaded { service: service() },
        CallError::Closing { service: service() },
        CallError::NoService { service: service(), peer: peer(), waited: Duration::ZERO },
        CallError::NoService { service: service(), peer: peer(), waited: Duration::from_secs(5) },
        CallError::NoProvider { service: service(), why: None },
        CallError::NoProvider { service: service(), why: Some("all left".into()) },
        CallError::Unreachable(OpenError::Connect(connect())),
        CallError::Types(Arc::new(refused())),
        CallError::Method {
            service: service(),
            peer: peer(),
            ours: "root(f64) -> f64".into(),
            theirs: None,
        },
        CallError::Method {
            service: service(),
            peer: peer(),
            ours: "root(f64) -> f64".into(),
            theirs: Some("root(f32) -> f32".into()),
        },
        CallError::Link { service: service(), link: broken(), sent: Default::default() },
        CallError::Ended { service: service(), peer: peer() },
        CallError::Request { service: service(), error: lost("lines") },
        CallError::TooMany { service: service() },
        CallError::Refused { service: service(), why: text() },
        CallError::Unreadable { service: service(), text: text() },
        CallError::Unsendable { service: service(), text: text() },
        CallError::Answer { service: service(), source: DecodeError::Short },
        CallError::Protocol { service: service(), peer: peer(), what: "an answer to nothing" },
        Unasked { slot: 7 },
    );
}

fn services(texts: &mut Texts) {
    errors!(
        texts,
        ServeError::Name { bytes: 241 },
        ServeError::Taken { name: "squares".into() },
        ServeError::Type(type_refused()),
        ServiceCloseError { service: "squares".into(), handled: 3, waiting: 2 },
    );
}

fn functions(texts: &mut Texts) {
    let function = || Arc::<str>::from("row");
    errors!(
        texts,
        FunctionError::Input { function: function(), source: DecodeError::Short },
        FunctionError::Output { function: function(), source: EncodeError::NoRoom },
        FunctionError::Panicked { function: function(), message: "no".into() },
        FunctionError::Waits { function: function() },
    );
}

fn processes(texts: &mut Texts) {
    let (process, node) = (|| "sieve".to_owned(), || "rank-1".to_owned());
    let failed = |place| ProcessError::Panicked {
        process: process(),
        node: node(),
        message: "no\nroot".into(),
        place,
    };
    let message = "no\nroot".to_owned();
    let differs = |there: Option<Signature>| {
        let (here, there) = (Box::new(function("u8")), there.map(Box::new));
        ProcessError::Differs { node: node(), here, there }
    };
    errors!(
        texts,
        ProcessError::Failed { process: process(), node: node(), message },
        failed(None) => ProcessError::Panicked,
        failed(Some("main.rs:3:5".into())) => ProcessError::Panicked,
        ProcessError::Stopped { process: process(), node: node() },
        differs(Some(function("u16"))) => ProcessError::Differs,
        differs(None) => ProcessError::Differs,
        ProcessError::Input { process: process(), node: node(), why: "short\n".into() },
        ProcessError::Full { process: process(), node: node(), processes: 5 },
        ProcessError::Lost { process: process(), link: broken() },
        ProcessError::Unsent(encode()),
        ProcessError::Unreachable(broken().into()),
        ProcessError::Unreachable(connect().into()),
        ProcessError::Unreachable(death().into()),
    );
}

fn ends(texts: &mut Texts) {
    let home = || "rank-1".to_owned();
    let open = || OpenError::Type(TypeRefused { type_name: "Rc".into(), reason: "no".into() });
    errors!(
        texts,
        TravelError::Dropped { by: "rank\n1".into() },
        TravelError::Lost { why: "rank 1\nis gone".into() },
        TravelError::Unreachable { home: home(), cause: None },
        TravelError::Unreachable { home: home(), cause: Some(Arc::new(connect())) },
        TravelError::Stray,
        TravelError::Open(Arc::new(open())),
        TravelError::Receive(received()),
        TravelError::Send(lost("lines")),
        TravelError::System(said()),
        HandOverError { value: 1, error: lost("lines") },
        TravelError::Unwritten { by: "rank\n1".into() },
    );
}

fn members(texts: &mut Texts) {
    let (name, ranks) = (|| "worker".to_owned(), vec![1, 4]);
    let ids = vec![id(2), id(3)];
    let close = CloseError { channels: Vec::new(), forgotten: 7, unsaid: Vec::new() };
    words!(
        texts,
        Objection::Name,
        Objection::Value { bytes: 2000, max: 1024 },
        Objection::NotAmong,
        Objection::TooMany,
        Objection::Differs { count: 3, first: id(2), first_count: 4 },
    );
    errors!(
        texts,
        BarrierError::Died(ids),
        BarrierError::Ended(End::Left),
        refused_agreement() => AgreeError::Refused,
        AgreeError::Differs { name: name(), count: 3, first: id(2), first_count: 4 },
        AgreeError::Ended(End::Left),
        NameError::Refused { name: name() },
        NameError::Ended(End::Left),
        NameError::Held { name: name(), by: id(2) },
        NameError::Withdrawn { name: name() },
        NameError::Serve(ServeError::Name { bytes: 241 }),
        NameError::Nobody { name: name() },
        NameError::Dead { name: name(), death: death() },
        NameError::Several { name: name(), ranks },
        EndError::Manager,
        EndError::NotAllDone,
        EndError::Ended(End::Finished { by: None }),
        EndError::Ended(End::Finished { by: Some(id(2)) }),
        EndError::Ended(End::Refused(Refusal::Over)),
        EndError::Ended(End::ManagerLost { loss: "it\nbroke".into() }),
        EndError::Close(close),
        EndError::Killed { count: 2 },
        EndError::Failed(vec!["rank 1: exit status: 1".into(), "rank 2: signal: 9".into()]),
    );
}

fn joining(texts: &mut Texts) {
    let by = || "mpiexec".to_owned();
    let refusals = vec!["another credential".to_owned(), "no hello".to_owned()];
    errors!(
        texts,
        JoinError::Nodes { asked: 4, started: 3, by: by() },
        JoinError::NeedsCredential { by: by() },
        JoinError::Credential(CredentialError::Random(said())),
        JoinError::Node(NodeError::System(said())),
        JoinError::Ports { first: 7000, last: 7009 },
        JoinError::Launch(system()),
        JoinError::Meeting { path: "/a/file".into(), error: said() },
        JoinError::NoManager { waited: Duration::from_secs(60), last: "refused".into() },
        JoinError::Told { why: "no address".into() },
        JoinError::Admission(connect()),
        JoinError::Refused(Refusal::Full),
        JoinError::TurnedAway { missing: Refusal::Full, refusals },
        JoinError::Ended(End::Left),
        JoinError::System { what: "start a thread", error: said() },
    );
}

fn refusals(texts: &mut Texts) {
    let why = || "exit\nstatus: 1".to_owned();
    let ranks = |count| Refusal::Missing { ranks: (1..=count).collect(), waited_ms: 1500 };
    let of = |theirs, ours| Box::new(Difference { theirs, ours });
    let one = |input: &str| Some(function(input));
    words!(
        texts,
        Refusal::Size { rank: Some(1), theirs: 4, ours: 5 },
        Refusal::Size { rank: None, theirs: 4, ours: 5 },
        Refusal::Functions { rank: Some(1), other: 0, difference: of(one("u8"), one("u16")) },
        Refusal::Functions { rank: None, other: 0, difference: of(one("u8"), None) },
        Refusal::Functions { rank: None, other: 0, difference: of(None, one("u8")) },
        Refusal::Functions { rank: None, other: 0, difference: of(None, None) },
        Refusal::Functions { rank: Some(1), other: 3, difference: of(one("u8"), None) },
        Refusal::Rank { rank: 9, size: 4 },
        Refusal::Taken(Box::new(member())),
        Refusal::Missing { ranks: vec![3], waited_ms: 2000 },
        ranks(3) => Refusal::Missing,
        ranks(20) => Refusal::Missing,
        Refusal::DiedEarly { rank: 1, loss: why().into() },
        Refusal::Twice,
        Refusal::Over,
        Refusal::Full,
        Refusal::Decided { name: "x".to_owned() },
    );
}

fn launching(texts: &mut Texts) {
    let path = || "/a/file".into();
    let command = "get";
    let (host, program) = (|| "pear".to_owned(), "ssh".to_owned());
    let why = || "no such host".to_owned();
    let blamed = vec![(1, host()), (2, "plum".to_owned())];
    errors!(
        texts,
        place(None) => LaunchError::Variable,
        place(Some("x\ny".to_owned())) => LaunchError::Variable,
        LaunchError::HostsFile { path: path(), error: said() },
        LaunchError::HostsLine { path: path(), line: 0, why: why() },
        LaunchError::HostsLine { path: path(), line: 3, why: why() },
        LaunchError::HostsSlots { path: path(), asked: 9, slots: 4 },
        LaunchError::NodeEnded { rank: 1, host: host(), why: why() },
        LaunchError::NotStarted { at_fault: blamed, why: why() },
        LaunchError::NotStarted { at_fault: Vec::new(), why: why() },
        LaunchError::Silent { host: host(), awaited: "ready", waited: Duration::from_secs(60) },
        LaunchError::Ssh { program, error: said() },
        LaunchError::PmiSocket { way: "PMI_FD".into(), error: said() },
        LaunchError::PmiLost { command, error: said() },
        LaunchError::PmiAnswer { command, line: "cmd=?\n".into() },
        LaunchError::PmiFailed { command, why: why() },
        LaunchError::PmiTooLong { bytes: 2000, max: 1024 },
        LaunchError::PmiTimeout,
        LaunchError::Nested,
        LaunchError::Count(5000),
        LaunchError::NoSuchCpu { cpu: 9, allowed: vec![0, 1] },
        system() => LaunchError::System,
    );
}

fn broken() -> LinkError {
    link(LinkCause::Io(said()))
}

fn received() -> RecvError {
    RecvError::Lost { channel: "lines".into(), link: broken(), arrived: 3 }
}

fn encode() -> SendError {
    SendError::Encode(Arc::new(EncodeError::NoRoom))
}

pub(super) fn system() -> LaunchError {
    LaunchError::System { what: "start a process", program: "/a/program".into(), source: said() }
}

fn place(value: Option<String>) -> LaunchError {
    LaunchError::Variable { variable: "CHUNKCOMM_RANK".into(), value, why: "a number".into() }
}

fn id(rank: u32) -> NodeId {
    NodeId { rank, incarnation: 9 }
}

pub(super) fn refused_agreement() -> AgreeError {
    AgreeError::Refused { name: "wor\nker".into(), why: Objection::TooMany }
}

pub(super) fn death() -> Death {
    Death { id: id(2), loss: "it was\nsilent".into() }
}

pub(super) fn member() -> Member {
    let addresses = vec![address().to_string()];
    Member { id: id(3), host: "pear".into(), pid: 4242, addresses, name: Some("third".into()) }
}

fn function(input: &str) -> Signature {
    let of = |text: &str| TypeFingerprint { hash: 1, text: text.to_owned() };
    Signature { name: "row".into(), input: of(input), output: Some(of("u64")) }
}

pub(super) fn difference() -> Difference {
    Difference { theirs: Some(function("u8")), ours: Some(function("u16")) }
}
