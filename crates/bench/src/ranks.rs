//! The processes of a side of collective calls: copies of this program, one a rank.

use serde::{Deserialize, Serialize};

use crate::failure::{Doing, Failure};
use crate::harness::calls::CallKind;
use crate::harness::ranks::{Meeting, Ranks};
use crate::harness::{machine, runtime};
use crate::ours::collective::OursKind;
use crate::{baseline, ours};

/// Hidden subcommand that makes a process a rank.
pub const RANK_COMMAND: &str = "collective-rank";

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

/// Orders of a rank's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Orders {
    side: SideKind,
    kind: CallKind,
    rank: usize,
    /// Port of the near end's control socket.
    port: u16,
}

/// Starts the ranks of a side.
///
/// # Errors
/// If a process does not start, or ends before all are there.
pub fn start(side: &SideKind, kind: CallKind) -> Result<Ranks, Failure> {
    // Children inherit the cores that this process may use.
    machine::unpin();
    let meeting = Meeting::open()?;
    let port = meeting.port()?;
    let cluster = ours::collective::environment(kind.ranks);
    let mut children = Vec::new();
    for rank in 0..kind.ranks {
        let orders = Orders { side: side.clone(), kind, rank, port };
        let orders = serde_json::to_string(&orders).doing("encoding a rank's orders")?;
        let mut program = machine::this_program()?;
        program.args([RANK_COMMAND, &orders]);
        if let SideKind::Ours(_) = side {
            program.envs(cluster(rank));
        }
        program.env(machine::DIES_WITH_PARENT, "1").stdin(std::process::Stdio::null());
        children.push(program.spawn().doing("starting a rank")?);
    }
    meeting.gather(kind.ranks, children)
}

/// Takes part as a rank, until the near end has ended.
///
/// # Errors
/// If the orders make no sense, or a call fails.
pub fn serve(orders: &str) -> Result<(), Failure> {
    let Orders { side, kind, rank, port } =
        serde_json::from_str(orders).doing("understanding a rank's orders")?;
    machine::pin(rank);
    let threads = if let SideKind::Ours(ours) = &side { ours.threads } else { 1 };
    runtime::start(threads)?.block_on(async {
        match side {
            SideKind::Ours(ours) => ours::collective::serve(port, rank, kind, ours).await,
            SideKind::Relay => baseline::hand_calls::serve(port, rank, kind).await,
            SideKind::Dissemination { spin } => {
                baseline::dissemination::serve(port, rank, kind, spin).await
            }
        }
    })
}
