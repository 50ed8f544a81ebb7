//! Feeds of members, and subscriptions to those of all members.

use crate::joining::{LONG, cluster, config, end_all};
use chunkcomm::error::FeedError;
use chunkcomm::feed;
use chunkcomm::feed::Feed;
use chunkcomm_cluster::cluster::Cluster;
use chunkcomm_testkit::{limited, on_both, until};

async fn feeds(node: &Cluster, name: &str) -> Feed<u64> {
    let feed = node.node().feed(feed(name).keep(1)).unwrap();
    limited(node.provide_feed(&feed)).await.unwrap();
    feed
}

#[test]
fn a_subscriber_gets_the_messages_of_every_member_that_feeds_as_they_come_and_go() {
    on_both(|| async {
        let (nodes, port) = cluster(3, |config| config).await;
        let mut first = feeds(&nodes[1], "orders.soup").await;
        let mut other = feeds(&nodes[1], "prices").await;
        let mut orders = nodes[0].subscribe::<u64>("orders.*").unwrap();
        let mut soup = nodes[2].subscribe::<u64>("orders.soup").unwrap();
        until(|| first.subscriber_count() == 2).await;
        first.send(&1).await.unwrap();
        other.send(&7).await.unwrap();
        assert_eq!(limited(orders.recv()).await.unwrap(), Some(1));
        let (peer, name) = orders.origin().unwrap();
        assert_eq!((peer.incarnation(), name), (nodes[1].id().incarnation, "orders.soup"));
        assert_eq!(limited(soup.recv()).await.unwrap(), Some(1));

        // One of the node itself, and one of a node that comes later and goes.
        let mut own = feeds(&nodes[0], "orders.bread").await;
        own.send(&2).await.unwrap();
        assert_eq!(limited(orders.recv()).await.unwrap(), Some(2));
        let late = limited(Cluster::join(config(None, 3, port))).await.unwrap();
        let mut its = feeds(&late, "orders.soup").await;
        its.send(&3).await.unwrap();
        for subscription in [&mut orders, &mut soup] {
            assert_eq!(limited(subscription.recv()).await.unwrap(), Some(3));
        }
        drop(its);
        limited(late.leave(LONG)).await.unwrap();

        // One that ends and comes again.
        drop(first);
        let mut again = feeds(&nodes[1], "orders.soup").await;
        until(|| again.subscriber_count() == 2).await;
        again.send(&4).await.unwrap();
        for subscription in [&mut orders, &mut soup] {
            assert_eq!(limited(subscription.recv()).await.unwrap(), Some(4));
        }
        drop(soup);
        until(|| again.subscriber_count() == 1).await;

        drop((again, own, other));
        end_all(&nodes).await;
        assert_eq!(limited(orders.recv()).await.unwrap(), None);
    });
}

#[test]
fn the_loss_of_a_feed_is_told_and_the_others_go_on() {
    on_both(|| async {
        let (nodes, _) = cluster(3, |config| config).await;
        let mut lost = feeds(&nodes[1], "orders").await;
        let mut other = feeds(&nodes[0], "orders").await;
        let mut orders = nodes[2].subscribe::<u64>("orders").unwrap();
        until(|| lost.subscriber_count() == 1 && other.subscriber_count() == 1).await;
        // A line that is lost before its subscriber has heard from it is opened again, and not told.
        for feed in [&mut lost, &mut other] {
            feed.send(&0).await.unwrap();
            assert_eq!(limited(orders.recv()).await.unwrap(), Some(0));
        }
        nodes[2].node().declare_dead(nodes[1].id().incarnation, "the test");
        let error = limited(orders.recv()).await.unwrap_err();
        assert!(matches!(error, FeedError::Recv(_)), "{error}");
        assert_eq!(orders.origin().unwrap().0.incarnation(), nodes[1].id().incarnation);
        other.send(&1).await.unwrap();
        assert_eq!(limited(orders.recv()).await.unwrap(), Some(1));
        // The session alone was lost, and the member still feeds.
        lost.send(&2).await.unwrap();
        assert_eq!(limited(orders.recv()).await.unwrap(), Some(2), "it is kept");
        drop((lost, other, orders));
        end_all(&nodes).await;
    });
}
