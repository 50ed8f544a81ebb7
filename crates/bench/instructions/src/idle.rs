//! A link that carries nothing.

use std::time::Duration;

use crate::nodes::{Pair, pair};
use crate::{Local, Rounds};

/// Time in which a silent link asks once for a sign of life: 30 s.
const TICK: Duration = Duration::from_secs(30);

struct Idle(#[expect(dead_code, reason = "the link lives as long")] Pair);

pub(crate) fn idle() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(async { Ok(Box::new(Idle(pair("memory:idle").await?)) as Box<dyn Rounds>) })
}

impl Rounds for Idle {
    fn run(&mut self, count: u64) -> Local<'_, ()> {
        Box::pin(async move {
            for _ in 0..count {
                tokio::time::sleep(TICK).await;
            }
            Ok(())
        })
    }
}
