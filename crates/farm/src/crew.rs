//! The workers as processes and threads: who they are, and who ended.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use chunkcomm::launch::{Children, Launcher, Token};
use chunkcomm::{Address, Registry};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::error::{Loss, StartError, WorkerName};
use crate::settings::NodeSettings;
use crate::worker::{FIRST_INDEX, Post, work_blocking};

/// All workers of a farm: first the threads, then the processes. Dropping it
/// kills and reaps the processes; a thread ends after the task it is at, once
/// the farmer's channels are closed.
pub(crate) struct Crew {
    /// By index.
    names: Vec<WorkerName>,
    token: Token,
    threads: UnboundedReceiver<(usize, String)>,
    /// Held so that the receiver waits, rather than tells that all have ended.
    threads_end: UnboundedSender<(usize, String)>,
    processes: Option<Children>,
    running: usize,
}

impl Crew {
    /// A crew of nobody yet.
    pub(crate) fn new() -> Result<Crew, StartError> {
        let (threads_end, threads) = unbounded_channel();
        // No random numbers: nothing that a farm does would be safe then.
        let token = Token::random().map_err(|source| StartError::Thread {
            worker: WorkerName { index: 0, pid: None },
            source: std::io::Error::other(source),
        })?;
        let names = Vec::new();
        Ok(Crew { names, token, threads, threads_end, processes: None, running: 0 })
    }

    /// Starts a worker thread.
    pub(crate) fn hire_thread(
        &mut self,
        farmer: Address,
        settings: NodeSettings,
        registry: &Arc<Registry>,
    ) -> Result<(), StartError> {
        let index = self.names.len();
        let worker = WorkerName { index, pid: None };
        let post = Post { farmer, index, token: self.token, settings, explains: false };
        let (registry, end) = (Arc::clone(registry), self.threads_end.clone());
        thread::Builder::new()
            .name(format!("farm-worker-{index}"))
            .spawn(move || {
                let told = match work_blocking(&post, &registry) {
                    Ok(()) => String::new(),
                    Err(stopped) => stopped.to_string(),
                };
                // A farm that is gone does not want to know.
                let _ = end.send((index, told));
            })
            .map_err(|source| StartError::Thread { worker, source })?;
        self.names.push(worker);
        self.running += 1;
        Ok(())
    }

    /// Starts worker processes, once.
    pub(crate) fn hire_processes(
        &mut self,
        count: usize,
        settings: NodeSettings,
        launcher: Launcher,
    ) -> Result<(), StartError> {
        let first = self.names.len();
        let children = launcher
            .env(NodeSettings::VARIABLE, settings.to_string())
            .env(FIRST_INDEX, first.to_string())
            .spawn(count)
            .map_err(StartError::Launch)?;
        for (at, &pid) in children.pids().iter().enumerate() {
            self.names.push(WorkerName { index: first + at, pid: Some(pid) });
        }
        self.processes = Some(children);
        self.running += count;
        Ok(())
    }

    /// Who they are, by index.
    pub(crate) fn names(&self) -> &[WorkerName] {
        &self.names
    }

    /// The worker of that index, if it was given this token.
    pub(crate) fn known(&self, index: u64, token: Token) -> Option<WorkerName> {
        let name = *self.names.get(usize::try_from(index).ok()?)?;
        let given = match (name.pid, &self.processes) {
            (Some(_), Some(children)) => children.token(),
            _ => self.token,
        };
        (given == token).then_some(name)
    }

    /// Tells every end of a worker once; pending when none is left.
    pub(crate) fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<(WorkerName, Loss)> {
        if let Poll::Ready(Some((index, told))) = self.threads.poll_recv(context) {
            self.running -= 1;
            return Poll::Ready((self.names[index], Loss::Ended(told)));
        }
        let exited = match &mut self.processes {
            Some(children) => children.poll_exited(context),
            None => Poll::Pending,
        };
        if let Poll::Ready(Some(exit)) = exited {
            self.running -= 1;
            let named = self.names.iter().find(|name| name.pid == Some(exit.pid));
            return Poll::Ready((*named.expect("a child is a worker"), Loss::Exited(exit)));
        }
        Poll::Pending
    }

    /// Waits for the next end of a worker.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn ended(&mut self) -> (WorkerName, Loss) {
        std::future::poll_fn(|context| self.poll_ended(context)).await
    }

    /// Kills the worker processes that still run and reaps them.
    pub(crate) fn dismiss(&mut self) {
        self.processes = None;
    }

    /// Workers that have not ended.
    pub(crate) fn running(&self) -> usize {
        self.running
    }
}

impl Loss {
    /// Ended as a worker does whose farmer is done.
    pub(crate) fn is_orderly(&self) -> bool {
        match self {
            Loss::Exited(exit) => exit.status.is_some_and(|status| status.success()),
            Loss::Ended(told) => told.is_empty(),
            _ => false,
        }
    }
}
