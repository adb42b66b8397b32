//! Secrets of this host: files and the environment.

use async_trait::async_trait;
use causeway_core::config::{Secret, SecretPlace};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_ports::Secrets;
use std::io;

/// No secret is longer, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// Reads files and the process's environment. A line end behind the text is no part of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalSecrets;

#[async_trait]
impl Secrets for LocalSecrets {
    async fn read(&self, place: &SecretPlace) -> Result<Secret, Fault> {
        let refuse = |code, what: &str| Err(Fault::new(code, format!("{place}: {what}")));
        let text = match place {
            SecretPlace::Env(name) => match std::env::var(name) {
                Ok(text) => text,
                Err(_) => return refuse(FaultCode::NotFound, "the variable is not set, or is no text"),
            },
            SecretPlace::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || {
                    if std::fs::metadata(&path)?.len() > MAX_BYTES {
                        return Err(io::Error::other("longer than any secret"));
                    }
                    std::fs::read_to_string(&path)
                });
                match read.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
                    Ok(text) => text,
                    Err(error) => return refuse(FaultCode::NotFound, &format!("it cannot be read: {error}")),
                }
            }
            SecretPlace::Ssm(_) | SecretPlace::SecretsManager { .. } => return refuse(FaultCode::InvalidConfig, "it is not on this host"),
        };
        Ok(Secret::new(text.trim_end_matches(['\r', '\n'])))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn files_and_variables_are_read_anew_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let place = SecretPlace::File(folder.path().join("login"));
        assert_eq!(LocalSecrets.read(&place).await.unwrap_err().code, FaultCode::NotFound);
        for text in ["first", "second"] {
            std::fs::write(folder.path().join("login"), format!("{text}\n")).unwrap();
            assert_eq!(LocalSecrets.read(&place).await.unwrap().reveal(), text);
        }
        std::fs::write(folder.path().join("login"), vec![b'x'; 70_000]).unwrap();
        assert!(LocalSecrets.read(&place).await.is_err());
        let path = SecretPlace::Env("PATH".to_owned());
        assert_eq!(LocalSecrets.read(&path).await.unwrap().reveal(), std::env::var("PATH").unwrap());
        assert!(LocalSecrets.read(&SecretPlace::Env("CAUSEWAY_NO_SUCH_VARIABLE".to_owned())).await.is_err());
        assert_eq!(LocalSecrets.read(&SecretPlace::Ssm("/a".to_owned())).await.unwrap_err().code, FaultCode::InvalidConfig);
    }
}
