use super::hosts::parse_hosts;
use super::*;
use proptest::prelude::*;

type Variables<'a> = &'a [(&'a str, &'a str)];

fn detect(variables: Variables<'_>) -> Result<Place, LaunchError> {
    Place::detect(&variables.iter().copied().collect())
}

/// Whether the error is of this variable, which is not set.
fn is_unset(error: &LaunchError, name: &str) -> bool {
    matches!(error, LaunchError::Variable { variable, value: None, .. } if variable == name)
}

const HYDRA: [(&str, &str); 4] =
    [("PMI_FD", "7"), ("PMI_RANK", "2"), ("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "4")];
const HYDRA_PORT: [(&str, &str); 3] =
    [("PMI_PORT", "here:4000"), ("PMI_ID", "2"), ("MPI_LOCALNRANKS", "4")];
const OPENMPI: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "3"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
    ("PMIX_NAMESPACE", "925696001"),
];
const SLURM: [(&str, &str); 5] = [
    ("SLURM_PROCID", "5"),
    ("SLURM_STEP_NUM_TASKS", "8"),
    ("SLURM_JOB_ID", "42"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_STEP_NODELIST", "n[09-10],h2"),
];
const KUBERNETES: [(&str, &str); 4] = [
    ("JOB_COMPLETION_INDEX", "3"),
    ("CHUNKCOMM_SIZE", "8"),
    ("HOSTNAME", "sorting-3"),
    ("CHUNKCOMM_SERVICE", "sorting"),
];
const VARIABLES: [(&str, &str); 3] =
    [("CHUNKCOMM_RANK", "1"), ("CHUNKCOMM_SIZE", "2"), ("CHUNKCOMM_MANAGER", "first.lab:7000")];
const COPY: [(&str, &str); 3] =
    [("CHUNKCOMM_PARENT", "unix:/x/manager"), ("CHUNKCOMM_COPIES", "3"), ("CHUNKCOMM_INDEX", "1")];

fn at(host: &str, ports: impl Into<Vec<u16>>) -> Meet {
    let at = |port| Address::Tcp { host: host.to_owned(), port };
    Meet::At(ports.into().into_iter().map(at).collect())
}

#[test]
fn every_launcher_is_known_by_its_variables() {
    let slurm_ports = {
        let mut ports: Vec<u16> = PORTS_DEFAULT.collect();
        ports.rotate_left(42 * 31 % 100);
        ports
    };
    let parent = || Meet::Parent("unix:/x/manager".parse().unwrap());
    let cases: [(Variables<'_>, Launcher, u32, u32, bool, Meet); 6] = [
        (&HYDRA, Launcher::Pmi, 2, 4, true, Meet::Pmi(PmiWay::Fd(7))),
        (&OPENMPI, Launcher::OpenMpi, 1, 3, true, Meet::File("openmpi-925696001".into())),
        (&SLURM, Launcher::Slurm, 5, 8, false, at("n09", slurm_ports)),
        (&KUBERNETES, Launcher::Kubernetes, 3, 8, false, at("sorting-0.sorting", [17_700])),
        (&VARIABLES, Launcher::Variables, 1, 2, false, at("first.lab", [7000])),
        (&COPY, Launcher::Copy, 2, 3, true, parent()),
    ];
    for (variables, launcher, rank, size, one_machine, meet) in cases {
        let place = detect(variables).unwrap();
        assert_eq!(
            (place.launcher(), place.rank(), place.size()),
            (launcher, Some(rank), Some(size))
        );
        assert_eq!((place.is_one_machine(), &place.meet), (one_machine, &meet), "{launcher}");
        let text = place.explain();
        assert!(text.contains(&launcher.to_string()), "{text}");
        // Each explanation names its variable.
        assert!(text.contains(&format!("{}={}", variables[0].0, variables[0].1)), "{text}");
    }
    let nobody = detect(&[("HOME", "/"), ("SLURM_NTASKS", "4")]).unwrap();
    assert_eq!((nobody.launcher(), nobody.meet), (Launcher::User, Meet::Start));
}

#[test]
fn the_first_that_answers_counts() {
    let all = [&COPY[..], &VARIABLES, &HYDRA, &KUBERNETES, &OPENMPI, &SLURM];
    let order = [
        Launcher::Copy,
        Launcher::Variables,
        Launcher::Pmi,
        Launcher::Kubernetes,
        Launcher::OpenMpi,
        Launcher::Slurm,
    ];
    for (first, launcher) in order.into_iter().enumerate() {
        // Earlier launchers do not match without the variable that identifies them.
        let mut variables = all[first..].concat();
        variables.reverse();
        assert_eq!(detect(&variables).unwrap().launcher(), launcher);
    }
}

#[test]
fn a_manager_alone_is_for_those_who_come_later_or_passed_on_by_a_launcher() {
    let later = detect(&VARIABLES[2..]).unwrap();
    assert_eq!((later.rank(), later.size(), later.meet), (None, None, at("first.lab", [7000])));
    for launcher in [&OPENMPI[..], &SLURM] {
        let place = detect(&[launcher, &VARIABLES[2..]].concat()).unwrap();
        assert_eq!(place.meet, at("first.lab", [7000]));
    }
}

#[test]
fn a_later_node_may_come_to_a_socket_of_this_machine() {
    let socket = [("CHUNKCOMM_MANAGER", "unix:/tmp/x/manager")];
    let later = detect(&socket).unwrap();
    assert_eq!(later.meet, Meet::At(vec![Address::Unix("/tmp/x/manager".into())]));
    assert!(later.explain().contains("at unix:/tmp/x/manager"), "{}", later.explain());
    let founder = [&VARIABLES[..2], &socket].concat();
    let error = detect(&founder).unwrap_err().to_string();
    assert!(error.contains("host:port is needed"), "{error}");
}

#[test]
fn slurm_on_one_machine_meets_by_a_file_and_lends_pmi_its_hosts() {
    let mut one = SLURM.to_vec();
    one[4].1 = "n09";
    assert_eq!(detect(&one).unwrap().meet, Meet::File("slurm-42.0".into()));
    let pmi = &HYDRA[..3];
    assert!(detect(&[pmi, &one].concat()).unwrap().is_one_machine());
    assert!(!detect(&[pmi, &SLURM].concat()).unwrap().is_one_machine());
    // A batch script is no step of tasks.
    one[3].1 = "4294967291";
    assert_eq!(detect(&one).unwrap().launcher(), Launcher::User);
}

#[test]
fn a_port_of_pmi_tells_the_rest_later() {
    let mut place = detect(&HYDRA_PORT).unwrap();
    assert_eq!((place.rank(), place.is_one_machine()), (None, false));
    assert!(place.explain().contains("not told yet"));
    place.learn(2, 4);
    assert_eq!((place.rank(), place.is_one_machine()), (Some(2), true));
}

#[test]
fn a_variable_that_makes_no_sense_is_named() {
    let base = |name: &str| -> &'static [(&'static str, &'static str)] {
        let all = [&HYDRA[..], &HYDRA_PORT, &OPENMPI, &SLURM, &KUBERNETES, &VARIABLES, &COPY];
        all.into_iter().find(|it| it.iter().any(|(known, _)| *known == name)).unwrap()
    };
    let cases = [
        ("PMI_FD", "x", "whole number"),
        ("PMI_FD", "-1", "whole number"),
        ("PMI_RANK", "4", "below PMI_SIZE, which is 4"),
        ("PMI_RANK", "", "whole number"),
        ("PMI_RANK", "+2", "whole number"),
        ("PMI_SIZE", "0", "from 1 to"),
        ("PMI_SIZE", "99999999999", "from 1 to"),
        ("MPI_LOCALNRANKS", "all", "whole number"),
        ("PMI_PORT", "here", "host:port is needed"),
        ("PMI_PORT", ":4000", "host:port is needed"),
        ("PMI_PORT", "here:0", "host:port is needed"),
        ("OMPI_COMM_WORLD_RANK", "first", "whole number"),
        ("OMPI_COMM_WORLD_SIZE", "", "whole number"),
        ("PMIX_NAMESPACE", "../../etc", "a part of a file's name"),
        ("PMIX_NAMESPACE", "", "a part of a file's name"),
        ("OMPI_COMM_WORLD_RANK", "3", "below OMPI_COMM_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "4", "from 1 to 3"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2", "CHUNKCOMM_MANAGER"),
        ("SLURM_PROCID", "one", "whole number"),
        ("SLURM_PROCID", "8", "below SLURM_STEP_NUM_TASKS, which is 8"),
        ("SLURM_STEP_NUM_TASKS", "1.5", "whole number"),
        ("SLURM_STEP_ID", "batch", "whole number"),
        ("SLURM_STEP_NODELIST", "n1 n2", "\"n1 n2\" is no host"),
        ("SLURM_STEP_NODELIST", "n1,../n[2-3]", "\"../n2\" is no host"),
        ("SLURM_STEP_NODELIST", "n[1-", "a list such as"),
        ("SLURM_STEP_NODELIST", "n[3-1]", "a list such as"),
        ("SLURM_STEP_NODELIST", "n[0-9999999]", "a list such as"),
        ("SLURM_STEP_NODELIST", "", "a list such as"),
        ("SLURM_JOB_ID", "-", "whole number"),
        ("JOB_COMPLETION_INDEX", "8", "below CHUNKCOMM_SIZE"),
        ("JOB_COMPLETION_INDEX", "last", "whole number"),
        ("HOSTNAME", "-3", "\"\" is no host"),
        ("CHUNKCOMM_SERVICE", "", "\"\" is no host"),
        ("CHUNKCOMM_SERVICE", "a service", "\"a service\" is no host"),
        ("HOSTNAME", "sorting-4", "does not end with -3"),
        ("CHUNKCOMM_RANK", "2", "below CHUNKCOMM_SIZE"),
        ("CHUNKCOMM_RANK", "one", "whole number"),
        ("CHUNKCOMM_MANAGER", "", "names no port"),
        ("CHUNKCOMM_MANAGER", "the first:7", "no host name has"),
        ("CHUNKCOMM_MANAGER", "first.lab", "names no port"),
        ("CHUNKCOMM_MANAGER", "first.lab:0", "a port from 1 on"),
        ("CHUNKCOMM_MANAGER", "unix:/x", "host:port is needed"),
        ("CHUNKCOMM_PARENT", "nowhere", "is not an address"),
        ("CHUNKCOMM_INDEX", "2", "from 0 to 1"),
    ];
    for (name, value, part) in cases {
        let mut variables = base(name).to_vec();
        variables.iter_mut().find(|(known, _)| *known == name).unwrap().1 = value;
        let error = detect(&variables).map(|place| place.explain()).unwrap_err().to_string();
        let names = error.starts_with(&format!("{name} is {value:?}: "));
        assert!(names || part == "CHUNKCOMM_MANAGER", "{error}");
        assert!(error.contains(part), "{error}");
    }
    for host in ["", "not a host", "-x", "a/b"] {
        let error = detect(&[("CHUNKCOMM_HOST", host)]).unwrap_err().to_string();
        assert_eq!(error, format!("CHUNKCOMM_HOST is {host:?}: {host:?} is no host"));
    }
    for ports in ["x", "0-1", "5-4", "1-70000", "1-2-3", ""] {
        let error = detect(&[("CHUNKCOMM_PORTS", ports)]).unwrap_err().to_string();
        assert!(error.contains("CHUNKCOMM_PORTS") && error.contains("17700-17799"), "{error}");
    }
}

#[test]
fn a_variable_that_is_missing_is_named() {
    for (launcher, needed) in [
        (&HYDRA[..], &["PMI_RANK", "PMI_SIZE"][..]),
        (&HYDRA_PORT, &["PMI_ID"]),
        (&OPENMPI, &["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"]),
        (&SLURM, &["SLURM_JOB_ID"]),
        (&KUBERNETES, &["CHUNKCOMM_SIZE", "HOSTNAME", "CHUNKCOMM_SERVICE"]),
        (&VARIABLES, &["CHUNKCOMM_SIZE", "CHUNKCOMM_MANAGER"]),
        (&COPY, &["CHUNKCOMM_INDEX"]),
    ] {
        for name in needed {
            let rest: Vec<_> = launcher.iter().filter(|(it, _)| it != name).copied().collect();
            let error = detect(&rest).unwrap_err();
            assert!(is_unset(&error, name), "{error}");
        }
    }
}

#[test]
fn a_rank_of_a_launcher_that_leads_nowhere_is_an_error_or_said() {
    for (variables, missing) in [
        (&[("PMI_RANK", "0"), ("PMI_SIZE", "4")][..], "PMI_FD"),
        (&[("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4")], "SLURM_STEP_ID"),
    ] {
        let error = detect(variables).unwrap_err();
        assert!(is_unset(&error, missing), "{error}");
        assert!(error.to_string().contains(variables[0].0), "{error}");
        // Our own variables take precedence.
        let place = detect(&[variables, &VARIABLES].concat()).unwrap();
        assert_eq!(place.launcher(), Launcher::Variables);
    }
    let batch = detect(&[("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "7")]).unwrap();
    assert_eq!((batch.launcher(), &batch.meet), (Launcher::User, &Meet::Start));
    let said = "SLURM_PROCID=0, of no step that srun started";
    assert!(batch.explain().contains(said), "{}", batch.explain());
}

#[test]
fn what_is_explained_is_what_is_done() {
    use crate::cluster::ClusterConfig;
    let folder = chunkcomm_testkit::Scratch::folder("explain");
    let hosts = folder.join("hosts");
    // A comment in Latin-1 harms nothing.
    std::fs::write(&hosts, b"one slots=2 # im B\xfcro\ntwo\n").unwrap();
    let config = |variables: Variables<'_>| {
        ClusterConfig::new().environment(variables.iter().copied().collect())
    };
    let alone = config(&[]).nodes(5).explain().unwrap();
    assert!(alone.contains("rank        0, as nobody else") && alone.contains("nodes       5\n"));
    let by_hosts = config(&[]).hosts(&hosts).explain().unwrap();
    assert!(by_hosts.contains("rank        none: this process starts all nodes"), "{by_hosts}");
    assert!(by_hosts.contains("machines    those of the hosts file"), "{by_hosts}");
    assert!(!by_hosts.contains("on this machine"), "{by_hosts}");
    assert!(by_hosts.contains("rank        0-1 on one\nrank        2 on two\n"), "{by_hosts}");
    let launched = config(&SLURM).hosts(&hosts).explain().unwrap();
    assert!(launched.contains("is not read: Slurm started the nodes"), "{launched}");
    let error = config(&SLURM).nodes(3).explain().unwrap_err().to_string();
    assert_eq!(error, "3 nodes were asked for, and Slurm started 8");
    let secret = [("CHUNKCOMM_CREDENTIAL_FILE", "/nowhere/at-all")];
    let error = config(&secret).hosts(&hosts).explain().unwrap_err();
    assert!(matches!(error, crate::cluster::JoinError::Credential(_)), "{error}");
    std::fs::write(&hosts, b"one\nb\xfcro\n").unwrap();
    let error = config(&[]).hosts(&hosts).explain().unwrap_err().to_string();
    assert!(error.contains("hosts, line 2: ") && error.contains("is no host"), "{error}");
}

#[test]
fn a_size_without_a_rank_is_no_later_comer() {
    let later = [("CHUNKCOMM_MANAGER", "first.lab:7000")];
    let place = detect(&later).unwrap();
    assert_eq!((place.launcher(), place.rank()), (Launcher::Variables, None));
    let error = detect(&[later[0], ("CHUNKCOMM_SIZE", "2")]).unwrap_err().to_string();
    assert!(error.starts_with("CHUNKCOMM_SIZE is \"2\": "), "{error}");
    assert!(error.contains("set CHUNKCOMM_RANK, or do not set CHUNKCOMM_SIZE"), "{error}");
}

#[test]
fn lists_of_hosts_are_expanded() {
    let cases = [
        ("a", "a"),
        ("n[001,007-009],h2", "n001 n007 n008 n009 h2"),
        ("r[1-2]n[08-10]", "r1n08 r1n09 r1n10 r2n08 r2n09 r2n10"),
        ("a[1]b,c", "a1b c"),
    ];
    for (list, hosts) in cases {
        assert_eq!(slurm::expand(list).unwrap().join(" "), hosts, "{list}");
    }
    for list in ["", ",", "a,,b", "[", "a]", "a[[1]]", "a[]", "a[1", "a[1-]", "a[x]", "a[2-1]"] {
        assert_eq!(slurm::expand(list), None, "{list}");
    }
    assert_eq!(slurm::expand("a[1-1000]b[1-1000]"), None, "too many");
}

#[test]
fn hosts_files_are_read_line_by_line() {
    let text = "# the lab\n\none\nme@two slots=3   # two\n  three address=10.0.0.3 slots=2\n";
    let hosts = parse_hosts(text).unwrap();
    let read: Vec<_> = hosts.iter().map(|it| (&*it.name, it.slots, it.reached_by())).collect();
    assert_eq!(read, [("one", 1, "one"), ("me@two", 3, "two"), ("three", 2, "10.0.0.3")]);
    // Addresses of IPv6 as ssh takes them.
    let hosts = parse_hosts("[::1]\nme@[fe80::1%eth0] address=[fe80::2]\n fe80::3 slots=2\n");
    let read: Vec<_> =
        hosts.as_deref().unwrap().iter().map(|it| (&*it.name, it.reached_by())).collect();
    let expected = [("::1", "::1"), ("me@fe80::1%eth0", "fe80::2"), ("fe80::3", "fe80::3")];
    assert_eq!(read, expected);
    for (text, line, part) in [
        ("", 0, "no host"),
        ("# nothing\n", 0, "no host"),
        ("one\ntwo slots=0\n", 2, "from 1 to 4096"),
        ("one\n\n-oProxyCommand=x\n", 3, "is no host"),
        ("one;reboot\n", 1, "is no host"),
        ("one 4\n", 1, "neither slots=N nor address=A"),
        ("one address=$(id)\n", 1, "is no host"),
        ("one\none\n", 2, "twice"),
        ("one\ntwo:2222\n", 2, "\"two:2222\" is no host: a port belongs into ssh's"),
        ("me@10.0.0.1:22\n", 1, "a port belongs into ssh's"),
        ("[::1]:22\n", 1, "a port belongs into ssh's"),
        ("one address=[::1]:7\n", 1, "a port belongs into ssh's"),
        ("[one\n", 1, "is no host"),
        ("me@\n", 1, "is no host"),
        ("one slots=2 slots=3\n", 1, "\"slots=3\" comes second"),
        ("one address=a address=a\n", 1, "\"address=a\" comes second"),
        ("one\nb\u{fffd}ro\n", 2, "is no host"),
    ] {
        let (at, why) = parse_hosts(text).unwrap_err();
        assert_eq!(at, line, "{text:?}: {why}");
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn what_rank_0_tells_is_read_back() {
    let credential = chunkcomm::Credential::generate().unwrap();
    let addresses: Vec<Address> = vec!["unix:/x".parse().unwrap(), "h:1".parse().unwrap()];
    for credential in [None, Some(credential)] {
        let meeting = Meeting { credential: credential.clone(), addresses: addresses.clone() };
        let text = meeting.to_text();
        let read = Meeting::from_text(&text).unwrap();
        let line =
            |it: &Option<chunkcomm::Credential>| it.as_ref().map(chunkcomm::Credential::reveal);
        assert_eq!(
            (line(&read.credential), read.addresses),
            (line(&credential), addresses.clone())
        );
        // A half-written text is not taken.
        assert!(Meeting::from_text(&text[..text.len() - 1]).is_none());
    }
    assert!(Meeting::from_text("").is_none());
}

/// A launcher's side of a conversation: each expected line, and the answer to it.
fn launcher_says(
    lines: &'static [(&'static str, &'static str)],
) -> (std::os::unix::net::UnixStream, std::thread::JoinHandle<()>) {
    use std::io::{Read as _, Write as _};
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        for (expected, said) in lines {
            // One read takes a command and nothing else.
            let mut buffer = [0; 1024];
            let bytes = theirs.read(&mut buffer).unwrap();
            assert_eq!(std::str::from_utf8(&buffer[..bytes]).unwrap(), format!("{expected}\n"));
            theirs.write_all(said.as_bytes()).unwrap();
        }
    });
    (ours, thread)
}

const INIT: (&str, &str) = (
    "cmd=init pmi_version=1 pmi_subversion=1",
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
);
const MAXES: (&str, &str) =
    ("cmd=get_maxes", " rc=0  cmd=maxes vallen_max=64 keylen_max=64 kvsname_max=256 \n");
const NAME: (&str, &str) = ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1_0\n");

#[test]
fn pmi_is_spoken_line_by_line() {
    let (socket, launcher) = launcher_says(&[
        INIT,
        MAXES,
        NAME,
        ("cmd=put kvsname=kvs_1_0 key=k value=c3a90a", "cmd=put_result rc=0 msg=success\n"),
        ("cmd=barrier_in", "cmd=barrier_out rc=0\n"),
        ("cmd=get kvsname=kvs_1_0 key=k", "cmd=get_result rc=0 msg=success value=c3a90a\n"),
        ("cmd=finalize", "cmd=finalize_ack rc=0\n"),
    ]);
    let mut pmi = Pmi::over(socket, (1, 2)).unwrap();
    assert_eq!(pmi.rank_and_size(), (1, 2));
    let long = pmi.put("k", &"x".repeat(33)).unwrap_err();
    assert!(matches!(long, LaunchError::PmiTooLong { bytes: 66, max: 64 }), "{long}");
    pmi.put("k", "\u{e9}\n").unwrap();
    pmi.barrier().unwrap();
    assert_eq!(pmi.get("k").unwrap(), "\u{e9}\n");
    pmi.finalize().unwrap();
    launcher.join().unwrap();
}

#[test]
fn a_launcher_that_says_something_else_is_an_error() {
    const WRONG: &[&[(&str, &str)]] = &[
        &[(INIT.0, "cmd=response_to_init rc=-1 msg=version\n")],
        &[(INIT.0, "hello\n")],
        &[(INIT.0, "")],
        &[(INIT.0, "cmd=response_to_init")],
        &[INIT, (MAXES.0, "cmd=maxes vallen_max=many\n")],
        &[INIT, MAXES, (NAME.0, "cmd=my_kvsname\n")],
        &[INIT, MAXES, NAME, ("cmd=get kvsname=kvs_1_0 key=k", "cmd=get_result value=abc\n")],
        &[INIT, MAXES, NAME, ("cmd=get kvsname=kvs_1_0 key=k", "cmd=get_result rc=1 msg=no\n")],
    ];
    let parts = [
        "init failed: rc=-1 version",
        "answered \"hello\" to init",
        "hung up while it was asked for init",
        "hung up while it was asked for init",
        "to get_maxes",
        "to get_my_kvsname",
        "to get",
        "get failed: rc=1 no",
    ];
    for (lines, part) in WRONG.iter().zip(parts) {
        let (socket, launcher) = launcher_says(lines);
        let talked = Pmi::over(socket, (0, 1)).and_then(|mut pmi| pmi.get("k"));
        let error = talked.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        launcher.join().unwrap();
    }
}

#[test]
fn a_descriptor_that_is_no_socket_is_an_error() {
    for fd in [1 << 20, 0] {
        let Err(error) = Pmi::begin(&PmiWay::Fd(fd), Some((0, 1))) else { panic!() };
        assert!(error.to_string().contains(&format!("PMI_FD={fd}")), "{error}");
    }
}

proptest! {
    #[test]
    fn any_environment_is_a_place_or_an_error(
        values in prop::collection::vec("[-0-9a-z:.,\\[\\]]{0,8}", 16),
        keep in any::<u16>(),
    ) {
        let names = [
            "PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS",
            "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_ID",
            "SLURM_NTASKS", "SLURM_NODELIST", "JOB_COMPLETION_INDEX", "CHUNKCOMM_MANAGER",
            "CHUNKCOMM_RANK", "CHUNKCOMM_SIZE",
        ];
        let kept = names.iter().zip(&values).enumerate();
        let kept = kept.filter(|(index, _)| keep >> index & 1 == 1).map(|(_, it)| it);
        let environment: Environment = kept.map(|(name, value)| (*name, value.clone())).collect();
        if let Ok(place) = Place::detect(&environment) {
            prop_assert!(place.rank().is_none() || place.rank() < place.size());
            prop_assert!(!place.explain().is_empty());
        }
    }
}

#[test]
fn the_end_of_a_job_is_that_of_slurm() {
    let left = |end: &str| Environment::from_iter([("SLURM_JOB_END_TIME", end)]).job_time_left();
    let now = chunkcomm::host::unix_time().as_secs();
    let hour = left(&(now + 3600).to_string()).unwrap().as_secs();
    assert!((3590..=3600).contains(&hour), "{hour}");
    assert_eq!(left("1"), Some(std::time::Duration::ZERO));
    assert_eq!(left("soon"), None);
    assert_eq!(Environment::default().job_time_left(), None);
}
