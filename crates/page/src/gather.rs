//! One gathering: the state of a node as it is now.

use crate::state::{
    ChannelState, Counts, LinkState, NodeState, Rates, VERSION, WaitState, WarningState,
};
use chunkcomm::Node;
use chunkcomm::explain::{Explanation, LinkReport, Way};
use chunkcomm::report::RATE_MAX;
use chunkcomm::stats::FlushReason;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Name of the watch by which members show themselves.
pub(crate) const WATCH: &str = "chunkcomm.page";

/// Most waits, and most refusals, of a node.
pub(crate) const WAITS_MAX: usize = 64;

/// Most bytes of a text that a peer may have chosen.
const TEXT_BYTES_MAX: usize = 300;

/// Most bytes of the name of a flush reason that a peer has chosen.
const REASON_BYTES_MAX: usize = 32;

/// Time over which rates are taken: 1 s.
const RATED_FOR: Duration = Duration::from_secs(1);

/// Limits of what is gathered from a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) links_max: usize,
    pub(crate) channels_max: usize,
    pub(crate) explain_bytes_max: usize,
}

/// Of the node that serves the page.
pub(crate) const HERE: Extent =
    Extent { links_max: 512, channels_max: 512, explain_bytes_max: 64 << 10 };

/// Of other members: usually some KB.
pub(crate) const THERE: Extent =
    Extent { links_max: 64, channels_max: 64, explain_bytes_max: 8 << 10 };

/// Gathers from a node again and again, so that it has rates.
#[derive(Debug)]
pub(crate) struct Gatherer {
    extent: Extent,
    gathered: u64,
    /// Counts of each peer at the gatherings of the last second, and at the one before.
    before: VecDeque<(Instant, HashMap<String, Counts>)>,
}

impl Gatherer {
    pub(crate) fn new(extent: Extent) -> Gatherer {
        Gatherer { extent, gathered: 0, before: VecDeque::new() }
    }

    /// Gathers the state of the node.
    pub(crate) async fn gather(&mut self, node: &Node) -> NodeState {
        let explanation = node.explain().await;
        self.gathered += 1;
        let now = Instant::now();
        let mut links: Vec<_> = explanation.links.iter().map(link).collect();
        self.rate(&mut links, now);
        let mut channels: Vec<_> = explanation.links.iter().flat_map(channels).collect();
        let text = explanation.to_string();
        let (mut state, extent) = (NodeState::default(), self.extent);
        links.sort_by(|one, other| {
            let weight =
                |link: &LinkState| link.rates.map_or(0.0, |it| it.bytes_sent + it.bytes_received);
            one.is_well.cmp(&other.is_well).then(weight(other).total_cmp(&weight(one)))
        });
        let weight =
            |it: &ChannelState| (it.waits_for.is_some(), it.staged, it.unread_bytes, it.sent);
        channels.sort_by_key(|channel| std::cmp::Reverse(weight(channel)));
        state.links_left_out = cut_to(&mut links, extent.links_max);
        state.channels_left_out = cut_to(&mut channels, extent.channels_max);
        NodeState {
            version: VERSION,
            gathered: self.gathered,
            node: cut(node.name()),
            links,
            channels,
            waits: waits(&explanation),
            warnings: warnings(node),
            refusals: explanation.refusals.iter().take(WAITS_MAX).map(|it| cut(it)).collect(),
            report: node.report(),
            explain: cut_at(&text, extent.explain_bytes_max).to_owned(),
            ..state
        }
    }

    fn rate(&mut self, links: &mut [LinkState], now: Instant) {
        while self.before.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= RATED_FOR) {
            self.before.pop_front();
        }
        if let Some((at, before)) = self.before.front() {
            let seconds = now.duration_since(*at).as_secs_f64().max(1e-3);
            for link in links.iter_mut() {
                let before = before.get(&link.peer);
                link.rates = before.map(|before| rates(&link.counts, before, seconds));
            }
        }
        let counts = links.iter().map(|link| (link.peer.clone(), link.counts)).collect();
        self.before.push_back((now, counts));
    }
}

fn rates(now: &Counts, before: &Counts, seconds: f64) -> Rates {
    let of = |count: fn(&Counts) -> u64| count(now).saturating_sub(count(before)) as f64 / seconds;
    let (messages, packets) = (of(|it| it.messages_sent), of(|it| it.message_packets_sent));
    Rates {
        messages_sent: messages,
        messages_received: of(|it| it.messages_received),
        bytes_sent: of(|it| it.bytes_sent),
        bytes_received: of(|it| it.bytes_received),
        messages_per_packet: if packets > 0.0 { messages / packets } else { 0.0 },
    }
}

fn link(link: &LinkReport) -> LinkState {
    let stats = &link.stats;
    let way = match link.way {
        Way::Tcp { .. } => "TCP",
        Way::SameHost => "Unix socket",
        _ => "as its address",
    };
    LinkState {
        peer: cut(&link.peer),
        state: cut(&link.state),
        is_well: link.state == "connected",
        way: way.to_owned(),
        silence_us: micros(link.silence),
        round_trip_us: link.round_trip.map(micros),
        kept_bytes: link.kept_bytes as u64,
        waits_for: link.waits_for.as_deref().map(cut),
        trouble: link.trouble.as_deref().map(cut),
        counts: Counts {
            messages_sent: stats.messages_sent,
            messages_received: stats.messages_received,
            packets_sent: stats.packets_sent,
            message_packets_sent: stats.message_packets_sent,
            packets_received: stats.packets_received,
            bytes_sent: stats.packet_bytes_sent,
            bytes_received: stats.packet_bytes_received,
            writes: stats.writes,
            reads: stats.reads,
            credit_waits: stats.credit_waits,
            resumes: stats.resumes,
            packets_resent: stats.packets_resent,
            cycles: stats.cycles,
            queueing_delay_us: stats.queueing_delay_us_total,
        },
        flushes: FlushReason::ALL
            .iter()
            .map(|&reason| (reason.name().to_owned(), stats.flushes.get(reason)))
            .collect(),
        rates: None,
    }
}

fn channels(link: &LinkReport) -> impl Iterator<Item = ChannelState> {
    let peer = cut(&link.peer);
    let of_peer = peer.clone();
    let sending = link.sending.iter().map(move |it| ChannelState {
        peer: of_peer.clone(),
        channel: named(&it.channel),
        is_sending: true,
        staged: it.staged,
        sent: it.sent,
        unacknowledged: it.sent.saturating_sub(it.acknowledged),
        credit_bytes: it.credit_bytes,
        waits_for: it.waits_for.as_deref().map(cut),
        oldest_us: it.oldest.map(micros),
        ..ChannelState::default()
    });
    let receiving = link.receiving.iter().map(move |it| ChannelState {
        peer: peer.clone(),
        channel: named(&it.channel),
        unread_bytes: it.unread_bytes as u64,
        is_awaited: it.awaited,
        waits_for: (it.unread_bytes > 0 && !it.awaited).then(|| "somebody to take them".to_owned()),
        ..ChannelState::default()
    });
    sending.chain(receiving)
}

/// Returns the name of a channel for people: a reserved one has a label between two zero bytes.
fn named(channel: &str) -> String {
    match channel.strip_prefix('\0') {
        None => cut(channel),
        Some(rest) => cut(rest.replace('\0', " ").trim()),
    }
}

fn waits(explanation: &Explanation) -> Vec<WaitState> {
    let cycles = explanation.cycles.iter().map(|cycle| WaitState {
        what: format!("nodes that wait for each other: {}", cut(cycle)),
        for_us: None,
        is_cycle: true,
    });
    let links = explanation.links.iter().flat_map(|link| {
        let of_link = link.waits_for.iter().map(|what| WaitState {
            what: format!("the link to {}: {}", cut(&link.peer), cut(what)),
            for_us: Some(micros(link.silence)).filter(|_| link.state != "connected"),
            is_cycle: false,
        });
        let of_channels = link.sending.iter().filter_map(|channel| {
            let what = channel.waits_for.as_deref()?;
            let (name, peer) = (named(&channel.channel), cut(&link.peer));
            let what = format!("channel {name} to {peer}: {}", cut(what));
            Some(WaitState { what, for_us: channel.oldest.map(micros), is_cycle: false })
        });
        of_link.chain(of_channels)
    });
    let others = explanation.waits.iter().map(|wait| WaitState {
        what: cut(&wait.what),
        for_us: Some(micros(wait.since)),
        is_cycle: false,
    });
    let all = cycles.chain(others).chain(links);
    // Without those of the page itself.
    let mut waits: Vec<_> = all.filter(|wait| !wait.what.contains(WATCH)).collect();
    // The longest first.
    waits.sort_by_key(|wait| std::cmp::Reverse((wait.is_cycle, wait.for_us)));
    waits.truncate(WAITS_MAX);
    waits
}

fn warnings(node: &Node) -> Vec<WarningState> {
    let warning = |it: chunkcomm::explain::Warning| WarningState {
        node: cut(&it.node),
        text: it.text,
        age_us: micros(it.age),
    };
    node.warnings().into_iter().map(warning).collect()
}

impl Rates {
    /// Whether all of them are rates: a peer may have sent any number, and no JSON has them all.
    fn are_some(&self) -> bool {
        let Rates {
            messages_sent,
            messages_received,
            bytes_sent,
            bytes_received,
            messages_per_packet,
        } = self;
        [messages_sent, messages_received, bytes_sent, bytes_received, messages_per_packet]
            .into_iter()
            .all(|rate| (0.0..=RATE_MAX).contains(rate))
    }
}

impl NodeState {
    /// Cuts the state of a peer to the limits.
    pub(crate) fn bounded(mut self) -> NodeState {
        let Extent { links_max, channels_max, explain_bytes_max } = THERE;
        let left_out = cut_to(&mut self.links, links_max);
        self.links_left_out = self.links_left_out.saturating_add(left_out);
        let left_out = cut_to(&mut self.channels, channels_max);
        self.channels_left_out = self.channels_left_out.saturating_add(left_out);
        cut_to(&mut self.waits, WAITS_MAX);
        cut_to(&mut self.warnings, WAITS_MAX);
        cut_to(&mut self.refusals, WAITS_MAX);
        self.report = self.report.bounded();
        self.explain.truncate(cut_at(&self.explain, explain_bytes_max).len());
        self.node = cut(&self.node);
        for link in &mut self.links {
            cut_to(&mut link.flushes, FlushReason::ALL.len());
            link.flushes
                .iter_mut()
                .for_each(|(name, _)| *name = cut_at(name, REASON_BYTES_MAX).to_owned());
            link.rates = link.rates.filter(Rates::are_some);
            for text in [&mut link.peer, &mut link.state, &mut link.way] {
                *text = cut(text);
            }
            for text in [&mut link.waits_for, &mut link.trouble].into_iter().flatten() {
                *text = cut(text);
            }
        }
        for channel in &mut self.channels {
            (channel.peer, channel.channel) = (cut(&channel.peer), cut(&channel.channel));
            channel.waits_for = channel.waits_for.as_deref().map(cut);
        }
        self.waits.iter_mut().for_each(|wait| wait.what = cut(&wait.what));
        self.refusals.iter_mut().for_each(|it| *it = cut(it));
        for warning in &mut self.warnings {
            (warning.node, warning.text) = (cut(&warning.node), cut(&warning.text));
        }
        self
    }
}

/// Drops the elements beyond `count_max`; returns their number.
pub(crate) fn cut_to<T>(of: &mut Vec<T>, count_max: usize) -> u64 {
    let left_out = of.len().saturating_sub(count_max);
    of.truncate(count_max);
    left_out as u64
}

pub(crate) fn cut(text: &str) -> String {
    cut_at(text, TEXT_BYTES_MAX).to_owned()
}

fn cut_at(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_between_two_gatherings() {
        let before = Counts { messages_sent: 10, message_packets_sent: 1, ..Counts::default() };
        let now = Counts { messages_sent: 110, message_packets_sent: 6, bytes_sent: 500, ..before };
        let rates = rates(&now, &before, 0.5);
        assert_eq!(
            (rates.messages_sent, rates.bytes_sent, rates.messages_per_packet),
            (200.0, 1000.0, 20.0)
        );
        // Another session of a peer of this name begins anew.
        assert_eq!(super::rates(&before, &now, 1.0).messages_sent, 0.0);
    }

    #[test]
    fn a_reserved_name_is_shown_by_its_label() {
        assert_eq!(named("rows"), "rows");
        assert_eq!(named("\0service \0prices"), "service  prices");
    }

    #[test]
    fn the_state_of_a_peer_is_cut_to_the_limits() {
        let link = LinkState { peer: "é".repeat(900), ..LinkState::default() };
        let state = NodeState {
            links: vec![link; 200],
            waits: vec![WaitState { what: "w".repeat(9000), ..WaitState::default() }; 900],
            explain: "é".repeat(90_000),
            ..NodeState::default()
        };
        let state = state.bounded();
        assert_eq!((state.links.len(), state.links_left_out), (THERE.links_max, 136));
        assert!(state.links[0].peer.len() <= TEXT_BYTES_MAX);
        assert_eq!((state.waits.len(), state.waits[0].what.len()), (WAITS_MAX, TEXT_BYTES_MAX));
        assert!(state.explain.len() <= THERE.explain_bytes_max);
    }

    #[test]
    fn rates_of_a_peer_that_are_none_are_not_shown() {
        let good = Rates { messages_sent: 1.0, ..Rates::default() };
        for (bad, is_shown) in [
            (1.0, true),
            (0.0, true),
            (f64::NAN, false),
            (-1.0, false),
            (f64::INFINITY, false),
            (f64::MAX, false),
        ] {
            let link = LinkState {
                rates: Some(Rates { bytes_received: bad, ..good }),
                ..LinkState::default()
            };
            let state =
                NodeState { links: vec![link], links_left_out: u64::MAX, ..NodeState::default() };
            assert_eq!(state.bounded().links[0].rates.is_some(), is_shown, "{bad}");
        }
    }

    /// Counts of a peer may be any: those that are left out here come on top.
    #[test]
    fn counts_of_a_peer_do_not_overflow() {
        let links = vec![LinkState::default(); THERE.links_max + 1];
        let channels = vec![ChannelState::default(); THERE.channels_max + 1];
        let most = u64::MAX;
        let state = NodeState {
            links,
            channels,
            links_left_out: most,
            channels_left_out: most,
            ..NodeState::default()
        };
        let state = state.bounded();
        assert_eq!((state.links_left_out, state.channels_left_out), (u64::MAX, u64::MAX));
    }
}
