//! Managers that die when no node would.

use crate::joining::config;
use crate::raw::RawPeer;
use crate::waiting::{limited, on_one_thread};
use chunkcomm::cluster::Cluster;
use chunkcomm::proto::packet::Item;
use tokio::net::TcpListener;

#[test]
fn a_manager_that_is_killed_before_its_first_word_is_missed_at_once() {
    on_one_thread(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let joining = tokio::spawn(Cluster::join(config(Some(1), 2, port)));
        let mut manager = limited(RawPeer::accept(&listener)).await;
        let announced = manager.find(|item| matches!(item, Item::Run { .. }).then_some(()));
        limited(announced).await.unwrap();
        // As of a process that is killed: nobody listens, and nothing was said.
        drop(listener);
        drop(manager);
        let error = limited(joining).await.unwrap().unwrap_err().to_string();
        assert!(error.contains("nobody listens any more where it was"), "{error}");
    });
}
