//! Any calls in any order, with bytes cut and delayed anywhere.

use super::*;

#[derive(Debug, Clone, Copy)]
enum Step {
    Open(bool),
    OpenRefused,
    OpenBounded(bool),
    Stage(u32, usize),
    Urgent(u32),
    Flush(u32, bool),
    End(u32),
    Take(u32, usize),
    Stop(u32),
    Drop(u32),
    Transmit(usize),
    Deliver(usize, bool),
    Time(u64),
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    let channel = 1u32..6;
    let size = prop_oneof![
        12 => 0usize..60,
        6 => 200usize..2000,
        3 => 5000usize..12_000,
        2 => 12_000usize..60_000,
        1 => 200_000usize..300_000,
    ];
    prop_oneof![
        3 => any::<bool>().prop_map(Step::Open),
        1 => Just(Step::OpenRefused),
        2 => any::<bool>().prop_map(Step::OpenBounded),
        24 => (channel.clone(), size).prop_map(|(channel, size)| Step::Stage(channel, size)),
        2 => channel.clone().prop_map(Step::Urgent),
        2 => (channel.clone(), any::<bool>()).prop_map(|(channel, sync)| Step::Flush(channel, sync)),
        1 => channel.clone().prop_map(Step::End),
        10 => (channel.clone(), 1usize..20).prop_map(|(channel, count)| Step::Take(channel, count)),
        1 => channel.clone().prop_map(Step::Stop),
        1 => channel.prop_map(Step::Drop),
        12 => (1usize..5).prop_map(Step::Transmit),
        14 => (1usize..40_000, any::<bool>()).prop_map(|(bytes, callers)| {
            Step::Deliver(bytes, callers)
        }),
        3 => (0u64..4_000_000).prop_map(Step::Time),
        1 => Just(Step::Cut),
    ]
}

impl Pair {
    fn step(&mut self, side: usize, step: Step) {
        let now = self.now;
        let end = &mut self.ends[side];
        match step {
            Step::Open(express) => {
                if end.sent.len() < 5 {
                    end.open(express, "name", now);
                }
            }
            Step::OpenRefused => {
                if end.sent.len() < 5 {
                    end.open(false, "refuse me", now);
                }
            }
            Step::OpenBounded(express) => {
                if end.sent.len() < 5 {
                    end.open(express, "bounded", now);
                }
            }
            Step::Stage(channel, size) => end.stage(channel, size, now),
            Step::Urgent(channel) => {
                let until = end.sent.get(&channel).map_or(0, |sent| sent.messages);
                end.link.urgent(channel, until as u64, now);
            }
            Step::Flush(channel, sync) => {
                let until = end.sent.get(&channel).map_or(0, |sent| sent.messages);
                end.link.flush(channel, until as u64, now, sync);
            }
            Step::End(channel) => end.end(channel, now),
            Step::Take(channel, count) => end.take(channel, count),
            Step::Stop(channel) => end.stop(channel),
            Step::Drop(channel) => end.drop_receiver(channel),
            Step::Transmit(packets) => {
                end.transmit(packets, now);
            }
            Step::Deliver(bytes, callers) => self.deliver(side, bytes, callers),
            Step::Cut => self.cut(),
            Step::Time(nanos) => self.now = now.after(Duration::from_nanos(nanos)),
        }
    }

    /// Lets time pass and both ends take everything that comes.
    fn round(&mut self) {
        self.now = self.now.after(Duration::from_millis(1));
        for side in [0, 1] {
            self.ends[side].transmit(100, self.now);
            self.deliver(1 - side, usize::MAX, false);
            let channels: Vec<u32> = self.ends[1 - side].inboxes.keys().copied().collect();
            for channel in channels {
                self.ends[1 - side].take(channel, usize::MAX);
            }
        }
    }

    /// Returns whether each sender of a channel with a backlog knows that all was consumed. A channel
    /// whose open waits for credit of the peer has none there.
    fn all_reported(&self) -> bool {
        [0, 1].into_iter().all(|side| {
            let (sender, receiver) = (&self.ends[side], &self.ends[1 - side]);
            let bounded = sender.sent.iter().filter(|(_, sent)| sent.is_bounded && !sent.ended);
            bounded.filter_map(|(id, sent)| Some((sent, receiver.inboxes.get(id)?))).all(
                |(sent, inbox)| {
                    assert!(sent.consumed <= sent.bytes);
                    inbox.stopped || inbox.dropped || sent.consumed == sent.bytes
                },
            )
        })
    }

    /// Lets both ends take everything that comes, and time pass, until both are quiet.
    pub(super) fn finish(&mut self) {
        (0..5).for_each(|_| self.round());
        let reported = (0..5000).any(|_| {
            self.round();
            self.all_reported()
        });
        assert!(reported, "consumed bytes are not reported");
        for side in [0, 1] {
            let channels: Vec<u32> = self.ends[side].sent.keys().copied().collect();
            for channel in channels {
                self.ends[side].end(channel, self.now);
            }
            self.ends[side].link.close(self.now);
        }
        for _ in 0..5000 {
            self.round();
            if self.ends.iter().all(|end| end.link.is_quiet() && end.wire.is_empty()) {
                return self.check();
            }
        }
        panic!("it does not come to rest");
    }

    fn check(&mut self) {
        for side in [0, 1] {
            let (sender, receiver) = (&self.ends[side], &self.ends[1 - side]);
            let refused = sender.sent.values().filter(|sent| sent.refused).count();
            assert_eq!(receiver.described, refused);
            for (channel, sent) in &sender.sent {
                assert!(sent.end_acknowledged, "the end of channel {channel}");
                if !sent.refused && !sent.terminated {
                    assert_eq!(sent.acknowledged, sent.messages as u64);
                }
                let inbox = &receiver.inboxes[channel];
                if !inbox.dropped {
                    assert_eq!((inbox.taken as u64, inbox.finished), (sent.acknowledged, true));
                }
            }
            assert_eq!(receiver.large_held, 0);
            assert!(receiver.link.incoming.is_empty(), "channels are left");
            // All windows came back.
            let opened = sender.sent.len() as u64 * WINDOW_BYTES_INITIAL;
            let total = receiver.windows_bytes_max / OPEN_CREDIT_DIVISOR + opened;
            assert_eq!(receiver.link.budget.open_total(), total);
        }
        let now = self.now;
        self.ends[0].link.bye();
        assert_eq!(self.ends[0].transmit(1, now), 1);
        self.deliver(1, usize::MAX, false);
        assert!(self.ends[1].bye);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_message_arrives_once_and_in_order_within_the_memory_promised(
        packet_bytes in [0usize..3, 0usize..3],
        windows in [0usize..3, 0usize..3],
        steps in prop::collection::vec((0usize..2, step()), 1..300),
    ) {
        let packet_bytes = packet_bytes.map(|index| [1024, 4096, 64 * 1024][index]);
        let windows = windows.map(|index| [32 * 1024, 128 * 1024, 4 << 20][index]);
        let mut pair = Pair::new(packet_bytes, windows);
        for (side, step) in steps {
            pair.step(side, step);
        }
        pair.finish();
    }
}
