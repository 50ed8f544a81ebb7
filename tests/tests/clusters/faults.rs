//! Nodes that die when no program would end them.

use crate::joining::{LONG, config};
use chunkcomm::error::LinkCause;
use chunkcomm_cluster::cluster::Cluster;
use chunkcomm_testkit::{free_port, limited, on_one_thread};

/// Set for the process of `the_third_node`.
const PORT: &str = "CHUNKCOMM_TEST_PORT";

/// The process of the next test. It ends without a goodbye when it is asked to stop. Run alone, it
/// does nothing.
#[test]
fn the_third_node() {
    let Ok(port) = std::env::var(PORT) else { return };
    on_one_thread(async {
        let node = Cluster::join(config(Some(2), 3, port.parse().unwrap())).await.unwrap();
        node.finished().await;
        std::process::exit(0);
    });
}

/// After the stop of the cluster the manager reports no more deaths.
#[test]
fn who_is_killed_while_all_end_is_not_waited_for() {
    on_one_thread(async {
        let port = free_port();
        let mut third = chunkcomm_testkit::itself("faults::the_third_node");
        third.env(PORT, port.to_string());
        let mut third = third.stdout(std::process::Stdio::null()).spawn().unwrap();
        let join = |rank| Cluster::join(config(Some(rank), 3, port));
        let (first, second) = tokio::join!(join(0), join(1));
        let (first, second) = (first.unwrap(), second.unwrap());
        let links = [first.peer(2).await.unwrap(), second.peer(2).await.unwrap()];
        // Both ends of the link are open then.
        let mut sender = second.node().open::<u8>(&links[1], "hello").await.unwrap();
        sender.send(&1).await.unwrap();
        sender.sync().await.unwrap();
        first.finish();
        let gone = tokio::task::spawn_blocking(move || third.wait());
        limited(gone).await.unwrap().unwrap();
        let (here, there) = tokio::join!(first.end(LONG), second.end(LONG));
        here.unwrap();
        there.unwrap();
        for link in links {
            let error = link.closed().await;
            assert!(matches!(error.cause(), LinkCause::Gone(_)), "{error}");
        }
    });
}
