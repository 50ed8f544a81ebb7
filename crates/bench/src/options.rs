//! Options that several commands have, and the combinations that are refused.

pub mod computing;
pub(crate) mod copy;
pub mod values;

use chunkcomm::proto::tuning::without::Controller;
use clap::Args;

use crate::failure::Failure;
use crate::harness::near::Setting;
use crate::harness::protocol::{OnOff, RuntimeKind, Transport};
use crate::harness::slices::name_of;
use crate::table::Row;

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Transport between the two ends
    #[arg(long, value_enum, default_value_t = Transport::Tcp)]
    pub transport: Transport,
    /// Runtime that drives the library; busy-poll is the program's own, polled without sleeping
    #[arg(long, value_enum, default_value_t = RuntimeKind::Ambient)]
    pub runtime: RuntimeKind,
    /// Workers of the tokio runtime; 1 is its current-thread flavour
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::threads)]
    pub threads: usize,
    /// The library's session (sequence, acknowledgements); off only to measure its cost
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub session: OnOff,
    /// Address of a `chunkperf serve` to use as the far end [default: a child process]
    #[arg(long, value_name = "HOST:PORT", value_parser = values::host_port)]
    pub connect: Option<String>,
    /// Controllers of the library to switch off, to measure the worth of each
    #[arg(long, value_name = "CONTROLLER,..", value_delimiter = ',',
          value_parser = Controller::ALL.map(|(_, name)| name))]
    pub without: Vec<String>,
    /// One JSON object a row on stdout, and nothing else
    #[arg(long)]
    pub json: bool,
}

/// Options of commands that show what shorter ways between nodes of one host are worth.
#[derive(Debug, Clone, Copy, Args)]
pub struct Shorter {
    /// With on, the nodes of --transport tcp have a credential made for the run and move to a Unix socket;
    /// a run that stays with TCP fails. Baselines use plain TCP
    #[arg(long, value_enum, default_value_t = OnOff::Off)]
    pub same_host: OnOff,
    /// With on, large messages of --same-host on are read from the sender's memory, where the system lets it
    #[arg(long, value_enum, default_value_t = OnOff::Off)]
    pub one_copy: OnOff,
}

impl Shorter {
    /// Neither.
    const NONE: Shorter = Shorter { same_host: OnOff::Off, one_copy: OnOff::Off };

    /// Sets the keys of these options.
    pub fn set(self, row: &mut Row) {
        row.set("same_host", name_of(self.same_host)).set("one_copy", name_of(self.one_copy));
    }
}

impl Common {
    /// Returns the setting of the two processes. With `--transport tls` this may end the process,
    /// after a copy that has a credential has done the work.
    ///
    /// # Errors
    /// If the options do not go together.
    pub fn setting(&self) -> Result<Setting, Failure> {
        self.setting_with(Shorter::NONE)
    }

    /// As [`Common::setting`]. With `--same-host on` it may also end this process, after a copy has done the
    /// work.
    ///
    /// # Errors
    /// If the options do not go together.
    pub fn setting_with(&self, shorter: Shorter) -> Result<Setting, Failure> {
        let is_on = shorter.same_host == OnOff::On;
        if is_on && (self.transport != Transport::Tcp || self.connect.is_some()) {
            return Err(Failure::Refused(
                "--same-host on is allowed with --transport tcp, without --connect: nodes that meet \
                 at a TCP address of one host go over to a Unix socket"
                    .to_owned(),
            ));
        }
        if shorter.one_copy == OnOff::On && !is_on {
            return Err(Failure::Refused(
                "--one-copy on is allowed with --same-host on: only over a Unix socket between nodes \
                 with a credential is memory read"
                    .to_owned(),
            ));
        }
        if self.runtime == RuntimeKind::BusyPoll && self.threads != 1 {
            return Err(Failure::Refused(format!(
                "--runtime busy-poll polls a current-thread runtime: --threads {} is not allowed, \
                 only --threads 1",
                self.threads
            )));
        }
        if self.connect.is_some() && self.transport != Transport::Tcp {
            return Err(Failure::Refused(format!(
                "--connect reaches another host by --transport tcp, not {}",
                name_of(self.transport)
            )));
        }
        self.switch_off()?;
        copy::prepare_transport(self.transport, shorter)?;
        Ok(Setting {
            transport: self.transport,
            runtime: self.runtime,
            threads: self.threads,
            session: self.session == OnOff::On,
            connect: self.connect.clone(),
        })
    }

    /// Makes sure that the nodes of this process and of its children do without the controllers
    /// that are to be switched off. This may end the process, after a copy has done the work.
    ///
    /// # Errors
    /// If the far end is on another host, or the copy cannot be started.
    pub fn switch_off(&self) -> Result<(), Failure> {
        if !self.without.is_empty() && self.connect.is_some() {
            return Err(Failure::Refused(
                "--without switches off both ends: allowed without --connect".to_owned(),
            ));
        }
        copy::prepare_without(&self.without)
    }

    /// Whether no option says how nodes of this program reach each other.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.transport == Transport::Tcp
            && self.runtime == RuntimeKind::Ambient
            && self.threads == 1
            && self.session == OnOff::On
            && self.connect.is_none()
            && self.without.is_empty()
    }

    /// Refuses options of real processes, for nodes that are virtual hosts.
    ///
    /// # Errors
    /// If one of them is set.
    pub fn check_virtual(&self) -> Result<(), Failure> {
        if self.is_plain() {
            return Ok(());
        }
        Err(Failure::Refused(
            "--lan virtual: the hosts have a network and a runtime of their own; --transport, \
             --runtime, --threads, --session, --connect and --without are allowed with --lan real"
                .to_owned(),
        ))
    }

    /// Returns the options as arguments, for a command that runs others.
    pub fn to_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--transport={}", name_of(self.transport)),
            format!("--runtime={}", name_of(self.runtime)),
            format!("--threads={}", self.threads),
            format!("--session={}", name_of(self.session)),
        ];
        arguments.extend(self.connect.as_ref().map(|server| format!("--connect={server}")));
        let without = self.without.join(",");
        arguments.extend((!without.is_empty()).then(|| format!("--without={without}")));
        arguments
    }

    /// Returns a row with the keys that every row has.
    pub fn row(&self, bench: &str) -> Row {
        let mut row = Row::default();
        row.set("bench", bench)
            .set("transport", name_of(self.transport))
            .set("runtime", format!("{}:{}", name_of(self.runtime), self.threads));
        if !self.without.is_empty() {
            row.set("without", self.without.join(","));
        }
        row
    }

    /// Refuses a baseline over sockets where the row's transport has none.
    ///
    /// # Errors
    /// If the transport is memory.
    pub fn needs_sockets(&self, baseline: &str) -> Result<(), Failure> {
        if self.transport == Transport::Memory {
            return Err(Failure::Refused(format!(
                "--against {baseline} needs sockets: allowed with --transport tcp and unix, and \
                 with tls, where it uses plain TCP; not memory"
            )));
        }
        Ok(())
    }

    /// Refuses `--session off` for a command that always keeps its sessions.
    ///
    /// # Errors
    /// If it was given.
    pub fn needs_session(&self, command: &str) -> Result<(), Failure> {
        match self.session {
            OnOff::On => Ok(()),
            OnOff::Off => Err(Failure::Refused(format!(
                "{command} always keeps its session: only --session on is allowed"
            ))),
        }
    }

    /// Refuses `--connect` for a command that runs on this machine only.
    ///
    /// # Errors
    /// If another host was named.
    pub fn needs_this_host(&self, command: &str) -> Result<(), Failure> {
        match &self.connect {
            Some(_) => Err(Failure::Refused(format!(
                "{command} starts its processes on this machine: --connect is allowed with \
                 chunkperf stream, latency, bandwidth, calls and idle"
            ))),
            None => Ok(()),
        }
    }
}
