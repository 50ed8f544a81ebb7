//! The two machines against each other: words in any interleaving, and deaths, new members and new
//! managers at any moment.

use super::agreement::{Decision, Objection, Proposal};
use super::manager::{Line, Manager, Phase};
use super::membership::{Asked, Change, End, Membership, Standing};
use super::{
    Before, Death, Down, Member, NAMES_A_MEMBER_MAX, NameAnswer, NodeId, Ready, Refusal, Up,
};
use crate::proto::signature::{Difference, Signature, TypeFingerprint};
use chunkcomm_proto::Time;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

mod agreeing;
mod new_manager;
mod running;
mod sole;
mod starting;
mod wire;
mod world;

const SECOND: Duration = Duration::from_secs(1);

fn ready(rank: impl Into<Option<u32>>, size: u32, incarnation: u128) -> Ready {
    Ready {
        rank: rank.into(),
        size: Some(size),
        incarnation,
        name: None,
        host: "here".to_owned(),
        pid: incarnation as u32,
        addresses: vec![format!("memory:{incarnation}")],
        program: "p".to_owned(),
        functions: None,
        again: None,
    }
}

/// Functions from names to the fingerprint of their input.
fn functions(of: &[(&str, u64)]) -> Vec<Signature> {
    let of_type = |hash| TypeFingerprint { hash, text: format!("T{hash}") };
    let one = |&(name, hash): &(&str, u64)| Signature {
        name: name.to_owned(),
        input: of_type(hash),
        output: Some(of_type(1)),
    };
    of.iter().map(one).collect()
}

fn said(manager: &mut Manager) -> Vec<(u64, Down)> {
    std::iter::from_fn(|| manager.poll_transmit()).map(|(line, down)| (line.0, down)).collect()
}

/// A manager with `size` members on the lines of their ranks.
fn running(size: u32) -> Manager {
    let mut manager = Manager::new(77, size, SECOND, Time(0));
    for rank in 0..size {
        manager.handle_message(
            Line(rank.into()),
            Up::Ready(ready(rank, size, 100 + u128::from(rank))),
        );
    }
    assert_eq!(*manager.phase(), Phase::Running);
    said(&mut manager);
    manager
}
