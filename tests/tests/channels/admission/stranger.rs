//! A stranger at a plain socket, which knows as much as a case gives it.

use chunkcomm::proto::credential::{Hellos, PROOF_BYTES, ProofKey, Role, Seed, identity_seed};
use chunkcomm::proto::hello::{FLAG_CREDENTIAL, FLAG_TLS, HELLO_BYTES, Hello};
use chunkcomm_testkit::raw::good_hello;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ED25519};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, ServerConfig,
    ServerConnection, SignatureScheme, SupportedProtocolVersion,
};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Returns the hello of a peer that claims to have the credential.
pub(super) fn member_hello() -> Hello {
    Hello { flags: FLAG_CREDENTIAL | FLAG_TLS, nonce: [3; 32], ..good_hello() }
}

/// A connection on which hellos were exchanged, seen from outside.
pub(super) struct Stranger {
    stream: TcpStream,
    pub(super) hellos: Hellos,
    role: Role,
}

impl Stranger {
    /// Dials with this hello.
    pub(super) fn dials(node: SocketAddr, hello: &Hello) -> Stranger {
        Stranger::greets(TcpStream::connect(node).unwrap(), Role::Dialler, &hello.encode())
    }

    /// Sends these bytes as its hello.
    pub(super) fn greets(mut stream: TcpStream, role: Role, said: &[u8; HELLO_BYTES]) -> Stranger {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(said).unwrap();
        let mut heard = [0; HELLO_BYTES];
        stream.read_exact(&mut heard).unwrap();
        Stranger { stream, hellos: Hellos::new(role, *said, heard), role }
    }

    /// Dials, and sends the node's own hello back to it.
    pub(super) fn mirrors(node: SocketAddr) -> Stranger {
        let mut stream = TcpStream::connect(node).unwrap();
        let mut heard = [0; HELLO_BYTES];
        stream.read_exact(&mut heard).unwrap();
        stream.write_all(&heard).unwrap();
        Stranger { stream, hellos: Hellos::new(Role::Dialler, heard, heard), role: Role::Dialler }
    }

    /// Returns the node's proof.
    pub(super) fn hears_proof(&mut self) -> [u8; PROOF_BYTES] {
        let mut proof = [0; PROOF_BYTES];
        self.stream.read_exact(&mut proof).unwrap();
        proof
    }

    /// Returns the proof that the node waits for.
    pub(super) fn good_proof(&self) -> [u8; PROOF_BYTES] {
        ProofKey::of(&super::seed()).prove(self.role, &self.hellos)
    }

    pub(super) fn says(&mut self, bytes: &[u8]) {
        // The node may have hung up.
        let _ = self.stream.write_all(bytes);
    }

    /// Exchanges the proofs; TLS is to follow.
    pub(super) fn proves(&mut self) {
        let proof = self.good_proof();
        self.says(&proof);
        let theirs = self.hears_proof();
        let key = ProofKey::of(&super::seed());
        assert!(key.verify(self.role.other(), &self.hellos, &theirs));
    }

    /// Exchanges the proofs as [`Stranger::proves`] does.
    pub(super) fn proved(mut self) -> Stranger {
        self.proves();
        self
    }

    /// Sends this, and no more.
    pub(super) fn says_last(mut self, bytes: &[u8]) {
        self.says(bytes);
        self.hung_up();
    }

    /// Sends nothing more, and ends its stream.
    pub(super) fn ends(self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
        self.hung_up();
    }

    /// Speaks TLS in this manner, whatever comes of it.
    pub(super) fn speaks_tls(mut self, manner: impl FnOnce(&Stranger) -> Manner) {
        let manner = manner(&self);
        // In TLS 1.3 the dialler's handshake is done before the dialler is judged.
        let _ = self.shakes_hands(manner);
        self.hung_up();
    }

    /// Speaks TLS as a member does, and is admitted.
    pub(super) fn is_taken(&mut self) {
        let manner = Manner::member(self);
        self.shakes_hands(manner).unwrap();
    }

    /// Returns the protocol that a member names inside TLS.
    pub(super) fn binding(&self) -> Vec<u8> {
        [&b"chunkcomm-1 "[..], &self.hellos.digest()].concat()
    }

    fn shakes_hands(&mut self, manner: Manner) -> io::Result<()> {
        let mut connection: Connection = match self.role {
            Role::Dialler => manner.client().into(),
            Role::Acceptor => manner.server().into(),
        };
        while connection.is_handshaking() {
            connection.complete_io(&mut self.stream)?;
        }
        Ok(())
    }

    /// Reads until the node hangs up; the node may send a stranger less than 4096 bytes.
    pub(super) fn hung_up(mut self) {
        let mut rest = Vec::new();
        // The connection may end in any way.
        let _ = self.stream.read_to_end(&mut rest);
        assert!(rest.len() < 4096, "{} bytes for a stranger", rest.len());
    }
}

/// Certificates and a key.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

impl Identity {
    /// Returns the identity that nodes with this credential have.
    pub(super) fn of(seed: &Seed) -> Identity {
        let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        let key = [&head[..], &identity_seed(seed)].concat();
        let pair = KeyPair::from_pkcs8_der_and_sign_algo(
            &PrivatePkcs8KeyDer::from(&key[..]),
            &PKCS_ED25519,
        );
        let mut parameters = CertificateParams::new(["chunkcomm".to_owned()]).unwrap();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, "chunkcomm");
        let certificate = parameters.self_signed(&pair.unwrap()).unwrap();
        Identity { chain: vec![certificate.into()], key }
    }

    /// Returns the identity of a certificate that somebody signed, with its key in PKCS #8.
    pub(super) fn signed(
        certificate: CertificateDer<'static>,
        key: &PrivateKeyDer<'_>,
    ) -> Identity {
        Identity { chain: vec![certificate], key: key.secret_der().to_vec() }
    }

    /// Returns these certificates with the key of another identity.
    pub(super) fn with_key_of(self, other: &Identity) -> Identity {
        Identity { chain: self.chain, key: other.key.clone() }
    }

    fn certified(&self, provider: &CryptoProvider) -> Arc<CertifiedKey> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.clone()));
        let key = provider.key_provider.load_private_key(key).unwrap();
        // Nobody checks here whether certificate and key belong together.
        Arc::new(CertifiedKey::new(self.chain.clone(), key))
    }
}

/// Way in which a stranger speaks TLS.
pub(super) struct Manner {
    pub(super) versions: Vec<&'static SupportedProtocolVersion>,
    pub(super) identity: Option<Identity>,
    pub(super) protocols: Vec<Vec<u8>>,
}

impl Manner {
    /// Returns the manner of a member, on this stranger's connection.
    pub(super) fn member(stranger: &Stranger) -> Manner {
        Manner {
            versions: vec![&rustls::version::TLS13],
            identity: Some(Identity::of(&super::seed())),
            protocols: vec![stranger.binding()],
        }
    }

    pub(super) fn client(self) -> ClientConnection {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&self.versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody));
        let mut config = match self.identity {
            Some(identity) => {
                builder.with_client_cert_resolver(Arc::new(Shows(identity.certified(&provider))))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.protocols;
        let name = ServerName::try_from("chunkcomm").unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap()
    }

    fn server(self) -> ServerConnection {
        let provider = Arc::new(ring::default_provider());
        let identity = self.identity.unwrap().certified(&provider);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_client_cert_verifier(Arc::new(Anybody))
            .with_cert_resolver(Arc::new(Shows(identity)));
        config.alpn_protocols = self.protocols;
        ServerConnection::new(Arc::new(config)).unwrap()
    }
}

/// Shows this certificate, no matter which is asked for.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Shows {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Takes every certificate and every signature.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
