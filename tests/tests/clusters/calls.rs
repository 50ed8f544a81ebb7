//! Services that are found by name in a cluster.

use crate::joining::{LONG, cluster, end_all};
use chunkcomm_cluster::CallError;
use chunkcomm_cluster::call::{Service, ServiceOptions};
use chunkcomm_cluster::cluster::Cluster;
use chunkcomm_testkit::{limited, on_both, until, until_some};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// A service that answers its rank, once the gate lets it.
async fn who(node: &Cluster, gate: &Arc<Semaphore>) -> Service {
    let (rank, gate) = (node.rank(), Arc::clone(gate));
    let options = ServiceOptions::default().at_once(2).waiting(0);
    let serving = node.serve("who", options, move |(): ()| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<u32, String>(rank)
        }
    });
    serving.await.unwrap()
}

#[test]
fn calls_go_to_the_least_laden_provider_and_past_those_that_are_gone() {
    on_both(|| async {
        let (mut nodes, _) = cluster(4, |config| config).await;
        let client = nodes[0].call_client::<(), u32>("who").unwrap();
        let error = client.call(&()).await.unwrap_err();
        assert_eq!(error.to_string(), "nobody provides service \"who\"");
        let gate = Arc::new(Semaphore::new(0));
        let mut services = Vec::new();
        for node in &nodes[1..] {
            services.push(who(node, &gate).await);
        }
        until(|| nodes[0].providers("who").len() == 3).await;
        // Opens a line to each: a provider whose line is still being opened counts no calls, and
        // would be chosen twice.
        gate.add_permits(3);
        for _ in 0..3 {
            limited(client.call(&())).await.unwrap();
        }
        until(|| services.iter().all(|service| service.stats().at_once == 0)).await;
        assert!(services.iter().all(|service| service.stats().requests == 1));
        // Two for each: the provider with the fewest gets the next.
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let client = client.clone();
            calls.spawn(async move { client.call(&()).await });
        }
        until(|| services.iter().all(|service| service.stats().at_once == 2)).await;
        // All are full: each was asked.
        let error = limited(client.call(&())).await.unwrap_err();
        assert!(matches!(error, CallError::Overloaded { .. }), "{error}");
        assert!(services.iter().all(|service| service.stats().overloaded == 1));
        gate.add_permits(6);
        let mut from = [0; 4];
        while let Some(answer) = limited(calls.join_next()).await {
            from[answer.unwrap().unwrap() as usize] += 1;
        }
        assert_eq!(from, [0, 2, 2, 2]);
        // A provider dies with calls in flight: they fail, and no others do.
        for _ in 0..3 {
            let client = client.clone();
            calls.spawn(async move { client.call(&()).await });
        }
        until(|| services.iter().all(|service| service.stats().at_once == 1)).await;
        drop(services.pop());
        drop(nodes.pop());
        let error = limited(calls.join_next()).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, CallError::Ended { .. } | CallError::Link { .. }), "{error}");
        until(|| nodes[0].providers("who").len() == 2).await;
        gate.add_permits(11);
        while let Some(answer) = limited(calls.join_next()).await {
            answer.unwrap().unwrap();
        }
        for _ in 0..4 {
            assert_ne!(limited(client.call(&())).await.unwrap(), 3);
        }
        // A provider closes in order: only a caller whose request is on its way notices.
        limited(services.remove(0).close(LONG)).await.unwrap();
        let first = until_some(|| async {
            let called = client.call(&()).await;
            Some(called).filter(|it| !matches!(it, Err(CallError::Ended { .. })))
        });
        assert_eq!(first.await.unwrap(), 2);
        for _ in 0..3 {
            assert_eq!(limited(client.call(&())).await.unwrap(), 2);
        }
        let given = nodes[0].call_client_at::<(), u32>(2, "who").await.unwrap();
        assert_eq!(limited(given.call(&())).await.unwrap(), 2);
        drop(services);
        until(|| nodes[0].providers("who").is_empty()).await;
        let error = limited(client.call(&())).await.unwrap_err();
        assert!(matches!(error, CallError::NoProvider { .. }), "{error}");
        end_all(&nodes).await;
        let error = limited(client.call(&())).await.unwrap_err();
        assert!(error.to_string().starts_with("nobody provides service \"who\""), "{error}");
    });
}

/// A service of two versions.
mod first {
    #[chunkcomm_cluster::service]
    pub(super) trait Ranks {
        async fn rank(&self) -> u32;
    }
}

mod second {
    #[chunkcomm_cluster::service]
    pub(super) trait Ranks {
        async fn rank(&self) -> u32;
        async fn count(&self) -> Result<u32, String>;
    }
}

struct Of(u32);

impl first::Ranks for Of {
    async fn rank(&self) -> u32 {
        self.0
    }
}

impl second::Ranks for Of {
    async fn rank(&self) -> u32 {
        self.0
    }

    async fn count(&self) -> Result<u32, String> {
        if self.0 == 2 { Ok(3) } else { Err(format!("{} does not know", self.0)) }
    }
}

#[test]
fn a_method_is_called_where_it_is_served_while_versions_change() {
    on_both(|| async {
        let (nodes, _) = cluster(3, |config| config).await;
        let client = second::RanksClient::in_cluster(&nodes[0]).unwrap();
        let error = client.rank().await.unwrap_err();
        assert_eq!(error.to_string(), "nobody provides service \"Ranks\"");
        let old = first::RanksServer::new(Of(1)).serve_in(&nodes[1]).await.unwrap();
        until(|| nodes[0].providers("Ranks").len() == 1).await;
        let error = limited(client.count()).await.unwrap_err();
        assert!(matches!(error.call_error(), Some(CallError::Method { .. })), "{error}");
        let new = second::RanksServer::new(Of(2)).serve_in(&nodes[2]).await.unwrap();
        until(|| nodes[0].providers("Ranks").len() == 2).await;
        let mut ranks = Vec::new();
        for _ in 0..4 {
            // The provider without the method is passed over, and serves the other.
            assert_eq!(limited(client.count()).await.unwrap(), 3);
            // The two take turns.
            ranks.push(limited(client.rank()).await.unwrap());
            ranks.push(limited(client.rank()).await.unwrap());
        }
        assert!(ranks.contains(&1) && ranks.contains(&2), "{ranks:?}");
        let earlier = first::RanksClient::in_cluster(&nodes[0]).unwrap();
        limited(old.close(LONG)).await.unwrap();
        until(|| nodes[0].providers("Ranks").len() == 1).await;
        assert_eq!(limited(earlier.rank()).await.unwrap(), 2);
        drop(new);
        end_all(&nodes).await;
    });
}

#[test]
fn a_node_that_provides_a_service_may_be_its_own_client() {
    on_both(|| async {
        let (nodes, _) = cluster(2, |config| config).await;
        let gate = Arc::new(Semaphore::new(2));
        let _services = [who(&nodes[0], &gate).await, who(&nodes[1], &gate).await];
        until(|| nodes[0].providers("who").len() == 2).await;
        let client = nodes[0].call_client::<(), u32>("who").unwrap().timeout(LONG);
        let mut ranks =
            [limited(client.call(&())).await.unwrap(), limited(client.call(&())).await.unwrap()];
        ranks.sort_unstable();
        assert_eq!(ranks, [0, 1], "each in turn");
        end_all(&nodes).await;
    });
}
