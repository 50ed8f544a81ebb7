//! The layers in a hello: each with the range of versions that its node speaks.

use super::Disagreement;
use crate::describe::fnv1a;

/// Most layers in a hello.
pub const LAYERS_MAX: usize = 4;

/// Returns the hash that stands for a layer's name in a hello: never 0.
#[must_use]
pub fn layer_hash(name: &str) -> u32 {
    let hash = fnv1a(name.as_bytes());
    ((hash ^ hash >> 32) as u32).max(1)
}

/// The versions of a layer that an end speaks. All zero: no layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerRange {
    /// Hash of the layer's name, see [`layer_hash`]; 0: no layer.
    pub hash: u32,
    /// The oldest version of the layer that the end speaks.
    pub oldest: u16,
    /// The newest version of the layer that the end speaks.
    pub newest: u16,
}

/// The version of a layer between two ends. All zero: no layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerVersion {
    /// Hash of the layer's name; 0: no layer.
    pub hash: u32,
    /// The version.
    pub version: u16,
}

impl LayerRange {
    /// Returns the versions `oldest` to `newest` of the layer `name`.
    #[must_use]
    pub fn new(name: &str, (oldest, newest): (u16, u16)) -> LayerRange {
        LayerRange { hash: layer_hash(name), oldest, newest }
    }

    /// Returns the newest version of both ranges, which are of one layer.
    fn agree(&self, theirs: &LayerRange) -> Result<LayerVersion, Disagreement> {
        let version = self.newest.min(theirs.newest);
        if version < self.oldest.max(theirs.oldest) {
            return Err(Disagreement::Layer {
                hash: self.hash,
                name: None,
                ours: (self.oldest, self.newest),
                theirs: (theirs.oldest, theirs.newest),
            });
        }
        Ok(LayerVersion { hash: self.hash, version })
    }
}

/// Returns the version of each layer that both ends name: in the order of their hashes, behind
/// places without a layer.
pub(super) fn agree(
    ours: &[LayerRange; LAYERS_MAX],
    theirs: &[LayerRange; LAYERS_MAX],
) -> Result<[LayerVersion; LAYERS_MAX], Disagreement> {
    let mut agreed = [LayerVersion::default(); LAYERS_MAX];
    for (to, own) in agreed.iter_mut().zip(ours) {
        let same = |it: &&LayerRange| it.hash != 0 && it.hash == own.hash;
        if let Some(theirs) = theirs.iter().find(same) {
            *to = own.agree(theirs)?;
        }
    }
    agreed.sort_unstable_by_key(|it| it.hash);
    Ok(agreed)
}
