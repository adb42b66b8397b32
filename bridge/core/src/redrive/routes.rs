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
    /// Where its messages go, as a dead letter tells it.
    pub destination: Destination,
    /// The sender that sends them.
    pub sender: String,
    /// Whether it has an outbox.
    pub outbox: bool,
}

/// The way that a letter takes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through a mailbox.
    Outbox {
        /// The mailbox of its session.
        mailbox: MailboxName,
        /// Where the route sends to now; `None`: as the letter says.
        address: Option<String>,
    },
    /// Straight to the queue.
    Queue {
        /// Where the route sends to now.
        address: String,
    },
    /// No route has its name.
    Unknown,
}

impl Way {
    /// Where the route sends to now.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Outbox { address, .. } => address.as_deref(),
            Self::Queue { address } => Some(address),
            Self::Unknown => None,
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
            let binding = route.bindings.first().and_then(|id| config.binding(id));
            let receiver = config.receiver(&route.receiver_id);
            RouteFacts {
                destination: Destination {
                    binding: binding.map(|binding| binding.id.to_string()).unwrap_or_default(),
                    address: binding.map(|binding| binding.address.clone()).unwrap_or_default(),
                    session: receiver.map(Receiver::source_name).unwrap_or_default(),
                },
                sender: binding.map(|binding| binding.sender_id.to_string()).unwrap_or_default(),
                outbox: route.delivery_mode.needs_outbox(),
            }
        };
        let known = config.routes.iter().map(|route| (route.id.to_string(), facts(route))).collect();
        let queues = config.receivers.iter().filter(|receiver| receiver.is_queue()).map(Receiver::source_name);
        Self::with(bridge, known, config.sessions.iter().map(|session| session.id.to_string()).chain(queues).collect())
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

    /// The way that `letter` takes back.
    #[must_use]
    pub fn way_of(&self, letter: &DeadLetter) -> Way {
        let (session, address) = match (&self.known, self.route(&letter.route)) {
            (None, _) => (letter.session.as_str(), None),
            (Some(_), None) => return Way::Unknown,
            (Some(_), Some(facts)) if !facts.outbox => return Way::Queue { address: facts.destination.address.clone() },
            (Some(_), Some(facts)) => (facts.destination.session.as_str(), Some(facts.destination.address.clone())),
        };
        MailboxName::new(&self.bridge, session).map_or(Way::Unknown, |mailbox| Way::Outbox { mailbox, address })
    }
}
