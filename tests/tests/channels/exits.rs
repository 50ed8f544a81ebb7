//! Messages that `close` called acknowledged were delivered, also when the process ends at once.

use chunkcomm::{Address, Credential, Node, NodeBuilder, Receiver};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::random::{Random, seeded};
use chunkcomm_testkit::{NEVER, itself, limited, on_one_thread, tcp, until};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Variable that is set for the process that closes: address, way to end, seed.
const ERRAND: &str = "CHUNKCOMM_TEST_EXITS";

/// Variable with the seed of a whole test, if it is not the usual one.
const SEED: &str = "CHUNKCOMM_TEST_SEED";

const SECRET: &str = "CHUNKCOMM_TEST_SECRET";

/// Ways in which a process ends without a word to anybody.
const ENDS: [(&str, fn()); 3] =
    [("exit", || std::process::exit(0)), ("abort", || std::process::abort()), ("kill", killed)];

#[cfg(target_os = "linux")]
fn killed() {
    use rustix::process::{Signal, getpid, kill_process};
    let _ = kill_process(getpid(), Signal::KILL);
}

#[cfg(not(target_os = "linux"))]
fn killed() {
    std::process::abort();
}

const ROUNDS: u64 = 8;

type Message = (u32, Vec<u8>);

/// Returns the messages that are sent by this seed.
fn messages(random: &mut Random) -> Vec<Message> {
    let large = random.below(3) == 0;
    let size = move |random: &mut Random| match random.below(200) {
        0 if large => 300_000,
        _ => random.below(400) as usize,
    };
    (0..random.below(2000)).map(|at| (at as u32, vec![at as u8; size(random)])).collect()
}

/// Returns the settings of a side that stays within TLS.
fn sealed(credential: Credential) -> NodeBuilder {
    Node::builder().credential(credential).same_host(false)
}

/// Returns the settings of both sides.
fn settings() -> NodeBuilder {
    if let Ok(secret) = std::env::var(SECRET) {
        return sealed(secret.parse().unwrap());
    }
    Node::builder()
}

/// Runs in a process of its own, which the tests below start. Alone it does nothing.
#[test]
fn the_process_that_closes() {
    let Ok(errand) = std::env::var(ERRAND) else { return };
    let mut words = errand.split(' ');
    let address: Address = words.next().unwrap().parse().unwrap();
    let how = words.next().unwrap();
    let (_, end) = ENDS.iter().find(|(name, _)| *name == how).unwrap();
    let mut random = seeded(words.next().unwrap().parse().unwrap());
    let messages = messages(&mut random);
    // One process in three has hardly any time to close.
    let deadline = match random.below(3) {
        0 => Duration::from_millis(random.below(3)),
        _ => NEVER,
    };
    // Closes the sender, or the node with everything that it has.
    let closes_node = random.below(2) == 0;
    on_one_thread(async move {
        let node = settings().build().await.unwrap();
        let peer = node.connect(&address).await.unwrap();
        let mut sender = node.open(&peer, "closed").await.unwrap();
        for message in &messages {
            sender.send(message).await.unwrap();
        }
        let closed = if closes_node {
            drop(sender);
            limited(node.close(deadline)).await
        } else {
            limited(sender.close(deadline)).await
        };
        let acknowledged = match closed {
            Ok(()) => "all".to_owned(),
            Err(error) => {
                // The error names only channels with messages that were not acknowledged.
                let told = error.channels.first();
                let count = told.map_or(messages.len() as u64, |it| it.account.acknowledged);
                count.to_string()
            }
        };
        // Written past the output that the test program would keep for later.
        let mut output = std::io::stdout();
        writeln!(output, "acknowledged {acknowledged}").unwrap();
        output.flush().unwrap();
        end();
        unreachable!("it has ended");
    });
}

/// Keeps every message until the channel ends.
async fn keep(mut receiver: Receiver<Message>, came: Arc<Mutex<Vec<Message>>>) {
    while let Some(message) = receiver.recv().await.unwrap() {
        came.lock().unwrap().push(message);
    }
}

/// Once `at` messages came, loses further bytes for a while, and then the connection. A sender that
/// took written messages for acknowledged would be wrong.
async fn lose(proxy: Arc<Proxy>, came: Arc<Mutex<Vec<Message>>>, at: usize) {
    until(|| came.lock().unwrap().len() >= at).await;
    proxy.swallow(true);
    tokio::time::sleep(Duration::from_millis(40)).await;
    proxy.cut();
    proxy.swallow(false);
}

/// Runs processes that close and end, one after the other.
fn all_arrives(settings: impl FnOnce() -> NodeBuilder, configure: impl Fn(&mut Command)) {
    let seed = std::env::var(SEED).map_or(5, |text| text.parse().unwrap());
    let mut random = seeded(seed);
    on_one_thread(async {
        let node = settings().listen(tcp()).build().await.unwrap();
        let proxy = Arc::new(Proxy::before(&node));
        let address = proxy.address.clone();
        let (mut in_part, mut lost) = (0, 0);
        for round in 0..ROUNDS {
            for (how, _) in ENDS {
                let seed = random.next_u64() >> 1;
                let mut child = itself("exits::the_process_that_closes");
                // The proxy may still swallow from the round before.
                proxy.swallow(false);
                child.env(ERRAND, format!("{address} {how} {seed}"));
                configure(&mut child);
                let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
                let child = child.spawn().unwrap();
                let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
                let (_, receiver) = limited(node.accept("closed")).await.unwrap();
                let came = Arc::default();
                let keeping = tokio::spawn(keep(receiver, Arc::clone(&came)));
                let sent = messages(&mut seeded(seed));
                let at = random.below(sent.len() as u64 + 1) as usize;
                let losing = tokio::spawn(lose(Arc::clone(&proxy), Arc::clone(&came), at));
                let output = limited(ended).await.unwrap().unwrap();
                lost += u64::from(losing.is_finished());
                let text = String::from_utf8_lossy(&output.stdout);
                let case = format!("round {round}, {how}, seed {seed}: {text}");
                let said = text.split("acknowledged ").nth(1).and_then(|it| it.lines().next());
                match said.unwrap_or_else(|| panic!("{case}")) {
                    "all" => {
                        limited(keeping).await.expect(&case);
                        losing.abort();
                        assert!(*came.lock().unwrap() == sent, "{case}");
                    }
                    count => {
                        in_part += 1;
                        let count = count.parse().unwrap();
                        until(|| came.lock().unwrap().len() >= count).await;
                        // The process's link is dead some seconds later.
                        keeping.abort();
                        losing.abort();
                        let came = came.lock().unwrap();
                        assert!(came[..] == sent[..came.len()], "others than were sent; {case}");
                    }
                }
            }
        }
        let all = ROUNDS * ENDS.len() as u64;
        println!("seed {seed}: {in_part} of {all} had no time, {lost} lost their connection");
        assert!(in_part < all / 2, "{in_part} had no time");
        assert!(lost > 0, "none lost its connection");
    });
}

#[test]
fn what_was_acknowledged_was_delivered_though_the_process_ended_at_once() {
    all_arrives(settings, |_| ());
}

#[test]
fn what_was_acknowledged_was_delivered_inside_tls_too() {
    let secret = chunkcomm::proto::credential::Seed::new([7; 32]).to_text();
    let credential: Credential = secret.parse().unwrap();
    let configure = |child: &mut Command| {
        child.env(SECRET, secret.as_str());
    };
    all_arrives(|| sealed(credential), configure);
}
