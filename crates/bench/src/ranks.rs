//! The processes of a side of collective calls, of transfers or of collectives that flow: copies of this program, one a rank.

use serde::{Deserialize, Serialize};

use crate::failure::{Doing, Failure};
use crate::harness::calls::CallKind;
use crate::harness::flows::{FlowKind, FlowWay};
use crate::harness::ranks::{Meeting, Ranks};
use crate::harness::transfers::TransferKind;
use crate::harness::{machine, runtime};
use crate::ours::arrays::ArraysKind;
use crate::ours::collective::OursKind;
use crate::{baseline, ours};

/// Hidden subcommand that makes a process a rank.
pub const RANK_COMMAND: &str = "rank";

/// Side whose calls a rank takes part in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum SideKind {
    /// Ours.
    Ours(OursKind),
    /// Bare sockets: chains, rings and pairs.
    Relay,
    /// A dissemination over epoll.
    Dissemination {
        /// Whether the ranks spin instead of sleeping.
        spin: bool,
    },
}

/// Side whose transfers a rank takes part in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum TransferSide {
    /// Ours.
    Ours(ArraysKind),
    /// Packed, sent and unpacked by hand.
    Hand,
    /// The same bytes, nothing packed.
    Raw,
}

/// Work that the ranks of a side repeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Work {
    /// A collective call.
    Call {
        /// Side.
        side: SideKind,
        /// Call.
        kind: CallKind,
    },
    /// A transfer between two layouts.
    Transfer {
        /// Side.
        side: TransferSide,
        /// Transfer.
        kind: TransferKind,
    },
    /// A collective on arrays that the ranks compute.
    Flow {
        /// Runtime and workers of the ranks; the algorithm is that of what flows.
        ours: OursKind,
        /// Way of the elements.
        way: FlowWay,
        /// Collective.
        kind: FlowKind,
    },
}

/// Orders of a rank's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Orders {
    work: Work,
    rank: usize,
    /// Port of the near end's control socket.
    port: u16,
}

impl Work {
    fn ranks(&self) -> Result<usize, Failure> {
        match self {
            Self::Call { kind, .. } => Ok(kind.ranks),
            Self::Transfer { kind, .. } => Ok(kind.parse()?.ranks()),
            Self::Flow { kind, .. } => Ok(kind.nodes),
        }
    }

    /// Returns the workers of the runtime of a side of ours.
    fn threads_of_ours(&self) -> Option<usize> {
        match self {
            Self::Call { side: SideKind::Ours(ours), .. } | Self::Flow { ours, .. } => {
                Some(ours.threads)
            }
            Self::Transfer { side: TransferSide::Ours(ours), .. } => Some(ours.threads),
            _ => None,
        }
    }
}

/// Starts the ranks of a side.
///
/// # Errors
/// If a process does not start, or ends before all are there.
pub fn start(work: &Work) -> Result<Ranks, Failure> {
    // Children inherit the cores that this process may use.
    machine::unpin();
    let meeting = Meeting::open()?;
    let port = meeting.port()?;
    let ranks = work.ranks()?;
    let cluster = ours::collective::environment(ranks);
    let mut children = Vec::new();
    for rank in 0..ranks {
        let orders = Orders { work: work.clone(), rank, port };
        let orders = serde_json::to_string(&orders).doing("encoding a rank's orders")?;
        let mut program = machine::this_program()?;
        program.args([RANK_COMMAND, &orders]);
        if work.threads_of_ours().is_some() {
            program.envs(cluster(rank));
        }
        program.env(machine::DIES_WITH_PARENT, "1").stdin(std::process::Stdio::null());
        children.push(program.spawn().doing("starting a rank")?);
    }
    meeting.gather(ranks, children)
}

/// Takes part as a rank, until the near end has ended.
///
/// # Errors
/// If the orders make no sense, or a call fails.
pub fn serve(orders: &str) -> Result<(), Failure> {
    let Orders { work, rank, port } =
        serde_json::from_str(orders).doing("understanding a rank's orders")?;
    machine::pin(rank);
    let threads = work.threads_of_ours().unwrap_or(1);
    runtime::start(threads)?.block_on(async {
        match work {
            Work::Call { side, kind } => match side {
                SideKind::Ours(ours) => ours::collective::serve(port, rank, kind, ours).await,
                SideKind::Relay => baseline::hand_calls::serve(port, rank, kind).await,
                SideKind::Dissemination { spin } => {
                    baseline::dissemination::serve(port, rank, kind, spin).await
                }
            },
            Work::Flow { ours, way, kind } => ours::flows::serve(port, rank, kind, way, ours).await,
            Work::Transfer { side, kind } => {
                let transfer = kind.parse()?;
                match side {
                    TransferSide::Ours(ours) => {
                        ours::arrays::serve(port, rank, transfer, ours).await
                    }
                    TransferSide::Hand => baseline::hand_arrays::serve(port, rank, transfer).await,
                    TransferSide::Raw => baseline::raw_arrays::serve(port, rank, transfer).await,
                }
            }
        }
    })
}
