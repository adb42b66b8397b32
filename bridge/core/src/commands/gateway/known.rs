//! What is known of one command here, and what is to be done about it.

use super::super::command::{Command, Event};
use super::super::waiters::WaiterId;
use super::events::{Ask, Reply, Request};
use std::collections::VecDeque;
use std::sync::Arc;

/// What is known of a command.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Its row, as it was seen last; `None`: it is to be read.
    pub(super) row: Option<Command>,
    /// What it says, while it was given here and is not over.
    pub(super) request: Option<Arc<Request>>,
    /// Who gave it, until it is recorded.
    pub(super) asked: Option<Ask>,
    /// A call to the store is under way, or waits for its next attempt.
    pub(super) busy: bool,
    /// It is being published.
    pub(super) publishing: bool,
    /// Attempts that failed in a row.
    pub(super) failures: u32,
    /// What is to be done about it, in order.
    pub(super) todo: VecDeque<Todo>,
}

impl Known {
    /// It was just given, and is being recorded.
    pub(super) fn given(ask: Ask) -> Self {
        Self { request: Some(Arc::clone(&ask.request)), asked: Some(ask), busy: true, ..Self::default() }
    }
}

/// Something to be done about a command.
#[derive(Debug)]
pub(super) enum Todo {
    Published {
        no_subscriber: bool,
    },
    Refused,
    Overdue,
    Reply(Box<Reply>),
    Cancel(WaiterId),
    /// Somebody else may have changed it.
    Look,
}

impl Todo {
    /// As what happened to the command. A look is none; nothing follows from it.
    pub(super) fn event(&self) -> Event<'_> {
        match self {
            Self::Published { no_subscriber } => Event::Published { no_subscriber: *no_subscriber },
            Self::Refused => Event::Refused,
            Self::Overdue | Self::Look => Event::Overdue,
            Self::Cancel(_) => Event::Cancelled,
            Self::Reply(reply) => match reply.verdict {
                None => Event::Progress { by: &reply.by },
                Some(verdict) => Event::Answered { by: &reply.by, verdict, answer: reply.digest },
            },
        }
    }
}
