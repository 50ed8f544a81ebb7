//! Limits, runtimes and futures that are dropped early.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;
use std::time::Duration;

/// Time longer than anything here takes: a test that hangs fails by it.
const LIMIT: Duration = Duration::from_secs(90);

/// Installs a listener for the warnings of nodes in this process, which forgets them: tests leave
/// messages on their way when they end.
fn hear_warnings() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new());
    });
}

/// Waits for `future`, which does not hang.
pub async fn limited<F: Future>(future: F) -> F::Output {
    hear_warnings();
    tokio::time::timeout(LIMIT, future).await.expect("it hangs")
}

/// Runs `test` on a runtime of one thread.
pub fn on_one_thread<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(limited(test))
}

/// Runs `test` on a runtime of two threads, itself on one of them.
pub fn on_two_threads<F>(test: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    let outcome = runtime.block_on(runtime.spawn(limited(test)));
    outcome.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Runs what `test` makes on a runtime of one thread, then on one of two.
pub fn on_both<F>(test: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    on_one_thread(test());
    on_two_threads(test());
}

/// Runs `future` until it has to wait for the `waits`-th time and drops it then; with 0 it is never
/// polled.
pub async fn cancelled<F: Future>(waits: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = waits;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                left -= 1;
                if left == 0 { Poll::Ready(None) } else { Poll::Pending }
            }
        }
    })
    .await
}

/// Makes the future again and drops it one wait later each time, until it is ready.
#[macro_export]
macro_rules! at_last {
    ($future:expr) => {{
        let mut waits = 0;
        loop {
            if let Some(output) = $crate::limited($crate::cancelled(waits, $future)).await {
                break output;
            }
            waits += 1;
            tokio::task::yield_now().await;
        }
    }};
}
