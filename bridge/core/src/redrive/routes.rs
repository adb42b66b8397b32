//! What is known of the routes that letters came by.

use crate::config::Config;
use crate::config::model::{Receiver, Route};
use crate::dead_letter::{DeadLetter, Destination};
use crate::identity::IdentityError;
use crate::mailbox::MailboxName;
use std::collections::BTreeMap;

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFacts {
    /// Its bindings, in the order of the configuration.
    pub bindings: Vec<BindingFacts>,
    /// The session that feeds it.
    pub session: String,
    /// Whether it has an outbox.
    pub outbox: bool,
}

/// One binding of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingFacts {
    /// Where its messages go, as a dead letter tells it.
    pub destination: Destination,
    /// The sender that sends them.
    pub sender: String,
}

impl RouteFacts {
    /// The binding of this name.
    #[must_use]
    pub fn binding(&self, id: &str) -> Option<&BindingFacts> {
        self.bindings.iter().find(|facts| facts.destination.binding == id)
    }
}

/// The way that a letter takes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through a mailbox.
    Outbox {
        /// The mailbox of its session.
        mailbox: MailboxName,
        /// Where its binding sends to now; `None`: as the letter says, or as each message says.
        address: Option<String>,
    },
    /// Straight to the queue.
    Queue {
        /// The sender of its binding.
        sender: String,
        /// Where that sends to now; `None`: as each message says.
        address: Option<String>,
    },
    /// No route has its name.
    Unknown,
    /// Its route has no binding of its name any more.
    NoBinding,
}

impl Way {
    /// Where its binding sends to now.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Outbox { address, .. } | Self::Queue { address, .. } => address.as_deref(),
            Self::Unknown | Self::NoBinding => None,
        }
    }
}

/// The routes of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    bridge: String,
    /// `None`: no configuration is at hand, and letters are believed.
    known: Option<BTreeMap<String, RouteFacts>>,
    sessions: Vec<String>,
}

impl Routes {
    /// Without a configuration: every letter goes back to the outbox of the session that it tells.
    ///
    /// # Errors
    /// Where the bridge's name cannot name a mailbox.
    pub fn unknown(bridge: &str) -> Result<Self, IdentityError> {
        MailboxName::new(bridge, "any")?;
        Ok(Self { bridge: bridge.to_owned(), known: None, sessions: Vec::new() })
    }

    /// These routes and sessions and no others.
    ///
    /// # Errors
    /// Where the bridge's name cannot name a mailbox.
    pub fn with(bridge: &str, routes: BTreeMap<String, RouteFacts>, sessions: Vec<String>) -> Result<Self, IdentityError> {
        Ok(Self { known: Some(routes), sessions, ..Self::unknown(bridge)? })
    }

    /// As `config` has them.
    ///
    /// # Errors
    /// Where the bridge's name cannot name a mailbox.
    pub fn of(bridge: &str, config: &Config) -> Result<Self, IdentityError> {
        let facts = |route: &Route| {
            let session = config.carrier_name(route).unwrap_or_default();
            let bindings = route.bindings.iter().filter_map(|id| config.binding(id)).map(|binding| BindingFacts {
                destination: Destination {
                    bridge: bridge.to_owned(),
                    binding: binding.id.to_string(),
                    address: binding.address.clone(),
                    session: session.clone(),
                },
                sender: binding.sender_id.to_string(),
            });
            RouteFacts { bindings: bindings.collect(), outbox: route.delivery_mode.needs_outbox(), session }
        };
        let known = config.routes.iter().map(|route| (route.id.to_string(), facts(route))).collect();
        let alone = config.receivers.iter().filter(|receiver| receiver.session_id.is_none()).map(Receiver::source_name);
        Self::with(bridge, known, config.sessions.iter().map(|session| session.id.to_string()).chain(alone).collect())
    }

    /// The bridge.
    #[must_use]
    pub fn bridge(&self) -> &str {
        &self.bridge
    }

    /// Whether a configuration tells of the routes.
    #[must_use]
    pub const fn are_known(&self) -> bool {
        self.known.is_some()
    }

    /// What is known of a route.
    #[must_use]
    pub fn route(&self, id: &str) -> Option<&RouteFacts> {
        self.known.as_ref()?.get(id)
    }

    /// Whether the configuration has a session of this name.
    #[must_use]
    pub fn has_session(&self, id: &str) -> bool {
        self.sessions.iter().any(|session| session == id)
    }

    /// The way that `letter` takes back: to the binding that it was bound for. One that was bound for none is dispatched anew by the owner of its log.
    #[must_use]
    pub fn way_of(&self, letter: &DeadLetter) -> Way {
        let outbox = |session: &str, address| {
            MailboxName::new(&self.bridge, session).map_or(Way::Unknown, |mailbox| Way::Outbox { mailbox, address })
        };
        let facts = match (&self.known, self.route(&letter.route)) {
            (None, _) => return outbox(&letter.session, None),
            (Some(_), None) => return Way::Unknown,
            (Some(_), Some(facts)) => facts,
        };
        if facts.outbox && letter.binding.is_empty() {
            return outbox(&facts.session, None);
        }
        let Some(binding) = facts.binding(&letter.binding) else { return Way::NoBinding };
        let address = Some(binding.destination.address.clone()).filter(|address| !address.contains('{'));
        if facts.outbox { outbox(&facts.session, address) } else { Way::Queue { sender: binding.sender.clone(), address } }
    }
}
