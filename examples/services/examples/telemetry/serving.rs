//! The service: rank 0.

use std::future::{Future, IntoFuture as _};
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::{Node, Peer};
use chunkcomm_cluster::Cluster;
use chunkcomm_examples::command_line::write_out;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::event::Event;
use super::http::{Service, router};
use super::options::Options;
use super::{COLLECTED, END_DEADLINE, EVENTS, Failure, demo};

const COLLECTOR: u32 = 1;

/// Serves until `asked` is ready, the cluster is finished, or the collector is gone.
pub(crate) async fn serve(
    cluster: &Cluster,
    options: &Options,
    asked: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let at = options.demo.map_or(options.http, |_| ([127, 0, 0, 1], 0).into());
    let listening = TcpListener::bind(at).await;
    let listener = listening.map_err(|error| format!("cannot listen at {at}: {error}"))?;
    let at = listener.local_addr()?;
    let collector = cluster.peer(COLLECTOR).await?;
    let mut channel = cluster.node().open::<Event>(&collector, EVENTS).await?;
    // Opened now, so that the channel exists before the first event, and when none comes.
    channel.flush().await?;
    let service = Arc::new(Service::new(channel));

    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router(Arc::clone(&service)));
    let server = server.with_graceful_shutdown(async {
        // Dropping the sender is enough.
        let _ = stopped.await;
    });
    let mut server = tokio::spawn(server.into_future());
    write_out(&format!("listening at http://{at}\n"))?;

    let demonstrated = async {
        match options.demo {
            Some(events) => demo::run(at, events).await.map(Some),
            None => std::future::pending().await,
        }
    };
    let shown = tokio::select! {
        () = asked => None,
        _ = cluster.finished() => None,
        lost = collector.closed() => return Err(lost.into()),
        shown = demonstrated => shown?,
    };
    drop(stop);
    let drain = Duration::from_secs(options.drain_seconds);
    match timeout(drain, &mut server).await {
        Ok(served) => served??,
        Err(_) => eprintln!("telemetry: some requests are not finished after {drain:?}: cut"),
    }
    let collected = end(cluster.node(), &collector, &service).await?;
    let packets = collector.stats().message_packets_sent;
    write_out(&format!("{collected} events are collected, by {packets} packets\n"))?;
    match shown {
        Some(answered) => demo::compare(answered, collected),
        None => Ok(()),
    }
}

/// Ends the channel; returns the number of events that the collector has written, which must be all.
async fn end(node: &Node, collector: &Peer, service: &Service) -> Result<u64, Failure> {
    let late = |what: &str| format!("{what} took longer than {END_DEADLINE:?}");
    let taken = timeout(END_DEADLINE, service.take()).await;
    let channel = taken.map_err(|_| late("to ship the last events"))?;
    let channel = channel.ok_or("the channel was ended before")?;
    let accepted = channel.stats().accepted;
    channel.close(END_DEADLINE).await?;
    let written = async {
        let (_, mut collected) = node.accept::<u64>(COLLECTED).await?;
        let written = collected.recv().await?;
        // Its end, too: until then the collector closes the channel, which needs its receiver.
        let _ = collected.recv().await;
        Ok::<_, Failure>(written)
    };
    let written = async {
        tokio::select! {
            // The collector's last message comes before its end.
            biased;
            written = written => written,
            _ = collector.closed() => {
                let name = collector.name();
                Err(format!("{name}, the collector, ended without saying what it has").into())
            }
        }
    };
    let written = timeout(END_DEADLINE, written).await.map_err(|_| late("to write the events"))?;
    match written? {
        Some(written) if written == accepted => Ok(written),
        Some(written) => {
            let name = collector.name();
            Err(format!("of {accepted} events {name} has written {written}").into())
        }
        None => Err("the collector does not say how many events it has".into()),
    }
}
