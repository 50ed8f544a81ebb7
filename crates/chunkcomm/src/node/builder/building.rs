//! The building of a node from its settings.

use super::super::accepting::AcceptTable;
use super::super::admission::Admission;
use super::super::closing::until_the_runtime_ends;
use super::super::hello::{OwnHello, default_name, display_name};
use super::super::io_thread::IoThread;
use super::super::layers::{Layers, WeakNode};
use super::super::listening::{Listening, accept_loop};
use super::super::same_host::SameHost;
use super::super::unaccepted::{speak_of_unaccepted, speak_of_unopened};
use super::super::waits::Waits;
use super::super::warnings::Warnings;
use super::super::{Node, NodeShared};
use super::checks::setting;
use super::{
    AGE_BOUND_VARIABLE, CREDENTIAL_FILE_VARIABLE, CredentialFrom, NodeBuilder, ONE_COPY_VARIABLE,
    SAME_HOST_VARIABLE,
};
use crate::credential::Credential;
use crate::driver::buffers::Buffers;
use crate::driver::cycles::node_of;
use crate::driver::entropy;
use crate::driver::tasks;
use crate::driver::wakers::locked;
use crate::error::NodeError;
use crate::portable::portable_only;
use crate::proto::cycle::Board;
use crate::proto::hello::{FLAG_ONE_COPY, FLAG_SOLE_NAME, Hello, Name};
use crate::proto::limits::{
    OPEN_CREDIT_DIVISOR, PACKET_BYTES_DEFAULT, PACKET_BYTES_TUNED, WINDOW_BYTES_INITIAL,
};
use crate::proto::tuning::without::{Controller, WITHOUT_VARIABLE};
use crate::transport;
use crate::transport::spin::{Spinner, spin};
use crate::transport::{BoxFuture, Home};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, watch};

/// The runtimes of a node to be built, and the host from which it dials.
struct BuildPlace {
    own: Handle,
    runtime: Handle,
    one_thread: bool,
    io_thread: Option<IoThread>,
    home: Home,
}

impl NodeBuilder {
    /// Builds the node, which listens and begins to accept.
    ///
    /// # Errors
    ///
    /// A setting is impossible, an address is taken or not allowed, or there is
    /// no runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, there is no node.
    pub async fn build(self) -> Result<Node, NodeError> {
        self.built().await
    }

    /// Builds the node. On the heap, so that the code is compiled with this crate and not with each
    /// program that awaits it.
    fn built(self) -> BoxFuture<'static, Result<Node, NodeError>> {
        Box::pin(self.check_and_build())
    }

    async fn check_and_build(mut self) -> Result<Node, NodeError> {
        self.read_environment()?;
        let admission = self.admission()?;
        self.check(&admission)?;
        if (self.io_thread || self.busy_poll) && tasks::is_virtual() {
            let name = if self.io_thread { "io_thread" } else { "busy_poll" };
            return Err(setting(name, "on", "outside a simulation, which has one thread"));
        }
        let io_thread = if self.io_thread { Some(IoThread::start()?) } else { None };
        let runtime = match &io_thread {
            Some(thread) => thread.handle.clone(),
            None => Handle::try_current().map_err(|_| NodeError::NoRuntime)?,
        };
        let one_thread = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        if self.busy_poll && !one_thread {
            return Err(setting("busy_poll", "on", "with io_thread or a runtime of one thread"));
        }
        // Asked here: the task below belongs to no host's program.
        let home = Home::of(&self.listen);
        let own = Handle::try_current().unwrap_or_else(|_| runtime.clone());
        let place = BuildPlace { own, runtime: runtime.clone(), one_thread, io_thread, home };
        let task = tasks::spawn_at(&runtime, home, self.build_on(place, admission));
        task.await.map_err(|_| NodeError::NoRuntime)?
    }

    async fn build_on(self, place: BuildPlace, admission: Admission) -> Result<Node, NodeError> {
        let BuildPlace { own, runtime, one_thread, io_thread, home } = place;
        let mut listeners = Vec::new();
        for address in &self.listen {
            let listener = transport::listen(address, portable_only()).await;
            let failed =
                |error| NodeError::Listen { address: address.clone(), error: Arc::new(error) };
            listeners.push(listener.map_err(failed)?);
        }
        let own_hello = self.hello(self.copies_once(&admission))?;
        let hello = own_hello.hello;
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.address()).collect();
        let mut same_host = self.same_host_of(&admission);
        listeners.extend(same_host.listen(hello.incarnation, &addresses));
        let board = Board::new(node_of(hello.incarnation), &display_name(&hello));
        let system = |error| NodeError::System(Arc::new(error));
        let spinner = self.busy_poll.then(|| Spinner::new(portable_only())).transpose();
        let spinner = spinner.map_err(system)?;
        let shared = Arc::new_cyclic(|node: &Weak<NodeShared>| {
            if let Some(spinner) = &spinner {
                tasks::spawn_on(&runtime, spin(Arc::downgrade(spinner)));
            }
            let (weak, name) = (WeakNode(node.clone()), display_name(&hello));
            let layers = Layers::start(&self.layers, weak, name, runtime.clone(), &own);
            let layers = Arc::new(layers);
            let (holds, waits) = (Arc::new(Notify::new()), Arc::new(Waits::default()));
            let warnings = Warnings::new(display_name(&hello), self.settings.aloud);
            let (layers_too, holds_too) = (Arc::clone(&layers), Arc::clone(&holds));
            let bytes_max = self.settings.limits.cut_off_bytes_max as u64;
            let table = AcceptTable::new(layers_too, holds_too, warnings, bytes_max);
            let table = Arc::new(table);
            let speaks = speak_of_unaccepted(Arc::downgrade(&table), Arc::clone(&waits), holds);
            let speaking = tasks::spawn_boxed(&runtime, Box::pin(speaks)).abort_handle();
            let opens = speak_of_unopened(Arc::downgrade(&table), Arc::clone(&table.open_waits));
            let speaking_of_opens = tasks::spawn_boxed(&runtime, Box::pin(opens)).abort_handle();
            let ends = until_the_runtime_ends(&table);
            let ending = tasks::spawn_boxed(&runtime, Box::pin(ends)).abort_handle();
            if let Some(thread) = &io_thread {
                thread.watch(&table);
            }
            NodeShared {
                buffers: Arc::new(Buffers::new(self.settings.experiment.without)),
                settings: self.settings,
                own: own_hello,
                admission,
                same_host,
                runtime,
                one_thread,
                table,
                board: Arc::new(Mutex::new(board)),
                addresses,
                home,
                taken: watch::Sender::default(),
                tasks: Mutex::new(vec![speaking, speaking_of_opens, ending]),
                spinner: Mutex::new(spinner),
                local: tokio::sync::Mutex::new(None),
                layers,
                waits,
                debts: Arc::default(),
                published: Mutex::default(),
                io_thread,
            }
        });
        // Only now: a connection that comes earlier would find no node, as if the node were gone.
        let accepting = listeners.into_iter().map(|listener| {
            let listening = Listening { listener, _is_taken: shared.taken.subscribe() };
            let accepting = accept_loop(listening, Arc::downgrade(&shared));
            tasks::spawn_boxed(&shared.runtime, Box::pin(accepting)).abort_handle()
        });
        locked(&shared.tasks).extend(accepting);
        Ok(Node { shared })
    }

    fn read_environment(&mut self) -> Result<(), NodeError> {
        self.read_without()?;
        self.same_host &= read_switch(SAME_HOST_VARIABLE)?;
        self.one_copy &= read_switch(ONE_COPY_VARIABLE)?;
        if self.age_bound_set {
            return Ok(());
        }
        let Some(text) = variable(AGE_BOUND_VARIABLE) else { return Ok(()) };
        let bound = text.parse::<u64>().ok().filter(|ms| (1..=60_000).contains(ms));
        let bound = bound.ok_or_else(|| {
            setting(AGE_BOUND_VARIABLE, &text, "a whole number of milliseconds from 1 to 60000")
        })?;
        self.settings.age_bound = Duration::from_millis(bound);
        Ok(())
    }

    fn read_without(&mut self) -> Result<(), NodeError> {
        let Some(text) = variable(WITHOUT_VARIABLE) else { return Ok(()) };
        self.settings.experiment.without = text.parse().map_err(|_| {
            let names = Controller::ALL.map(|(_, name)| name).join(", ");
            setting(WITHOUT_VARIABLE, &text, format!("some of {names}, with commas between them"))
        })?;
        Ok(())
    }

    /// Whether peers on this host may read this node's memory, and it theirs.
    fn copies_once(&self, admission: &Admission) -> bool {
        let keeps = !self.settings.experiment.session_off;
        self.one_copy && !portable_only() && admission.proves() && keeps
    }

    fn same_host_of(&self, admission: &Admission) -> SameHost {
        #[cfg(feature = "tls")]
        let has_own_tls = self.user_tls.is_some();
        #[cfg(not(feature = "tls"))]
        let has_own_tls = false;
        SameHost::of(self.same_host, admission, has_own_tls)
    }

    fn admission(&self) -> Result<Admission, NodeError> {
        let from = self.credential.clone().or_else(|| {
            let path = std::env::var_os(CREDENTIAL_FILE_VARIABLE).filter(|_| !tasks::is_virtual());
            path.map(|path| CredentialFrom::File(path.into()))
        });
        let credential = match from {
            None => None,
            Some(CredentialFrom::Given(credential)) => Some(credential),
            Some(CredentialFrom::File(path)) => {
                Some(Credential::load(path).map_err(NodeError::Credential)?)
            }
        };
        Admission::new(
            credential.as_ref(),
            #[cfg(feature = "tls")]
            self.user_tls.as_ref(),
        )
    }

    fn hello(&self, one_copy: bool) -> Result<OwnHello, NodeError> {
        let random = entropy::bytes().map_err(|error| NodeError::System(Arc::new(error)))?;
        let settings = &self.settings;
        let mut hello = Hello::new(
            Name::truncated(&settings.cluster),
            Name::truncated(&settings.name),
            u128::from_le_bytes(random),
        );
        if settings.name.is_empty() {
            hello.node = Name::truncated(&default_name(hello.incarnation));
        }
        hello.flags = if settings.sole_name { FLAG_SOLE_NAME } else { 0 };
        if one_copy {
            hello.flags |= FLAG_ONE_COPY;
        }
        let versions = &settings.experiment.versions;
        (hello.version_min, hello.version_max) = (*versions.start(), *versions.end());
        // Packets larger than our own are taken: up to the default, or to the size that
        // the default may grow to.
        let packet = settings.experiment.packet_bytes_max.unwrap_or(PACKET_BYTES_TUNED);
        hello.packet_bytes_max = packet.max(PACKET_BYTES_DEFAULT) as u32;
        hello.message_bytes_max = settings.limits.message_bytes_max as u64;
        hello.open_credit = settings.limits.window_bytes_max as u64 / OPEN_CREDIT_DIVISOR;
        hello.initial_window = WINDOW_BYTES_INITIAL as u32;
        let (layers, layer_names) = self.layers.ranges();
        hello.layers = layers;
        Ok(OwnHello { hello, layer_names })
    }
}

/// Returns whether a variable switches something off.
fn read_switch(name: &'static str) -> Result<bool, NodeError> {
    match variable(name).as_deref() {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => Err(setting(name, other, "on or off")),
    }
}

/// Returns a variable of this process. Those of the real one are none of a virtual host's.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|_| !tasks::is_virtual())
}
