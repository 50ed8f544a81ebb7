//! The start of a session: its driver, at its first connection.

use super::{NodeShared, hello};
use crate::Address;
use crate::driver::clock;
use crate::driver::connection::Redial;
use crate::driver::link::{Driver, DriverSetup};
use crate::driver::mail::{Beginning, LinkShared, PeerInfo};
use crate::driver::tasks;
use crate::driver::wakers::locked;
use crate::explain::Way;
use crate::proto::endpoint::AfterLoss;
use crate::proto::hello::{Agreement, FLAG_ONE_COPY, FLAG_SOLE_NAME, Hello};
use crate::proto::limits::{PACKET_BYTES_DEFAULT, PACKET_BYTES_SMALL, PACKET_BYTES_TUNED};
use crate::proto::link::LinkConfig;
use crate::proto::tuning::without::Controller;
use crate::transport::Transport;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The beginning of a session, and the action after the loss of its connection.
pub(super) struct Origin {
    pub(super) session: u64,
    pub(super) beginning: Beginning,
    pub(super) way: Way,
    pub(super) after_loss: AfterLoss,
    /// For a session whose connection is dialled again from here.
    pub(super) redial: Option<Arc<dyn Redial>>,
}

impl NodeShared {
    /// Returns the connection, under the spinner's care if the node polls busily.
    pub(super) fn spun(&self, transport: Box<dyn Transport>) -> io::Result<Box<dyn Transport>> {
        match &*locked(&self.spinner) {
            Some(spinner) => spinner.adopt(transport),
            None => Ok(transport),
        }
    }

    /// Returns the action after a lost connection. Without acknowledgements a session cannot go
    /// on, and ends.
    pub(super) fn after_loss(&self, action: AfterLoss) -> AfterLoss {
        if self.settings.experiment.session_off { AfterLoss::End } else { action }
    }

    pub(super) fn start_accepted(
        &self,
        transport: Box<dyn Transport>,
        theirs: &(Hello, Agreement),
        session: u64,
        from: Option<Address>,
        way: Way,
    ) {
        let (beginning, after_loss) = (Beginning::Accepted(from), self.after_loss(AfterLoss::Wait));
        self.start(transport, theirs, Origin { session, beginning, way, after_loss, redial: None });
    }

    /// Starts the driver of a session at its first connection.
    pub(super) fn start(
        &self,
        transport: Box<dyn Transport>,
        theirs: &(Hello, Agreement),
        origin: Origin,
    ) -> Arc<LinkShared> {
        let (hello, agreement) = theirs;
        let peer = PeerInfo {
            name: hello::display_name(hello),
            sole_name: hello.flags & FLAG_SOLE_NAME != 0,
            incarnation: hello.incarnation,
            session: origin.session,
            beginning: origin.beginning,
            version: agreement.version,
            layers: self.own.layer_versions(agreement),
            message_bytes_max: hello.message_bytes_max,
            packet_bytes_max: self.own.hello.packet_bytes_max as usize,
            shown: transport.shown(),
        };
        let settings = &self.settings;
        let (limits, experiment) = (&settings.limits, &settings.experiment);
        let without = experiment.without;
        let shared = LinkShared::new(peer, without);
        shared.set_way(origin.way);
        let packet_bytes_agreed = agreement.packet_bytes_max as usize;
        let sizes = match experiment.packet_bytes_max {
            Some(bytes) => [bytes; 3],
            None if without.has(Controller::PacketSize) => [PACKET_BYTES_DEFAULT; 3],
            None => [PACKET_BYTES_SMALL, PACKET_BYTES_DEFAULT, PACKET_BYTES_TUNED],
        };
        let [small, first, tuned] = sizes.map(|bytes| bytes.min(packet_bytes_agreed));
        let config = LinkConfig {
            policy: settings.policy,
            age_bound: if without.has(Controller::Flush) {
                Duration::ZERO
            } else {
                settings.age_bound
            },
            packet_bytes_small: small,
            packet_bytes_max: first,
            packet_bytes_tuned: tuned,
            windows_bytes_max: limits.window_bytes_max as u64,
            message_bytes_max: limits.message_bytes_max as u64,
            peer_open_credit: hello.open_credit,
            session: !experiment.session_off,
            resend_bytes_max: limits.resend_bytes_max,
            silence: settings.silence,
            now: clock::now(),
            without,
        };
        let driver = Driver::new(DriverSetup {
            shared: Arc::clone(&shared),
            transport,
            config,
            after_loss: origin.after_loss,
            redial: origin.redial,
            acceptor: Arc::clone(&self.table) as Arc<_>,
            buffers: Arc::clone(&self.buffers),
            board: Arc::clone(&self.board),
            one_thread: self.one_thread,
            one_copy: agreement.flags & FLAG_ONE_COPY != 0,
        });
        self.table.add_link(&shared);
        tasks::spawn_on(&self.runtime, driver);
        shared
    }
}
