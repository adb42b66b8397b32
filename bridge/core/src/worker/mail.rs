//! Moving mail into the log.

use super::events::Effect;
use super::{Owner, Stage};
use crate::mailbox::{MAX_MOVE_ROWS, Mail};
use crate::outcome::Fault;
use crate::units::Instant;
use core::time::Duration;
use std::sync::Arc;

/// After mail that was gone when it was to be moved, the mailbox is read again so soon.
const AFTER_CONFLICT: Duration = Duration::from_millis(100);

/// When the mailbox is read, always from its start.
#[derive(Debug)]
pub(super) struct MailReader {
    /// How often; `None`: this owner moves no mail.
    interval: Option<Duration>,
    reading: bool,
    /// Pieces that the lanes still have to move.
    moving: usize,
    next_at: Option<Instant>,
    /// Somebody posted while it was being read.
    hinted: bool,
}

impl MailReader {
    pub const fn new(interval: Option<Duration>) -> Self {
        Self { interval, reading: false, moving: 0, next_at: None, hinted: false }
    }

    /// Somebody posted: it is read at the next occasion.
    pub const fn hint(&mut self) {
        self.next_at = None;
        self.hinted |= self.reading;
    }

    pub fn wake_at(&self) -> Option<Instant> {
        self.interval.and(self.next_at).filter(|_| !self.reading && self.moving == 0)
    }

    fn again_after(&mut self, now: Instant, pause: Duration) {
        self.next_at = Some(now.plus(pause));
    }

    /// So many pieces were moved, or stay where they are.
    fn done(&mut self, pieces: usize) {
        self.moving = self.moving.saturating_sub(pieces);
    }
}

impl Owner {
    /// Reads the mailbox where it is due. Not while stopping, and not while what was read last is still being moved.
    pub(super) fn read_mail(&mut self, now: Instant) {
        let mail = &mut self.mail;
        let idle = !mail.reading && mail.moving == 0 && !self.change.holds_up() && self.stage == Stage::Running;
        if mail.interval.is_some() && idle && mail.next_at.is_none_or(|at| now >= at) {
            mail.reading = true;
            self.effects.push(Effect::ReadMail { limit: MAX_MOVE_ROWS });
        }
    }

    /// The mailbox was read.
    pub(super) fn mail_read(&mut self, now: Instant, answer: Result<Vec<Mail>, Fault>) {
        self.mail.reading = false;
        let interval = self.mail.interval.unwrap_or_default();
        match answer {
            Ok(mail) if mail.is_empty() => {
                let hinted = core::mem::take(&mut self.mail.hinted);
                self.mail.again_after(now, if hinted { Duration::ZERO } else { interval });
            }
            // What is not taken up stays in the mailbox.
            Ok(_) if self.stage != Stage::Running || !self.is_open() || self.change.holds_up() => self.mail.again_after(now, interval),
            Ok(mail) => {
                // There may be more than one reading yields.
                self.mail.again_after(now, Duration::ZERO);
                for piece in mail {
                    // What was bound for nothing may have a binding now.
                    let entry = self.options.dispatch.again(Arc::unwrap_or_clone(piece.entry));
                    let piece = Mail { entry: Arc::new(entry), ..piece };
                    let lane = self.lane_of(&piece.entry);
                    if let Some(lane) = self.lanes.get_mut(lane.index()) {
                        self.mail.moving += 1;
                        lane.writer.push_mail(piece);
                    }
                }
            }
            Err(fault) => {
                self.mail.again_after(now, interval);
                self.store_fault(fault);
            }
        }
    }

    /// Mail was moved into the log.
    pub(super) fn mail_moved(&mut self, pieces: usize) {
        self.mail.done(pieces);
    }

    /// Mail was gone when it was to be moved.
    pub(super) fn mail_gone(&mut self, now: Instant, pieces: usize) {
        self.mail.done(pieces);
        self.mail.again_after(now, AFTER_CONFLICT);
    }

    /// Stops moving: what is not on its way stays in the mailbox.
    pub(super) fn forget_mail(&mut self) {
        let pieces = self.lanes.iter_mut().map(|lane| lane.writer.forget_mail()).sum();
        self.mail.done(pieces);
    }
}
