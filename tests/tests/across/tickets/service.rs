use chunkcomm::{Address, Node, host};
use chunkcomm_cluster::prelude::*;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Mutex;
use std::time::Duration;

type Failure = Box<dyn Error + Send + Sync>;

/// A client's name and the number of its request, by which a repeated one is known.
type Request = (String, u64);

/// Gives out the numbers of tickets, each after a millisecond. A repeated request gets the ticket of
/// the first.
pub async fn serve(at: Address) -> Result<(), Failure> {
    let node = Node::builder().name("office").listen(at).build().await?;
    let given = Mutex::new(BTreeMap::<Request, u64>::new());
    let _service = node.serve("ticket", move |request: Request| {
        let mut given = given.lock().unwrap();
        let next = given.len() as u64;
        let number = *given.entry(request).or_insert(next);
        async move {
            host::sleep(Duration::from_millis(1)).await;
            Ok::<_, String>(number)
        }
    })?;
    std::future::pending().await
}

/// Takes tickets one after the other. A call that lasts a second is given up and made again.
pub async fn take(client: &str, office: Address, count: u64) -> Result<Vec<u64>, Failure> {
    let node = Node::builder().name(client).build().await?;
    let peer = node.connect(&office).await?;
    let calls = node.call_client::<Request, u64>(&peer, "ticket")?;
    let mut tickets = Vec::new();
    for number in 0..count {
        let request = (client.to_owned(), number);
        let ticket = loop {
            match host::timeout(Duration::from_secs(1), calls.call(&request)).await {
                Ok(ticket) => break ticket?,
                Err(_) => host::sleep(Duration::from_millis(100)).await,
            }
        };
        tickets.push(ticket);
    }
    Ok(tickets)
}
