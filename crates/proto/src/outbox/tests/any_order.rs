//! Any staging and calls, in any order.

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Open(bool),
    Stage(usize, usize),
    StageRun(usize, Vec<usize>),
    Urgent(usize),
    Explicit(usize),
    End(usize),
    Credit(usize, u64),
    OpenCredit,
    Time(u64),
    Transmit,
}

fn step() -> impl Strategy<Value = Step> {
    let channel = 0usize..6;
    prop_oneof![
        2 => any::<bool>().prop_map(Step::Open),
        20 => (channel.clone(), sizes()).prop_map(|(channel, size)| Step::Stage(channel, size)),
        4 => (channel.clone(), prop::collection::vec(0..INLINE_BYTES_MAX, 1..30))
            .prop_map(|(channel, sizes)| Step::StageRun(channel, sizes)),
        2 => channel.clone().prop_map(Step::Urgent),
        2 => channel.clone().prop_map(Step::Explicit),
        1 => channel.clone().prop_map(Step::End),
        4 => (channel, 1u64..60_000).prop_map(|(channel, more)| Step::Credit(channel, more)),
        1 => Just(Step::OpenCredit),
        3 => (0u64..3_000_000).prop_map(Step::Time),
        6 => Just(Step::Transmit),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let linger = Policy::Linger(Duration::from_millis(5));
    prop_oneof![3 => Just(Policy::Chunked), 1 => Just(Policy::Unbuffered), 1 => Just(linger)]
}

fn run(scene: &mut Scene, steps: Vec<Step>) {
    let mut channels = vec![scene.open(Lane::Bulk)];
    for step in steps {
        let of = |index: usize| channels[index % channels.len()];
        match step {
            Step::Open(express) if channels.len() < 6 => {
                let lane = if express { Lane::Express } else { Lane::Bulk };
                channels.push(scene.open(lane));
            }
            Step::Open(_) => {}
            Step::Stage(channel, size) => scene.stage(of(channel), size),
            Step::StageRun(channel, sizes) => {
                if scene.packet_bytes >= PACKET_BYTES_DEFAULT {
                    scene.stage_run(of(channel), &sizes);
                }
            }
            Step::Urgent(channel) => {
                let until = scene.expected[&of(channel)].messages.len() as u64;
                scene.outbox.urgent(of(channel), until, scene.now);
            }
            Step::Explicit(channel) => {
                let until = scene.expected[&of(channel)].messages.len() as u64;
                scene.outbox.explicit(of(channel), until, scene.now);
            }
            Step::End(channel) => scene.end(of(channel)),
            Step::Credit(channel, more) => scene.grant(of(channel), more),
            Step::OpenCredit => scene.grant_opens(1),
            Step::Time(nanos) => scene.now = scene.now.after(Duration::from_nanos(nanos)),
            Step::Transmit => {
                scene.transmit();
                scene.check(false);
            }
        }
        assert!(scene.outbox.counts_agree());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn packets_hold_what_was_staged_in_order_within_all_limits(
        policy in policy(),
        packet_bytes in packet_bytes(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut scene = Scene::new(policy, packet_bytes);
        run(&mut scene, steps);
        scene.finish();
    }
}
