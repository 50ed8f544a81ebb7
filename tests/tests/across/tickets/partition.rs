use chunkcomm_simulation::{LinkSpec, Network, Random, each_seed, run};
use std::time::Duration;
use tickets::{serve, take};

#[test]
fn every_ticket_is_taken_once() {
    each_seed(0..1000, |seed| {
        let mut network = Network::new(seed);
        let [office, left, right] = ["office", "left", "right"].map(|name| network.add_host(name));
        network.switch(&[office, left, right], LinkSpec::default());
        let mut tickets = run(network, async |simulation| {
            let at = simulation.address(office, 7000);
            simulation.spawn_on(office, serve(at.clone()));
            let one = simulation.spawn_on(left, take("left", at.clone(), 20));
            let other = simulation.spawn_on(right, take("right", at, 20));
            simulation.sleep(Duration::from_millis(Random::new(seed).below(30))).await;
            simulation.with(|network, now| network.partition(now, office, left));
            simulation.sleep(Duration::from_millis(2500)).await;
            simulation.with(|network, now| network.heal(now, office, left));
            [one.await.unwrap().unwrap(), other.await.unwrap().unwrap()].concat()
        });
        tickets.sort_unstable();
        assert_eq!(tickets, (0..40).collect::<Vec<_>>());
    });
}
