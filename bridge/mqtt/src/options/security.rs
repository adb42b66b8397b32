//! Who vouches for the broker, and who this client is.

use core::fmt;

/// Text that never shows in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that must send it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What the broker asks for at login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User name.
    pub username: String,
    /// Password.
    pub password: Secret,
}

/// Which authorities may vouch for the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CaSource {
    /// Those that the host trusts.
    #[default]
    SystemRoots,
    /// The certificates in this PEM text, and no others.
    Pem(Vec<u8>),
}

/// The certificate by which this client proves who it is.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate chain, leaf first, as PEM.
    pub cert_pem: Vec<u8>,
    /// Its private key, as PEM (PKCS#8, PKCS#1 or SEC1).
    pub key_pem: Vec<u8>,
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").field("cert_pem", &self.cert_pem.len()).field("key_pem", &"***").finish()
    }
}

/// How the broker is verified, and this client to it. There is no setting that turns verification off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Who may vouch for the broker.
    pub ca: CaSource,
    /// Who this client is.
    pub client: Option<ClientIdentity>,
}
