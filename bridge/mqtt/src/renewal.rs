//! What a client shows the broker may be renewed while the program runs: the next connection uses it.

use crate::options::{Credentials, SourceOptions, TlsOptions};
use crate::tls;
use core::fmt;
use rustls::ClientConfig;
use std::sync::Arc;

/// What a client shows now. What is `None` stays what it was.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// User name and password.
    pub credentials: Option<Credentials>,
    /// TLS material.
    pub tls: Option<TlsOptions>,
}

/// Tells before every connection what the client shows now.
#[derive(Clone)]
pub struct Renewal(Arc<dyn Fn() -> Shown + Send + Sync>);

impl Renewal {
    /// Asks `now`, which must not wait for anything far away.
    pub fn new(now: impl Fn() -> Shown + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewal")
    }
}

/// Puts what was renewed into `options` and `tls`. What cannot be used is told, and what could be used stays.
pub(crate) fn renew(options: &mut SourceOptions, tls: &mut Option<Arc<ClientConfig>>) {
    let Some(renewal) = &options.renewal else { return };
    let shown = (renewal.0)();
    if let Some(credentials) = shown.credentials
        && options.credentials.as_ref() != Some(&credentials)
    {
        tracing::info!(client_id = %options.client_id, "the login was renewed");
        options.credentials = Some(credentials);
    }
    let Some(material) = shown.tls.filter(|material| tls.is_some() && *material != options.tls) else { return };
    match tls::client_config(&material) {
        Ok(config) => {
            tracing::info!(client_id = %options.client_id, "certificates were renewed");
            (*tls, options.tls) = (Some(config), material);
        }
        // Of two files one may be written already, and the other not yet.
        Err(error) => tracing::warn!(client_id = %options.client_id, %error, "renewed certificates cannot be used; the former ones are"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::options::{BrokerUrl, CaSource, ClientIdentity, Secret};
    use std::sync::Mutex;

    fn login(password: &str) -> Credentials {
        Credentials { username: "u".into(), password: Secret::new(password) }
    }

    #[test]
    fn what_is_renewed_is_used_and_what_is_broken_is_not() {
        let pair = || rcgen::generate_simple_self_signed(["one".to_owned()]).unwrap();
        let (one, two) = (pair(), pair());
        let material = |chain: &rcgen::CertifiedKey<rcgen::KeyPair>, key: &rcgen::CertifiedKey<rcgen::KeyPair>| TlsOptions {
            ca: CaSource::Pem(one.cert.pem().into_bytes()),
            client: Some(ClientIdentity { cert_pem: chain.cert.pem().into_bytes(), key_pem: key.signing_key.serialize_pem().into_bytes() }),
        };
        let now = Arc::new(Mutex::new(Shown::default()));
        let mut options = SourceOptions::new(BrokerUrl::parse("mqtts://h").unwrap(), "c");
        (options.credentials, options.tls) = (Some(login("first")), material(&one, &one));
        let shown = Arc::clone(&now);
        options.renewal = Some(Renewal::new(move || shown.lock().unwrap().clone()));
        let mut config = Some(tls::client_config(&options.tls).unwrap());

        renew(&mut options, &mut config);
        assert!(options.credentials == Some(login("first")) && options.tls == material(&one, &one), "nothing new");
        *now.lock().unwrap() = Shown { credentials: Some(login("second")), tls: Some(material(&two, &one)) };
        let before = config.clone().unwrap();
        renew(&mut options, &mut config);
        assert!(options.credentials == Some(login("second")) && options.tls == material(&one, &one), "the key is not there yet");
        assert!(Arc::ptr_eq(&before, config.as_ref().unwrap()));
        *now.lock().unwrap() = Shown { credentials: None, tls: Some(material(&two, &two)) };
        renew(&mut options, &mut config);
        assert!(options.credentials == Some(login("second")) && options.tls == material(&two, &two));
        assert!(!Arc::ptr_eq(&before, config.as_ref().unwrap()));
    }
}
