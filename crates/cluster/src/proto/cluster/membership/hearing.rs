//! How a member handles the words of its manager.

use super::{Change, End, Membership, Standing};
use crate::proto::cluster::{DEATHS_MAX, Death, Down, Member, NameAnswer, NodeId, TaskIds};
use chunkcomm_proto::loss::{Loss, LossKind};
use chunkcomm_proto::sorted::{SortedMap, SortedSet};

/// A word before the one with the members, or after the last word.
const OUT_OF_TURN: &str = "the manager spoke out of turn";

fn refused(why: &str) -> Loss {
    Loss::new(LossKind::Refused, why)
}

impl Membership {
    /// Handles a word of the manager.
    ///
    /// # Errors
    ///
    /// No manager sends that at this point: the manager is lost, and the caller gives it up.
    pub fn handle_message(&mut self, message: Down) -> Result<(), Loss> {
        match (&self.standing, message) {
            // The word was on its way when the membership ended.
            (Standing::Ended(_), _) => {}
            (Standing::Announced, Down::TaskIds(told)) => {
                let us = told.members.iter().find(|member| member.id.rank == told.rank);
                if us.is_none_or(|us| us.id.incarnation != self.ready.incarnation) {
                    return Err(refused("the manager does not name this node among the members"));
                }
                self.handle_task_ids(told);
            }
            (_, Down::Refused(why)) => self.standing = Standing::Ended(End::Refused(why)),
            (Standing::Member, message) => return self.handle_news(message),
            _ => return Err(refused(OUT_OF_TURN)),
        }
        Ok(())
    }

    fn handle_news(&mut self, message: Down) -> Result<(), Loss> {
        match message {
            Down::TaskIds(_) | Down::Refused(_) => return Err(refused(OUT_OF_TURN)),
            Down::Joined(member) => self.add(member),
            Down::Left(id) => {
                self.remove(id);
                self.note(Change::Left(id));
            }
            Down::Died(death) => self.note_death(death),
            Down::Released { number, died } => {
                self.passed = self.passed.max(number);
                if self.at.is_some_and(|at| at <= number) {
                    self.at = None;
                }
                self.unnamed.retain(|id| !died.contains(id));
                self.how = died;
            }
            Down::Provided(name, id) => self.add_provider(name, id),
            Down::Withdrawn(name, id) => {
                if let Some(ids) = self.names.get_mut(&name) {
                    ids.remove(&id);
                }
                self.names.retain(|_, ids| !ids.is_empty());
            }
            Down::NameRefused(name) => self.handle_name_refusal(name, NameAnswer::Refused),
            Down::NameHeld(name, by) => self.handle_name_refusal(name, NameAnswer::Held(by)),
            Down::Sole { number, answer } => self.handle_sole(number, answer),
            Down::Agreed(decision) => self.handle_decision(decision),
            Down::Settled(key) => self.handle_settled(key),
            Down::NotAgreed { number, why } => self.handle_objection(number, why),
            Down::Finish { by } => self.standing = Standing::Ended(End::Finished { by }),
        }
        Ok(())
    }

    fn handle_task_ids(&mut self, told: TaskIds) {
        if self.manager.replace(told.manager).is_some() {
            self.note(Change::ManagerBack);
        }
        self.standing = Standing::Member;
        self.back_by = None;
        self.size = told.size;
        self.founders = told.founders;
        if self.founder_hosts.is_empty() {
            let hosts: SortedMap<NodeId, &String> =
                told.members.iter().map(|member| (member.id, &member.host)).collect();
            let host = |id: &NodeId| hosts.get(id).map_or_else(String::new, |host| (*host).clone());
            self.founder_hosts = self.founders.iter().map(host).collect();
        }
        self.ready.rank = Some(told.rank);
        if self.passed < told.barrier {
            self.passed = told.barrier;
        }
        let ids: SortedSet<NodeId> = told.members.iter().map(|member| member.id).collect();
        let gone: Vec<NodeId> =
            self.members.values().map(|member| member.id).filter(|id| !ids.contains(id)).collect();
        self.names = SortedMap::new();
        for id in gone {
            let told = told.deaths.iter().find(|death| death.id == id);
            let unknown = || Loss::from("the new manager does not know it");
            let loss = told.map_or_else(unknown, |death| death.loss.clone());
            self.note_death(Death { id, loss });
        }
        let known: SortedSet<NodeId> = self.deaths.iter().map(|death| death.id).collect();
        let unknown = told.deaths.into_iter().filter(|death| !known.contains(&death.id));
        unknown.for_each(|death| self.remember(death));
        for member in told.members {
            self.add(member);
        }
        for (name, id) in told.names {
            self.add_provider(name, id);
        }
    }

    fn add(&mut self, member: Member) {
        let id = member.id;
        let known = self.members.insert(id.rank, member.clone());
        if known.is_none_or(|known| known.id != id) {
            // The member may have been taken for dead.
            self.deaths.retain(|death| death.id != id);
            self.dead_names.remove(&id);
            self.unnamed.retain(|unnamed| *unnamed != id);
            self.note(Change::Joined(member));
        }
    }

    fn remove(&mut self, id: NodeId) -> Option<Member> {
        let is_it = self.members.get(&id.rank).is_some_and(|member| member.id == id);
        let member = if is_it { self.members.remove(&id.rank) } else { None };
        self.names.values_mut().for_each(|ids| {
            ids.remove(&id);
        });
        self.names.retain(|_, ids| !ids.is_empty());
        member
    }

    fn note_death(&mut self, death: Death) {
        if let Some(name) = self.remove(death.id).and_then(|member| member.name) {
            self.dead_names.insert(death.id, name);
        }
        if self.unnamed.len() == DEATHS_MAX {
            self.unnamed.remove(0);
        }
        self.unnamed.push(death.id);
        self.remember(death.clone());
        self.note(Change::Died(death));
    }

    fn remember(&mut self, death: Death) {
        if self.deaths.len() == DEATHS_MAX {
            let forgotten = self.deaths.remove(0);
            self.dead_names.remove(&forgotten.id);
        }
        self.deaths.push(death);
    }
}
