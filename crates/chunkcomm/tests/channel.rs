//! Channels end to end, over every transport.

use chunkcomm::{Address, Node, Peer, Receiver, Sender};
use std::time::Duration;

async fn pair(address: &str) -> (Node, Node, Peer) {
    let a = Node::builder().name("a").listen(address.parse().unwrap()).build().await.unwrap();
    let b = Node::builder().name("b").build().await.unwrap();
    let peer = b.connect(&a.addresses()[0]).await.unwrap();
    (a, b, peer)
}

#[tokio::test]
async fn a_stream_arrives_in_order_and_ends() {
    for address in ["127.0.0.1:0", "memory:stream"] {
        let (a, b, peer) = pair(address).await;
        let mut sender: Sender<(u64, String)> = b.open(&peer, "numbers").await.unwrap();
        let task = tokio::spawn(async move {
            for number in 0..200_000u64 {
                sender.send(&(number, "x".repeat((number % 50) as usize))).await.unwrap();
            }
            sender.sync().await.unwrap();
            sender.stats()
        });
        let (from, mut receiver): (Peer, Receiver<(u64, String)>) =
            a.accept("numbers").await.unwrap();
        assert_eq!(from.name(), "b");
        let mut expected = 0;
        while let Some((number, text)) = receiver.recv().await.unwrap() {
            assert_eq!(number, expected);
            assert_eq!(text.len(), (number % 50) as usize);
            expected += 1;
        }
        assert_eq!(expected, 200_000);
        let stats = task.await.unwrap();
        assert_eq!(stats.acknowledged, 200_000);
        println!("{:?}", peer.stats());
        b.close(Duration::from_secs(5)).await.unwrap();
        a.close(Duration::from_secs(5)).await.unwrap();
    }
}

#[tokio::test]
async fn large_messages_arrive_whole() {
    let (a, b, peer) = pair("127.0.0.1:0").await;
    let mut sender: Sender<Vec<u8>> = b.open(&peer, "large").await.unwrap();
    let sizes = [0usize, 1, 8191, 8192, 8193, 70_000, 1_000_000, 10_000_000, 3, 5_000_000];
    let task = tokio::spawn(async move {
        for (index, size) in sizes.into_iter().enumerate() {
            sender.send(&vec![index as u8; size]).await.unwrap();
        }
        sender.close(Duration::from_secs(10)).await.unwrap();
    });
    let (_, mut receiver) = a.accept::<Vec<u8>>("large").await.unwrap();
    for (index, size) in sizes.into_iter().enumerate() {
        let message = receiver.recv().await.unwrap().unwrap();
        assert_eq!(message.len(), size);
        assert!(message.iter().all(|byte| *byte == index as u8));
    }
    assert!(receiver.recv().await.unwrap().is_none());
    task.await.unwrap();
    let _ = Address::Memory(String::new());
}
