//! A call of a trait's method costs no allocation.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;
use std::time::Duration;

use chunkcomm::{Address, Node};
use chunkcomm_testkit::counting::{ALLOCATIONS, Counting};
use chunkcomm_testkit::on_one_thread;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Small = (u64, u64);

const CALLERS: u64 = 64;
const WARM_UP: u64 = 50_000;
const COUNTED: u64 = 100_000;

#[chunkcomm_cluster::service]
trait Turning {
    async fn turn(&self, numbers: Small) -> Small;
    async fn name(&self) -> String;
}

struct Turner;

impl Turning for Turner {
    async fn turn(&self, (one, other): Small) -> Small {
        (other, one)
    }

    async fn name(&self) -> String {
        "turner".to_owned()
    }
}

async fn call(client: &TurningClient, count: u64) {
    let callers = (0..CALLERS).map(|caller| {
        let client = client.clone();
        tokio::spawn(async move {
            for number in 0..count / CALLERS {
                assert_eq!(client.turn((number, caller)).await.unwrap(), (caller, number));
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

#[test]
fn a_call_of_a_method_costs_no_allocation() {
    let allocations = on_one_thread(async {
        let loopback: Address = "127.0.0.1:0".parse().unwrap();
        let server = Node::builder().listen(loopback).build().await.unwrap();
        let node = Node::builder().build().await.unwrap();
        let peer = node.connect(&server.addresses()[0]).await.unwrap();
        let _serving = TurningServer::new(Turner).serve(&server).unwrap();
        let client = TurningClient::at(&node, &peer).unwrap().timeout(Duration::from_secs(60));
        assert_eq!(client.name().await.unwrap(), "turner");
        call(&client, WARM_UP).await;
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        call(&client, COUNTED).await;
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    println!("{allocations} allocations for {COUNTED} calls");
    // A packet costs a few allocations where a stream's packets are reused; 64 calls share one.
    assert!((allocations as f64) < 0.1 * COUNTED as f64, "{allocations} allocations");
}
