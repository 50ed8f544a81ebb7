//! zenoh: peer to peer over one TCP connection, reliable, blocking when it is congested, without
//! scouting: other programs on the network have no part in a measurement.
//!
//! | | docs | best |
//! |---|---|---|
//! | one-way | `put` to a subscriber that is asked for messages | to a callback |
//! | round-trip | `put` both ways | express, answered in the callback |
//! | calls | `get` to a queryable that is asked for queries | a querier, callbacks, no consolidation |
//! | bandwidth | `put` of a slice, copied | shared parts, a receive buffer of 16 MiB |
//! | idle | a session each | a session each |

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use chunkcomm_peers::{
    Bench, Calls, Checker, Doing, Failure, IN_FLIGHT, Near, Order, Orders, Setting, Side, Stamp,
    System, fail, verify,
};
use zenoh::bytes::ZBytes;
use zenoh::handlers::FifoChannelHandler;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::query::{ConsolidationMode, Querier, Query, Reply};
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait};

const MESSAGE: &str = "peers/message";
const ANSWER: &str = "peers/answer";
const CALL: &str = "peers/call";

/// Receive buffer of a connection for large payloads.
const RECEIVE_BYTES: usize = 16 << 20;

/// Time for the two sessions to hear of each other.
const MATCH_MAX: Duration = Duration::from_secs(10);

static ZENOH: System = System {
    name: "zenoh",
    version: || Ok(env!("VERSION_ZENOH").to_owned()),
    lacks: &[],
    near,
    far,
};

fn main() {
    chunkcomm_peers::main(&ZENOH);
}

fn open(setting: &Setting, listen: &str, connect: &str) -> Result<Session, Failure> {
    let mut config = Config::default();
    let list = |address: &str| match address {
        "" => "[]".to_owned(),
        address => format!("[\"tcp/{address}\"]"),
    };
    let mut lines = vec![
        ("mode", "\"peer\"".to_owned()),
        ("scouting/multicast/enabled", "false".to_owned()),
        ("scouting/gossip/enabled", "false".to_owned()),
        ("listen/endpoints", list(listen)),
        ("connect/endpoints", list(connect)),
    ];
    if setting.is_best() && setting.bench == Bench::Bandwidth {
        lines.push(("transport/link/rx/buffer_size", RECEIVE_BYTES.to_string()));
    }
    for (key, value) in lines {
        config.insert_json5(key, &value).doing(key)?;
    }
    zenoh::open(config).wait().doing("opening a session")
}

fn publisher<'a>(
    session: &Session,
    key: &'static str,
    setting: &Setting,
) -> Result<Publisher<'a>, Failure> {
    session
        .declare_publisher(key)
        .congestion_control(CongestionControl::Block)
        .express(setting.is_best() && setting.bench == Bench::RoundTrip)
        .wait()
        .doing("declaring a publisher")
}

/// Waits until the other session's declaration is known here: what is sent before is lost.
fn until(is_matching: impl Fn() -> zenoh::Result<bool>) -> Result<(), Failure> {
    let started = Instant::now();
    while !is_matching().doing("asking for a subscriber")? {
        if started.elapsed() > MATCH_MAX {
            return Err(Failure::new("the other session is not known"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn has_subscriber(publisher: &Publisher<'_>) -> Result<(), Failure> {
    until(|| Ok(publisher.matching_status().wait()?.matching()))
}

/// Returns the number of a payload, and its last byte. Parts of a large one are not put together.
fn ends_of(payload: &ZBytes) -> (u64, u8) {
    let mut number = [0; 8];
    let mut bytes = payload.slices().flatten();
    for at in &mut number {
        *at = bytes.next().copied().unwrap_or_default();
    }
    let last = payload.slices().last().and_then(|slice| slice.last());
    (u64::from_le_bytes(number), last.copied().unwrap_or_default())
}

// ---- The far end.

fn take(checker: &mut Checker, payload: &ZBytes) {
    match payload.slices().next() {
        Some(whole) if whole.len() == payload.len() => checker.take(whole),
        _ => {
            let (number, last) = ends_of(payload);
            checker.take_parts(number, last, payload.len());
        }
    }
}

fn far(setting: &Setting, _arguments: &[String], orders: Orders) -> Result<(), Failure> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = port.doing("looking for a port")?.to_string();
    let session = open(setting, &address, "")?;
    match setting.bench {
        Bench::Calls => far_calls(&session, setting, orders, &address),
        _ => far_messages(&session, setting, orders, &address),
    }
}

fn far_messages(
    session: &Session,
    setting: &Setting,
    orders: Orders,
    address: &str,
) -> Result<(), Failure> {
    let answers = publisher(session, ANSWER, setting)?;
    let answering = setting.bench == Bench::RoundTrip;
    let mut checker = Checker::new(orders.goal(), setting.bytes);
    let mut is_known = false;
    let mut handle = move |message: &Sample| {
        if !answering {
            return take(&mut checker, message.payload());
        }
        if !is_known && let Err(Failure(cause)) = has_subscriber(&answers) {
            fail(&cause);
        }
        is_known = true;
        checker.check(&message.payload().to_bytes());
        if let Err(error) = answers.put(message.payload().clone()).wait() {
            fail(&format!("answering: {error}"));
        }
        checker.done();
    };
    if setting.is_best() {
        let handle = move |message| handle(&message);
        let subscriber = session.declare_subscriber(MESSAGE).callback_mut(handle).wait();
        let _subscriber = subscriber.doing("subscribing")?;
        orders.take(address);
        // The orders end this process.
        loop {
            thread::park();
        }
    }
    let subscriber = session.declare_subscriber(MESSAGE).wait().doing("subscribing")?;
    orders.take(address);
    loop {
        handle(&subscriber.recv().doing("receiving")?);
    }
}

fn far_calls(
    session: &Session,
    setting: &Setting,
    orders: Orders,
    address: &str,
) -> Result<(), Failure> {
    let calls = Calls::new(orders.goal(), setting.bytes);
    let handle = move |query: &Query| {
        let payload = query.payload().cloned().unwrap_or_default();
        calls.take(&payload.to_bytes());
        if let Err(error) = query.reply(CALL, payload).wait() {
            fail(&format!("answering: {error}"));
        }
    };
    if setting.is_best() {
        let queryable = session.declare_queryable(CALL).callback(move |query| handle(&query));
        let _queryable = queryable.wait().doing("declaring a queryable")?;
        orders.take(address);
        // As above.
        loop {
            thread::park();
        }
    }
    let queryable = session.declare_queryable(CALL).wait().doing("declaring a queryable")?;
    orders.take(address);
    loop {
        handle(&queryable.recv().doing("receiving")?);
    }
}

// ---- The near end.

/// Inner bytes of large payloads, shared by all of them.
struct Parts {
    inner: ZBytes,
}

struct Peer {
    session: Session,
    publisher: Publisher<'static>,
    answers: Subscriber<FifoChannelHandler<Sample>>,
    querier: Querier<'static>,
    setting: Setting,
    stamp: Stamp,
    address: String,
    parts: Option<Parts>,
    links: Vec<Session>,
}

fn near(system: &'static System, setting: &Setting) -> Result<(), Failure> {
    let (near, address) = Near::start(system, setting, &[])?;
    let session = open(setting, "", &address)?;
    let publisher = publisher(&session, MESSAGE, setting)?;
    let answers = session.declare_subscriber(ANSWER).wait().doing("subscribing")?;
    let consolidation =
        if setting.is_best() { ConsolidationMode::None } else { ConsolidationMode::Auto };
    let querier = session.declare_querier(CALL).consolidation(consolidation).wait();
    let querier = querier.doing("declaring a querier")?;
    if setting.bench == Bench::Calls {
        until(|| Ok(querier.matching_status().wait()?.matching()))?;
    } else {
        has_subscriber(&publisher)?;
    }
    let shares = setting.is_best() && setting.bench == Bench::Bandwidth && setting.bytes > 9;
    let parts = shares.then(|| Parts { inner: ZBytes::from(vec![0x5a; setting.bytes - 9]) });
    let (setting, stamp, links) = (setting.clone(), setting.stamp(), Vec::new());
    near.run(&mut Peer {
        session,
        publisher,
        answers,
        querier,
        setting,
        stamp,
        address,
        parts,
        links,
    })
}

impl Peer {
    fn put(&self, buffer: &mut [u8], sequence: u64) -> Result<(), Failure> {
        let payload = match &self.parts {
            Some(parts) => {
                let (number, check) = self.stamp.of(sequence);
                let mut writer = ZBytes::writer();
                writer.append(ZBytes::from(number.to_le_bytes()));
                writer.append(parts.inner.clone());
                writer.append(ZBytes::from([check]));
                writer.finish()
            }
            None => {
                self.stamp.write(buffer, sequence);
                ZBytes::from(&*buffer)
            }
        };
        self.publisher.put(payload).wait().doing("publishing")
    }

    fn round_trips(&self, order: Order, buffer: &mut [u8]) -> Result<Vec<u64>, Failure> {
        let mut samples_ns = Vec::with_capacity(order.count as usize);
        for sequence in order.numbers() {
            let started = Instant::now();
            self.put(buffer, sequence)?;
            let answer = self.answers.recv().doing("receiving")?;
            samples_ns.push(started.elapsed().as_nanos() as u64);
            verify(&answer.payload().to_bytes(), buffer.len(), sequence).map_err(Failure::new)?;
        }
        Ok(samples_ns)
    }

    /// Asks with channels of replies, the oldest of which is awaited.
    fn gets(&self, order: Order, buffer: &mut [u8]) -> Result<Vec<u64>, Failure> {
        let mut samples_ns = Vec::with_capacity(order.count as usize);
        let mut under_way = VecDeque::new();
        let mut numbers = order.numbers();
        loop {
            while (under_way.len() as u64) < IN_FLIGHT
                && let Some(sequence) = numbers.next()
            {
                self.stamp.write(buffer, sequence);
                let replies = self.session.get(CALL).payload(&*buffer).wait();
                under_way.push_back((sequence, Instant::now(), replies.doing("asking")?));
            }
            let Some((sequence, started, replies)) = under_way.pop_front() else {
                return Ok(samples_ns);
            };
            let reply = replies.recv().doing("receiving")?;
            samples_ns.push(started.elapsed().as_nanos() as u64);
            check_reply(&reply, buffer.len(), sequence)?;
        }
    }

    /// Asks with callbacks.
    fn callbacks(&self, order: Order, buffer: &mut [u8]) -> Result<Vec<u64>, Failure> {
        let mut samples_ns = Vec::with_capacity(order.count as usize);
        let (sender, answered) = mpsc::channel();
        let bytes = buffer.len();
        for (asked, sequence) in order.numbers().enumerate() {
            if asked as u64 >= IN_FLIGHT {
                samples_ns.push(answered.recv().doing("receiving")?);
            }
            self.stamp.write(buffer, sequence);
            let (sender, started) = (sender.clone(), Instant::now());
            let answered = move |reply| {
                if let Err(Failure(cause)) = check_reply(&reply, bytes, sequence) {
                    fail(&cause);
                }
                // The receiver stays until all are answered.
                let _ = sender.send(started.elapsed().as_nanos() as u64);
            };
            let asking = self.querier.get().payload(&*buffer).callback(answered);
            asking.wait().doing("asking")?;
        }
        while (samples_ns.len() as u64) < order.count {
            samples_ns.push(answered.recv().doing("receiving")?);
        }
        Ok(samples_ns)
    }
}

fn check_reply(reply: &Reply, bytes: usize, sequence: u64) -> Result<(), Failure> {
    let sample = reply.result().map_err(|error| Failure::new(format!("a call: {error}")))?;
    verify(&sample.payload().to_bytes(), bytes, sequence).map_err(Failure::new)
}

impl Side for Peer {
    fn slice(&mut self, order: Order) -> Result<Vec<u64>, Failure> {
        let mut buffer = vec![0x5a; self.setting.bytes];
        match self.setting.bench {
            Bench::RoundTrip => self.round_trips(order, &mut buffer),
            Bench::Calls if self.setting.is_best() => self.callbacks(order, &mut buffer),
            Bench::Calls => self.gets(order, &mut buffer),
            _ => {
                order.numbers().try_for_each(|sequence| self.put(&mut buffer, sequence))?;
                Ok(Vec::new())
            }
        }
    }

    fn open_links(&mut self, count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            self.links.push(open(&self.setting, "", &self.address)?);
        }
        Ok(())
    }
}
