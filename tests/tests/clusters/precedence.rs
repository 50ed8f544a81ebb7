//! System messages go before the user's express channels, seen on the wire.

use crate::joining::{cluster, config, end_all};
use crate::processes::programs;
use chunkcomm::proto::hello::HELLO_BYTES;
use chunkcomm::proto::packet::{Decoder, Item};
use chunkcomm::proto::resume::RESUME_BYTES;
use chunkcomm::{Lane, Limits, Node, channel};
use chunkcomm_cluster::cluster::Cluster;
use chunkcomm_cluster::{NodeBuilderExt, NodeExt};
use chunkcomm_testkit::{limited, on_both};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Passes a connection on, and keeps the bytes of the side that dialled.
async fn listen_in(to: u16) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = Arc::<Mutex<Vec<u8>>>::default();
    let ear = Arc::clone(&heard);
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
        let ((mut near_read, mut near_write), (mut far_read, mut far_write)) =
            (near.into_split(), far.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut far_read, &mut near_write).await });
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = near_read.read(&mut buffer).await {
            ear.lock().unwrap().extend_from_slice(&buffer[..count]);
            if far_write.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    });
    (port, heard)
}

/// The names of the channels of each packet's runs, in order.
fn packets(heard: &[u8]) -> Vec<Vec<String>> {
    let (mut at, mut decoder) = (HELLO_BYTES + RESUME_BYTES, Decoder::new(1 << 20));
    let mut names = std::collections::HashMap::new();
    let mut packets = vec![Vec::new()];
    while let Some(item) = decoder.next(heard, &mut at).unwrap() {
        match item {
            Item::Open(it) => drop(names.insert(it.channel, it.name.to_owned())),
            Item::Run { channel, .. } => packets.last_mut().unwrap().push(names[&channel].clone()),
            Item::PacketEnd { .. } => packets.push(Vec::new()),
            _ => {}
        }
    }
    packets
}

const UP: &str = "chunkcomm.cluster.up";
const WORDS: &str = "\0chunkcomm.words";

fn is_of_the_system(name: &str) -> bool {
    [UP, WORDS].contains(&name)
}

/// Many express channels to rank 0 always have more than a packet holds. Barriers, names, processes
/// and the stop get through, each at the front of its packet.
#[test]
fn words_go_before_the_users_express_channels() {
    on_both(|| async {
        const USERS: usize = 24;
        // Rounds: their words stay below the lead that system messages may have.
        const TURNS: usize = 4;
        let programs = programs();
        let with = |config: chunkcomm_cluster::cluster::ClusterConfig| {
            // Few bytes are on their way, so that words come back soon.
            let builder =
                Node::builder().limits(Limits { resend_bytes_max: 5 << 18, ..Limits::default() });
            config.node(builder.processes(&programs.registry))
        };
        let (nodes, port) = cluster(1, with).await;
        let head = nodes.into_iter().next().unwrap();
        let (port, heard) = listen_in(port).await;
        let node = limited(Cluster::join(with(config(None, 0, port)))).await.unwrap();
        let peer = node.peer(0).await.unwrap();
        let mut users = tokio::task::JoinSet::new();
        for number in 0..USERS {
            let (name, lane) = (format!("user {number}"), Lane::Express);
            let options = channel(&*name).lane(lane);
            let sender = node.node().open::<[u64; 16]>(&peer, options).await;
            let mut sender = sender.unwrap();
            users.spawn(async move { while sender.send(&[7; 16]).await.is_ok() {} });
            let accepting = head.node().clone();
            users.spawn(async move {
                let (_, mut receiver) = accepting.accept::<[u64; 16]>(&name).await.unwrap();
                while let Ok(Some(_)) = receiver.recv().await {}
            });
        }
        for turn in 0..TURNS {
            // Words sent just before do not put the next ones behind the users' channels.
            let names: Vec<String> = (0..50).map(|it| format!("{turn} {it:0>100}")).collect();
            let mut providing = tokio::task::JoinSet::new();
            for name in names.clone() {
                let node = node.clone();
                providing.spawn(async move { node.provide(&name).await });
            }
            while let Some(provided) = limited(providing.join_next()).await {
                provided.unwrap().unwrap();
            }
            let (here, there) =
                limited(async { tokio::join!(node.barrier(), head.barrier()) }).await;
            assert_eq!((here, there), (Ok(()), Ok(())));
            let (writer, value) = node.node().value().unwrap();
            let process = node.instantiate(0, &programs.rank, writer).await.unwrap();
            assert_eq!(limited(value.get()).await.unwrap(), &0);
            limited(process).await.unwrap();
            names.iter().for_each(|name| node.withdraw(name));
        }
        node.finish();
        limited(head.finished()).await;
        users.shutdown().await;
        end_all(&[head, node]).await;
        let packets = packets(&heard.lock().unwrap());
        let (mut beside, mut kinds) = (0, BTreeSet::new());
        for packet in &packets {
            let words = packet.iter().filter(|name| is_of_the_system(name)).count();
            assert!(packet[..words].iter().all(|name| is_of_the_system(name)), "{packet:?}");
            beside += usize::from(words > 0 && words < packet.len());
            kinds.extend(packet[..words].iter().map(String::as_str));
        }
        assert!(beside >= TURNS, "{beside} packets had words and others: too few to tell");
        assert_eq!(kinds, BTreeSet::from([UP, WORDS]));
    });
}
