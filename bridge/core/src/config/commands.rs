//! What the gateway of commands is wired from: its topics, its session and its store, with everything filled in.

use super::effective::StoreBackend;
use super::model::{CommandCorrelation, Commands, Config, Session, StoreKind, Stores};
use crate::commands::{Correlation, TopicError, Topics};

const PREFIX: &str = "{prefix}";

impl Commands {
    /// The topics of commands and replies, with the prefix filled in.
    ///
    /// # Errors
    /// The first template that cannot be used.
    pub fn topics(&self) -> Result<Topics, TopicError> {
        let legacy = self.legacy_reply_filter.as_deref().map(|template| self.filled(template));
        Topics::new(&self.filled(&self.request_topic), &self.filled(&self.reply_topic), legacy.as_deref(), &self.reply_share_group)
    }

    /// Where replicas tell each other of a result, with the prefix filled in.
    #[must_use]
    pub fn broadcast(&self) -> String {
        self.filled(&self.broadcast_topic)
    }

    /// A template with the prefix filled in.
    #[must_use]
    pub fn filled(&self, template: &str) -> String {
        template.replace(PREFIX, &self.prefix)
    }
}

impl From<CommandCorrelation> for Correlation {
    fn from(written: CommandCorrelation) -> Self {
        match written {
            CommandCorrelation::Property => Self::Property,
            CommandCorrelation::Payload => Self::Payload,
        }
    }
}

impl Config {
    /// The topics of commands and replies, with the prefix filled in.
    ///
    /// # Errors
    /// The first template that cannot be used.
    pub fn commands_topics(&self) -> Result<Topics, TopicError> {
        self.commands.topics()
    }

    /// The session whose broker, encryption and login commands use, where there is one of that name.
    #[must_use]
    pub fn commands_session(&self) -> Option<&Session> {
        let id = self.commands.session_id.as_ref()?;
        self.sessions.iter().find(|session| session.id.as_str() == id.as_str())
    }
}

impl Stores {
    /// Where commands are kept; `None`: nowhere, or in a way that cannot keep them, or in a table without a name.
    #[must_use]
    pub fn command_backend(&self) -> Option<StoreBackend> {
        let store = self.commands.as_ref()?;
        match store.kind {
            StoreKind::Memory => Some(StoreBackend::Memory),
            StoreKind::Dynamodb => store.options.table_name.clone().map(|table| StoreBackend::Dynamodb { table }),
            StoreKind::Sqlite => None,
        }
    }
}
