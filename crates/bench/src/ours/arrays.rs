//! Transfers of a matrix between groups of processes, or within one.

mod copies;

use std::future::Future;
use std::mem;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_array::{Array, ArrayReceiver, ArraySender, Layout, Timings, Transfer as Settings};
use chunkcomm_cluster::Cluster;
use chunkcomm_group::{Group, Pair};
use serde::{Deserialize, Serialize};

use self::copies::Copies;
use super::collective::{end_cluster, join_cluster, traffic_of};
use crate::failure::{Doing, Failure};
use crate::harness::protocol::RuntimeKind;
use crate::harness::ranks::{Control, Player, Steps, Traffic};
use crate::harness::transfers::{ELEMENT_BYTES, Part, Transfer};

/// Name under which the groups meet.
const NAME: &str = "redistribute";

/// Settings of transfers of ours.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ArraysKind {
    /// Runtime that drives the library.
    pub runtime: RuntimeKind,
    /// Workers of the tokio runtime.
    pub threads: usize,
    /// Whether each transfer is opened anew.
    pub fresh: bool,
    /// Whether packing overlaps sending.
    pub overlap: bool,
    /// Whether one group copies an array to another one.
    pub copies: bool,
    /// Whether one group writes an array into a file.
    pub npy: bool,
    /// Nanoseconds of packing a byte, and of unpacking it, on virtual hosts.
    pub packing_ns: f64,
    /// Nanoseconds of a byte of the copies that an interface makes at both ends, on virtual hosts.
    pub copies_ns: f64,
}

impl ArraysKind {
    /// Returns transfers with a kept plan that overlap, in virtual time.
    #[cfg(feature = "virtual")]
    pub(crate) fn kept(runtime: RuntimeKind, packing_ns: f64) -> Self {
        Self {
            runtime,
            threads: 1,
            fresh: false,
            overlap: true,
            copies: false,
            npy: false,
            packing_ns,
            copies_ns: 0.0,
        }
    }
}

/// Takes part as one rank, until the near end has ended.
///
/// # Errors
/// If a transfer fails.
pub async fn serve(
    port: u16,
    rank: usize,
    transfer: Transfer,
    ours: ArraysKind,
) -> Result<(), Failure> {
    let cluster = join_cluster(ours.runtime).await?;
    let ranks = transfer.ranks();
    let served = if ours.copies || ours.npy {
        let file = || std::env::temp_dir().join(format!("chunkperf-{port}.npy"));
        let mut member = Copies::join(&cluster, rank, transfer, ours.npy.then(file)).await?;
        let (mut control, _) = Control::report(port, rank, 0, ranks).await?;
        control.serve(&mut member).await
    } else {
        let mut member = Member::join(&cluster, rank, transfer, ours).await?;
        let (mut control, _) = Control::report(port, rank, 0, ranks).await?;
        control.serve(&mut member).await
    };
    served?;
    end_cluster(cluster).await
}

/// One rank of one group or of both, with its arrays.
pub(crate) struct Member {
    world: Group,
    pair: Pair,
    /// That of the receivers, if this rank is in both groups.
    other_pair: Option<Pair>,
    out: Option<Outgoing>,
    into: Option<Incoming>,
    /// Whether this rank receives before it sends; neither if it does both at a time.
    order: Order,
    ours: ArraysKind,
    /// Nanoseconds of the steps of all fresh transfers.
    steps_ns: Steps,
    /// Of them those of opening a kept plan there and back.
    opening_ns: Steps,
    calls: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Together,
    SendsFirst,
    ReceivesFirst,
}

/// Sender of a rank.
struct Outgoing {
    part: Part,
    settings: Settings,
    sender: Option<ArraySender<f64>>,
    /// While there is no sender.
    array: Option<Array<f64>>,
    is_round_over: bool,
}

/// Receiver of a rank.
struct Incoming {
    part: Part,
    settings: Settings,
    receiver: Option<ArrayReceiver<f64>>,
    /// While there is no receiver.
    array: Option<Array<f64>>,
    is_round_over: bool,
}

/// Returns the layout of the receivers, as one of the senders' matrix.
pub(crate) fn receivers_layout(transfer: &Transfer) -> Result<Layout, Failure> {
    let layout = transfer.to.clone();
    if !transfer.kind.transposed {
        return Ok(layout);
    }
    layout.permuted(&[1, 0]).doing("transposing a layout")
}

impl Member {
    pub(crate) async fn join(
        cluster: &Cluster,
        rank: usize,
        transfer: Transfer,
        ours: ArraysKind,
    ) -> Result<Self, Failure> {
        let doing = "making the groups";
        let mut world = Group::world(cluster).await.doing(doing)?;
        let (pair, other_pair, groups);
        if transfer.kind.within {
            let mut senders = world.duplicate().await.doing(doing)?;
            let mut receivers = world.duplicate().await.doing(doing)?;
            let met = tokio::try_join!(senders.meet(NAME), receivers.meet(NAME)).doing(doing)?;
            (pair, other_pair, groups) = (met.0, Some(met.1), vec![senders, receivers]);
        } else {
            let colour = u32::from(rank >= transfer.first_receiver());
            let group = world.split(Some(colour), 0).await.doing(doing)?;
            let mut group = group.ok_or_else(|| Failure::broken(doing, "there is none"))?;
            pair = group.meet(NAME).await.doing(doing)?;
            (other_pair, groups) = (None, vec![group]);
        }
        let both = transfer.kind.within || transfer.kind.there_and_back;
        let is_sender = rank < transfer.from.ranks();
        let settings =
            Settings::default().overlap(ours.overlap).declared_nanos_per_byte(ours.packing_ns);
        let made = |group: &Group, layout: &Layout| {
            Array::zeros(group, layout, layout.global_shape()).map(Some).doing("making an array")
        };
        let (mut out, mut into) = (None, None);
        if both || is_sender {
            let (part, array) = (transfer.given(rank), made(&groups[0], &transfer.from)?);
            let settings = settings.clone();
            out = Some(Outgoing { part, settings, sender: None, array, is_round_over: false });
        }
        if both || !is_sender {
            let array = made(&groups[groups.len() - 1], &receivers_layout(&transfer)?)?;
            let part = transfer.wanted(rank);
            into = Some(Incoming { part, settings, receiver: None, array, is_round_over: false });
        }
        let order = match (transfer.kind.there_and_back, is_sender) {
            (false, _) => Order::Together,
            (true, true) => Order::SendsFirst,
            (true, false) => Order::ReceivesFirst,
        };
        let [steps_ns, opening_ns] = [Steps::default(); 2];
        Ok(Self { world, pair, other_pair, out, into, order, ours, steps_ns, opening_ns, calls: 0 })
    }

    /// Opens the ends that are not open.
    async fn open(&mut self) -> Result<(), Failure> {
        let Self { pair, other_pair, out, into, order, .. } = self;
        match (out, into, other_pair) {
            (Some(out), Some(into), Some(other)) => {
                tokio::try_join!(out.open(pair), into.accept(other)).map(drop)
            }
            (Some(out), Some(into), None) if *order == Order::ReceivesFirst => {
                into.accept(pair).await?;
                out.open(pair).await
            }
            (out, into, _) => {
                if let Some(out) = out {
                    out.open(pair).await?;
                }
                if let Some(into) = into {
                    into.accept(pair).await?;
                }
                Ok(())
            }
        }
    }

    async fn transfer(&mut self) -> Result<(), Failure> {
        let Self { out, into, order, ours, .. } = self;
        let send = async {
            let Some(out) = out else { return Ok(()) };
            copy(ours.copies_ns, &out.part).await;
            out.send().await
        };
        let receive = async {
            let Some(into) = into else { return Ok(()) };
            into.receive().await?;
            copy(ours.copies_ns, &into.part).await;
            Ok(())
        };
        in_order(*order, send, receive).await
    }

    /// Ends fresh transfers, and adds their steps if they went there and back.
    async fn close(&mut self) -> Result<(), Failure> {
        if self.order != Order::Together {
            self.add_steps().await?;
        }
        if let Some(out) = &mut self.out {
            out.close().await;
        }
        match &mut self.into {
            Some(into) => into.close().await,
            None => Ok(()),
        }
    }

    /// Adds the steps of the open ends, in the order in which both groups ask for them.
    async fn add_steps(&mut self) -> Result<(), Failure> {
        let Self { pair, out, into, order, .. } = self;
        let (Some(out), Some(into)) = (out, into) else { return Ok(()) };
        let (forth, back);
        if *order == Order::ReceivesFirst {
            forth = into.timings(pair).await?;
            back = out.timings(pair).await?;
        } else {
            forth = out.timings(pair).await?;
            back = into.timings(pair).await?;
        }
        for timings in [forth, back] {
            let steps = [
                timings.inquiry,
                timings.exchange,
                timings.schedule,
                timings.packing,
                timings.transfer,
                timings.waiting,
            ];
            let sums = self.steps_ns.iter_mut().zip(steps.map(|step: Duration| step.as_nanos()));
            sums.for_each(|(sum, step)| *sum += step as u64);
        }
        Ok(())
    }
}

/// Lets the time pass in which an interface would copy a rank's part.
async fn copy(nanos_per_byte: f64, part: &Part) {
    let nanos = nanos_per_byte * (part.len() * ELEMENT_BYTES) as f64;
    if nanos > 0.0 {
        host::compute(Duration::from_nanos(nanos as u64), || ()).await;
    }
}

/// Does both, one after the other or at a time.
async fn in_order(
    order: Order,
    send: impl Future<Output = Result<(), Failure>>,
    receive: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    match order {
        Order::Together => tokio::try_join!(send, receive).map(drop),
        Order::SendsFirst => {
            send.await?;
            receive.await
        }
        Order::ReceivesFirst => {
            receive.await?;
            send.await
        }
    }
}

impl Player for Member {
    async fn fill(&mut self, call: u64) -> Result<(), Failure> {
        if let Some(into) = &mut self.into {
            into.begin().await?;
        }
        match &mut self.out {
            Some(out) => out.fill(call).await,
            None => Ok(()),
        }
    }

    async fn meet(&mut self) -> Result<(), Failure> {
        self.world.barrier().await.doing("meeting in a barrier")
    }

    async fn call(&mut self) -> Result<(), Failure> {
        self.calls += 1;
        let plans = self.calls == 1;
        if plans != self.ours.fresh {
            self.open().await?;
        }
        if plans && !self.ours.fresh && self.order != Order::Together {
            self.add_steps().await?;
            self.opening_ns = mem::take(&mut self.steps_ns);
        }
        if plans { Ok(()) } else { self.transfer().await }
    }

    async fn is_right(&mut self, call: u64) -> Result<bool, Failure> {
        let right = match &mut self.into {
            Some(into) if call > 0 => into.is_right(call).await?,
            _ => true,
        };
        if self.ours.fresh && call > 0 {
            self.close().await?;
        }
        Ok(right)
    }

    async fn traffic(&mut self) -> Result<Traffic, Failure> {
        traffic_of(&self.world).await
    }

    async fn steps_ns(&mut self) -> Result<Steps, Failure> {
        if !self.ours.fresh {
            self.add_steps().await?;
            let steps = self.steps_ns.iter_mut().zip(self.opening_ns);
            steps.for_each(|(sum, opening)| *sum -= opening);
            if self.order == Order::Together {
                // Those of the plan, which was made once.
                self.steps_ns[..3].fill(0);
            }
        }
        let ways = 2 * self.calls.saturating_sub(1).max(1);
        Ok(self.steps_ns.map(|sum| sum / ways))
    }
}

impl Outgoing {
    async fn open(&mut self, pair: &mut Pair) -> Result<(), Failure> {
        let array = self.array.take().ok_or_else(|| Failure::broken("sending", "no array"))?;
        let opened = array.sender_with(pair, self.settings.clone()).await;
        self.sender = Some(opened.doing("opening a transfer")?);
        self.is_round_over = false;
        Ok(())
    }

    async fn fill(&mut self, call: u64) -> Result<(), Failure> {
        let Some(sender) = &mut self.sender else {
            if let Some(array) = &mut self.array {
                self.part.fill(call, &mut array.local_mut());
            }
            return Ok(());
        };
        if mem::take(&mut self.is_round_over) {
            sender.start().await.doing("starting a transfer again")?;
        }
        let (rows, _) = sender.rows();
        if rows > 0 {
            // Committed with all others, when the time is running.
            let mut slab = sender.slab(0..rows).doing("writing the rows")?;
            self.part.fill(call, &mut slab);
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<(), Failure> {
        let sender = self.sender.as_mut().ok_or_else(|| Failure::broken("sending", "no sender"))?;
        sender.commit_all().doing("committing an array")?;
        self.is_round_over = true;
        sender.finish().await.doing("sending an array")
    }

    async fn timings(&self, pair: &mut Pair) -> Result<Timings, Failure> {
        let sender = self.sender.as_ref().ok_or_else(|| Failure::broken("timing", "no sender"))?;
        sender.timings(pair).await.doing("asking for the steps")
    }

    async fn close(&mut self) {
        if let Some(sender) = self.sender.take() {
            self.array = Some(sender.into_array().await);
        }
    }
}

impl Incoming {
    async fn accept(&mut self, pair: &mut Pair) -> Result<(), Failure> {
        let array = self.array.take().ok_or_else(|| Failure::broken("receiving", "no array"))?;
        let accepted = array.receiver_with(pair, self.settings.clone()).await;
        self.receiver = Some(accepted.doing("accepting a transfer")?);
        self.is_round_over = false;
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), Failure> {
        match &mut self.receiver {
            Some(receiver) if mem::take(&mut self.is_round_over) => {
                receiver.start().await.doing("starting a transfer again")
            }
            _ => Ok(()),
        }
    }

    fn receiver(&mut self) -> Result<&mut ArrayReceiver<f64>, Failure> {
        self.receiver.as_mut().ok_or_else(|| Failure::broken("receiving", "no receiver"))
    }

    async fn receive(&mut self) -> Result<(), Failure> {
        self.is_round_over = true;
        self.receiver()?.finish().await.map(drop).doing("receiving an array")
    }

    async fn is_right(&mut self, call: u64) -> Result<bool, Failure> {
        let Self { part, receiver, .. } = self;
        let receiver = receiver.as_mut();
        let receiver = receiver.ok_or_else(|| Failure::broken("receiving", "no receiver"))?;
        let elements = receiver.finish().await.doing("looking at an array")?;
        Ok(part.is_right(call, elements))
    }

    async fn timings(&self, pair: &mut Pair) -> Result<Timings, Failure> {
        let receiver = self.receiver.as_ref();
        let receiver = receiver.ok_or_else(|| Failure::broken("timing", "no receiver"))?;
        receiver.timings(pair).await.doing("asking for the steps")
    }

    async fn close(&mut self) -> Result<(), Failure> {
        if let Some(receiver) = self.receiver.take() {
            self.array = Some(receiver.into_array().await.doing("ending a transfer")?);
        }
        Ok(())
    }
}
