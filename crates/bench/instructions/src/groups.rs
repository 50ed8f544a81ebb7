//! Collective calls of a group of two.

use std::mem;

use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_group::{Group, Op};

use crate::nodes::members;
use crate::{Local, Outcome, Rounds};

/// One rank.
struct Rank {
    group: Group,
    _cluster: Cluster,
    data: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Barrier,
    AllReduce,
}

struct Calls {
    ranks: [Rank; 2],
    kind: Kind,
}

pub(crate) fn barrier() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(start(Kind::Barrier))
}

pub(crate) fn all_reduce() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(start(Kind::AllReduce))
}

async fn start(kind: Kind) -> Outcome<Box<dyn Rounds>> {
    let [first, second] = members(&Registry::new()).await?;
    let (of_first, of_second) = tokio::try_join!(Group::world(&first), Group::world(&second))?;
    let rank = |group, cluster| Rank { group, _cluster: cluster, data: vec![1.0] };
    Ok(Box::new(Calls { ranks: [rank(of_first, first), rank(of_second, second)], kind }))
}

impl Rounds for Calls {
    fn run(&mut self, count: u64) -> Local<'_, ()> {
        let [first, second] = &mut self.ranks;
        let kind = self.kind;
        Box::pin(async move {
            for _ in 0..count {
                tokio::try_join!(first.call(kind), second.call(kind))?;
            }
            Ok(())
        })
    }
}

impl Rank {
    async fn call(&mut self, kind: Kind) -> Outcome<()> {
        if kind == Kind::Barrier {
            return Ok(self.group.barrier().await?);
        }
        self.data = self.group.all_reduce(mem::take(&mut self.data), Op::sum()).await?;
        let sum = mem::replace(&mut self.data[0], 1.0);
        if sum == 2.0 { Ok(()) } else { Err("the sum is wrong".into()) }
    }
}
