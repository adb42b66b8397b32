//! The TLS configuration: verified always, by the host's authorities or by the given ones alone.

use crate::options::{CaSource, ClientIdentity, MqttConfigError, TlsOptions};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;

/// Builds the configuration with an explicit crypto provider, so that nothing depends on what the process installed.
pub(crate) fn client_config(options: &TlsOptions) -> Result<Arc<ClientConfig>, MqttConfigError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("protocol versions", &error))?
        .with_root_certificates(roots(&options.ca)?);
    let config = match &options.client {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = client_identity(identity)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| wrong("client certificate", &error))?
        }
    };
    Ok(Arc::new(config))
}

fn roots(source: &CaSource) -> Result<RootCertStore, MqttConfigError> {
    let mut store = RootCertStore::empty();
    match source {
        CaSource::SystemRoots => {
            // One unreadable certificate in the host's store must not cost the connection; none at all must.
            let native = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(native.certs);
            if store.is_empty() {
                return Err(MqttConfigError::Tls("the host has no trusted certificates; install ca-certificates or give a CA".into()));
            }
        }
        CaSource::Pem(pem) => {
            for certificate in certificates(pem, "CA")? {
                store.add(certificate).map_err(|error| wrong("CA", &error))?;
            }
        }
    }
    Ok(store)
}

fn client_identity(identity: &ClientIdentity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), MqttConfigError> {
    let chain = certificates(&identity.cert_pem, "client certificate")?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key_pem).map_err(|error| wrong("client key", &error))?;
    Ok((chain, key))
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, MqttConfigError> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|error| wrong(what, &error))?;
    if found.is_empty() {
        return Err(MqttConfigError::Tls(format!("{what}: no certificate in the PEM text")));
    }
    Ok(found)
}

fn wrong(what: &str, error: &dyn core::fmt::Display) -> MqttConfigError {
    MqttConfigError::Tls(format!("{what}: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn text_without_a_certificate_is_refused() {
        let options = TlsOptions { ca: CaSource::Pem(b"nothing here".to_vec()), client: None };
        assert_eq!(client_config(&options).unwrap_err().code(), "E_TLS");
    }

    #[test]
    fn a_broken_certificate_is_refused() {
        let pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
        assert_eq!(client_config(&TlsOptions { ca: CaSource::Pem(pem), client: None }).unwrap_err().code(), "E_TLS");
    }

    #[test]
    fn a_client_identity_needs_a_matching_key() {
        let one = rcgen::generate_simple_self_signed(["one".to_owned()]).unwrap();
        let two = rcgen::generate_simple_self_signed(["two".to_owned()]).unwrap();
        let identity = |key: String| ClientIdentity { cert_pem: one.cert.pem().into_bytes(), key_pem: key.into_bytes() };
        let options = |client| TlsOptions { ca: CaSource::Pem(one.cert.pem().into_bytes()), client: Some(client) };
        assert!(client_config(&options(identity(one.signing_key.serialize_pem()))).is_ok());
        assert!(client_config(&options(identity(two.signing_key.serialize_pem()))).is_err());
        assert!(client_config(&options(identity(String::new()))).is_err());
    }
}
