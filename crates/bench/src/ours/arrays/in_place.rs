//! Transfers of a matrix within one group, in one array.

use chunkcomm_array::ArrayExchange;
use chunkcomm_cluster::Cluster;
use chunkcomm_group::Group;

use super::receivers_layout;
use crate::failure::{Doing, Failure};
use crate::harness::ranks::Player;
use crate::harness::transfers::{Part, Transfer};

/// One rank of a group that exchanges in one array.
pub(super) struct InPlace {
    group: Group,
    transfer: Transfer,
    given: Part,
    wanted: Part,
    exchange: Option<ArrayExchange<f64>>,
    is_planned: bool,
}

impl InPlace {
    pub(super) async fn join(
        cluster: &Cluster,
        rank: usize,
        transfer: Transfer,
    ) -> Result<Self, Failure> {
        let group = Group::world(cluster).await.doing("making the group")?;
        let (given, wanted) = (transfer.given(rank), transfer.wanted(rank));
        Ok(Self { group, transfer, given, wanted, exchange: None, is_planned: false })
    }

    fn exchange(&mut self) -> Result<&mut ArrayExchange<f64>, Failure> {
        self.exchange.as_mut().ok_or_else(|| Failure::broken("exchanging", "no plan"))
    }
}

impl Player for InPlace {
    async fn fill(&mut self, call: u64) -> Result<(), Failure> {
        let (given, exchange) = (&self.given, &mut self.exchange);
        if let Some(exchange) = exchange {
            given.fill(call, &mut exchange.storage_mut()[..given.len()]);
        }
        Ok(())
    }

    async fn meet(&mut self) -> Result<(), Failure> {
        self.group.barrier().await.doing("meeting in a barrier")
    }

    async fn call(&mut self) -> Result<(), Failure> {
        if self.is_planned {
            return self.exchange()?.run().await.doing("exchanging an array");
        }
        self.is_planned = true;
        let layout = receivers_layout(&self.transfer)?;
        let storage = vec![0.0; self.given.len().max(self.wanted.len())];
        let opened = ArrayExchange::open(&mut self.group, &self.transfer.from, &layout, storage);
        self.exchange = Some(opened.await.doing("opening an exchange")?);
        Ok(())
    }

    async fn is_right(&mut self, call: u64) -> Result<bool, Failure> {
        let len = self.wanted.len();
        let right = |exchange: &ArrayExchange<f64>, wanted: &Part| {
            call == 0 || wanted.is_right(call, &exchange.storage()[..len])
        };
        Ok(self.exchange.as_ref().is_some_and(|exchange| right(exchange, &self.wanted)))
    }
}
