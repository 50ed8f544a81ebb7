//! Knowledge of a type, as a graph.
//!
//! A *node* is one call of the deserializer by one visitor: a struct, a sequence, a number. It
//! has one *alternative* for each way in which it can be answered: an enum one for each
//! variant, an option some and none, a sequence one element and no element, a struct just one.
//! An alternative has *children*, the nodes that it asks for in turn.

use std::borrow::Cow;

/// Most structs and tuples within each other that are searched for a value without bytes.
const DEPTH_MAX: usize = 128;

/// A node's place in the graph.
pub(super) type Id = usize;

/// The kind of value that a visitor asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A value without parts, by its name in the text.
    Leaf(&'static str),
    /// Nothing, which takes no bytes.
    Unit,
    UnitStruct(&'static str),
    /// Any type, as the bytes declare.
    Any,
    Option,
    Seq,
    Map,
    Tuple(usize),
    Newtype(&'static str),
    TupleStruct(&'static str, usize),
    Struct(&'static str, &'static [&'static str]),
    Enum(&'static str, &'static [&'static str]),
}

/// Form of an enum's variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    Unit,
    Newtype,
    Tuple(usize),
    Struct(&'static [&'static str]),
}

impl Form {
    pub(super) fn arity(self) -> usize {
        match self {
            Form::Unit => 0,
            Form::Newtype => 1,
            Form::Tuple(len) => len,
            Form::Struct(fields) => fields.len(),
        }
    }

    /// Whether the two are the same apart from fields.
    pub(super) fn is_like(self, other: Form) -> bool {
        matches!((self, other), (Form::Struct(_), Form::Struct(_))) || self == other
    }
}

/// One way to answer a node.
#[derive(Debug, Default)]
pub(super) struct Alternative {
    /// Nodes that it asks for in turn, as far as known.
    pub(super) children: Vec<Id>,
    /// Form of a variant, once known.
    pub(super) form: Option<Form>,
    /// Number of children, once known.
    pub(super) arity: Option<usize>,
    pub(super) tries: u32,
    pub(super) given_up: bool,
    /// Whether a value that was made up by it was compared with its bytes, or never will be.
    pub(super) is_compared: bool,
    /// Node that stopped an answer by this alternative.
    pub(super) waits_for: Option<Id>,
}

impl Alternative {
    fn with_arity(arity: usize) -> Self {
        Alternative { arity: Some(arity), ..Alternative::default() }
    }

    /// Whether all its children are known.
    pub(super) fn is_done(&self) -> bool {
        self.arity.is_some_and(|arity| self.children.len() >= arity)
    }

    /// Whether it must not be asked for unknown things.
    pub(super) fn is_out(&self) -> bool {
        self.given_up || self.waits_for.is_some()
    }
}

/// One call of the deserializer.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) alternatives: Vec<Alternative>,
    /// The answers, a bit each, that a leaf's visitor refused.
    pub(super) turned_down: u32,
    /// Number of answers that there are for a leaf.
    pub(super) answers: u32,
    /// The alternative by which something was last found out.
    pub(super) picked: usize,
}

impl Node {
    pub(super) fn new(kind: Kind, answers: u32) -> Self {
        let alternatives = match kind {
            Kind::Leaf(_) | Kind::Any => Vec::new(),
            Kind::Unit | Kind::UnitStruct(_) => vec![Alternative::with_arity(0)],
            Kind::Option | Kind::Seq => [1, 0].map(Alternative::with_arity).into(),
            Kind::Map => [2, 0].map(Alternative::with_arity).into(),
            Kind::Newtype(_) => vec![Alternative::with_arity(1)],
            Kind::Tuple(len) | Kind::TupleStruct(_, len) => vec![Alternative::with_arity(len)],
            Kind::Struct(_, fields) => vec![Alternative::with_arity(fields.len())],
            Kind::Enum(_, variants) => variants.iter().map(|_| Alternative::default()).collect(),
        };
        Node { kind, alternatives, turned_down: 0, answers, picked: 0 }
    }

    /// Returns the first answer, counted from `round` on, that was not refused.
    pub(super) fn answer(&self, round: u32) -> Option<u32> {
        (0..self.answers)
            .map(|offset| (round + offset) % self.answers)
            .find(|answer| self.turned_down & (1 << answer) == 0)
    }
}

/// Everything that was found out about a type.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) root: Option<Id>,
    /// Whether two calls in one place asked for different things.
    pub(super) varies: bool,
    /// The reason why a made-up value would be misread.
    pub(super) misreading: Option<String>,
}

impl Graph {
    /// Whether nothing is left unknown.
    pub(super) fn is_complete(&self) -> bool {
        let is_done = |node: &Node| node.alternatives.iter().all(Alternative::is_done);
        let is_any = |node: &Node| node.kind == Kind::Any;
        !self.varies && self.nodes.iter().all(|node| is_done(node) && !is_any(node))
    }

    /// Returns the reason why values of the type cannot travel, if there is one.
    pub(super) fn refusal(&self) -> Option<Cow<'static, str>> {
        if self.nodes.iter().any(|node| node.kind == Kind::Any) {
            let reason = "the type asks the bytes what they are, which this format cannot say";
            return Some(reason.into());
        }
        let is_container = |node: &&Node| matches!(node.kind, Kind::Seq | Kind::Map);
        let is_free = |node: &Node| {
            let one = &node.alternatives[0];
            one.is_done() && one.children.iter().all(|child| self.takes_no_bytes(*child, 0))
        };
        if self.nodes.iter().filter(is_container).any(is_free) {
            return Some("the type holds a sequence or map of elements that take no bytes".into());
        }
        let cause = self.misreading.as_ref()?;
        Some(format!("a value of the type is not written as it is read: {cause}").into())
    }

    fn takes_no_bytes(&self, id: Id, depth: usize) -> bool {
        let node = &self.nodes[id];
        match node.kind {
            Kind::Unit | Kind::UnitStruct(_) => true,
            Kind::Newtype(_) | Kind::Tuple(_) | Kind::TupleStruct(..) | Kind::Struct(..) => {
                let mut alternatives = node.alternatives.iter();
                depth < DEPTH_MAX
                    && alternatives.all(|one| {
                        one.is_done()
                            && one
                                .children
                                .iter()
                                .all(|child| self.takes_no_bytes(*child, depth + 1))
                    })
            }
            _ => false,
        }
    }
}
