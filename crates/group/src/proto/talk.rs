//! Words of the ranks of a group to each other, and what a rank states of a call.
//!
//! ```text
//! offset  0     1     9          11       19
//!         kind  call  statement  left     statement ..  payload ..
//!         u8    u64   len, u16   u64
//! ```
//!
//! All numbers are little-endian. Every word of a call carries the sender's whole statement: whoever
//! gets it compares the bytes with those of its own call.

use std::fmt;

use bytes::Buf;
use chunkcomm_proto::loss::Loss;
use chunkcomm_proto::plain::{Plain, cut};

use crate::proto::schedule::algorithm::Algorithm;

/// Longest name of an element type or operator that a statement carries.
const NAME_BYTES_MAX: usize = 100;

/// Length of a word before its statement.
const HEAD_BYTES: usize = 19;

/// Operations of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Barrier,
    Broadcast,
    Reduce,
    AllReduce,
    ReduceScatter,
    Gather,
    Scatter,
    AllGather,
    AllToAll,
    Scan,
    ExclusiveScan,
    BroadcastValue,
    GatherValues,
    AllGatherValues,
    ReduceValues,
    Split,
    Measure,
    BroadcastDelta,
    ReduceDelta,
    AllReduceDelta,
    GatherDelta,
    Meet,
}

/// All operations, by their numbers on the wire.
const OPERATIONS: [(Operation, &str); 22] = [
    (Operation::Barrier, "barrier"),
    (Operation::Broadcast, "broadcast"),
    (Operation::Reduce, "reduce"),
    (Operation::AllReduce, "all_reduce"),
    (Operation::ReduceScatter, "reduce_scatter"),
    (Operation::Gather, "gather"),
    (Operation::Scatter, "scatter"),
    (Operation::AllGather, "all_gather"),
    (Operation::AllToAll, "all_to_all"),
    (Operation::Scan, "scan"),
    (Operation::ExclusiveScan, "exclusive_scan"),
    (Operation::BroadcastValue, "broadcast_value"),
    (Operation::GatherValues, "gather_values"),
    (Operation::AllGatherValues, "all_gather_values"),
    (Operation::ReduceValues, "reduce_values"),
    (Operation::Split, "split"),
    (Operation::Measure, "measure"),
    (Operation::BroadcastDelta, "broadcast_delta"),
    (Operation::ReduceDelta, "reduce_delta"),
    (Operation::AllReduceDelta, "all_reduce_delta"),
    (Operation::GatherDelta, "gather_delta"),
    (Operation::Meet, "meet"),
];

/// A rank's statement of a call, which must be the same at all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement<'a> {
    pub(crate) operation: Operation,
    pub(crate) algorithm: Algorithm,
    /// The algorithm was not set, but chosen.
    pub(crate) is_chosen: bool,
    pub(crate) reproducible: bool,
    pub(crate) commutative: bool,
    /// Two rounds of it may be under way.
    pub(crate) is_double: bool,
    pub(crate) root: Option<u32>,
    /// Type of the elements, and size of one; empty and 0 for a barrier.
    pub(crate) element: &'a str,
    pub(crate) element_bytes: u32,
    /// Number of elements, where it is the same at all ranks.
    pub(crate) elements: Option<u64>,
    /// Hash of the numbers of elements of each rank, where they are the same at all ranks.
    pub(crate) counts: u64,
    pub(crate) operator: &'a str,
}

impl<'a> Statement<'a> {
    /// Returns the statement of a call without data.
    pub(crate) fn new(operation: Operation) -> Statement<'a> {
        Statement {
            operation,
            algorithm: Algorithm::Auto,
            is_chosen: true,
            reproducible: false,
            commutative: true,
            is_double: false,
            root: None,
            element: "",
            element_bytes: 0,
            elements: None,
            counts: 0,
            operator: "",
        }
    }

    /// Adds the type of the elements.
    pub(crate) fn of<T>(mut self) -> Statement<'a> {
        self.element = type_name::<T>();
        self.element_bytes = u32::try_from(size_of::<T>()).unwrap_or(u32::MAX);
        self
    }

    /// Writes the statement behind what `out` has.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let number = OPERATIONS.iter().position(|(it, _)| *it == self.operation);
        out.push(number.expect("each operation is listed") as u8);
        out.push(self.algorithm.number());
        let flags = [self.reproducible, self.commutative, self.is_chosen, self.is_double];
        out.push((0..).zip(flags).map(|(bit, flag)| u8::from(flag) << bit).sum());
        out.extend_from_slice(&self.root.map_or(u32::MAX, |root| root).to_le_bytes());
        out.extend_from_slice(&self.element_bytes.to_le_bytes());
        out.extend_from_slice(&self.elements.map_or(u64::MAX, |it| it).to_le_bytes());
        out.extend_from_slice(&self.counts.to_le_bytes());
        for name in [self.element, self.operator] {
            let name = cut(name, NAME_BYTES_MAX);
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
        }
    }

    /// Reads a statement; `None` when the bytes are none.
    pub(crate) fn decode(mut bytes: &'a [u8]) -> Option<Statement<'a>> {
        let operation = OPERATIONS.get(usize::from(bytes.try_get_u8().ok()?))?.0;
        let algorithm = Algorithm::of_number(bytes.try_get_u8().ok()?)?;
        let flags = bytes.try_get_u8().ok()?;
        let [reproducible, commutative, is_chosen, is_double] =
            [1, 2, 4, 8].map(|bit| flags & bit != 0);
        let root = Some(bytes.try_get_u32_le().ok()?).filter(|root| *root != u32::MAX);
        let element_bytes = bytes.try_get_u32_le().ok()?;
        let elements = Some(bytes.try_get_u64_le().ok()?).filter(|it| *it != u64::MAX);
        let counts = bytes.try_get_u64_le().ok()?;
        let mut names = [""; 2];
        for name in &mut names {
            let length = usize::from(bytes.try_get_u8().ok()?);
            let (text, rest) = bytes.split_at_checked(length)?;
            *name = std::str::from_utf8(text).ok()?;
            bytes = rest;
        }
        let [element, operator] = names;
        Some(Statement {
            operation,
            algorithm,
            is_chosen,
            reproducible,
            commutative,
            is_double,
            root,
            element,
            element_bytes,
            elements,
            counts,
            operator,
        })
    }
}

/// With `#` also the algorithm that was chosen.
impl fmt::Display for Statement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = OPERATIONS.iter().find(|(it, _)| *it == self.operation);
        f.write_str(listed.expect("each operation is listed").1)?;
        if let Some(elements) = self.elements {
            write!(f, " of {elements} elements")?;
        }
        if !self.element.is_empty() {
            write!(f, " of {} ({} bytes)", Plain(self.element), self.element_bytes)?;
        }
        if let Some(root) = self.root {
            write!(f, " with root {root}")?;
        }
        if !self.operator.is_empty() {
            write!(f, " by {}", Plain(self.operator))?;
            if !self.commutative {
                f.write_str(", not commutative")?;
            }
        }
        if self.counts != 0 {
            write!(f, " in parts {:x}", self.counts)?;
        }
        if self.algorithm != Algorithm::Auto && (!self.is_chosen || f.alternate()) {
            write!(f, " as {}", self.algorithm)?;
        }
        if self.reproducible {
            f.write_str(", reproducible")?;
        }
        if self.is_double {
            f.write_str(", two rounds at a time")?;
        }
        Ok(())
    }
}

/// Returns the name by which statements and errors know a type.
pub(crate) fn type_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    // The path of the module may differ between two programs.
    let plain = !name.contains(['<', '(', '[']);
    let from = if plain { name.rfind("::").map_or(0, |at| at + 2) } else { 0 };
    cut(&name[from..], NAME_BYTES_MAX)
}

/// Returns the text of a statement's bytes; there are none of a call that is forgotten.
pub(crate) fn text(statement: &[u8]) -> String {
    if statement.is_empty() {
        return "something that ended there long ago".to_owned();
    }
    let decoded = Statement::decode(statement);
    decoded.map_or_else(|| "an unreadable call".to_owned(), |it| it.to_string())
}

/// Returns the texts of two statements that differ, by which they can be told apart.
pub(crate) fn texts(statements: &[Vec<u8>; 2]) -> [String; 2] {
    let [a, b] = statements.each_ref().map(|it| text(it));
    if a != b {
        return [a, b];
    }
    let full = |it: &Vec<u8>| Statement::decode(it).map(|it| format!("{it:#}"));
    statements.each_ref().map(full).map(|it| it.unwrap_or_else(|| a.clone()))
}

/// Kind of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first word of a channel: `call` is the sender's rank, `left` the version of its words.
    Hello,
    /// Data of a step; `left` bytes of the same step follow in further words.
    Data,
    /// The sender has memory for its part of a large call.
    Ready,
    /// The sender waits for the receiver in this call.
    Asks,
    /// The group is broken; the payload says why.
    Broken,
    /// The answer to a question of a call that ended long ago: the sender has said all of it before.
    Over,
}

const KINDS: [Kind; 6] =
    [Kind::Hello, Kind::Data, Kind::Ready, Kind::Asks, Kind::Broken, Kind::Over];

/// A word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    pub(crate) kind: Kind,
    pub(crate) call: u64,
    pub(crate) left: u64,
    pub(crate) statement: &'a [u8],
}

impl<'a> Word<'a> {
    /// Writes the word, to which the payload is to be added.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        out.extend_from_slice(&self.call.to_le_bytes());
        let length = u16::try_from(self.statement.len()).expect("names are cut");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&self.left.to_le_bytes());
        out.extend_from_slice(self.statement);
    }

    /// Reads a word and returns it with its length; `None` when the bytes are none.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<(Word<'a>, usize)> {
        let (mut head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let kind = *KINDS.get(usize::from(head.get_u8()))?;
        let call = head.get_u64_le();
        let length = usize::from(head.get_u16_le());
        let left = head.get_u64_le();
        let statement = rest.get(..length)?;
        Some((Word { kind, call, left, statement }, HEAD_BYTES + length))
    }
}

/// Reason why a group is broken, as ranks tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Two ranks state different calls under one number.
    Differs { call: u64, ranks: [u32; 2], statements: [Vec<u8>; 2] },
    /// A rank is lost, or could not go on.
    Lost { rank: u32, loss: Loss },
    /// A rank made more calls than may be under way.
    TooManyCalls { rank: u32, bound: u64 },
}

impl Fault {
    /// Whether it names ranks of a group of this size.
    pub(crate) fn is_among(&self, size: usize) -> bool {
        match self {
            Fault::Differs { ranks, .. } => ranks.iter().all(|rank| (*rank as usize) < size),
            Fault::Lost { rank, .. } | Fault::TooManyCalls { rank, .. } => (*rank as usize) < size,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Fault::Differs { call, ranks, statements } => {
                out.push(0);
                out.extend_from_slice(&call.to_le_bytes());
                for (rank, statement) in ranks.iter().zip(statements) {
                    out.extend_from_slice(&rank.to_le_bytes());
                    out.extend_from_slice(&(statement.len() as u16).to_le_bytes());
                    out.extend_from_slice(statement);
                }
            }
            Fault::Lost { rank, loss } => {
                out.push(1);
                out.extend_from_slice(&rank.to_le_bytes());
                out.extend_from_slice(&loss.to_bytes());
            }
            Fault::TooManyCalls { rank, bound } => {
                out.push(2);
                out.extend_from_slice(&rank.to_le_bytes());
                out.extend_from_slice(&bound.to_le_bytes());
            }
        }
        out
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Fault> {
        match bytes.try_get_u8().ok()? {
            0 => {
                let call = bytes.try_get_u64_le().ok()?;
                let (mut ranks, mut statements) = ([0; 2], [Vec::new(), Vec::new()]);
                for (rank, statement) in ranks.iter_mut().zip(&mut statements) {
                    *rank = bytes.try_get_u32_le().ok()?;
                    let length = usize::from(bytes.try_get_u16_le().ok()?);
                    let (theirs, rest) = bytes.split_at_checked(length)?;
                    *statement = theirs.to_vec();
                    bytes = rest;
                }
                Some(Fault::Differs { call, ranks, statements })
            }
            1 => {
                let rank = bytes.try_get_u32_le().ok()?;
                Some(Fault::Lost { rank, loss: Loss::from_bytes(bytes)? })
            }
            2 => {
                let (rank, bound) = (bytes.try_get_u32_le().ok()?, bytes.try_get_u64_le().ok()?);
                Some(Fault::TooManyCalls { rank, bound })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_statement_reads_as_it_was_written_and_in_words() {
        let statement = Statement {
            root: Some(3),
            elements: Some(10),
            operator: "sum",
            ..Statement::new(Operation::Reduce).of::<f64>()
        };
        let mut bytes = Vec::new();
        statement.encode(&mut bytes);
        assert_eq!(Statement::decode(&bytes), Some(statement));
        assert_eq!(text(&bytes), "reduce of 10 elements of f64 (8 bytes) with root 3 by sum");
        for length in 0..bytes.len() {
            assert_eq!(Statement::decode(&bytes[..length]), None);
        }
    }

    #[test]
    fn statements_that_differ_in_a_choice_differ_in_their_texts() {
        let statement = |algorithm, commutative| {
            let mut bytes = Vec::new();
            let new = Statement::new(Operation::AllReduce);
            Statement { algorithm, commutative, operator: "x", ..new }.encode(&mut bytes);
            bytes
        };
        let chosen = [statement(Algorithm::Ring, true), statement(Algorithm::Doubling, true)];
        assert_eq!(texts(&chosen), ["all_reduce by x as ring", "all_reduce by x as doubling"]);
        let said = [statement(Algorithm::Ring, true), statement(Algorithm::Ring, false)];
        assert_eq!(texts(&said), ["all_reduce by x", "all_reduce by x, not commutative"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Statement::decode(&bytes);
            let _ = Fault::decode(&bytes);
            if let Some((word, length)) = Word::decode(&bytes) {
                let mut again = Vec::new();
                word.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..length]);
            }
        }

        #[test]
        fn a_fault_reads_as_it_was_written(
            call: u64,
            ranks: [u32; 2],
            a in prop::collection::vec(any::<u8>(), 0..40),
            b in prop::collection::vec(any::<u8>(), 0..40),
            why in ".{0,40}",
        ) {
            let differs = Fault::Differs { call, ranks, statements: [a, b] };
            prop_assert_eq!(Fault::decode(&differs.encode()), Some(differs));
            let lost = Fault::Lost { rank: ranks[0], loss: why.into() };
            prop_assert_eq!(Fault::decode(&lost.encode()), Some(lost));
            let many = Fault::TooManyCalls { rank: ranks[0], bound: call };
            prop_assert_eq!(Fault::decode(&many.encode()), Some(many));
        }
    }
}
