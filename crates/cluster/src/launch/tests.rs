use super::*;

fn launcher() -> Launcher {
    Launcher::new(Address::Memory("nobody".into()))
}

/// A child of a shell: it reads nothing of its place, which is enough for the parent's side.
fn shell(script: &str) -> Launcher {
    launcher().program("/bin/sh").args(["-c", script])
}

fn is_gone(pid: u32) -> bool {
    !std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn impossible_counts_and_processors_are_refused() {
    assert_eq!(
        launcher().spawn(0).unwrap_err().to_string(),
        "0 children were asked for; allowed are 1 to 4096"
    );
    assert!(matches!(launcher().spawn(5000), Err(LaunchError::Count(5000))));
    if cfg!(target_os = "linux") {
        let error = launcher().cpus([100_000]).spawn(1).unwrap_err();
        assert!(matches!(error, LaunchError::NoSuchCpu { cpu: 100_000, .. }), "{error}");
    }
}

#[test]
fn a_program_that_does_not_exist_is_an_error_with_its_name() {
    let error = launcher().program("/nowhere/at-all").spawn(2).unwrap_err();
    assert_eq!(error.to_string(), "could not start a process for /nowhere/at-all");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("No such file"), "{source}");
}

#[tokio::test]
async fn the_last_arguments_count_alone() {
    let mut children = shell("exit 1").args(["-c", "exit $#", "sh", "a", "b"]).spawn(1).unwrap();
    let exit = children.exited().await.unwrap();
    assert_eq!(exit.status.unwrap().code(), Some(2));
}

#[tokio::test]
async fn every_exit_is_told_once_with_index_and_status() {
    let mut children = shell("exit $CHUNKCOMM_INDEX").spawn(3).unwrap();
    let mut codes = [None; 3];
    while let Some(exit) = children.exited().await {
        assert_eq!(exit.pid, children.pids()[exit.index]);
        assert_eq!(codes[exit.index].replace(exit.status.unwrap().code()), None);
    }
    assert_eq!(codes, [0, 1, 2].map(|code| Some(Some(code))));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn dropping_the_children_kills_and_reaps_them() {
    let mut children = shell("trap '' TERM HUP INT; while :; do sleep 1; done").spawn(2).unwrap();
    let pids = children.pids().to_vec();
    assert!(children.try_exited().is_none());
    assert!(!pids.iter().any(|&pid| is_gone(pid)));
    drop(children);
    assert!(pids.iter().all(|&pid| is_gone(pid)), "{pids:?}");
}

/// A daemon or a wrapper ignores the signal, and what it starts inherits that.
#[cfg(target_os = "linux")]
#[test]
fn a_program_that_ignores_the_ends_of_children_hears_their_statuses() {
    let tests = ["every_exit_is_told_once_with_index_and_status", "a_killed_child_is_named"];
    let mut ignoring = std::process::Command::new("env");
    ignoring.arg("--ignore-signal=CHLD").arg(env::current_exe().unwrap()).args(tests);
    let output = ignoring.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains(" 2 passed"), "{told}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_killed_child_is_named_with_its_signal() {
    let mut children = shell("kill -9 $$").spawn(1).unwrap();
    let exit = children.exited().await.unwrap();
    let pid = children.pids()[0];
    assert_eq!(exit.to_string(), format!("child 0 (process {pid}) ended: signal: 9 (SIGKILL)"));
    assert!(children.exited().await.is_none());
}

#[tokio::test]
async fn a_credential_comes_by_the_pipe_alone() {
    let credential = Credential::generate().unwrap();
    let line = credential.reveal().trim_end().to_owned();
    let script = format!(
        "read told; [ \"$told\" = '{line}' ] || exit 1; [ \"$CHUNKCOMM_WORDS\" = 1 ] || exit 2; \
         ! env | grep -q -e '{line}' || exit 3; cat; exit 9"
    );
    let mut children = shell(&script).credential(credential).spawn(2).unwrap();
    children.close_input();
    while let Some(exit) = children.exited().await {
        assert_eq!(exit.status.unwrap().code(), Some(9));
    }
}

#[tokio::test]
async fn an_orphan_of_a_read_pipe_ends_by_itself() {
    // `cat` reads the pipe until it closes: the portable way in its barest form.
    let mut children = shell("cat; exit 9").spawn(1).unwrap();
    children.close_input();
    assert_eq!(children.exited().await.unwrap().status.unwrap().code(), Some(9));
}

/// Variable that is set for a process which only says whether it is a child: by this status.
const SAYS: &str = "CHUNKCOMM_TEST_SAYS";
const IS_A_CHILD: i32 = 7;
const IS_NONE: i32 = 5;

/// Runs as a process of its own. With `nests` it says what a program says that it starts.
#[test]
fn says_whether_it_is_a_child() {
    let Ok(how) = env::var(SAYS) else { return };
    let is_child = child().is_some();
    if how == "nests" {
        assert!(is_child);
        let mut program = chunkcomm_testkit::itself("launch::tests::says_whether_it_is_a_child");
        let status = program.env(SAYS, "").stdout(std::process::Stdio::null()).status().unwrap();
        std::process::exit(status.code().unwrap());
    }
    std::process::exit(if is_child { IS_A_CHILD } else { IS_NONE });
}

/// A child of a shell that runs this script, in which `$PROGRAM` says whether it is a child.
fn says(how: &str, script: &str) -> Launcher {
    let itself = env::current_exe().unwrap();
    let program = format!("{} --exact launch::tests::says_whether_it_is_a_child", itself.display());
    let script = script.replace("$PROGRAM", &program);
    shell(&format!("exec >&2; {script}")).env(SAYS, how)
}

async fn status(mut children: Children) -> Option<i32> {
    children.exited().await.unwrap().status.unwrap().code()
}

#[tokio::test]
async fn a_program_between_parent_and_child_does_no_harm() {
    for script in ["exec $PROGRAM", "$PROGRAM; exit $?"] {
        let children = says("", script).spawn(1).unwrap();
        assert_eq!(status(children).await, Some(IS_A_CHILD), "{script}");
    }
}

#[tokio::test]
async fn a_program_that_a_child_starts_is_no_child() {
    for script in ["exec $PROGRAM", "$PROGRAM; exit $?"] {
        let children = says("nests", script).spawn(1).unwrap();
        assert_eq!(status(children).await, Some(IS_NONE), "{script}");
    }
}

/// Otherwise it would start children, by the same script.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_child_without_its_parents_pipe_is_refused() {
    for script in ["exec $PROGRAM </dev/null", "$PROGRAM </dev/null; exit $?"] {
        let children = says("", script).spawn(1).unwrap();
        assert_eq!(status(children).await, Some(2), "{script}");
    }
}

#[tokio::test]
async fn an_orphan_ends_and_takes_itself_for_no_parent() {
    for script in ["exec $PROGRAM", "$PROGRAM; exit $?"] {
        let gone = chunkcomm_testkit::Scratch::new("orphan");
        let wait = format!("until [ -e '{}' ]; do sleep 0.01; done; {script}", gone.display());
        let mut children = says("", &wait).spawn(1).unwrap();
        // As if the parent were gone.
        children.close_input();
        std::fs::write(&*gone, "").unwrap();
        let status = status(children).await;
        // It may have answered before it heard of the end.
        assert!(status == Some(3) || status == Some(IS_A_CHILD), "{script}: {status:?}");
    }
}
