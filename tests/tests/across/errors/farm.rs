//! Errors of `chunkcomm-farm`.

use super::chunkcomm::{connect, link, lost};
use super::cluster::{death, difference, member, system};
use super::{Texts, errors, label, said};
use chunkcomm::error::LinkCause;
use chunkcomm::proto::codec::{DecodeError, EncodeError};
use chunkcomm::{AcceptError, Address, Loss, NodeError, OpenError, RecvError};
use chunkcomm_cluster::Registry;
use chunkcomm_cluster::cluster::{End, NameError};
use chunkcomm_cluster::launch::{LaunchError, Launcher};
use chunkcomm_cluster::registry::Difference;
use chunkcomm_farm::settings::{Fsync, Grain, Tree, VirtualWorkers};
use chunkcomm_farm::{
    Farm, JournalError, RunError, ServeError, StartError, TaskError, Unreplaced, WorkerEnd,
    WorkerName,
};
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn all(texts: &mut Texts) {
    errors!(
        texts,
        "".parse::<Grain>().unwrap_err() => NoSetting,
        "".parse::<Tree>().unwrap_err() => NoSetting,
        "".parse::<VirtualWorkers>().unwrap_err() => NoSetting,
    );
    let journal = journals(texts).await;
    let loss = losses(texts).await;
    starting(texts, &journal, loss);
    running(texts, journal);
    serving(texts);
}

async fn journals(texts: &mut Texts) -> JournalError {
    let builder =
        Farm::builder(Registry::new()).workers(1).journal("/nowhere/journal", Fsync::Never);
    let StartError::Journal(error) = builder.start().await.unwrap_err() else { panic!() };
    let JournalError::Io { path, .. } = error else { panic!("{error}") };
    let io = JournalError::Io { path: path.clone(), source: said() };
    errors!(
        texts,
        JournalError::InUse { path: path.clone() },
        JournalError::NotAJournal { path: path.clone() },
        JournalError::Damaged { path: path.clone(), offset: 99 },
        JournalError::OtherRun { path, run: 2, function: "row".into() },
        io.clone() => JournalError::Io,
    );
    io
}

/// Writes the texts of all losses, as the end of a task; returns that of a process that ended.
async fn losses(texts: &mut Texts) -> Loss {
    let program = Launcher::new(Address::Memory("nobody".into())).program("/bin/true");
    let mut exit = program.spawn(1).unwrap().exited().await.unwrap();
    exit.status = Some(ExitStatus::default());
    let exited = Loss::from(WorkerEnd::Exited(exit));
    exit.status = None;
    let time = Duration::from_millis(1500);
    let received = RecvError::Lost { channel: "lines".into(), link: broken(), arrived: 3 };
    for (label, loss) in [
        ("TaskError::SetAside WorkerEnd::Exited", exited.clone()),
        ("TaskError::SetAside WorkerEnd::Exited", WorkerEnd::Exited(exit).into()),
        ("TaskError::SetAside WorkerEnd::Thread", WorkerEnd::Thread(String::new()).into()),
        ("TaskError::SetAside WorkerEnd::Thread", WorkerEnd::Thread("it\npanicked".into()).into()),
        ("TaskError::SetAside Death", death().into()),
        (
            "TaskError::SetAside WorkerEnd::Below",
            WorkerEnd::Below("worker 3\nwas lost".into()).into(),
        ),
        ("TaskError::SetAside RecvError", received.into()),
        ("TaskError::SetAside SendError", lost("lines").into()),
        ("TaskError::SetAside WorkerEnd::Closed", WorkerEnd::Closed.into()),
        ("TaskError::SetAside WorkerEnd::Malformed", WorkerEnd::Malformed.into()),
        ("TaskError::SetAside WorkerEnd::Dismissed", WorkerEnd::Dismissed.into()),
        ("TaskError::SetAside WorkerEnd::Stuck", WorkerEnd::Stuck { task: 7 }.into()),
        ("TaskError::SetAside WorkerEnd::Silent", WorkerEnd::Silent(time).into()),
        ("TaskError::SetAside WorkerEnd::Late", WorkerEnd::Late(time).into()),
    ] {
        texts.error(label, &set_aside(loss));
    }
    exited
}

fn starting(texts: &mut Texts, journal: &JournalError, exited: Loss) {
    let refusals = || vec!["another credential".to_owned(), "no hello".to_owned()];
    let lost = |loss, refusals| StartError::Lost { worker: thread(), loss, refusals };
    let late = |refusals| {
        let missing = vec![thread(), process(), node()];
        StartError::Late { waited: Duration::from_millis(1500), missing, refusals }
    };
    let differs = |ours| StartError::Differs {
        worker: thread(),
        difference: Box::new(Difference { ours, ..difference() }),
    };
    errors!(
        texts,
        StartError::Setting { name: "prefetch", value: 0, allowed: "1 or more" },
        StartError::Node(NodeError::System(said())),
        StartError::Signal(io::Error::other("what the system said")),
        StartError::Launch(LaunchError::Nested),
        StartError::Launch(system()),
        StartError::Thread { worker: thread(), source: io::Error::other("what the system said") },
        StartError::Journal(journal.clone()),
        StartError::Name(NameError::Ended(End::Left)),
        StartError::Taken { farm: "farm".into(), rank: 3 },
        StartError::Accept(AcceptError::Lost { channel: "lines".into(), error: broken() }),
        lost(received().into(), Vec::new()) => StartError::Lost,
        lost(WorkerEnd::Closed.into(), refusals()) => StartError::Lost,
        lost(exited, Vec::new()) => StartError::Lost,
        StartError::Unreachable { worker: process(), cause: Box::new(connect()) },
        StartError::Versions { worker: node(), ours: (3, 4), theirs: (1, 2) },
        differs(None) => StartError::Differs,
        differs(difference().ours) => StartError::Differs,
        late(Vec::new()) => StartError::Late,
        late(refusals()) => StartError::Late,
    );
}

fn running(texts: &mut Texts, journal: JournalError) {
    let (function, worker, text) = ("row".to_owned(), process(), "no\nroot".to_owned());
    let large = |count| RunError::TooLarge {
        index: 16,
        count,
        worker: process(),
        bytes: 2_000_001,
        bytes_max: 1_000_000,
    };
    let lost = |left, unreplaced: Option<Unreplaced>| RunError::Lost {
        worker: process(),
        unanswered: 1,
        left,
        loss: if unreplaced.is_some() { WorkerEnd::Closed.into() } else { received().into() },
        unreplaced: unreplaced.map(Box::new),
    };
    let (index, after) = (17, Duration::from_millis(1500));
    errors!(
        texts,
        TaskError::Failed { index, function: function.clone(), worker: node(), text: text.clone() },
        TaskError::TimedOut { index, function: function.clone(), worker: process(), after },
        TaskError::Result { index, worker: worker.clone(), source: DecodeError::Short },
        TaskError::ResultPanicked { index, worker, text },
        RunError::NotRegistered { function },
        RunError::Input { index, source: EncodeError::NoRoom },
        RunError::Journal(journal),
        RunError::Task(set_aside(received().into())),
        large(1) => RunError::TooLarge,
        large(8) => RunError::TooLarge,
        RunError::OutOfTime { given: 5, unanswered: 0 },
        RunError::OutOfTime { given: 5, unanswered: 2 },
        RunError::NotChosen { there: 3, unanswered: 1, left: Some(4) },
        RunError::NotChosen { there: 1, unanswered: 1, left: None },
        lost(Some(0), None) => RunError::Lost,
        lost(None, Some(Unreplaced::Unready { count: 17 })) => RunError::Lost,
        lost(None, Some(Unreplaced::Launch(system()))) => RunError::Lost,
    );
}

fn serving(texts: &mut Texts) {
    let nowhere = Difference { ours: None, ..difference() };
    let farm = RunError::Input { index: 3, source: EncodeError::NoRoom };
    errors!(
        texts,
        ServeError::Name(NameError::Ended(End::Left)),
        ServeError::Farmer(death().into()),
        ServeError::Open(OpenError::Lost(broken())),
        ServeError::Encode(EncodeError::NoRoom),
        ServeError::Send(lost("lines")),
        ServeError::Recv(received()),
        ServeError::Differs(Box::new(difference())),
        ServeError::Differs(Box::new(nowhere)),
        ServeError::Malformed,
        ServeError::Thread(io::Error::other("what the system said")),
        ServeError::Farm(Box::new(farm)),
        ServeError::Stuck,
        ServeError::Ended(End::Left),
    );
}

fn broken() -> chunkcomm::LinkError {
    link(LinkCause::Io(said()))
}

fn received() -> RecvError {
    RecvError::Lost { channel: "lines".into(), link: broken(), arrived: 3 }
}

fn set_aside(loss: Loss) -> TaskError {
    let function = "row".to_owned();
    TaskError::SetAside { index: 17, function, deaths: 2, worker: process(), loss, input: vec![1] }
}

fn thread() -> WorkerName {
    WorkerName { index: 0, pid: None, member: None }
}

fn process() -> WorkerName {
    WorkerName { index: 3, pid: Some(4242), member: None }
}

fn node() -> WorkerName {
    WorkerName { index: 2, pid: None, member: Some(Arc::new(member())) }
}
