//! Programs whose futures stay on one thread.

use chunkcomm::host;
use chunkcomm_simulation::{LinkSpec, Network, run};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

#[test]
fn each_host_runs_its_program_and_one_failure_is_no_others() {
    let mut network = Network::new(1);
    let hosts = ["a", "b", "c", "d"].map(|name| network.add_host(name));
    network.switch(&hosts, LinkSpec::default());
    let ran = Rc::new(RefCell::new(Vec::new()));
    let results = run(network, async |simulation| {
        let programs = simulation.launch_local(&hosts, |rank| {
            let ran = Rc::clone(&ran);
            async move {
                host::sleep((4 - rank as u32) * MS).await;
                assert_ne!(rank, 1, "the program of b fails");
                ran.borrow_mut().push(rank);
                let told = host::variables();
                let rank = told.iter().find(|(name, _)| name == "CHUNKCOMM_RANK").unwrap();
                (host::virtual_name().unwrap(), rank.1.clone())
            }
        });
        let kills = async {
            simulation.sleep(MS / 2).await;
            simulation.kill(hosts[2]);
        };
        tokio::join!(programs, kills).0
    });
    assert_eq!(*ran.borrow(), [3, 0], "in the order of their times");
    let [a, b, c, d] = <[_; 4]>::try_from(results).unwrap();
    assert_eq!(a.unwrap(), ("a".to_owned(), "0".to_owned()));
    assert!(b.unwrap_err().is_panic());
    assert!(c.unwrap_err().is_cancelled(), "it was killed");
    assert_eq!(d.unwrap(), ("d".to_owned(), "3".to_owned()));
}
