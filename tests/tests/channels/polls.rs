//! Poll functions, in futures that are written by hand.

use bytes::Bytes;
use chunkcomm::{
    BytesReceiver, BytesSender, LinkEvent, Node, Receiver, SelectAll, SendError, Sender,
    TrySendError,
};
use chunkcomm_testkit::{all, limited, on_both, on_one_thread, pair, until};
use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

/// Passes messages on until there are no more, and then ends its stream.
struct Relay<R, S>(R, S);

macro_rules! relay {
    ($receiver:ty, $sender:ty, $start_send:expr) => {
        impl Future for Relay<$receiver, $sender> {
            type Output = Result<(), Box<dyn Error + Send + Sync>>;

            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                let Relay(from, to) = &mut *self;
                loop {
                    ready!(to.poll_ready(context))?;
                    match ready!(from.poll_recv(context))? {
                        Some(message) => $start_send(to, message)?,
                        None => return to.poll_close(context).map_err(Into::into),
                    }
                }
            }
        }
    };
}

relay!(Receiver<Vec<u64>>, Sender<Vec<u64>>, |to: &mut Sender<_>, value| to.start_send(&value));
relay!(BytesReceiver, BytesSender, BytesSender::start_send);

#[test]
fn a_future_waits_for_values_and_for_room() {
    on_both(|| async {
        let pair = pair().await;
        let (mut source, from) = pair.channel::<Vec<u64>>("in").await;
        let (to, mut sink) = pair.back::<Vec<u64>>("out").await;
        // More than the channels hold, so that the relay waits for room.
        let values: Vec<_> = (0..20_000).map(|number| vec![number; 128]).collect();
        let relaying = tokio::spawn(Relay(from, to));
        let sending = tokio::spawn(async move { source.send_all(values).await });
        let received = all(&mut sink).await;
        assert!(received.into_iter().eq((0..20_000).map(|number| vec![number; 128])));
        limited(relaying).await.unwrap().unwrap();
        limited(sending).await.unwrap().unwrap();
    });
}

#[test]
fn a_future_passes_messages_of_bytes_of_any_size_on() {
    on_both(|| async {
        let pair = pair().await;
        let (mut source, from) = pair.bytes("in").await;
        let (to, mut sink) = pair.bytes_back("out").await;
        let size = |number: usize| [0, 9, 8_000, 60_000][number % 4];
        let relaying = tokio::spawn(Relay(from, to));
        let sending = tokio::spawn(async move {
            let messages = (0..400).map(|number| Bytes::from(vec![number as u8; size(number)]));
            source.send_all(messages).await
        });
        for number in 0..400 {
            let message = limited(sink.recv()).await.unwrap().unwrap();
            assert_eq!(message, vec![number as u8; size(number)], "{number}");
        }
        assert_eq!(limited(sink.recv()).await.unwrap(), None);
        limited(relaying).await.unwrap().unwrap();
        limited(sending).await.unwrap().unwrap();
    });
}

#[test]
fn a_message_that_was_promised_room_is_kept_until_there_is_some() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("kept").await;
        assert!(limited(poll_fn(|context| sender.poll_ready(context))).await.is_ok());
        let (mut clone, mut next) = (sender.clone(), 0);
        loop {
            match clone.try_send(&next) {
                Ok(()) => next += 1,
                Err(TrySendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        sender.start_send(&next).unwrap();
        assert!(matches!(sender.start_send(&9), Err(SendError::NotReady)));
        let taking = tokio::spawn(async move { all(&mut receiver).await });
        limited(poll_fn(|context| sender.poll_flush(context))).await.unwrap();
        assert_eq!(sender.stats().written, next + 1);
        drop((sender, clone));
        assert_eq!(limited(taking).await.unwrap(), (0..=next).collect::<Vec<_>>());
    });
}

#[test]
fn a_closed_duplex_still_receives() {
    on_both(|| async {
        let pair = pair().await;
        let mut ours = pair.b.open_duplex::<u64, u64>(&pair.peer, "half").await.unwrap();
        let (_, mut theirs) = limited(pair.a.accept_duplex::<u64, u64>("half")).await.unwrap();
        limited(poll_fn(|context| ours.poll_ready(context))).await.unwrap();
        ours.start_send(&1).unwrap();
        limited(poll_fn(|context| ours.poll_flush(context))).await.unwrap();
        assert_eq!(ours.stats().0.written, 1);
        limited(poll_fn(|context| ours.poll_close(context))).await.unwrap();
        let mut received = Vec::new();
        while let Some(value) = limited(poll_fn(|context| theirs.poll_recv(context))).await.unwrap()
        {
            received.push(value);
        }
        assert_eq!(received, [1]);
        theirs.send(&2).await.unwrap();
        drop(theirs);
        assert_eq!(limited(poll_fn(|context| ours.poll_recv(context))).await.unwrap(), Some(2));
        assert_eq!(limited(poll_fn(|context| ours.poll_recv(context))).await.unwrap(), None);

        let mut ours = pair.b.open_duplex_bytes(&pair.peer, "half").await.unwrap();
        let (_, mut theirs) = limited(pair.a.accept_duplex_bytes("half")).await.unwrap();
        limited(poll_fn(|context| ours.poll_ready(context))).await.unwrap();
        ours.start_send(Bytes::from_static(b"hello")).unwrap();
        limited(poll_fn(|context| ours.poll_close(context))).await.unwrap();
        assert_eq!(limited(theirs.recv()).await.unwrap().unwrap(), "hello");
        assert_eq!(limited(theirs.recv()).await.unwrap(), None);
        theirs.send(Bytes::from_static(b"and back")).await.unwrap();
        assert_eq!(limited(ours.recv()).await.unwrap().unwrap(), "and back");
    });
}

#[test]
fn ends_and_changes_are_waited_for() {
    on_both(|| async {
        let pair = pair().await;
        let mut events = pair.a.events();
        let event = limited(poll_fn(|context| events.poll_next(context))).await;
        assert!(matches!(event, Some(LinkEvent::Connected { .. })));

        let (mut sender, receiver) = pair.channel::<u64>("stopped").await;
        let dropping = tokio::spawn(async move { drop(receiver) });
        let error = limited(poll_fn(|context| sender.poll_closed(context))).await;
        assert!(matches!(error, SendError::Terminated(_)), "{error}");
        limited(dropping).await.unwrap();

        let peer = pair.peer.clone();
        let ending = tokio::spawn(poll_fn(move |context| peer.poll_closed(context)));
        tokio::task::yield_now().await;
        pair.peer.abort();
        assert!(limited(ending).await.unwrap().is_closed());
        let event = limited(poll_fn(|context| events.poll_next(context))).await;
        assert!(matches!(event, Some(LinkEvent::Ended { .. })));
    });
}

#[test]
fn many_receivers_are_polled_as_one() {
    on_both(|| async {
        let node = Node::builder().build().await.unwrap();
        let peer = node.local().await.unwrap();
        let mut select = SelectAll::new();
        let mut senders = Vec::new();
        for name in ["one", "two"] {
            senders.push(node.open::<u64>(&peer, name).await.unwrap());
            select.add(limited(node.accept::<u64>(name)).await.unwrap().1);
        }
        let taking = tokio::spawn(async move {
            let mut sums = [0; 2];
            while let Some((index, value)) =
                limited(poll_fn(|context| select.poll_recv(context))).await.unwrap()
            {
                sums[index] += value;
            }
            sums
        });
        for (sender, factor) in senders.iter_mut().zip([1, 1000]) {
            sender.send_all((0..100).map(|number| number * factor)).await.unwrap();
        }
        drop(senders);
        assert_eq!(limited(taking).await.unwrap(), [4950, 4_950_000]);
    });
}

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Woken {
    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Two tasks, and their wakers.
fn tasks() -> ([Arc<Woken>; 2], [Waker; 2]) {
    let tasks = [Arc::<Woken>::default(), Arc::default()];
    let wakers = tasks.clone().map(Waker::from);
    (tasks, wakers)
}

#[test]
fn a_receiver_wakes_the_task_that_polled_last() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("last").await;
        let (tasks, wakers) = tasks();
        for waker in &wakers {
            assert!(receiver.poll_recv(&mut Context::from_waker(waker)).is_pending());
        }
        sender.send(&7).await.unwrap();
        until(|| tasks[1].count() > 0).await;
        assert_eq!(tasks[0].count(), 0);
        let polled = receiver.poll_recv(&mut Context::from_waker(&wakers[1]));
        assert!(matches!(polled, Poll::Ready(Ok(Some(7)))));
    });
}

#[test]
fn a_sender_wakes_every_task_that_polled() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, receiver) = pair.channel::<u64>("all").await;
        let (tasks, wakers) = tasks();
        for waker in &wakers {
            assert!(sender.poll_closed(&mut Context::from_waker(waker)).is_pending());
        }
        drop(receiver);
        until(|| tasks.iter().all(|task| task.count() > 0)).await;
        let polled = sender.poll_closed(&mut Context::from_waker(&wakers[0]));
        assert!(matches!(polled, Poll::Ready(SendError::Terminated(_))));
    });
}
