//! Transfers of a matrix within one group, from one array to another, or into a file.

use std::path::PathBuf;

use chunkcomm_array::{Array, Layout};
use chunkcomm_cluster::Cluster;
use chunkcomm_group::Group;

use super::receivers_layout;
use crate::failure::{Doing, Failure};
use crate::harness::ranks::Player;
use crate::harness::transfers::{Part, Transfer};

/// One rank of a group that copies an array to another one, or into a file and back.
pub(super) struct Copies {
    group: Group,
    given: Part,
    wanted: Part,
    from: Array<f64>,
    to: Array<f64>,
    file: Option<PathBuf>,
}

impl Copies {
    pub(super) async fn join(
        cluster: &Cluster,
        rank: usize,
        transfer: Transfer,
        file: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let group = Group::world(cluster).await.doing("making the group")?;
        let made = |layout: &Layout| {
            Array::zeros(&group, layout, layout.global_shape()).doing("making an array")
        };
        let (from, to) = (made(&transfer.from)?, made(&receivers_layout(&transfer)?)?);
        let (given, wanted) = (transfer.given(rank), transfer.wanted(rank));
        Ok(Self { group, given, wanted, from, to, file })
    }
}

impl Player for Copies {
    async fn fill(&mut self, call: u64) -> Result<(), Failure> {
        self.given.fill(call, &mut self.from.local_mut());
        Ok(())
    }

    async fn meet(&mut self) -> Result<(), Failure> {
        self.group.barrier().await.doing("meeting in a barrier")
    }

    async fn call(&mut self) -> Result<(), Failure> {
        match &self.file {
            None => self.from.copy_to(&mut self.to).await.doing("copying an array"),
            Some(file) => self.from.write_npy(file).await.doing("writing an array"),
        }
    }

    async fn is_right(&mut self, call: u64) -> Result<bool, Failure> {
        if let Some(file) = &self.file {
            let read = Array::read_npy(&mut self.group, self.to.layout(), file).await;
            self.to = read.doing("reading an array")?;
        }
        Ok(call == 0 || self.wanted.is_right(call, &self.to.local()))
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if let Some(file) = self.file.take_if(|_| self.group.rank() == 0) {
            // Without a call there is none.
            let _ = std::fs::remove_file(file);
        }
    }
}
