//! Linda (Carriero & Gelernter): processes meet in a space of tuples, and never name each other.
//!
//! | C-Linda | here |
//! |---|---|
//! | `out("task", 3, x)` | `space.out("task", &(3, x)).await?` |
//! | `in("task", 3, ?x)` | `let (_, x) = space.in_("task", (3, any::<f64>())).await?` |
//! | `rd`, `inp`, `rdp` | the same; the predicates return an `Option` at once |
//! | `eval("root", x, root(x))` | `space.eval(&root, &x).await?`, done by [`Space::evaluate`] |
//!
//! One node [holds](hold) the space; once it is dead or holds it no longer, each operation is an error that names it.
//! A template matches tuples of its name and types, the oldest first. The node's report has the waits.
//! Processes may die. A tuple that `in_` or `inp` took is *settled* by the next operation of its
//! handle. Until then it goes back when its taker dies, or drops the handle or an operation: taking
//! a task and putting its result is one step. A dropped operation was done wholly or not at all.

mod holding;

use chunkcomm::layer::Wait;
use chunkcomm::{Duplex, codec, host, proto::describe::describe, with_causes};
use chunkcomm_cluster::{Cluster, Function, Registry, cluster::Member, registry::Travels};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{Error, ErrorKind, Result};
use std::{any::type_name, convert::Infallible, fmt, marker::PhantomData};

use super::sole::withdrawn;

pub use holding::hold;

/// A formal of a template, `?x` in C-Linda: it matches every value of its type. See [`any`].
#[derive(Serialize)]
pub struct Any<T>(PhantomData<fn() -> T>);

/// Returns a formal.
pub fn any<T>() -> Any<T> {
    Any(PhantomData)
}
impl<T> fmt::Debug for Any<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "?{}", type_name::<T>())
    }
}

/// An element of a template: [`any`], or a value, which matches the values that are encoded alike.
pub trait Pattern: Serialize + fmt::Debug {
    /// Type of the field.
    type Value: Serialize + DeserializeOwned;
}
impl<T: Serialize + DeserializeOwned> Pattern for Any<T> {
    type Value = T;
}
impl<T: Serialize + DeserializeOwned + fmt::Debug> Pattern for T {
    type Value = T;
}

/// A Rust tuple of up to five [`Pattern`]s. Those of values alone are tuples for [`Space::out`].
pub trait Template: fmt::Debug {
    /// Type of the tuples that it matches.
    type Tuple: Serialize + DeserializeOwned;
    /// Returns the bytes of each element. A formal has none, and no bytes match all.
    fn fields(&self) -> Result<Fields>;
}
macro_rules! templates {
    ($(($($part:ident $at:tt)*))*) => {$(
        impl<$($part: Pattern),*> Template for ($($part,)*) {
            type Tuple = ($($part::Value,)*);
            fn fields(&self) -> Result<Fields> {
                Ok(vec![$(bytes(&self.$at)?),*])
            }
        }
    )*};
}
templates! { () (A 0) (A 0 B 1) (A 0 B 1 C 2) (A 0 B 1 C 2 D 3) (A 0 B 1 C 2 D 3 E 4) }

type Fields = Vec<Vec<u8>>;
type Reply = std::result::Result<Option<Fields>, String>;
type Found<T> = Result<Option<T>>;

fn bytes<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    codec::encode_into_vec(value, &mut bytes).map(|_| bytes).map_err(Error::other)
}
fn kind<T: Serialize + DeserializeOwned>(name: &str) -> String {
    format!("{name:?} of {}", describe::<T>().text)
}

/// An operation, or a tuple of the space.
#[derive(Clone, Serialize, Deserialize)]
struct Request {
    verb: String,
    kind: String, // name and types, which a template shares with its matches
    fields: Fields,
    /// The operation for people; of a tuple, why the evaluation failed that was to make it.
    text: String,
}

/// A handle of a space: a process of Linda. It counts as a clone of its cluster.
pub struct Space {
    cluster: Cluster,
    name: String,
    holder: Member,
    line: Option<Duplex<Request, Reply>>, // none after an operation that was dropped
}

impl Space {
    /// Waits until a node holds the space; returns a handle of it.
    pub async fn attach(cluster: &Cluster, space: &str) -> Result<Space> {
        let (cluster, name) = (cluster.clone(), format!("space {space}"));
        let id = cluster.provider(&name).await.map_err(Error::other)?;
        let holder = cluster.member(id.rank).ok_or(ErrorKind::NotConnected)?;
        Ok(Space { cluster, name, holder, line: None })
    }
    /// Puts a tuple into the space; returns when it is there. A full space is an error.
    pub async fn out<T: Template<Tuple = T>>(&mut self, name: &str, tuple: &T) -> Result<()> {
        self.ask("out", name, tuple).await.map(drop)
    }
    /// Takes the oldest tuple that matches; waits for one. (`in` is a word of Rust.)
    pub async fn in_<T: Template>(&mut self, name: &str, template: T) -> Result<T::Tuple> {
        self.ask("in", name, &template).await?.ok_or_else(|| ErrorKind::InvalidData.into())
    }
    /// Reads the oldest tuple that matches; waits for one.
    pub async fn rd<T: Template>(&mut self, name: &str, template: T) -> Result<T::Tuple> {
        self.ask("rd", name, &template).await?.ok_or_else(|| ErrorKind::InvalidData.into())
    }
    /// Takes the oldest tuple that matches, if there is one now.
    pub async fn inp<T: Template>(&mut self, name: &str, template: T) -> Found<T::Tuple> {
        self.ask("inp", name, &template).await
    }
    /// Reads the oldest tuple that matches, if there is one now.
    pub async fn rdp<T: Template>(&mut self, name: &str, template: T) -> Found<T::Tuple> {
        self.ask("rdp", name, &template).await
    }
    /// Settles the tuple that this handle took.
    pub async fn done(&mut self) -> Result<()> {
        self.rdp("", ()).await.map(drop)
    }
    /// Puts a live tuple: evaluated, it is `(input, output)`, with the function's name.
    pub async fn eval<I: Travels, O: Travels>(&mut self, f: &Function<I, O>, i: &I) -> Result<()> {
        self.out("live", &(kind::<(I, O)>(f.name()), f.name().to_owned(), bytes(i)?)).await
    }
    /// Evaluates live tuples by the functions of `registry`, one at a time, until an operation fails.
    /// A function that is missing or panics is an error of those who match its result.
    pub async fn evaluate(mut self, registry: &Registry) -> Result<Infallible> {
        loop {
            let (kind, f, x): (_, String, Vec<u8>) =
                self.in_("live", (any(), any(), any())).await?;
            let (entry, input) = (registry.lookup(&f).cloned(), x.clone());
            let call = host::compute(Default::default(), move || {
                let entry = entry.ok_or_else(|| format!("no function {f:?} here"))?;
                let mut output = Vec::new();
                entry.call(&input, &mut output).map(|()| output).map_err(|it| it.to_string())
            });
            let (text, y) = call.await.map_or_else(|why| (why, Vec::new()), |y| (String::new(), y));
            self.send(Request { verb: "out".to_owned(), kind, fields: vec![x, y], text }).await?;
        }
    }
    async fn ask<T: Template>(&mut self, op: &str, name: &str, t: &T) -> Found<T::Tuple> {
        let (at, kind, fields) = (&self.name, kind::<T::Tuple>(name), t.fields()?);
        // A tuple has no text.
        let text = if op == "out" { "".into() } else { format!("{op}({name:?}, {t:?}) at {at}") };
        let found = self.send(Request { verb: op.to_owned(), kind, fields, text }).await?;
        // A tuple is encoded as its fields, one behind the other.
        found.map(|fields| codec::decode(&fields.concat()).map_err(Error::other)).transpose()
    }
    /// Asks the holder. When this is dropped, so is the line, and what it took goes back.
    async fn send(&mut self, request: Request) -> Found<Fields> {
        let mut line = self.line.take();
        let node = self.cluster.node();
        let what = || format!("{}, held by {}", request.text, self.holder);
        let _wait = (!request.text.is_empty()).then(|| Wait::begin(node, what()));
        let asked = async {
            if line.is_none() {
                let peer = self.cluster.peer(self.holder.id.rank).await?;
                if peer.incarnation() != self.holder.id.incarnation {
                    return Err("it is gone, and another node has its rank".into());
                }
                line = Some(node.open_duplex(&peer, &*self.name).await?);
            }
            let line = line.as_mut().expect("it was opened above");
            line.send(&request).await?;
            Ok::<Reply, Box<dyn std::error::Error>>(line.recv().await?.ok_or("it has ended")?)
        };
        let withdrawn = withdrawn(&self.cluster, &self.name, self.holder.id);
        let asked = tokio::select! {
            biased;
            asked = asked => Ok(asked),
            why = withdrawn => Err(why),
        };
        let reply = match asked {
            Ok(asked) => {
                self.line = line;
                asked.unwrap_or_else(|error| Err(with_causes(&*error)))
            }
            Err(why) => Err(why),
        };
        reply.map_err(|why| Error::other(format!("{} of {}: {why}", self.name, self.holder)))
    }
}
