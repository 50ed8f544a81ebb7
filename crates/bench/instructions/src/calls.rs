//! Calls of a service.

use chunkcomm_cluster::{CallClient, NodeExt, Service};

use crate::nodes::{Pair, pair};
use crate::{Local, Rounds};

struct Calls {
    _pair: Pair,
    _service: Service,
    client: CallClient<u64, u64>,
}

pub(crate) fn call() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(async {
        let pair = pair("memory:call").await?;
        let service =
            pair.far.serve("next", |number: u64| async move { Ok::<_, String>(number + 1) })?;
        let client = pair.near.call_client(&pair.to_far, "next")?;
        Ok(Box::new(Calls { _pair: pair, _service: service, client }) as Box<dyn Rounds>)
    })
}

impl Rounds for Calls {
    fn run(&mut self, count: u64) -> Local<'_, ()> {
        Box::pin(async move {
            for number in 0..count {
                if self.client.call(&number).await? != number + 1 {
                    return Err("the answer is wrong".into());
                }
            }
            Ok(())
        })
    }
}
