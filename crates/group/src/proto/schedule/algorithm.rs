//! Names of the ways in which a collective call can travel.

use std::fmt;
use std::str::FromStr;

use chunkcomm_proto::plain::Plain;

/// Way in which a collective call travels among the ranks of a group.
///
/// Each call has some of them; its documentation names those. A collective that flows (`chunkcomm-pipeline`) has
/// `Chain`, `Binary`, `Binomial`, `Chains` or `Direct`: those that can begin with the first increment. A name is what `Display` writes and what `FromStr` reads.
///
/// ```
/// use chunkcomm_group::Algorithm;
///
/// assert_eq!("ring".parse(), Ok(Algorithm::Ring));
/// assert_eq!(Algorithm::Chains.to_string(), "chains");
/// let error = "rnig".parse::<Algorithm>().unwrap_err();
/// assert!(error.to_string().starts_with("`rnig` is no algorithm"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// The one whose modelled time is least, by the measured costs of the group.
    #[default]
    Auto,
    /// From rank to rank. Best for large data among few ranks.
    Chain,
    /// A binomial tree: in each round every rank that has the data serves another one. Best for small data.
    Binomial,
    /// A balanced binary tree. Best for large data among many ranks.
    Binary,
    /// Recursive doubling: in each round a rank exchanges what it has with one twice as far away.
    Doubling,
    /// Around a ring, a block a round: the least bytes a rank. Combines in rotated order, and so takes
    /// commutative operators only.
    Ring,
    /// A chain that reduces, into a chain that broadcasts.
    Chains,
    /// Each rank with each other one, all at different ones in each round.
    Pairwise,
    /// In each round a rank sends to one twice as far ahead, and receives from one as far behind.
    Dissemination,
    /// All ranks straight to the root, or from it.
    Direct,
}

const NAMES: [(Algorithm, &str); 10] = [
    (Algorithm::Auto, "auto"),
    (Algorithm::Chain, "chain"),
    (Algorithm::Binomial, "binomial"),
    (Algorithm::Binary, "binary"),
    (Algorithm::Doubling, "doubling"),
    (Algorithm::Ring, "ring"),
    (Algorithm::Chains, "chains"),
    (Algorithm::Pairwise, "pairwise"),
    (Algorithm::Dissemination, "dissemination"),
    (Algorithm::Direct, "direct"),
];

impl Algorithm {
    /// Returns all algorithms, [`Algorithm::Auto`] first.
    pub fn all() -> impl Iterator<Item = Algorithm> {
        NAMES.into_iter().map(|(algorithm, _)| algorithm)
    }

    /// Returns the algorithm's number on the wire.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// Returns the algorithm with this number.
    pub(crate) fn of_number(number: u8) -> Option<Algorithm> {
        NAMES.get(usize::from(number)).map(|(algorithm, _)| *algorithm)
    }

    /// Returns the algorithm's name, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = ParseAlgorithmError;

    fn from_str(name: &str) -> Result<Self, ParseAlgorithmError> {
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(algorithm, _)| *algorithm).ok_or_else(|| ParseAlgorithmError(name.to_owned()))
    }
}

/// Error of a text that names no [`Algorithm`].
#[derive(Clone, PartialEq, Eq)]
pub struct ParseAlgorithmError(String);

impl fmt::Display for ParseAlgorithmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no algorithm; there are ", Plain(&self.0))?;
        NAMES.iter().enumerate().try_for_each(|(index, (_, name))| {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str(name)
        })
    }
}

impl std::error::Error for ParseAlgorithmError {}

chunkcomm_proto::debug_with_causes!(ParseAlgorithmError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_what_wrote_it() {
        for (algorithm, name) in NAMES {
            assert_eq!(algorithm.to_string(), name);
            assert_eq!(name.parse(), Ok(algorithm));
        }
        assert_eq!("Ring".parse::<Algorithm>(), Err(ParseAlgorithmError("Ring".to_owned())));
    }
}
