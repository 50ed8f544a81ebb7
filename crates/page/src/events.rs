//! The events of members as they happen: changes of the cluster, or of the links of the node.

use crate::gather::cut;
use crate::hub::Hub;
use crate::log::{locked, now_ms};
use crate::members::{Key, of_member};
use crate::state::{MemberState, Standing};
use chunkcomm::{LinkEvent, LinkEvents, Peer};
use chunkcomm_cluster::cluster::{Change, Changes};

impl Hub {
    /// Notes what happens to the members, until the node is gone.
    pub(crate) async fn note_events(&self, events: LinkEvents, changes: Option<Changes>) {
        match changes {
            Some(changes) => self.note_changes(changes).await,
            None => self.note_links(events).await,
        }
    }

    async fn note_changes(&self, mut changes: Changes) {
        while let Some(change) = changes.next().await {
            let (kind, who, text) = match &change {
                Change::Joined(member) => {
                    let shown = of_member(member);
                    locked(&self.members).came(Key::Rank(member.id.rank), shown);
                    ("came", member.id.rank, member.to_string())
                }
                Change::Left(id) => {
                    self.stands(id.rank, Standing::Left, "it left");
                    ("left", id.rank, String::new())
                }
                Change::Died(death) => {
                    let why = death.loss.to_string();
                    self.stands(death.id.rank, Standing::Gone, &why);
                    ("gone", death.id.rank, why)
                }
                Change::ManagerLost => ("gone", 0, "the manager is gone".to_owned()),
                Change::ManagerBack => ("back", 0, "the manager is back".to_owned()),
                Change::Missed(count) => {
                    locked(&self.members).missed();
                    locked(&self.log).note("note", "", &format!("{count} changes are not shown"));
                    continue;
                }
                _ => continue,
            };
            locked(&self.log).note(kind, &format!("rank {who}"), &text);
        }
    }

    fn stands(&self, rank: u32, standing: Standing, why: &str) {
        locked(&self.members).stands(Key::Rank(rank), standing, why);
    }

    async fn note_links(&self, mut events: LinkEvents) {
        let mut arrivals = 0;
        while let Some(event) = events.next().await {
            let stands = |peer: &Peer, standing, why: &str| {
                let mut members = locked(&self.members);
                if let Some(key) = members.find(peer.incarnation()) {
                    members.stands(key, standing, why);
                }
            };
            let (kind, peer, text) = match event {
                LinkEvent::Connected { peer } => {
                    arrivals += 1;
                    let key = Key::Peer(arrivals, peer.incarnation());
                    let member = MemberState {
                        key: key.text(),
                        name: cut(peer.name()),
                        host: peer.dialled().map_or_else(String::new, |it| cut(&it.to_string())),
                        since_ms: now_ms(),
                        ..MemberState::default()
                    };
                    locked(&self.members).came(key, member);
                    ("came", peer, String::new())
                }
                LinkEvent::CutOff { peer, error } => {
                    stands(&peer, Standing::CutOff, &error.to_string());
                    ("cut off", peer, error.to_string())
                }
                LinkEvent::Resumed { peer, after, .. } => {
                    stands(&peer, Standing::Here, "");
                    ("back", peer, format!("after {after:.1?}"))
                }
                LinkEvent::Ended { peer, error, .. } if error.is_closed() => {
                    stands(&peer, Standing::Left, "");
                    ("left", peer, String::new())
                }
                LinkEvent::Ended { peer, error, .. } => {
                    stands(&peer, Standing::Gone, &error.to_string());
                    ("gone", peer, error.to_string())
                }
                LinkEvent::Missed { events } => {
                    locked(&self.members).missed();
                    locked(&self.log).note("note", "", &format!("{events} events are not shown"));
                    continue;
                }
                _ => continue,
            };
            locked(&self.log).note(kind, peer.name(), &text);
        }
    }
}
