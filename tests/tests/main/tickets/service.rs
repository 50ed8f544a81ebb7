use chunkcomm::{Address, Node, host};
use chunkcomm_cluster::prelude::*;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type Failure = Box<dyn Error + Send + Sync>;

/// Gives out the numbers of tickets, each after a millisecond.
pub async fn serve(at: Address) -> Result<(), Failure> {
    let node = Node::builder().name("office").listen(at).build().await?;
    let last = AtomicU64::new(0);
    let _service = node.serve("ticket", move |(): ()| {
        let number = last.fetch_add(1, Ordering::Relaxed);
        async move {
            host::sleep(Duration::from_millis(1)).await;
            Ok::<_, String>(number)
        }
    })?;
    std::future::pending().await
}

/// Takes tickets one after the other. A call that lasts a second is given up.
pub async fn take(office: Address, count: usize) -> Result<Vec<u64>, Failure> {
    let node = Node::builder().name("taker").build().await?;
    let peer = node.connect(&office).await?;
    let client = node.call_client::<(), u64>(&peer, "ticket")?;
    let mut tickets = Vec::new();
    while tickets.len() < count {
        match host::timeout(Duration::from_secs(1), client.call(&())).await {
            Ok(ticket) => tickets.push(ticket?),
            Err(_) => host::sleep(Duration::from_millis(100)).await,
        }
    }
    Ok(tickets)
}
