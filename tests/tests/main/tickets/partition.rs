use chunkcomm_simulation::{LinkSpec, Network, Random, each_seed, run};
use std::time::Duration;
use tickets::{serve, take};

#[test]
fn no_ticket_is_taken_twice() {
    each_seed(0..1000, |seed| {
        let mut network = Network::new(seed);
        let hosts = ["office", "left", "right"].map(|name| network.add_host(name));
        network.switch(&hosts, LinkSpec::default());
        let [office, left, right] = hosts;
        run(network, async |simulation| {
            let at = simulation.address(office, 7000);
            simulation.spawn_on(office, serve(at.clone()));
            let takers = [left, right].map(|host| simulation.spawn_on(host, take(at.clone(), 20)));
            simulation.sleep(Duration::from_millis(Random::new(seed).below(30))).await;
            simulation.with(|network, now| network.partition(now, left, office));
            simulation.sleep(Duration::from_millis(2500)).await;
            simulation.with(|network, now| network.heal(now, left, office));
            let mut tickets = Vec::new();
            for taker in takers {
                tickets.extend(taker.await.unwrap().unwrap());
            }
            tickets.sort_unstable();
            tickets.dedup();
            assert_eq!(tickets.len(), 40);
        });
    });
}
