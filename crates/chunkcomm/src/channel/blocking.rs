//! Waiting for a future on a plain thread.

use crate::driver::wakers::thread_waker;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Runs `future` on this thread, which sleeps while it waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static WAKER: Waker = thread_waker();
    }
    let mut future = pin!(future);
    WAKER.with(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => return output,
                Poll::Pending => {
                    #[cfg(feature = "simulation")]
                    assert!(
                        crate::transport::world::of_this_thread().is_none(),
                        "a blocking call waits in a simulation, which it stops for ever"
                    );
                    std::thread::park();
                }
            }
        }
    })
}
