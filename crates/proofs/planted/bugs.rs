//! Bugs of the protocol, each to be found by the simulation. `.ci/planted` copies this file to
//! `crates/proto/src/planted.rs` of a copy of the sources, and `sites.patch` has the place of
//! each bug. At most one bug a thread is switched on.

use std::cell::Cell;

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A bug. Each comment names the damage and the broken rule, a number of "Sessions: what
        /// outlives a connection" in ARCHITECTURE.md or another of its headings.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Bug {
            /// All bugs, in the order of the list.
            pub const ALL: &'static [Bug] = &[$(Bug::$name,)+];
        }
    };
}

bugs! {
    /// After a cut the sender goes on one packet behind the right one: a packet is
    /// lost, or the session dies at a number that is not the next. Rule 6.
    ResumeOnePacketLate,
    /// After a cut the sender goes on with a packet that the other has received,
    /// and the receiver handles it again: messages twice. Rules 6 and 7.
    ResumeOnePacketEarly,
    /// Kept packets are taken for written on the new connection: everything in
    /// flight at the cut is lost. Rule 6.
    NothingSentAgain,
    /// On the new connection freshly numbered packets leave before the kept ones.
    /// Rule 6.
    NewBeforeKept,
    /// A packet is freed when it was written: nothing is left to send again.
    /// Rule 2.
    KeptFreedWhenWritten,
    /// An ack of n frees packet n + 1 too: one that was never received is gone at
    /// the next cut. Rules 2 and 4.
    AckFreesOneTooMany,
    /// An ack of n leaves packet n kept: a close never ends. Rules 2 and 12.
    AckFreesOneTooFew,
    /// Packets are numbered although the ring of kept packets is full: memory
    /// without bound. Rule 2.
    RingUnbounded,
    /// A full ring holds up packets without number too: both ends wait for each
    /// other's ack for ever. Rule 3.
    RingFullStopsCredit,
    /// A kept packet is sent again with the ack of the day: its bytes change.
    /// Rules 1 and 9.
    KeptPacketRewritten,
    /// A packet of credit alone takes a number and is not kept: a gap. Rule 3.
    CreditPacketNumbered,
    /// A grant that comes is added to what is known: repeated grants inflate the
    /// windows. Rules 3 and 8.
    CreditAsDelta,
    /// After a resume the grants are not repeated: one that was lost is lost for
    /// good. Rule 8.
    GrantsNotSaidAnew,
    /// After a resume the open credit is not repeated: an open waits for ever.
    /// Rule 8.
    OpenCreditNotSaidAnew,
    /// The received number that the other end reports at the start of a connection is no ack: a
    /// lost ack is not repeated. Rules 4, 6 and 8.
    AckNotSaidAnew,
    /// A packet counts as received when its header has come: a packet cut in its middle is
    /// never sent again. Rules 4 and 7.
    AckBeforeReceived,
    /// `received` at the start of a connection names the packet that broke off as
    /// whole: its rest is lost. Rules 6 and 7.
    AckAtHalf,
    /// An ack leaves only with data: one-way traffic stops at a full ring. Rule 4.
    AckNeverAlone,
    /// Only counts and bytes start an ack, the timer does not. Rule 4.
    AckTimerLost,
    /// A packet that asks for an ack at once is not answered at once. Rule 4.
    SyncNotAnswered,
    /// The part already handled of the packet that broke off is handled again. Rule 7.
    PartialHandledTwice,
    /// The skip of the part already handled ends one record too early. Rule 7.
    SkipOffByRecord,
    /// The skip forgets that it ends within a fragment. Rule 7.
    SkipForgetsFragment,
    /// A packet received as a whole before is handled again. Rule 7.
    DuplicateHandledAgain,
    /// An ack older than the known one sets that back. Rule 7.
    StaleAckGoesBack,
    /// A number above the next is taken: a loss is not noticed. Rule 9.
    GapAccepted,
    /// An ack above the last packet written is believed. Rule 9.
    ForeignAckAccepted,
    /// `received` at the start of a connection is not checked. Rule 9.
    ReceivedNotChecked,
    /// Another packet than the one that broke off is joined to its half. Rule 9.
    OtherPacketAccepted,
    /// A connection with the same or a lower attempt replaces the present one.
    /// Rule 5.
    StaleAttemptAccepted,
    /// The dialler dials again with the attempt of last time: `Stale` for ever.
    /// Rule 5.
    AttemptNotCounted,
    /// Bytes that arrive on the replaced connection still reach the session. Rule 5.
    OldConnectionStillRead,
    /// Bytes that were not handled stay in front of the next connection's.
    /// Rules 6 and 7.
    DecoderKeepsHalfHeader,
    /// The new connection goes on in the middle of the packet whose writing was
    /// cut. Rule 7.
    HalfWrittenTailFirst,
    /// Another incarnation at the peer's address goes on with the session.
    /// Rule 11.
    IncarnationIgnored,
    /// The dialler takes `Unknown` for a passing error and dials on. Rule 11.
    UnknownIsTransient,
    /// `gone` does not end the session. Rule 11.
    GoneIgnored,
    /// Waiting calls do not learn of the end of their session. Rule 11.
    DeadNotTold,
    /// Silence never kills a session. Rule 10.
    NeverDead,
    /// A late look does not move the deadlines: a stopped end kills a healthy
    /// session. Rule 10.
    LateLookKills,
    /// A probe is not answered. Rule 10.
    ProbeNotAnswered,
    /// A silent peer is not probed. Rule 10.
    NoProbe,
    /// After 3 s of silence the dialler does not give the connection up. Rule 10.
    SilenceKeepsConnection,
    /// Our own writes count as a sign of life of the peer. Rule 10.
    OwnBytesAreLife,
    /// The dialler waits no longer each time: a busy loop of dials. Rule 5.
    BackoffNeverGrows,
    /// A close says bye before every packet is acknowledged. Rule 12.
    CloseForgetsKept,
    /// The bye has no number and is not kept. Rules 1 and 12.
    ByeNotKept,
    /// The end of a dead session reports written packets as acknowledged. Rule 11.
    ReportsUnreceived,
    /// The messages and ends in a packet count as acknowledged when the packet is filled. Rule
    /// 4.
    ChannelAckEarly,
    /// Fragments cost no credit: more arrives than was granted. "Credit".
    CreditNotSpentByFragment,
    /// Consumed bytes are granted anew only when everything granted was consumed: a slow reader
    /// starves its sender. "Credit".
    WindowNeverGranted,
    /// The memory for one large message is not given back: the second waits for
    /// ever. "Credit".
    LargeMemoryNotReturned,
    /// The end of a channel leaves before its last messages. "The wire".
    EndBeforeLast,
    /// A channel without credit keeps its turn, and all others of its lane wait behind
    /// it. "Lanes".
    BlockedKeepsTurn,
    /// The memory for one large message is given to a message that nobody waits for.
    /// "Credit".
    LargeMemoryUnasked,
}

impl Bug {
    /// The bugs that show in graphs of channels.
    const GRAPHS: &'static [Bug] = &[Bug::BlockedKeepsTurn, Bug::LargeMemoryUnasked];

    /// Bugs that few seeds must find.
    const EARLY: &'static [Bug] = &[
        Bug::ResumeOnePacketLate,
        Bug::KeptFreedWhenWritten,
        Bug::RingFullStopsCredit,
        Bug::CreditAsDelta,
        Bug::AckBeforeReceived,
        Bug::AckTimerLost,
        Bug::PartialHandledTwice,
        Bug::StaleAttemptAccepted,
        Bug::LateLookKills,
        Bug::EndBeforeLast,
    ];

    /// Whether the bug shows in graphs of channels, not in sessions under faults.
    #[must_use]
    pub fn is_of_graphs(self) -> bool {
        Bug::GRAPHS.contains(&self)
    }

    /// Returns the number of seeds within which the bug must be found.
    #[must_use]
    pub fn seeds_max(self) -> u64 {
        match self {
            bug if Bug::EARLY.contains(&bug) => 40,
            bug if bug.is_of_graphs() => 200,
            _ => 20_000,
        }
    }
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Switches one bug on for this thread, or none.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether `bug` is switched on for this thread.
#[must_use]
pub fn is_on(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this bug is switched on.
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is_on($crate::planted::Bug::$bug)
    };
}
