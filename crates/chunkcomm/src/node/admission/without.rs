//! Without the feature `tls` nobody can be admitted by a credential: a node that
//! is given one is not built.

use crate::error::{HelloCause, NodeError};
use crate::proto::credential::{Hellos, Role};
use crate::transport::Transport;
use crate::{Address, Credential};

/// Everybody who can connect is admitted.
#[derive(Clone, Debug, Default)]
pub(in crate::node) struct Admission {}

impl Admission {
    pub(in crate::node) fn new(credential: Option<&Credential>) -> Result<Admission, NodeError> {
        if credential.is_some() { Err(NodeError::NeedsTls) } else { Ok(Admission {}) }
    }

    pub(in crate::node) fn protects(&self) -> bool {
        false
    }

    pub(in crate::node) fn at(&self, _address: &Address) -> Admission {
        Admission {}
    }

    pub(in crate::node) fn proves(&self) -> bool {
        false
    }

    pub(in crate::node) fn flags(&self) -> u32 {
        0
    }

    pub(in crate::node) async fn prove(
        &self,
        _transport: &mut dyn Transport,
        _role: Role,
        _hellos: &Hellos,
    ) -> Result<(), HelloCause> {
        Ok(())
    }

    pub(in crate::node) async fn secure(
        &self,
        transport: Box<dyn Transport>,
        _role: Role,
        _hellos: &Hellos,
    ) -> Result<Box<dyn Transport>, HelloCause> {
        Ok(transport)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Credential, Node, NodeError};

    #[tokio::test]
    async fn a_credential_without_the_feature_is_a_start_up_error() {
        let settings = Node::builder().credential(Credential::generate().unwrap());
        let error = settings.insecure_bind_beyond_loopback().build().await.unwrap_err();
        assert!(matches!(error, NodeError::NeedsTls), "{error}");
        assert!(error.to_string().contains("feature tls"), "{error}");
    }

    #[tokio::test]
    async fn who_may_listen_where_is_as_with_the_feature() {
        let at = |address: &str| Node::builder().listen(address.parse().unwrap());
        for anywhere in ["0.0.0.0:0", "[::]:0"] {
            let error = at(anywhere).build().await.unwrap_err();
            assert!(matches!(error, NodeError::BeyondLoopback { .. }), "{error}");
        }
        at("127.0.0.1:0").build().await.unwrap();
        at("0.0.0.0:0").insecure_bind_beyond_loopback().build().await.unwrap();
    }
}
