//! Credentials that last: what could be fetched is used until it expires, whatever becomes of the attempts to renew it.

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::future::ProvideCredentials as Provided;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Puts itself before a provider, whose failures never replace credentials that are valid still.
#[derive(Debug)]
pub(crate) struct LastingCredentials {
    inner: SharedCredentialsProvider,
    last: Mutex<Option<Credentials>>,
    now: fn() -> SystemTime,
}

impl LastingCredentials {
    pub(crate) fn new(inner: SharedCredentialsProvider) -> Self {
        Self { inner, last: Mutex::new(None), now: SystemTime::now }
    }

    async fn provide(&self) -> Result<Credentials, CredentialsError> {
        match self.inner.provide_credentials().await {
            Ok(fresh) => {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(fresh.clone());
                Ok(fresh)
            }
            Err(error) => {
                let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let valid = last.filter(|last| last.expiry().is_none_or(|expiry| expiry > (self.now)()));
                if valid.is_some() {
                    tracing::warn!(%error, "AWS credentials could not be renewed; the former ones are used while they are valid");
                }
                valid.ok_or(error)
            }
        }
    }
}

impl ProvideCredentials for LastingCredentials {
    fn provide_credentials<'a>(&'a self) -> Provided<'a>
    where
        Self: 'a,
    {
        Provided::new(self.provide())
    }

    fn fallback_on_interrupt(&self) -> Option<Credentials> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.filter(|last| last.expiry().is_none_or(|expiry| expiry > (self.now)()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use core::time::Duration;
    use std::sync::atomic::{AtomicBool, Ordering};

    static LATER: AtomicBool = AtomicBool::new(false);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(if LATER.load(Ordering::SeqCst) { 2_000 } else { 500 })
    }

    /// Gives credentials until 1000 s once, then fails.
    #[derive(Debug, Default)]
    struct Once(AtomicBool);

    impl ProvideCredentials for Once {
        fn provide_credentials<'a>(&'a self) -> Provided<'a>
        where
            Self: 'a,
        {
            let given = self.0.swap(true, Ordering::SeqCst);
            let until = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
            Provided::ready(if given {
                Err(CredentialsError::provider_error("the endpoint is away"))
            } else {
                Ok(Credentials::new("id", "secret", None, Some(until), "test"))
            })
        }
    }

    #[tokio::test]
    async fn a_failed_renewal_never_replaces_what_is_valid() {
        let lasting = LastingCredentials { now, ..LastingCredentials::new(SharedCredentialsProvider::new(Once::default())) };
        for _ in 0..3 {
            assert_eq!(lasting.provide_credentials().await.unwrap().access_key_id(), "id");
        }
        LATER.store(true, Ordering::SeqCst);
        assert!(lasting.provide_credentials().await.is_err(), "what has expired is no use");
    }
}
