//! TLS on the program's own listeners. The certificate is read again when its files change, so that renewing it needs no restart.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use thiserror::Error;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The files are looked at so often.
const LOOK: core::time::Duration = core::time::Duration::from_secs(5);

/// Where the certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain (PEM), the listener's own certificate first.
    pub cert: PathBuf,
    /// Its key (PEM).
    pub key: PathBuf,
}

/// A certificate that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}: {reason}")]
pub struct TlsFault {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub reason: String,
}

impl TlsFault {
    fn of(file: &Path, reason: impl core::fmt::Display) -> Self {
        Self { file: file.display().to_string(), reason: reason.to_string() }
    }
}

impl TlsFiles {
    fn read(&self) -> Result<CertifiedKey, TlsFault> {
        let chain = CertificateDer::pem_file_iter(&self.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| TlsFault::of(&self.cert, error))?;
        if chain.is_empty() {
            return Err(TlsFault::of(&self.cert, "no certificate (PEM) is in it"));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| TlsFault::of(&self.key, error))?;
        CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| TlsFault::of(&self.key, error))
    }

    /// The listener's own certificate.
    ///
    /// # Errors
    /// Where there is none in its file.
    pub fn certificate(&self) -> Result<CertificateDer<'static>, TlsFault> {
        CertificateDer::from_pem_file(&self.cert).map_err(|error| TlsFault::of(&self.cert, error))
    }

    /// When each file changed last, as far as the system tells.
    fn changed(&self) -> [Option<SystemTime>; 2] {
        [&self.cert, &self.key].map(|file| std::fs::metadata(file).and_then(|found| found.modified()).ok())
    }
}

/// The certificate of a listener. Clones share it.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    files: TlsFiles,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl ListenerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Where one cannot be read, or the key is another certificate's.
    pub fn load(files: TlsFiles) -> Result<Self, TlsFault> {
        let current = Arc::new(Current(RwLock::new(Arc::new(files.read()?))));
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsFault::of(&files.cert, error))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { files, current, config: Arc::new(config) })
    }

    /// What makes TLS connections of plain ones.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// Looks at the files until `quit`. What is not whole yet, or not sound, leaves the one that is in use in place.
    pub async fn watch(self, quit: CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = self.files.changed();
        let mut told = None;
        while quit.run_until_cancelled(ticks.tick()).await.is_some() {
            let changed = self.files.changed();
            if changed == seen && told.is_none() {
                continue;
            }
            seen = changed;
            match self.reload() {
                Ok(()) => {
                    told = None;
                    info!(file = %self.files.cert.display(), "the listeners use the new certificate");
                }
                Err(fault) if told.as_ref() != Some(&fault) => {
                    warn!(%fault, "the new certificate cannot be used; the listeners go on with the one before");
                    told = Some(fault);
                }
                Err(_) => {}
            }
        }
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// Where they cannot be used; then the certificate of before stays.
    pub fn reload(&self) -> Result<(), TlsFault> {
        let read = Arc::new(self.files.read()?);
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}

/// For a client on the same host, which knows the listener by the certificate itself and by no name: this certificate and no other is accepted, from
/// whoever proves to have its key.
///
/// # Errors
/// Where the provider has no protocol version.
pub fn only(certificate: CertificateDer<'static>) -> Result<ClientConfig, Error> {
    let provider = aws_lc_rs::default_provider();
    let verifier = Only { certificate, algorithms: provider.signature_verification_algorithms };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

#[derive(Debug)]
struct Only {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Only {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
