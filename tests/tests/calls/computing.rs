//! Tasks that compute without yielding, on a runtime of several threads: the link goes on beside
//! them.

use chunkcomm::{Address, Node, Peer, Receiver, Sender};
use chunkcomm_cluster::{CallClient, NodeExt};
use chunkcomm_testkit::{cancelled, limited, on_one_thread, tcp};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const WORKERS: usize = 4;

/// Rounds of a test; a wake-up that lands in the wrong place does so in almost every round.
const ROUNDS: u64 = 8;

/// Time far beyond every wait for a free worker.
const STALLED: Duration = Duration::from_secs(20);

/// The end of the link that may compute. Another task there answers questions by calls to the far
/// end.
struct Near {
    node: Node,
    peer: Peer,
    to_far: Sender<u64>,
    from_far: Receiver<u64>,
    calls: CallClient<u64, u64>,
    far: UnboundedSender<Order>,
}

/// Orders to the other end, in a thread with a runtime of its own.
enum Order {
    /// Sends this number.
    Send(u64),
    /// Waits for this number if there is one, then asks the near node for an answer.
    Ask { expected: Option<u64>, served: mpsc::Sender<()> },
}

async fn far(listening: mpsc::Sender<Address>, mut orders: UnboundedReceiver<Order>) {
    let node = Node::builder().name("far").listen(tcp()).build().await.unwrap();
    let _echo = node.serve("echo", async |number: u64| Ok::<_, String>(number)).unwrap();
    listening.send(node.addresses()[0].clone()).unwrap();
    let (peer, mut to_far) = node.accept::<u64>("to far").await.unwrap();
    let mut from_far = node.open(&peer, "from far").await.unwrap();
    let mut questions = node.open(&peer, "questions").await.unwrap();
    let (_, mut answers) = node.accept::<u64>("answers").await.unwrap();
    for question in 0_u64.. {
        match orders.recv().await {
            Some(Order::Send(number)) => from_far.send_now(&number).await.unwrap(),
            Some(Order::Ask { expected, served }) => {
                while expected.is_some() && to_far.recv().await.unwrap() != expected {}
                questions.send_now(&question).await.unwrap();
                assert_eq!(answers.recv().await.unwrap(), Some(question));
                let _ = served.send(());
            }
            None => return,
        }
    }
}

impl Near {
    async fn new(far: &Address, orders: UnboundedSender<Order>) -> Near {
        let node = Node::builder().name("near").build().await.unwrap();
        let peer = node.connect(far).await.unwrap();
        let mut to_far = node.open(&peer, "to far").await.unwrap();
        to_far.send_now(&0).await.unwrap();
        let mut answers = node.open(&peer, "answers").await.unwrap();
        let (_, from_far) = limited(node.accept("from far")).await.unwrap();
        let (_, mut questions) = limited(node.accept::<u64>("questions")).await.unwrap();
        let calls = node.call_client::<u64, u64>(&peer, "echo").unwrap();
        let asks = calls.clone();
        tokio::spawn(async move {
            while let Ok(Some(question)) = questions.recv().await {
                let answer = asks.call(&question).await.unwrap();
                answers.send_now(&answer).await.unwrap();
            }
        });
        // The task just spawned waits in this worker's slot, from which no other worker takes it.
        tokio::task::yield_now().await;
        Near { node, peer, to_far, from_far, calls, far: orders }
    }

    /// Computes until the far end got the expected number and an answer.
    fn compute(&self, expected: Option<u64>) {
        let (served, is_served) = mpsc::channel();
        self.far.send(Order::Ask { expected, served }).unwrap();
        let served = is_served.recv_timeout(STALLED);
        served.expect("the link stands still while a task computes");
    }
}

/// Runs `test` in a task on one of the workers, with a far end that a computing task of this
/// runtime cannot stop.
fn with_near<F>(test: impl FnOnce(Near) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (orders, ordered) = unbounded_channel();
    let (listening, listens) = mpsc::channel();
    let far = thread::spawn(move || on_one_thread(far(listening, ordered)));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKERS).enable_all().build().unwrap();
    let address = listens.recv().unwrap();
    let task = runtime.spawn(limited(async move { test(Near::new(&address, orders).await).await }));
    if let Err(error) = runtime.block_on(task) {
        std::panic::resume_unwind(error.into_panic());
    }
    far.join().unwrap();
}

#[test]
fn what_was_sent_leaves_while_its_sender_computes() {
    with_near(|mut near| async move {
        for round in 1..=ROUNDS {
            near.to_far.send_now(&round).await.unwrap();
            near.compute(Some(round));
            near.to_far.send(&(round << 8)).await.unwrap();
            near.compute(Some(round << 8));
            near.to_far.try_send(&(round << 16)).unwrap();
            near.compute(Some(round << 16));
        }
    });
}

#[test]
fn a_link_goes_on_while_the_task_that_received_computes() {
    with_near(|mut near| async move {
        for round in 1..=ROUNDS {
            near.far.send(Order::Send(round)).unwrap();
            assert_eq!(near.from_far.recv().await.unwrap(), Some(round));
            near.compute(None);
        }
    });
}

#[test]
fn a_link_goes_on_while_a_task_computes_that_took_much_at_once() {
    with_near(|mut near| async move {
        for _ in 0..ROUNDS {
            for number in 0..20_000 {
                near.far.send(Order::Send(number)).unwrap();
            }
            for number in 0..20_000 {
                assert_eq!(near.from_far.recv().await.unwrap(), Some(number));
            }
            near.compute(None);
        }
    });
}

#[test]
fn a_link_goes_on_while_a_task_computes_that_waited_for_its_peer() {
    with_near(|mut near| async move {
        for round in 1..=ROUNDS {
            near.to_far.send(&round).await.unwrap();
            near.to_far.flush().await.unwrap();
            near.compute(Some(round));
            near.to_far.send(&(round << 8)).await.unwrap();
            near.to_far.sync().await.unwrap();
            near.compute(Some(round << 8));
        }
    });
}

#[test]
fn a_link_goes_on_while_a_task_computes_that_opened_and_dropped() {
    with_near(|near| async move {
        for round in 1..=ROUNDS {
            let sender = near.node.open::<u64>(&near.peer, &format!("{round}")).await.unwrap();
            near.compute(None);
            drop(sender);
            near.compute(None);
        }
    });
}

#[test]
fn calls_are_answered_while_a_task_computes_that_gave_one_up() {
    with_near(|near| async move {
        for round in 1..=ROUNDS {
            // On a busy machine the answer may be there before the first wait.
            let _ = cancelled(1, near.calls.call(&round)).await;
            near.compute(None);
        }
    });
}
