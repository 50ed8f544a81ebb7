//! The certificates that a peer shows.

#[cfg(feature = "tls")]
use rustls::pki_types::CertificateDer;
#[cfg(feature = "tls")]
use std::sync::Arc;

/// The certificates by which a peer was admitted, its own first. Empty without TLS of the user's: that of a
/// credential tells nobody apart.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    #[cfg(feature = "tls")]
    chain: Option<Arc<[CertificateDer<'static>]>>,
}

#[cfg(feature = "tls")]
impl Shown {
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Shown {
        Shown { chain: Some(chain.iter().map(|it| it.clone().into_owned()).collect()) }
    }

    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        self.chain.as_deref().unwrap_or_default()
    }
}

impl Shown {
    /// Returns the memory that the certificates take, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        #[cfg(feature = "tls")]
        return self.chain().iter().map(|it| it.len() as u64).sum();
        #[cfg(not(feature = "tls"))]
        0
    }

    /// Whether both are by the same certificate; so they are if neither has one.
    pub(crate) fn is_same(&self, other: &Shown) -> bool {
        #[cfg(feature = "tls")]
        return self.chain().first() == other.chain().first();
        #[cfg(not(feature = "tls"))]
        {
            let Shown {} = other;
            true
        }
    }
}
