//! Nodes that come to a running cluster, and leave it before its end.

use std::ffi::OsString;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use chunkcomm::layer::Wait;
use chunkcomm::{Address, CREDENTIAL_FILE_VARIABLE, host};
use chunkcomm_cluster::cluster::{Change, End};
use chunkcomm_cluster::process::Failure;
use chunkcomm_cluster::{Cluster, NodeExt as _};
use tokio::sync::{Notify, oneshot};

use crate::cluster_options::END_DEADLINE;

/// Name of the service that asks a node to leave.
const LEAVE: &str = "leave";

/// Returns the variables with which a program joins this cluster later. A cluster of this machine alone has a
/// credential of its own: it is written beside the manager's socket, where the cluster removes both. The file of any
/// other credential is known to the user alone.
///
/// # Errors
/// Rank 0 is gone, or the credential cannot be written.
pub fn variables(cluster: &Cluster) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let manager = cluster.member(0).and_then(|it| it.addresses.into_iter().next());
    let manager = manager.ok_or_else(|| Failure::new("rank 0 has no address"))?;
    let mut variables = vec![("CHUNKCOMM_MANAGER", OsString::from(&manager))];
    let given = std::env::var_os(CREDENTIAL_FILE_VARIABLE);
    let file = match (given, cluster.credential(), manager.parse()) {
        (None, Some(credential), Ok(Address::Unix(socket))) => {
            let file = socket.with_file_name("credential");
            if !file.exists() {
                credential.save(&file)?;
            }
            Some(file.into())
        }
        (given, ..) => given,
    };
    variables.extend(file.map(|file| (CREDENTIAL_FILE_VARIABLE, file)));
    Ok(variables)
}

/// Starts programs that join the cluster, each when the one before it has joined; returns their ranks. The variables
/// by which they join reach programs of this machine. A command that starts one elsewhere, as by ssh, passes them on
/// itself ([`variables`]).
///
/// # Errors
/// A program cannot be started, or has ended before it joined; those before it stay. This is a simulation.
///
/// # Cancel safety
/// When the future is dropped, a program that was started joins all the same.
pub async fn start_nodes(cluster: &Cluster, programs: Vec<Command>) -> Result<Vec<u32>, Failure> {
    let mut ranks = Vec::new();
    for program in programs {
        ranks.push(start_node(cluster, program).await?);
    }
    Ok(ranks)
}

async fn start_node(cluster: &Cluster, mut program: Command) -> Result<u32, Failure> {
    if host::is_virtual() {
        return Err(Failure::new("the hosts of a simulation are started by the simulation"));
    }
    let mut changes = cluster.changes();
    // A process that another node has started may have these; one that joins later has neither.
    program.env_remove("CHUNKCOMM_RANK").env_remove("CHUNKCOMM_SIZE");
    let mut child = program.envs(variables(cluster)?).spawn()?;
    let (told, ended) = oneshot::channel();
    thread::spawn(move || told.send(child.wait()));
    let _wait = Wait::begin(cluster.node(), format!("{:?} to join", program.get_program()));
    let joined = async {
        loop {
            match changes.next().await {
                Some(Change::Joined(member)) => return Ok(member.id.rank),
                Some(_) => {}
                None => return Err(Failure::new("the cluster has ended")),
            }
        }
    };
    tokio::select! {
        biased;
        joined = joined => joined,
        status = ended => Err(Failure::new(match status {
            Ok(Ok(status)) => format!("the program ended before it joined: {status}"),
            _ => "the program is lost".to_owned(),
        })),
    }
}

/// Waits until the cluster ends, or another node asks this one to leave; then leaves.
///
/// # Errors
/// The node serves this already, or accepted messages were not acknowledged.
///
/// # Cancel safety
/// Dropped before the node is asked, it only waits.
pub async fn until_asked_to_leave(cluster: &Cluster) -> Result<End, Failure> {
    let (asked, rank) = (Arc::new(Notify::new()), cluster.rank());
    let heard = Arc::clone(&asked);
    let service =
        cluster.node().serve(LEAVE, move |()| {
            if rank > 0 {
                asked.notify_one();
            }
            async move {
                if rank > 0 { Ok(()) } else { Err("rank 0 runs the manager and cannot leave") }
            }
        })?;
    tokio::select! {
        biased;
        end = cluster.finished() => return Ok(end),
        () = heard.notified() => {}
    }
    // Not before the answer has left.
    service.close(END_DEADLINE).await?;
    cluster.leave(END_DEADLINE).await?;
    Ok(End::Left)
}

/// Asks the nodes of these ranks to leave, one after the other, and waits until each has left or died.
///
/// # Errors
/// There is no such node, or it does not wait for that ([`until_asked_to_leave`]).
///
/// # Cancel safety
/// When the future is dropped, a node that was asked leaves all the same.
pub async fn ask_to_leave(cluster: &Cluster, ranks: &[u32]) -> Result<(), Failure> {
    for &rank in ranks {
        let (mut changes, member) = (cluster.changes(), cluster.member(rank));
        cluster.call_client_at::<(), ()>(rank, LEAVE).await?.call(&()).await?;
        let _wait = Wait::begin(cluster.node(), format!("rank {rank} to leave"));
        while cluster.member(rank) == member && changes.next().await.is_some() {}
    }
    Ok(())
}
