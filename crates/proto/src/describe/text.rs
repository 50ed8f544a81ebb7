//! The graph of a type as text, the same for graphs that look the same.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::graph::{Alternative, Form, Graph, Id, Kind};

/// Length from which texts are cut: tuples of tuples can be written out at any length.
const TEXT_BYTES_LIMIT: usize = 64 * 1024;

/// Writes the graph down; false when the text had to be cut.
pub(super) fn write(graph: &Graph) -> (String, bool) {
    let mut writer = Writer {
        graph,
        classes: classes(graph),
        named: HashMap::new(),
        names: HashMap::new(),
        path: Vec::new(),
        text: String::new(),
    };
    match graph.root {
        Some(root) => writer.node(root),
        None => writer.text.push('?'),
    }
    let fits = writer.text.len() <= TEXT_BYTES_LIMIT;
    (writer.text, fits)
}

/// Puts nodes that look the same, all the way down, in the same class: first those of one kind,
/// then, again and again, those whose children are of the same classes.
fn classes(graph: &Graph) -> Vec<usize> {
    let mut classes = vec![0; graph.nodes.len()];
    let mut count = 0;
    loop {
        let mut numbers = HashMap::new();
        let next: Vec<usize> = graph
            .nodes
            .iter()
            .enumerate()
            .map(|(id, node)| {
                let look = |one: &Alternative| {
                    let children = one.children.iter().map(|child| classes[*child]);
                    (one.form, one.is_done(), children.collect::<Vec<_>>())
                };
                let looks: Vec<_> = node.alternatives.iter().map(look).collect();
                let number = numbers.len();
                *numbers.entry((classes[id], node.kind, looks)).or_insert(number)
            })
            .collect();
        if numbers.len() == count {
            return next;
        }
        count = numbers.len();
        classes = next;
    }
}

struct Writer<'a> {
    graph: &'a Graph,
    classes: Vec<usize>,
    /// Written classes that have a name, with the name used.
    named: HashMap<usize, String>,
    /// Number of different classes of a name.
    names: HashMap<&'static str, usize>,
    /// Classes without a name that are being written within the innermost one with a name.
    path: Vec<usize>,
    text: String,
}

impl Writer<'_> {
    fn node(&mut self, id: Id) {
        if self.text.len() > TEXT_BYTES_LIMIT {
            return;
        }
        let graph = self.graph;
        let node = &graph.nodes[id];
        match node.kind {
            Kind::Leaf(name) => self.text.push_str(name),
            Kind::Unit => self.text.push_str("()"),
            Kind::Any => self.text.push('?'),
            Kind::UnitStruct(name)
            | Kind::Newtype(name)
            | Kind::TupleStruct(name, _)
            | Kind::Struct(name, _)
            | Kind::Enum(name, _) => self.named(id, name),
            Kind::Option => self.anonymous(id, "option", |writer, one| {
                writer.text.push_str("option<");
                writer.list(one, 1);
                writer.text.push('>');
            }),
            Kind::Seq => self.anonymous(id, "seq", |writer, one| {
                writer.text.push('[');
                writer.list(one, 1);
                writer.text.push(']');
            }),
            Kind::Map => self.anonymous(id, "map", |writer, one| {
                writer.text.push_str("map<");
                writer.list(one, 2);
                writer.text.push('>');
            }),
            Kind::Tuple(len) => self.anonymous(id, "tuple", |writer, one| writer.tuple(one, len)),
        }
    }

    /// Writes the first alternative of a node, or a mark when it is being written already.
    fn anonymous(&mut self, id: Id, word: &str, write: impl FnOnce(&mut Self, &Alternative)) {
        let class = self.classes[id];
        if let Some(above) = self.path.iter().rev().position(|one| *one == class) {
            // A class without a name is known by its distance upwards.
            let _ = write!(self.text, "^{word}:{above}");
            return;
        }
        self.path.push(class);
        write(self, &self.graph.nodes[id].alternatives[0]);
        self.path.pop();
    }

    fn named(&mut self, id: Id, name: &'static str) {
        let class = self.classes[id];
        if let Some(known) = self.named.get(&class) {
            let _ = write!(self.text, "^{known}");
            return;
        }
        let count = self.names.entry(name).or_insert(0);
        *count += 1;
        let mut full = quoted(name);
        if *count > 1 {
            let _ = write!(full, "#{count}");
        }
        self.named.insert(class, full.clone());
        let path = std::mem::take(&mut self.path);
        self.body(id, &full);
        self.path = path;
    }

    fn body(&mut self, id: Id, full: &str) {
        let graph = self.graph;
        let node = &graph.nodes[id];
        if let Kind::Enum(_, variants) = node.kind {
            let _ = write!(self.text, "enum {full}{{");
            for (index, (variant, one)) in variants.iter().zip(&node.alternatives).enumerate() {
                if index > 0 {
                    self.text.push_str(" | ");
                }
                self.text.push_str(&quoted(variant));
                self.variant(one);
            }
            self.text.push('}');
            return;
        }
        self.text.push_str(full);
        let one = &node.alternatives[0];
        match node.kind {
            Kind::Struct(_, fields) => self.fields(one, fields),
            Kind::TupleStruct(_, len) => self.tuple(one, len),
            Kind::Newtype(_) => self.tuple(one, 1),
            _ => {}
        }
    }

    fn variant(&mut self, one: &Alternative) {
        match one.form {
            None => self.text.push('?'),
            Some(Form::Unit) => {}
            Some(Form::Newtype) => self.tuple(one, 1),
            Some(Form::Tuple(len)) => self.tuple(one, len),
            Some(Form::Struct(fields)) => self.fields(one, fields),
        }
    }

    fn fields(&mut self, one: &Alternative, fields: &[&str]) {
        self.text.push('{');
        for (index, field) in fields.iter().enumerate() {
            if index > 0 {
                self.text.push_str(", ");
            }
            self.text.push_str(&quoted(field));
            self.text.push_str(": ");
            self.child(one, index);
        }
        self.text.push('}');
    }

    /// Writes a tuple, or an array, which looks like a tuple of equal elements.
    fn tuple(&mut self, one: &Alternative, len: usize) {
        let class = |child: &Id| self.classes[*child];
        let mut known = one.children.iter().map(class);
        let first = known.next();
        let is_array = one.children.len() == len && len > 1 && known.all(|it| Some(it) == first);
        if is_array {
            self.text.push('[');
            self.child(one, 0);
            let _ = write!(self.text, "; {len}]");
        } else {
            self.text.push('(');
            self.list(one, len);
            self.text.push(')');
        }
    }

    fn list(&mut self, one: &Alternative, len: usize) {
        for index in 0..len {
            if index > 0 {
                self.text.push_str(", ");
            }
            self.child(one, index);
            // A hand-written type may declare any number of elements.
            if self.text.len() > TEXT_BYTES_LIMIT {
                return;
            }
        }
    }

    fn child(&mut self, one: &Alternative, index: usize) {
        match one.children.get(index) {
            Some(child) => self.node(*child),
            // The type reads less than it declares.
            None if one.is_done() => self.text.push('-'),
            None => self.text.push('?'),
        }
    }
}

/// Returns a name in a form that cannot be taken for anything else in the text.
fn quoted(name: &str) -> String {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    if !name.is_empty() && name.chars().all(is_word) {
        name.to_owned()
    } else {
        format!("{name:?}")
    }
}
