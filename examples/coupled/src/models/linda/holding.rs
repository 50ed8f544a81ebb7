//! The space, at the node that holds it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

use chunkcomm::layer::{Bell, Wait};
use chunkcomm::{AcceptError, Duplex, host};
use chunkcomm_cluster::Cluster;
use tokio::task::JoinSet;

use super::super::sole::Sole;
use super::{Reply, Request};

type Age = (String, u64); // kind and number

/// Holds a space of at most this many tuples at this node, until it is dropped or the node ends. It
/// is to be spawned. The error is a [`NameError`](chunkcomm_cluster::cluster::NameError) with the holder if a node
/// holds the space already.
pub async fn hold(cluster: Cluster, space: String, tuples_max: usize) -> Result<Infallible> {
    let name = format!("space {space}");
    let sole = Sole::provide(&cluster, &name).await.map_err(Error::other)?;
    let (held, mut all) = (Arc::new(Held { tuples_max, ..Held::default() }), JoinSet::new());
    loop {
        let accepted = tokio::select! {
            biased;
            why = sole.lost() => return Err(Error::other(format!("{name}: {why}"))),
            accepted = cluster.node().accept_duplex(&*name) => accepted,
        };
        match accepted {
            Ok((_, line)) => drop(all.spawn(host::here(held.clone().serve(cluster.clone(), line)))),
            Err(AcceptError::Mismatch { .. }) => {}
            Err(error) => return Err(Error::other(error)),
        }
        while all.try_join_next().is_some() {}
    }
}

#[derive(Default)]
struct Held {
    tuples_max: usize,
    store: Mutex<(u64, BTreeMap<Age, Request>)>, // the number of tuples so far, and those here
    bell: Bell,                                  // rings when there is one more
}

impl Held {
    /// Serves a process until it ends; then the tuple that it took goes back.
    async fn serve(self: Arc<Held>, cluster: Cluster, mut line: Duplex<Reply, Request>) {
        let who = cluster.member_of(line.peer()).map_or_else(String::new, |it| it.to_string());
        let mut taken = None;
        while let Ok(Some(request)) = line.recv().await {
            let _wait = Wait::begin(cluster.node(), format!("{} of {who}", request.text));
            let reply = tokio::select! {
                biased;
                reply = self.bell.until(|| self.reply(&request, &mut taken)) => reply,
                _ = line.recv() => break, // the process is gone, or breaks the rules
            };
            let Ok(()) = line.send(&reply).await else { break };
        }
        self.store.lock().unwrap_or_else(PoisonError::into_inner).1.extend(taken);
        self.bell.ring();
        let _ = line.close(Default::default()).await; // what it did not get is no loss
    }

    /// Settles what the process took; replies, unless the operation has to wait.
    fn reply(&self, request: &Request, taken: &mut Option<(Age, Request)>) -> Option<Reply> {
        let Request { verb, kind, fields, .. } = request;
        let (last, tuples) = &mut *self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if verb == "out" && tuples.len() >= self.tuples_max {
            return Some(Err(format!("{} tuples are there, of {}", tuples.len(), self.tuples_max)));
        }
        *taken = None;
        if verb == "out" {
            *last += 1;
            tuples.insert((kind.clone(), *last), request.clone());
            self.bell.ring();
            return Some(Ok(None));
        }
        let is_match = |(_, tuple): &(&Age, &Request)| {
            fields.iter().zip(&tuple.fields).all(|(a, b)| a.is_empty() || b.is_empty() || a == b)
        };
        let mut of_kind = tuples.range((kind.clone(), 0)..=(kind.clone(), u64::MAX));
        let found = of_kind.find(is_match).map(|(age, tuple)| (age.clone(), tuple.clone()));
        let Some((age, tuple)) = found else { return verb.ends_with('p').then_some(Ok(None)) };
        if verb.starts_with("in") {
            tuples.remove(&age);
            *taken = Some((age, tuple.clone()));
        }
        Some(if tuple.text.is_empty() { Ok(Some(tuple.fields)) } else { Err(tuple.text) })
    }
}
