//! Admission by a credential, by the user's own TLS configurations, or by both.

use crate::error::{HelloCause, NodeError};
use crate::proto::credential::{Hellos, PROOF_BYTES, ProofKey, Role, identity_seed};
use crate::proto::hello::{FLAG_CREDENTIAL, FLAG_TLS};
use crate::transport::Transport;
use crate::transport::exact::{read_exact, write_all};
use crate::transport::tls::{TlsConfigs, identity};
use crate::{Address, Credential};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use std::io;
use std::sync::Arc;

/// Beginning of the protocol's name inside TLS at both ends; the digest of their hellos
/// follows.
const BINDING_HEAD: &[u8] = b"chunkcomm-1 ";

/// The user's own TLS.
#[derive(Clone, Debug)]
pub(in crate::node) struct UserTls {
    pub(in crate::node) client: Arc<ClientConfig>,
    pub(in crate::node) server: Arc<ServerConfig>,
    /// Name that the dialled peer's certificate must have; `None`: the host that is dialled.
    pub(in crate::node) server_name: Option<ServerName<'static>>,
}

/// Proofs and TLS that peers must do before this node talks to them.
#[derive(Clone, Debug, Default)]
pub(in crate::node) struct Admission {
    proof_key: Option<ProofKey>,
    tls: Option<TlsConfigs>,
    server_name: Option<ServerName<'static>>,
}

impl Admission {
    pub(in crate::node) fn new(
        credential: Option<&Credential>,
        user: Option<&UserTls>,
    ) -> Result<Admission, NodeError> {
        let proof_key = credential.map(|credential| ProofKey::of(credential.seed()));
        if let Some(user) = user {
            let tls = Some(TlsConfigs::new(&user.client, &user.server).identifying());
            return Ok(Admission { proof_key, tls, server_name: user.server_name.clone() });
        }
        let Some(credential) = credential else { return Ok(Admission::default()) };
        let tls = identity::configs(&identity_seed(credential.seed()))
            .map_err(|error| NodeError::System(Arc::new(error)))?;
        Ok(Admission { proof_key, tls: Some(tls), server_name: Some(identity::name()) })
    }

    /// Whether strangers who can reach this machine are kept out.
    pub(in crate::node) fn protects(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the admission for connections to or through this address.
    pub(in crate::node) fn at(&self, address: &Address) -> Admission {
        match address {
            Address::Tcp { host, .. } => {
                let of_host = || ServerName::try_from(host.clone()).ok();
                let server_name = self.server_name.clone().or_else(of_host);
                Admission { server_name, ..self.clone() }
            }
            Address::Unix(_) => Admission { tls: None, ..self.clone() },
            Address::Memory(_) => Admission::default(),
            // No strangers are there, and the random numbers of TLS follow no seed.
            #[cfg(feature = "simulation")]
            Address::Simulated { .. } => Admission::default(),
        }
    }

    /// Whether both ends prove that they have the credential.
    pub(in crate::node) fn proves(&self) -> bool {
        self.proof_key.is_some()
    }

    pub(in crate::node) fn flags(&self) -> u32 {
        let credential = if self.proof_key.is_some() { FLAG_CREDENTIAL } else { 0 };
        let tls = if self.tls.is_some() { FLAG_TLS } else { 0 };
        credential | tls
    }

    /// Proves to the peer that this node has the credential, and checks the peer's proof.
    pub(in crate::node) async fn prove(
        &self,
        transport: &mut dyn Transport,
        role: Role,
        hellos: &Hellos,
    ) -> Result<(), HelloCause> {
        let Some(key) = &self.proof_key else { return Ok(()) };
        let cut = |error| HelloCause::NoProof(Arc::new(error));
        write_all(transport, &key.prove(role, hellos)).await.map_err(cut)?;
        let mut proof = [0; PROOF_BYTES];
        read_exact(transport, &mut proof).await.map_err(cut)?;
        let fits = key.verify(role.other(), hellos, &proof);
        if fits { Ok(()) } else { Err(HelloCause::WrongProof) }
    }

    /// Returns the connection inside TLS, if this admission asks for TLS.
    pub(in crate::node) async fn secure(
        &self,
        transport: Box<dyn Transport>,
        role: Role,
        hellos: &Hellos,
    ) -> Result<Box<dyn Transport>, HelloCause> {
        let Some(tls) = &self.tls else { return Ok(transport) };
        let failed = |error| HelloCause::Tls(Arc::new(error));
        let binding = [BINDING_HEAD, &hellos.digest()].concat();
        let secured = match role {
            Role::Acceptor => tls.accepted(transport, binding).await,
            Role::Dialler => {
                let name = self.server_name.clone().ok_or_else(|| failed(no_name()))?;
                tls.dialled(transport, name, binding).await
            }
        };
        secured.map_err(failed)
    }
}

fn no_name() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the host's name is none that a certificate has")
}
