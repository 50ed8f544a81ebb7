//! A manager of a cluster that sends words no node would.

use chunkcomm::proto::packet::Item;
use chunkcomm_cluster::cluster::{Cluster, ClusterConfig};
use chunkcomm_testkit::raw::RawPeer;
use chunkcomm_testkit::{limited, on_one_thread};
use std::time::Duration;
use tokio::net::TcpListener;

/// Time longer than anything here waits.
const NEVER: Duration = Duration::from_secs(3_600);

#[test]
fn a_manager_that_is_killed_before_its_first_word_is_missed_at_once() {
    on_one_thread(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let variables =
            [("MANAGER", format!("127.0.0.1:{port}")), ("RANK", "1".into()), ("SIZE", "2".into())];
        let variables = variables.map(|(name, value)| (format!("CHUNKCOMM_{name}"), value));
        let config = ClusterConfig::new().environment(variables.into_iter().collect());
        let joining = tokio::spawn(Cluster::join(config.ready_within(NEVER)));
        let mut manager = limited(RawPeer::accept(&listener)).await;
        let announced = manager.find(|item| matches!(item, Item::Run { .. }).then_some(()));
        limited(announced).await.unwrap();
        // The manager ends like a killed process: nobody listens, and nothing was said.
        drop(listener);
        drop(manager);
        let error = limited(joining).await.unwrap().unwrap_err().to_string();
        assert!(error.contains("nobody listens any more where it was"), "{error}");
    });
}
