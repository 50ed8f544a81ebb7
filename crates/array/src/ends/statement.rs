//! Statements of the ranks when they open a transfer, and how all of them agree.
//!
//! One all-reduce does it. Each rank gives its statement as numbers, and the same numbers inverted; the maximum of
//! both over all ranks shows whether all who play a part state the same:
//!
//! ```text
//!               sender's part       receiver's part
//! rank 0 of A   s, !s               0, 0
//! rank 1 of A   s, !s               0, 0                   max(s) = !max(!s): the senders agree
//! rank 0 of B   0, 0                r, !r
//! ```
//!
//! A statement that is too long for that has its hash there, and is broadcast behind.

use std::fmt;

use chunkcomm_group::{Group, Op, Pair, Root, Shape};

use super::error::{ArrayError, StatementDifference};
use crate::layout::Layout;
use crate::plan::Side;

/// Numbers of a statement that take part in the all-reduce; a longer one is broadcast: 72.
const WORDS: usize = 72;

/// Numbers of a part before those of the statement: side, length, hash.
const HEAD: usize = 3;

/// Numbers of a statement at most: 1 Mi, general blocks of as many ranks.
const WORDS_MAX: u64 = 1 << 20;

const PART: usize = HEAD + WORDS;

/// The layout and the element type of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) layout: Layout,
    /// Element type, size and byte order; its length is not used.
    pub(crate) element: Shape,
}

impl Statement {
    pub(crate) fn of<T>(layout: &Layout) -> Statement {
        const { assert!(size_of::<T>() > 0, "the elements of an array have a size") };
        Statement { layout: layout.clone(), element: Shape::of::<T>(1) }
    }

    fn words(&self) -> Vec<u64> {
        let Shape { element, element_bytes, big_endian, .. } = &self.element;
        let mut words =
            vec![u64::from(*element_bytes), u64::from(*big_endian), element.len() as u64];
        let letters = element.as_bytes().chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        words.extend(letters);
        words.extend(self.layout.to_words());
        words
    }

    fn of_words(words: &[u64], own: &Shape) -> Option<Result<Statement, ArrayError>> {
        let [element_bytes, big_endian, letters, rest @ ..] = words else { return None };
        let letters = usize::try_from(*letters).ok()?;
        let count = letters.div_ceil(8);
        let (name, layout) = (rest.get(..count)?, rest.get(count..)?);
        let name: Vec<u8> = name.iter().flat_map(|word| word.to_le_bytes()).take(letters).collect();
        let mut element = own.clone();
        element.element = String::from_utf8_lossy(&name).into_owned();
        element.element_bytes = u32::try_from(*element_bytes).ok()?;
        element.big_endian = *big_endian != 0;
        let layout = Layout::from_words(layout).map_err(ArrayError::Layout);
        Some(layout.map(|layout| Statement { layout, element }))
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { element, element_bytes, big_endian, .. } = &self.element;
        let element = element_text(element, *element_bytes, *big_endian);
        let extents = self.layout.global_shape();
        let shape = extents.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        write!(f, "{} of {shape} {element}", self.layout)
    }
}

/// Returns an element type in words.
pub(crate) fn element_text(element: &str, bytes: u32, big_endian: bool) -> String {
    let order = if big_endian { ", big-endian" } else { "" };
    format!("{element} ({bytes} bytes each{order})")
}

/// The parts that a rank plays in a transfer.
pub(super) struct Parts<'a> {
    /// Statements of the end that sends, of the end that receives.
    pub(super) parts: [Option<&'a Statement>; 2],
    /// Reason why it cannot take part.
    pub(super) fault: Option<String>,
}

/// The agreement of all ranks.
pub(crate) struct Agreed {
    pub(crate) from: Layout,
    pub(crate) to: Layout,
    /// Number that no other transfer of these ranks has.
    pub(crate) nonce: u64,
}

/// The groups that agree.
pub(super) enum Among<'a> {
    Pair(&'a mut Pair),
    Group(&'a mut Group),
}

impl Among<'_> {
    fn all(&mut self) -> &mut Group {
        match self {
            Among::Pair(pair) => pair.both(),
            Among::Group(group) => group,
        }
    }

    /// Returns 1 for the ranks that come first among both groups, 2 for the others.
    fn side(&mut self) -> u64 {
        match self {
            Among::Pair(pair) => {
                let rank = pair.rank();
                if pair.both().rank() == rank { 1 } else { 2 }
            }
            Among::Group(_) => 1,
        }
    }
}

/// Agrees with all ranks on both ends' statements.
pub(super) async fn agree(mut among: Among<'_>, ours: Parts<'_>) -> Result<Agreed, ArrayError> {
    let side = among.side();
    let own = ours.parts.iter().flatten().next().expect("a rank has a part").element.clone();
    let nonce = chunkcomm::host::random().unwrap_or_default();
    let mut words = vec![u64::from(ours.fault.is_some()), nonce];
    let long = ours.parts.map(|part| part.map(Statement::words));
    for part in &long {
        let part = part.as_ref().map(|words| numbers(side, words));
        let inverted = part.as_ref().map(|part| part.iter().map(|it| !it).collect());
        words.extend(part.unwrap_or_else(|| vec![0; PART]));
        words.extend(inverted.unwrap_or_else(|| vec![0; PART]));
    }
    let agreed = among.all().all_reduce(words, Op::max()).await;
    let agreed = agreed.map_err(|error| ArrayError::Group(error.cause))?;
    let (fault, nonce) = (agreed[0] != 0, agreed[1]);
    let part = |index: usize| {
        let at = 2 + index * 2 * PART;
        let (words, inverted) = (&agreed[at..at + PART], &agreed[at + PART..at + 2 * PART]);
        words.iter().zip(inverted).all(|(word, inverted)| *word == !*inverted).then_some(words)
    };
    let (Some(from), Some(to), false) = (part(0), part(1), fault) else {
        return Err(difference(among.all(), side, &ours).await);
    };
    let from = whole(&mut among, Side::Sender, from, long[0].as_deref()).await?;
    let to = whole(&mut among, Side::Receiver, to, long[1].as_deref()).await?;
    let broken = || ArrayError::refused(0, "its statement makes no sense");
    let from = Statement::of_words(&from, &own).ok_or_else(broken)??;
    let to = Statement::of_words(&to, &own).ok_or_else(broken)??;
    if from.layout.shape() != to.layout.shape() || from.element != to.element {
        return Err(difference(among.all(), side, &ours).await);
    }
    Ok(Agreed { from: from.layout, to: to.layout, nonce })
}

/// Returns the numbers of a part.
fn numbers(side: u64, words: &[u64]) -> Vec<u64> {
    let mut numbers = vec![side, words.len() as u64, hash(words)];
    if words.len() <= WORDS {
        numbers.extend_from_slice(words);
    }
    numbers.resize(PART, 0);
    numbers
}

fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

/// Returns all numbers of a statement, of which `agreed` are the first ones.
async fn whole(
    among: &mut Among<'_>,
    part: Side,
    agreed: &[u64],
    ours: Option<&[u64]>,
) -> Result<Vec<u64>, ArrayError> {
    let length = agreed[1];
    if length as usize <= WORDS {
        return Ok(agreed[HEAD..HEAD + length as usize].to_vec());
    }
    if length > WORDS_MAX {
        let why = format!("the {part} layout has {length} numbers, at most {WORDS_MAX} are sent");
        return Err(ArrayError::refused(0, why));
    }
    let data = ours.map_or_else(|| vec![0; length as usize], <[u64]>::to_vec);
    let told = match among {
        Among::Group(_) => return Ok(data),
        Among::Pair(pair) => {
            let root = if ours.is_some() { Root::Ours(0) } else { Root::Theirs(0) };
            pair.broadcast(root, data).await
        }
    };
    told.map_err(|error| ArrayError::Group(error.cause))
}

/// Words of a rank about itself where there is a difference: its side, its fault, what it sends, what it receives.
type Said = (u64, Option<String>, Option<String>, Option<String>);

/// Finds the first two statements that do not go together: the same at all ranks.
async fn difference(all: &mut Group, side: u64, ours: &Parts<'_>) -> ArrayError {
    let text = |end: &str, part: Option<&Statement>| part.map(|it| format!("{end} {it}"));
    let [sends, receives] = ours.parts;
    let (sends, receives) = (text("sends", sends), text("receives", receives));
    let said: Said = (side, ours.fault.clone(), sends, receives);
    match all.all_gather_values(said).await {
        Ok(all) => first_difference(&all),
        Err(error) => ArrayError::Group(error.cause),
    }
}

/// Names the first fault, else two ranks of a group that differ, else one of each group.
fn first_difference(all: &[Said]) -> ArrayError {
    let faults = all.iter().enumerate().find_map(|(rank, said)| Some((rank, said.1.clone()?)));
    if let Some((rank, why)) = faults {
        return ArrayError::refused(rank, why);
    }
    let two = |(a, of_a): (usize, &String), (b, of_b): (usize, &String)| {
        let (ranks, statements) = ([a, b], [of_a.clone(), of_b.clone()]);
        Box::new(StatementDifference { ranks, statements })
    };
    let first = |is_it: &dyn Fn(&Said) -> bool| all.iter().position(is_it);
    let [one, other] = [1, 2].map(|side| first(&|said| said.0 == side));
    for begin in [one, other].into_iter().flatten() {
        let (side, _, sends, receives) = &all[begin];
        for (rank, said) in all.iter().enumerate().filter(|(_, said)| said.0 == *side) {
            for (ours, theirs) in [(sends, &said.2), (receives, &said.3)] {
                let theirs = theirs.as_ref().or(said.2.as_ref()).or(said.3.as_ref());
                if let (Some(ours), Some(theirs)) = (ours, theirs)
                    && ours != theirs
                {
                    return ArrayError::Differs(two((begin, ours), (rank, theirs)));
                }
            }
        }
    }
    let sends = |rank: usize| Some((rank, all[rank].2.as_ref()?));
    let receives = |rank: usize| Some((rank, all[rank].3.as_ref()?));
    let sender = first(&|said| said.2.is_some()).and_then(sends);
    let receiver = first(&|said| said.3.is_some()).and_then(receives);
    let either = |rank: Option<usize>| rank.and_then(|rank| sends(rank).or(receives(rank)));
    match (sender, receiver, either(one), either(other)) {
        (Some(sender), Some(receiver), ..) => ArrayError::Mismatch(two(sender, receiver)),
        (_, _, Some(one), Some(other)) => ArrayError::Mismatch(two(one, other)),
        _ => ArrayError::Ended,
    }
}
