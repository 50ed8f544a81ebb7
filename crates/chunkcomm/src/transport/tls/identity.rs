//! The TLS identity that a cluster shares: a self-signed certificate whose key comes from the
//! credential. All members compute the same certificate, show it, and accept no other from a peer.

use super::{TlsConfigs, certificate};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};
use std::io;
use std::sync::Arc;

/// The name that dialling nodes ask for. It identifies no node: the key decides.
const NAME: &str = "chunkcomm";

/// The bytes of a private Ed25519 key in front of its 32 bytes (PKCS #8 version 1, RFC 8410).
const PKCS8_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Returns the configurations of a member of the cluster whose identity has this seed.
pub(crate) fn configs(seed: &[u8; 32]) -> io::Result<TlsConfigs> {
    configs_with(seed, ring::default_provider())
}

/// As [`configs`], with this provider of cryptography.
pub(super) fn configs_with(seed: &[u8; 32], provider: CryptoProvider) -> io::Result<TlsConfigs> {
    pinned_configs(&key(seed), certificate(seed), provider).map_err(io::Error::other)
}

/// Returns the name of the identity.
pub(crate) fn name() -> ServerName<'static> {
    ServerName::try_from(NAME).expect("the name is one")
}

/// Returns the key with this seed, in PKCS #8.
pub(super) fn key(seed: &[u8; 32]) -> Vec<u8> {
    [&PKCS8_HEAD[..], seed].concat()
}

/// Returns the certificate of the key with this seed, the same one each time.
pub(super) fn certificate(seed: &[u8; 32]) -> CertificateDer<'static> {
    certificate::self_signed(seed, NAME)
}

fn pinned_configs(
    key: &[u8],
    certificate: CertificateDer<'static>,
    provider: CryptoProvider,
) -> Result<TlsConfigs, Error> {
    let provider = Arc::new(provider);
    let algorithms = provider.signature_verification_algorithms;
    let pinned = Arc::new(Pinned { certificate: certificate.clone(), algorithms });
    let key = || PrivatePkcs8KeyDer::from(key.to_vec()).into();
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&pinned) as Arc<_>)
        .with_client_auth_cert(vec![certificate.clone()], key())?;
    client.enable_sni = false;
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(pinned)
        .with_single_cert(vec![certificate], key())?;
    Ok(TlsConfigs::new(&client, &server))
}

/// Accepts one certificate, and only from a peer that signs with its key.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<(), Error> {
        if *end_entity == self.certificate && intermediates.is_empty() {
            return Ok(());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }
}

/// Refuses TLS 1.2, which is not spoken: nothing of it is to be verified.
fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}
