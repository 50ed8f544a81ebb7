//! The page as a browser has it: a real headless Chromium, which is skipped with a reason where it is missing, and plain
//! requests over a socket.
//!
//! `CHUNKCOMM_PAGE_DEMO=SECONDS cargo test -p chunkcomm-page --test page` keeps a farm running, to look at.

use chunkcomm::{Node, channel};
use chunkcomm_cluster::{Function, Registry};
use chunkcomm_farm::{Farm, serve_if_started};
use chunkcomm_page::{Page, PageError};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

type Outcome = Result<(), Box<dyn Error>>;

/// Number of workers of the farm.
const WORKERS: usize = 4;

fn main() -> Outcome {
    let mut registry = Registry::new();
    let nap = registry.register("nap", |ms: u64| {
        std::thread::sleep(Duration::from_millis(ms));
        ms
    });
    serve_if_started(&registry);

    let runtime = Runtime::new()?;
    if let Some(seconds) = std::env::var("CHUNKCOMM_PAGE_DEMO").ok().and_then(|it| it.parse().ok())
    {
        return runtime.block_on(demo(registry, nap, Duration::from_secs(seconds)));
    }
    for (name, test) in [
        ("strangers_are_refused", strangers as fn(&Runtime) -> Outcome),
        ("nothing_is_gathered_while_nobody_looks", idle),
        ("names_never_become_markup", markup),
        ("a_stopped_viewer_costs_nothing", stopped_viewer),
        ("an_open_page_keeps_its_last_state", end),
        ("a_thousand_members_stay_legible", thousand),
    ] {
        test(&runtime).map_err(|error| format!("{name}: {error}"))?;
        println!("test {name} ... ok");
    }
    let farm = farm_with_a_death(registry, nap);
    runtime.block_on(farm).map_err(|error| format!("a_killed_worker_is_shown: {error}"))?;
    println!("test a_killed_worker_is_shown ... ok");
    Ok(())
}

type Nap = Function<u64, u64>;

async fn demo(registry: Registry, nap: Nap, time: Duration) -> Outcome {
    let mut farm = Farm::builder(registry).workers(WORKERS).start().await?;
    let page = Page::at(farm.node(), "127.0.0.1:8765")?;
    let kill = farm.workers()[1].pid;
    std::fs::write(
        std::env::temp_dir().join("chunkcomm-page-url"),
        page.url().unwrap_or_default(),
    )?;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(6)).await;
        kill.map(kill_process)
    });
    let count = time.as_millis() as u64 * WORKERS as u64 / 275;
    farm.run(&nap, (0..count).map(|at| 50 + 450 * (at * 7919 % 100) / 100)).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(page);
    tokio::time::sleep(Duration::from_secs(5)).await;
    farm.finish(Duration::from_secs(5)).await?;
    Ok(())
}

fn kill_process(pid: u32) {
    let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A page of a node without peers.
fn page(runtime: &Runtime) -> Result<(Node, Page, String), Box<dyn Error>> {
    let node =
        runtime.block_on(Node::builder().name("here").listen("127.0.0.1:0".parse()?).build())?;
    let page = Page::serve(&node, loopback())?;
    let url = page.url().ok_or("no address")?;
    Ok((node, page, url))
}

/// Splits an address into that of the socket and the token.
fn parts(url: &str) -> Result<(String, String), Box<dyn Error>> {
    let rest = url.strip_prefix("http://").ok_or("no http")?;
    let (host, token) = rest.split_once("/?token=").ok_or("no token")?;
    Ok((host.to_owned(), token.to_owned()))
}

/// Makes a request, and returns status, head and body.
fn ask(address: &str, lines: &str) -> Result<(u16, String), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("{lines}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).ok_or("no status")?.parse()?;
    Ok((status, text))
}

fn expect(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn strangers(runtime: &Runtime) -> Outcome {
    let (node, _page, url) = page(runtime)?;
    let (host, token) = parts(&url)?;
    let get =
        |path: &str, host: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}{more}");
    let with_token = format!("/state.json?token={token}");
    let status = |lines: &str| ask(&host, lines).map(|it| it.0);
    expect(status(&get("/", &host, ""))? == 403, "the page needs the token")?;
    expect(status(&get("/state.json", &host, ""))? == 403, "so does a state")?;
    expect(status(&get("/?token=0000", &host, ""))? == 403, "another token")?;
    expect(status(&get(&with_token, "evil.example", ""))? == 421, "a rebound name")?;
    let of_site = "\r\nOrigin: http://evil.example";
    expect(status(&get(&with_token, &host, of_site))? == 403, "a page of another site")?;
    let post = format!("POST {with_token} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0");
    expect(status(&post)? == 405, "only GET")?;
    let (status, text) = ask(&host, &get(&format!("/?token={token}"), &host, ""))?;
    let head = text.to_lowercase();
    expect(status == 200 && head.contains("httponly; samesite=strict"), &text)?;
    expect(head.contains("content-security-policy: default-src 'none'; script-src 'self'"), &text)?;
    let cookie = format!(
        "\r\nCookie: chunkcomm-page-{}={token}",
        host.rsplit(':').next().unwrap_or_default()
    );
    expect(ask(&host, &get("/state.json", &host, &cookie))?.0 == 200, "the cookie is enough")?;
    let bearer = format!("\r\nAuthorization: Bearer {token}");
    let (status, text) = ask(&host, &get("/metrics", &host, &bearer))?;
    expect(status == 200 && text.contains("# TYPE chunkcomm_messages_sent_total counter"), &text)?;
    let beyond = Page::serve(&node, SocketAddr::from(([0, 0, 0, 0], 0)));
    expect(matches!(beyond, Err(PageError::BeyondLoopback { .. })), "beyond loopback")
}

fn idle(runtime: &Runtime) -> Outcome {
    let (_node, page, url) = page(runtime)?;
    let (host, token) = parts(&url)?;
    std::thread::sleep(Duration::from_millis(600));
    expect(page.stats().gathered == 0, "it gathered before anybody looked")?;
    let lines = format!("GET /events?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut stream = TcpStream::connect(&host)?;
    stream.write_all(lines.as_bytes())?;
    until("nothing is gathered for a viewer", || page.stats().gathered >= 3)?;
    drop(stream);
    until("the viewer is still there", || page.stats().viewers == 0)?;
    let gathered = page.stats().gathered;
    std::thread::sleep(Duration::from_millis(600));
    expect(page.stats().gathered <= gathered + 1, "it gathers for nobody")
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Outcome {
    let begun = Instant::now();
    while !holds() {
        expect(begun.elapsed() < Duration::from_secs(20), what)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A viewer that reads nothing: the page hands it what the socket takes, and no more.
fn stopped_viewer(runtime: &Runtime) -> Outcome {
    let (node, page, url) = page(runtime)?;
    let (host, token) = parts(&url)?;
    // States of some hundred KB, which no socket takes for long.
    let peers = runtime.block_on(peers(&node, 300, "a"))?;
    let mut stream = TcpStream::connect(&host)?;
    stream.write_all(
        format!("GET /events?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(),
    )?;
    until("nothing is sent", || page.stats().sent > 0)?;
    let mut last = (page.stats().sent, Instant::now());
    until("a viewer that does not read gets ever more", || {
        if page.stats().sent != last.0 {
            last = (page.stats().sent, Instant::now());
        }
        last.1.elapsed() > Duration::from_secs(4)
    })?;
    let gathered = page.stats().gathered;
    // Another viewer is not held up.
    let (status, _) =
        ask(&host, &format!("GET /state.json?token={token} HTTP/1.1\r\nHost: {host}"))?;
    expect(status == 200, "another viewer waits for the stopped one")?;
    until("the page stands still", || page.stats().gathered > gathered + 2)?;
    drop((stream, peers));
    Ok(())
}

/// Connects this number of nodes to a node.
async fn peers(to: &Node, count: usize, name: &str) -> Result<Vec<Node>, Box<dyn Error>> {
    let mut nodes = Vec::new();
    for at in 0..count {
        let node = Node::builder().name(format!("{name}-{at:04}")).quiet().build().await?;
        node.connect(&to.addresses()[0]).await?;
        nodes.push(node);
    }
    Ok(nodes)
}

/// Chromium, with a profile of its own; `None` where it is missing.
struct Browser {
    program: PathBuf,
    profile: PathBuf,
}

impl Browser {
    fn find() -> Option<Browser> {
        let paths = std::env::var_os("PATH")?;
        let found =
            std::env::split_paths(&paths).map(|it| it.join("chromium")).find(|it| it.is_file());
        let Some(program) = found else {
            println!("skipped what needs a browser: chromium is not installed");
            return None;
        };
        let unique = format!("chunkcomm-page-{}-{:?}", std::process::id(), Instant::now());
        let unique: String =
            unique.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        Some(Browser { program, profile: std::env::temp_dir().join(unique) })
    }

    fn command(&self, size: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]);
        command.arg(format!("--user-data-dir={}", self.profile.display()));
        command.arg(format!("--window-size={size}")).stderr(Stdio::null());
        command
    }

    /// Returns the document as the script has made it after this time.
    fn dom(&self, url: &str, size: &str, time: Duration) -> Result<String, Box<dyn Error>> {
        let mut command = self.command(size);
        // Real time: the states come as they are gathered.
        command.arg(format!("--timeout={}", time.as_millis())).args(["--dump-dom", url]);
        Ok(String::from_utf8_lossy(&command.output()?.stdout).into_owned())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

fn markup(runtime: &Runtime) -> Outcome {
    let Some(browser) = Browser::find() else { return Ok(()) };
    let (node, _page, url) = page(runtime)?;
    let name = "<script>document.title='taken'</script><img src=x onerror=alert(1)>";
    let peer = runtime.block_on(async {
        let peer = Node::builder().name(name).quiet().build().await?;
        let to = peer.connect(&node.addresses()[0]).await?;
        let sender = peer.open::<u64>(&to, channel("<b>channel</b>")).await?;
        Ok::<_, Box<dyn Error>>((peer, sender))
    })?;
    let dom = browser.dom(&url, "1000,800", Duration::from_secs(3))?;
    expect(dom.contains("data-live=\"live\""), &format!("the page is not live: {dom}"))?;
    expect(dom.contains("&lt;script&gt;document.title"), "the name is not shown")?;
    expect(
        !dom.contains("<script>document") && !dom.contains("<img") && !dom.contains("<b>"),
        "markup",
    )?;
    drop(peer);
    Ok(())
}

fn end(runtime: &Runtime) -> Outcome {
    let Some(browser) = Browser::find() else { return Ok(()) };
    let (node, page, url) = page(runtime)?;
    let peers = runtime.block_on(peers(&node, 3, "peer"))?;
    let ending = std::thread::spawn(move || {
        let begun = Instant::now();
        while page.stats().sent < 3 && begun.elapsed() < Duration::from_secs(15) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let begun = Instant::now();
        drop(page);
        begun.elapsed()
    });
    let dom = browser.dom(&url, "1000,800", Duration::from_secs(5))?;
    let took = ending.join().map_err(|_| "it panicked")?;
    expect(took < Duration::from_secs(1), "the end waited for the browser")?;
    expect(dom.contains("data-live=\"ended\""), &format!("it does not say ended: {dom}"))?;
    expect(dom.contains("peer-0002"), "the last state is gone")?;
    drop(peers);
    Ok(())
}

fn thousand(runtime: &Runtime) -> Outcome {
    let Some(browser) = Browser::find() else { return Ok(()) };
    let (node, _page, url) = page(runtime)?;
    let peers = runtime.block_on(peers(&node, 999, "member"))?;
    for size in ["400,800", "1600,1000"] {
        let dom = browser.dom(&url, size, Duration::from_secs(6))?;
        let tiles = dom.matches("class=\"tile\"").count();
        expect(tiles == 1000, &format!("{tiles} tiles at {size}"))?;
        expect(dom.contains("1,000 here") && dom.contains("member-0998"), "members are missing")?;
    }
    drop(peers);
    Ok(())
}

/// A farm of four workers, of which one is killed: the page shows both within a second.
async fn farm_with_a_death(registry: Registry, nap: Nap) -> Outcome {
    let mut farm = Farm::builder(registry).workers(WORKERS).start().await?;
    let page = Page::serve(farm.node(), loopback())?;
    let url = page.url().ok_or("no address")?;
    let pid = farm.workers()[2].pid.ok_or("no process")?;
    let (host, token) = parts(&url)?;
    let looking = std::thread::spawn(move || -> Result<Option<String>, String> {
        let said = |error: Box<dyn Error>| error.to_string();
        let lines = format!("GET /state.json?token={token} HTTP/1.1\r\nHost: {host}");
        let look = || ask(&host, &lines).map_err(said).map(|it| it.1);
        until("the run is not shown", || look().is_ok_and(|it| it.contains("\"works\"")))
            .map_err(said)?;
        let before = look()?;
        if !before.contains("{\"name\":\"deaths\",\"value\":{\"Count\":0}}") {
            return Err(format!("a death before the kill: {before}"));
        }
        kill_process(pid);
        let killed = Instant::now();
        until("the death is not shown", || {
            look().is_ok_and(|it| it.contains("{\"name\":\"deaths\",\"value\":{\"Count\":1}}"))
        })
        .map_err(said)?;
        if killed.elapsed() > Duration::from_secs(1) {
            return Err(format!("it was shown after {:?}", killed.elapsed()));
        }
        let Some(browser) = Browser::find() else { return Ok(None) };
        browser.dom(&url, "1600,1000", Duration::from_secs(3)).map(Some).map_err(said)
    });
    farm.run(&nap, vec![100_u64; 400]).await?;
    let dom =
        tokio::task::spawn_blocking(move || looking.join()).await?.map_err(|_| "it panicked")??;
    if let Some(dom) = dom {
        let lost = dom.matches("<td class=\"s-gone text\"").count() + dom.matches("s-gone").count();
        expect(lost > 0 && dom.contains("<canvas"), "the death is not on the page")?;
    }
    drop(page);
    farm.finish(Duration::from_secs(5)).await?;
    Ok(())
}
