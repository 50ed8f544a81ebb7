//! TLS of users who have an authority of their own.

use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair, PKCS_ED25519};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

/// A signer of certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Makes an authority of this name.
    pub fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        Authority(CertifiedIssuer::self_signed(parameters, key).unwrap())
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }

    /// Signs a certificate for `name`; returns it with its key.
    pub fn signs(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let parameters = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        (certificate.into(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The configuration of a client that trusts one authority and shows a certificate of another.
pub fn client(trusted: &Authority, shown: &Authority) -> Arc<ClientConfig> {
    let (certificate, key) = shown.signs("node.lab");
    Arc::new(client_with(trusted, vec![certificate], key))
}

/// Returns a client that shows this chain of certificates.
pub fn client_with(
    trusted: &Authority,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(trusted.roots())
        .with_client_auth_cert(chain, key)
        .unwrap()
}

/// The configuration of a server that trusts `trusted` and shows `chain`.
pub fn server_with(
    trusted: &Authority,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    asks: bool,
) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(trusted.roots(), provider());
    let builder = if asks {
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}
