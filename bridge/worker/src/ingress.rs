//! Messages that come in by HTTP instead of from their route's own source: each is durable in the mailbox of the route's session before it is answered,
//! and the owner of the session's log moves it from there into the log.

use crate::parts::RandomBits;
use crate::wiring::WiringError;
use causeway_core::config::Config;
use causeway_core::config::model::Route;
use causeway_core::dispatch::{Arrival, Dispatch};
use causeway_core::identity::{EntryId, IdSequence};
use causeway_core::mailbox::{Mail, MailboxName};
use causeway_core::message::Message;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::source_id::{ContentDigest, content_digest};
use causeway_ports::{Clock, Mailbox};
use core::time::Duration;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// Keeping a message takes no longer: the store's own limit is shorter, and knows better how a call ended.
const KEEP_TIMEOUT: Duration = Duration::from_secs(8);

/// What became of mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deposited {
    /// There was none.
    Nothing,
    /// It stands in the mailbox.
    Now,
    /// It stood there before, or a part of it.
    Before,
}

/// Puts what a message became into the mailbox `name`: the only way in for messages that no source brings, posted to a receiver or put in by hand.
///
/// # Errors
/// The store's. Some of the mail may stand there: the same message under the same id can be posted again.
pub async fn deposit(store: &dyn Mailbox, name: &MailboxName, mail: impl IntoIterator<Item = Mail>) -> Result<Deposited, Fault> {
    let mut deposited = Deposited::Nothing;
    for mail in mail {
        let late = || Outcome::Unknown(Fault::new(FaultCode::Timeout, "the outbox does not answer"));
        match tokio::time::timeout(KEEP_TIMEOUT, store.post(name, &mail)).await.unwrap_or_else(|_| late()) {
            Outcome::Done(true) if deposited == Deposited::Before => {}
            Outcome::Done(true) => deposited = Deposited::Now,
            Outcome::Done(false) => deposited = Deposited::Before,
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => return Err(fault),
        }
    }
    Ok(deposited)
}

/// Takes messages in. Clones share everything.
#[derive(Clone)]
pub struct Ingress {
    doors: Arc<BTreeMap<String, Door>>,
    mailbox: Option<Arc<dyn Mailbox>>,
    clock: Arc<dyn Clock>,
}

impl core::fmt::Debug for Ingress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ingress").field("doors", &self.doors).finish_non_exhaustive()
    }
}

/// The way into one route.
#[derive(Clone, Debug)]
struct Door {
    receiver: Arc<str>,
    /// Of this route alone: another one of the same receiver gets nothing.
    dispatch: Dispatch,
    mailbox: MailboxName,
    outbox: bool,
}

/// A message that is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The ids of what it became: one for each binding that it goes to. Empty where the route's filter took it out, and keeps nothing of it.
    pub entries: Vec<EntryId>,
}

/// Why a message is not in.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// No route has that name.
    #[error("the configuration has no route `{0}`")]
    UnknownRoute(String),
    /// Nothing would be durable there.
    #[error("route `{0}` has no outbox: its messages are held by its source alone, and this one has none")]
    NoOutbox(String),
    /// The store did not take it. Some of what it became may stand there: the same message under the same name can be posted again.
    #[error("the mailbox of its session: {0}")]
    Store(Fault),
}

impl Ingress {
    /// The ways into the routes of `config`, whose mailboxes are in `mailbox`.
    ///
    /// # Errors
    /// A route that cannot be had; `check` tells all of it before.
    pub fn of(config: &Config, mailbox: Option<Arc<dyn Mailbox>>, clock: Arc<dyn Clock>) -> Result<Self, WiringError> {
        let door = |route: &Route| {
            let wrong = |code, detail: String| WiringError::new(format!("routes ({})", route.id), code, detail);
            let session = config.carrier_name(route).unwrap_or_default();
            Ok(Door {
                receiver: route.receiver_id.as_str().into(),
                dispatch: Dispatch::compile(config, [route]).map_err(|error| wrong("E_DISPATCH", error.to_string()))?,
                mailbox: MailboxName::new(&config.bridge.id, &session).map_err(|error| wrong("E_ID", error.to_string()))?,
                outbox: route.delivery_mode.needs_outbox(),
            })
        };
        let doors = config.routes.iter().map(|route| Ok((route.id.to_string(), door(route)?))).collect::<Result<_, WiringError>>()?;
        Ok(Self { doors: Arc::new(doors), mailbox, clock })
    }

    /// The receiver that feeds `route`.
    #[must_use]
    pub fn receiver(&self, route: &str) -> Option<&str> {
        self.doors.get(route).map(|door| &*door.receiver)
    }

    /// Takes `message` in for `route`. `name`: what the sender calls it; the same name for the same message again gives the same ids, so that a sender who got no answer may
    /// repeat, and while the first one still waits in the mailbox there is one. Without a name every call is another message.
    ///
    /// # Errors
    /// Why it is not in, or may not be.
    pub async fn take(&self, route: &str, message: &Message, name: Option<&str>) -> Result<Accepted, Refused> {
        let door = self.doors.get(route).ok_or_else(|| Refused::UnknownRoute(route.to_owned()))?;
        let store = self.mailbox.as_ref().filter(|_| door.outbox).ok_or_else(|| Refused::NoOutbox(route.to_owned()))?;
        let base = match name {
            Some(name) => id_of(&door.mailbox, route, name, &content_digest(message)),
            None => RandomBits::of_the_system().map_err(Refused::Store)?.entry_ids,
        };
        let now = self.clock.wall();
        let arrival = Arrival { receiver: &door.receiver, received_at: now, message };
        let mut accepted = Accepted::default();
        for entry in door.dispatch.entries(&arrival, &mut IdSequence::new(base)).entries {
            let id = entry.id;
            let mail = Mail { id: format!("in-{id}"), posted_at: now, entry: Arc::new(entry) };
            deposit(&**store, &door.mailbox, [mail]).await.map_err(Refused::Store)?;
            accepted.entries.push(id);
        }
        Ok(accepted)
    }
}

/// The first id of what a named message becomes. Another message under the same name gets another: the mailbox would take it for a repeat.
fn id_of(mailbox: &MailboxName, route: &str, name: &str, content: &ContentDigest) -> u128 {
    let mut hash = Sha256::new();
    for part in [mailbox.as_str().as_bytes(), route.as_bytes(), name.as_bytes(), content] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(16).fold(0, |id, byte| id << 8 | u128::from(*byte))
}
