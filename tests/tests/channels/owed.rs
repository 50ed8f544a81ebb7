//! Debts of layers when their node closes.

use chunkcomm::Node;
use chunkcomm::layer::Owed;
use chunkcomm_testkit::{limited, on_both, pair, until};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_debt_is_staged_before_the_links_close() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.back::<u64>("words").await;
        let mut owed = Owed::standing(&pair.a, "a word".to_owned());
        let saying = tokio::spawn(async move {
            owed.due().await;
            // As a task that waits for other tasks meanwhile.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            sender.send(&7).await.unwrap();
            owed.said();
        });
        limited(pair.a.close(LONG)).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(7));
        limited(saying).await.unwrap();
    });
}

#[test]
fn what_is_not_said_by_the_deadline_is_in_the_account_and_the_links_end() {
    on_both(|| async {
        let pair = pair().await;
        let owed = Owed::begin(&pair.a, "the answer".to_owned());
        // Its task does not run.
        let silent = Owed::standing(&pair.a, "nothing".to_owned());
        let error = limited(pair.a.close(Duration::from_millis(50))).await.unwrap_err();
        assert_eq!(error.unsaid, ["the answer"]);
        assert!(error.channels.is_empty() && pair.a.is_closed());
        assert_eq!(error.to_string(), "closed with unsaid messages; not said: the answer");
        limited(pair.peer.closed()).await;
        drop((owed, silent));
        limited(pair.a.close(LONG)).await.unwrap();
    });
}

#[test]
fn closing_goes_on_when_nobody_waits_for_it() {
    on_both(|| async {
        let pair = pair().await;
        let owed = Owed::begin(&pair.a, "the answer".to_owned());
        let closing = tokio::spawn({
            let node = pair.a.clone();
            async move { node.close(LONG).await }
        });
        until(|| owed.is_due()).await;
        closing.abort();
        assert!(limited(closing).await.is_err() && !pair.a.is_closed());
        // Until then channels are opened.
        drop(pair.channel::<u64>("late").await);
        drop(owed);
        limited(pair.peer.closed()).await;
        assert!(pair.a.is_closed());
    });
}

#[test]
fn a_debt_that_begins_later_is_not_waited_for() {
    on_both(|| async {
        let node = Node::builder().build().await.unwrap();
        let first = Owed::begin(&node, "the first".to_owned());
        let closing = tokio::spawn({
            let node = node.clone();
            async move { node.close(LONG).await }
        });
        until(|| first.is_due()).await;
        let _second = Owed::begin(&node, "the second".to_owned());
        drop(first);
        limited(closing).await.unwrap().unwrap();
    });
}
