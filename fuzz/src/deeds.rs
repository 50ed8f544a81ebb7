//! An input read as a list of deeds, so that a mutated byte is another deed and not noise.

/// Numbers read off an input; zeros at its end.
pub struct Deeds<'a>(&'a [u8]);

impl<'a> Deeds<'a> {
    /// Reads these bytes as deeds.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Deeds<'a> {
        Deeds(input)
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns the next bytes, as many as there are and at most `count`.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Returns true about one time in `count`; never at the end of the input.
    pub fn one_in(&mut self, count: u8) -> bool {
        !self.is_empty() && self.byte() < u8::MAX / count
    }

    /// Returns a number below `bound`, which is at most 256.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    /// Returns a number: a small one, one of the edges, or one of any size.
    pub fn number(&mut self, edges: &[u64]) -> u64 {
        match self.byte() {
            small @ 0..=127 => u64::from(small),
            edge @ 128..=191 => edges[usize::from(edge) % edges.len()],
            _ => u64::from(self.byte()) << (self.byte() % 64),
        }
    }
}
