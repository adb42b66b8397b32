//! What is known of one command here, and what is to be done about it.

use super::super::command::{Command, Event, State};
use super::super::waiters::WaiterId;
use super::events::{Ask, Reply, Request};
use crate::units::Instant;
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
    /// What is recorded, until it stands.
    pub(super) recording: Option<Box<Command>>,
    /// When its time is over, while it was given here and is not over.
    pub(super) ends_at: Option<Instant>,
    /// The broker may have it although it did not say so.
    pub(super) may_be_out: bool,
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
    pub(super) fn given(ask: Ask, recording: Box<Command>) -> Self {
        Self { request: Some(Arc::clone(&ask.request)), asked: Some(ask), recording: Some(recording), busy: true, ..Self::default() }
    }

    /// Something to be done before it is decided whether it can be had back. Nothing is published while that is being decided.
    pub(super) fn before_it_is_wanted_back(&mut self, todo: Todo) {
        let at = self.todo.iter().position(|todo| matches!(todo, Todo::Cancel(_))).unwrap_or(self.todo.len());
        self.todo.insert(at, todo);
    }

    /// Whether somebody wants it back.
    pub(super) fn is_wanted_back(&self) -> bool {
        self.todo.iter().any(|todo| matches!(todo, Todo::Cancel(_)))
    }

    /// It was given here, and the broker is not known to have it.
    pub(super) fn is_unpublished(&self) -> bool {
        self.request.is_some() && self.row.as_ref().is_none_or(|row| row.state == State::Created)
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
