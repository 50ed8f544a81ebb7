//! A program with a farm: the worker process of the farm tests.
//!
//! - Started by hand it is a farmer: it prints the process ids of its workers and then waits for a
//!   task that takes an hour.
//! - `farm-program arguments ..` prints the arguments of a worker, and those of one that was given
//!   others.
//! - `farm-program nest LEVELS [HOSTS]` is a cluster of two nodes. The second prints its level. If that is
//!   more than 0, it starts this program as such a cluster, a level below, and for `arguments`.
//! - `farm-program open ADDRESS` opens a channel of jobs to the node there and prints how it ended.
//! - `farm-program replaced` puts another program at the place of its file and kills its workers. It
//!   prints how many other processes ran the tasks of the next run.
//! - `farm-program workers COUNT` starts a farm of this number of workers, or prints why it cannot.
//! - `farm-program journal FILE` runs squares and a pool with a journal, and prints what came out.
//! - `farm-program timed` prints a line, runs tasks that take a part of their time, and prints how many
//!   have a result, and how many workers were lost.
//! - `farm-program serve` works for the farms of the cluster that its environment names.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use chunkcomm::{Node, SendError, with_causes};
use chunkcomm_cluster::cluster::End;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_farm::settings::{Fsync, TaskTimeout};
use chunkcomm_farm::{Farm, serve_if_started, serve_in};
use chunkcomm_testkit::proc;
use chunkcomm_tests::farm_tasks::{
    FORGETS, OTHER_TYPES, OTHER_VERSION, OtherJob, STILLBORN, printed, registry, sample_job,
    worker_registry,
};
use rustix::process::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn main() -> Result<(), Box<dyn Error>> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    if let (Some(first), Some(count)) = (number("CHUNKCOMM_FARM_FIRST"), number(STILLBORN))
        && (1..=count).contains(&first)
    {
        std::process::exit(3);
    }
    if std::env::var_os(FORGETS).is_none() {
        serve_if_started(&worker_registry());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut words = std::env::args().skip(1);
    let word = words.next();
    if word.as_deref() == Some("serve") {
        let served = runtime.block_on(serve());
        return served.inspect_err(|error| eprintln!("{error}"));
    }
    if word.as_deref() == Some("open") {
        let address = words.next().ok_or("no address")?;
        let job = sample_job();
        let error = if std::env::var_os(OTHER_TYPES).is_some() {
            let number = u32::try_from(job.number)?;
            runtime.block_on(open(&address, OtherJob { number, text: job.text }))?
        } else {
            runtime.block_on(open(&address, job))?
        };
        let how = if matches!(error, SendError::Refused(_)) { "refused" } else { "ended" };
        println!("{how}: {error}");
        return Ok(());
    }
    if word.as_deref() == Some("journal") {
        return runtime.block_on(keep_journal(&words.next().ok_or("no file")?));
    }
    if word.as_deref() == Some("nest") {
        let levels = words.next().ok_or("no number")?.parse()?;
        return runtime.block_on(nest(levels, words.next()));
    }
    if word.as_deref() == Some("workers") {
        let count = words.next().ok_or("no number")?.parse()?;
        let builder = Farm::builder(registry().0).workers(count);
        let started = runtime.block_on(builder.start_deadline(Duration::from_secs(5)).start());
        println!("{}", started.map_or_else(|error| with_causes(&error), |_| "started".to_owned()));
        return Ok(());
    }
    if word.as_deref() == Some("replaced") {
        return runtime.block_on(run_replaced());
    }
    if word.as_deref() == Some("arguments") {
        return runtime.block_on(show_arguments());
    }
    let (registry, functions) = registry();
    runtime.block_on(async {
        if word.as_deref() == Some("timed") {
            let builder = Farm::builder(registry).workers(2).grain(1);
            let builder = builder.task_timeout(TaskTimeout {
                timeout: Duration::from_secs(2),
                grace: Duration::from_millis(10),
            });
            let mut farm = builder.start().await?;
            println!("it runs");
            let outcome = farm.run_to_end(&functions.sleep, [300; 24]).await?;
            let results = outcome.results.iter().filter(|result| result.is_ok()).count();
            let lost = outcome.stats.workers.iter().filter(|worker| worker.lost.is_some()).count();
            println!("{results} results, {lost} lost");
            return Ok(farm.finish(Duration::from_secs(10)).await?);
        }
        let mut farm = Farm::builder(registry).workers(2).explain_on_sigusr1().start().await?;
        for worker in farm.workers() {
            println!("{}", worker.pid.ok_or("a worker is no process")?);
        }
        std::io::stdout().flush()?;
        farm.run(&functions.sleep, [3_600_000; 2]).await?;
        Ok(())
    })
}

/// Prints the arguments of a worker process, and those of one that was given others.
async fn show_arguments() -> Result<(), Box<dyn Error>> {
    let (registry, functions) = registry();
    let builders = [
        Farm::builder(registry.clone()),
        Farm::builder(registry).launcher(|launcher| launcher.args(["others"])),
    ];
    for builder in builders {
        let mut farm = builder.workers(1).start().await?;
        println!("{}", farm.run(&functions.arguments, [()]).await?.results[0].join(" "));
    }
    Ok(())
}

/// Runs tasks by workers that are started when another program has taken the place of the file.
async fn run_replaced() -> Result<(), Box<dyn Error>> {
    let (registry, functions) = registry();
    let mut farm = Farm::builder(registry).workers(2).start().await?;
    let own = std::env::current_exe()?;
    let other = own.with_extension("new");
    std::fs::copy("/bin/false", &other)?;
    std::fs::rename(&other, &own)?;
    let first: Vec<u32> = farm.workers().iter().filter_map(|worker| worker.pid).collect();
    first.iter().for_each(|&pid| proc::signal(pid, Signal::KILL));
    let outcome = farm.run(&functions.sleep, [5; 40]).await?;
    let others: BTreeSet<_> = outcome.results.iter().filter(|pid| !first.contains(pid)).collect();
    println!("{} results of {} others", outcome.results.len(), others.len());
    Ok(())
}

/// Is a node of two, of which the second starts programs that are nodes and farmers themselves.
async fn nest(levels: u32, hosts: Option<String>) -> Result<(), Box<dyn Error>> {
    let mut config = ClusterConfig::new().nodes(2);
    if let Some(hosts) = hosts {
        config = config.hosts(hosts);
    }
    let cluster = Cluster::join(config).await?;
    if cluster.rank() == 1 {
        let own = std::env::current_exe()?.display().to_string();
        let run = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned());
            printed(&std::iter::once(own.clone()).chain(words).collect::<Vec<_>>())
        };
        if levels > 0 {
            print!("{}", run(&["nest", &(levels - 1).to_string()]));
            print!("{}", run(&["arguments", "5"]));
        }
        println!("level {levels}");
    }
    Ok(cluster.end(Duration::from_secs(30)).await?)
}

/// Runs 300 squares and the halves of 300; prints the number of tasks that were not run, the sum of
/// the squares, and the number and the sum of the halves. The last 50 squares wait for `FILE.goes-on`.
async fn keep_journal(file: &str) -> Result<(), Box<dyn Error>> {
    let (registry, functions) = registry();
    // Short assignments: the journal grows in small steps, at which the test kills.
    let builder = Farm::builder(registry).workers(2).grain(1).journal(file, Fsync::Never);
    let mut farm = builder.start().await?;
    let goes_on = PathBuf::from(format!("{file}.goes-on"));
    let numbers = (0..300).inspect(|number| {
        while *number == 250 && !goes_on.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let squares = farm.run(&functions.square, numbers).await?;
    let (mut count, mut sum) = (0, 0);
    let pool = farm.run_pool(&functions.halves, [300], |number| {
        count += 1;
        sum += number;
    });
    let pool = pool.await?;
    println!("recalled {} {}", squares.stats.recalled, pool.recalled);
    println!("{} {count} {sum}", squares.results.iter().sum::<u64>());
    farm.finish(Duration::from_secs(10)).await?;
    Ok(())
}

/// Sends a value over a channel of its type until the other side ends the channel; returns the
/// channel's error.
async fn open<T>(address: &str, value: T) -> Result<SendError, Box<dyn Error>>
where
    T: Serialize + DeserializeOwned + 'static,
{
    let node = Node::builder().name("opens").build().await?;
    let peer = node.connect(&address.parse()?).await?;
    let mut jobs = node.open::<T>(&peer, "jobs").await?;
    jobs.send_now(&value).await?;
    let error = jobs.closed().await;
    // This side's message about its type must arrive before the process is gone.
    node.close(Duration::from_secs(10)).await?;
    Ok(error)
}

/// Works for one farm after the other until the cluster has ended.
async fn serve() -> Result<(), Box<dyn Error>> {
    let told = |name| std::env::var_os(name).is_some();
    let cluster = Cluster::join(ClusterConfig::new()).await?;
    if told(OTHER_VERSION) {
        let farmer = cluster.peer(0).await?;
        let mut duplex =
            cluster.node().open_duplex_bytes(&farmer, "chunkcomm-farm.default").await?;
        duplex.sender().send_slice_now(&[9, 1, 11, 1, 7]).await?;
        duplex.sender().closed().await;
    } else if told(FORGETS) {
        cluster.finished().await;
    }
    let registry = worker_registry();
    while cluster.ended().is_none() {
        serve_in(&cluster, &registry).await?;
    }
    match cluster.finished().await {
        End::Finished { .. } => Ok(cluster.end(Duration::from_secs(10)).await?),
        end => Err(end.to_string().into()),
    }
}
