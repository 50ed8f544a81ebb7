//! Large messages that are read from the sender's memory.

use crate::same_host::{cut, member};
use chunkcomm::explain::OneCopy;
use chunkcomm::host::ONE_COPY_VARIABLE;
use chunkcomm::settings::NodeSettings;
use chunkcomm::{Address, LinkEvent, Node, NodeBuilder, RecvError, Silence};
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{
    Pair, free_path, itself, limited, on_both, on_one_thread, pair_of, tcp, until,
};
use std::process::Stdio;
use std::time::Duration;

/// Returns what the link of `node` says.
async fn state(node: &Node) -> OneCopy {
    limited(node.explain()).await.links[0].one_copy.clone()
}

/// Returns a pair of members that read each other's memory; `None`, with the reason printed, where this system does
/// not let them.
async fn readers(address: Address) -> Option<Pair> {
    let pair = pair_of(address, member(), member()).await;
    sends(&pair, &[1]).await;
    match state(&pair.a).await {
        OneCopy::Refused { why } => {
            println!("skipped: {why}");
            None
        }
        _ => Some(pair),
    }
}

/// Sends messages of `sizes` from the second node to the first.
async fn sends(pair: &Pair, sizes: &[usize]) {
    let (mut sender, mut receiver) = pair.channel::<Vec<u8>>("sizes").await;
    for (at, bytes) in sizes.iter().enumerate() {
        let message: Vec<u8> = (0..*bytes).map(|byte| (byte + at) as u8).collect();
        sender.send(&message).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap().unwrap(), message);
    }
    limited(sender.sync()).await.unwrap();
}

/// Sends a large message, of which no byte is read from memory.
async fn is_off(pair: Pair, why: &str) {
    sends(&pair, &[4 << 20]).await;
    for node in [&pair.a, &pair.b] {
        assert_eq!(state(node).await, OneCopy::Off, "{why}");
    }
}

#[test]
fn large_messages_are_read_from_memory_and_small_ones_are_not() {
    on_both(|| async {
        for address in [tcp(), Address::Unix(free_path("one-copy"))] {
            let Some(pair) = readers(address).await else { return };
            sends(&pair, &[10, 1000, 20_000]).await;
            assert_eq!(state(&pair.a).await, OneCopy::Reads { bytes: 0 });
            sends(&pair, &[8 << 20, 100_000, 40_000, 3 << 20]).await;
            let OneCopy::Reads { bytes } = state(&pair.a).await else { panic!("not read") };
            // Beginnings of messages pass in smaller pieces, before there is credit for more.
            assert!((9 << 20..=11 << 20 | 200_000).contains(&bytes), "{bytes}");
            assert_eq!(state(&pair.b).await, OneCopy::Reads { bytes: 0 });
            let text = limited(pair.a.explain()).await.to_string();
            assert!(text.contains(&format!("{bytes} bytes read from its memory")), "{text}");
            let sent = pair.peer.stats().packet_bytes_sent;
            assert!(sent > 11 << 20, "{sent}: the account is that of the messages");
            pair.is_well("behind large messages").await;
        }
    });
}

#[test]
fn where_either_end_forbids_it_or_has_no_credential_the_socket_carries_them() {
    on_one_thread(async {
        let off = || member().one_copy(false);
        is_off(pair_of(tcp(), member(), off()).await, "the dialler forbids it").await;
        is_off(pair_of(tcp(), off(), member()).await, "the listener forbids it").await;
        let mut settings = NodeSettings::default();
        settings.one_copy = Some(false);
        let read = pair_of(tcp(), member(), member().settings(&settings)).await;
        is_off(read, "a setting forbids it").await;
        let no_socket = || member().same_host(false);
        is_off(pair_of(tcp(), no_socket(), no_socket()).await, "they stay with TCP").await;
        let path = Address::Unix(free_path("plain"));
        let plain = pair_of(path, Node::builder(), Node::builder()).await;
        is_off(plain, "no credential").await;
    });
}

/// Both directions, with messages below and above the limit, several channels, and cuts in between.
#[test]
fn a_session_that_is_cut_while_memory_is_read_loses_nothing_and_gets_no_other_bytes() {
    on_both(|| async {
        let Some(pair) = readers(tcp()).await else { return };
        let mut tasks = Vec::new();
        for channel in 0..3_u64 {
            let (mut sender, mut receiver) = match channel {
                0 => pair.back::<Vec<u64>>("back").await,
                _ => pair.channel::<Vec<u64>>(&format!("there {channel}")).await,
            };
            let message = move |at: u64, random: &mut chunkcomm_testkit::random::Random| {
                vec![channel << 32 | at; random.below(200_000) as usize]
            };
            tasks.push(tokio::spawn(async move {
                let mut random = seeded(channel);
                for at in 0..60 {
                    sender.send(&message(at, &mut random)).await.unwrap();
                }
                sender.sync().await.unwrap();
            }));
            tasks.push(tokio::spawn(async move {
                let mut random = seeded(channel);
                for at in 0..60 {
                    let came = limited(receiver.recv()).await.unwrap().unwrap();
                    assert!(came == message(at, &mut random), "message {at} of {channel}");
                }
            }));
        }
        let (node, mut events) = (pair.a.clone(), pair.b.events());
        let mut random = seeded(23);
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(random.below(20))).await;
            assert!(cut(&node) > 0);
            while !matches!(limited(events.next()).await, Some(LinkEvent::Resumed { .. })) {}
        }
        for task in tasks {
            limited(task).await.unwrap();
        }
        until(|| pair.peer.stats().resumes == 6).await;
        for node in [&pair.a, &pair.b] {
            assert!(matches!(state(node).await, OneCopy::Reads { bytes } if bytes > 1 << 20));
        }
    });
}

/// Variable that is set for the process that sends: the address to dial.
const SENDS_TO: &str = "CHUNKCOMM_TEST_SENDS_TO";

/// Runs in a process of its own, and sends until it is killed.
#[test]
fn the_process_that_sends() {
    let Ok(address) = std::env::var(SENDS_TO) else { return };
    on_one_thread(async move {
        let node = Node::builder().build().await.unwrap();
        let peer = node.connect(&address.parse().unwrap()).await.unwrap();
        let mut sender = node.open(&peer, "sent").await.unwrap();
        for at in 0_u64.. {
            sender.send(&vec![at; 500_000]).await.unwrap();
        }
    });
}

#[test]
fn a_sender_that_dies_is_a_lost_link_and_leaves_no_part_of_a_message() {
    let file = free_path("credential");
    chunkcomm::Credential::generate().unwrap().save(&file).unwrap();
    let builder = || -> NodeBuilder { Node::builder().credential_file(&file) };
    on_one_thread(async {
        if readers(tcp()).await.is_none() {
            return;
        }
        for round in 0..4 {
            let ms = Duration::from_millis;
            let silence = Silence { probe: ms(100), suspect: ms(200), dead: ms(400) };
            let node = builder().silence(silence).listen(tcp()).build().await.unwrap();
            let mut child = itself("one_copy::the_process_that_sends")
                .env(SENDS_TO, node.addresses()[0].to_string())
                .env(chunkcomm::CREDENTIAL_FILE_VARIABLE, &file)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let (_, mut receiver) = limited(node.accept::<Vec<u64>>("sent")).await.unwrap();
            let mut at = 0;
            let end = loop {
                match limited(receiver.recv()).await {
                    Ok(Some(message)) => {
                        assert!(message == vec![at; 500_000], "message {at}");
                        at += 1;
                    }
                    other => break other.map(|_| ()),
                }
                if at == 5 + round {
                    assert!(matches!(state(&node).await, OneCopy::Reads { bytes } if bytes > 0));
                    child.kill().unwrap();
                }
            };
            child.wait().unwrap();
            assert!(matches!(end, Err(RecvError::Lost { .. })), "{end:?}");
        }
    });
    std::fs::remove_file(&file).unwrap();
}

/// The test is its own child process, since no other test may see the variable.
#[test]
fn the_environment_forbids_it_too() {
    if std::env::var(ONE_COPY_VARIABLE).is_err() {
        let output = itself("one_copy::the_environment_forbids_it_too")
            .env(ONE_COPY_VARIABLE, "off")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    on_one_thread(async {
        let allowed = || member().one_copy(true);
        is_off(pair_of(tcp(), allowed(), allowed()).await, "the variable forbids it").await;
    });
}
