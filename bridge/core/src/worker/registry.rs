//! The partition's record in the registry: how many lanes there are, and under which epoch that was written.
//!
//! Every write names the record that it replaces. So a count that an owner read cannot overwrite one that another wrote meanwhile: an owner that
//! changes the count and then uses the new lanes, and one that takes over with the old count in mind, cannot both succeed.

use crate::log::patience::Patience;
use crate::log::{Answer, Call, Registration};
use crate::outcome::{Fault, Outcome};
use crate::units::Instant;

/// What an answer led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The record was read.
    Read,
    /// The wanted record stands.
    Written,
    /// Another record stands, and nothing was written. It was read.
    Conflict,
}

/// Reads and writes the record, one call at a time.
#[derive(Debug)]
pub(super) struct Registry {
    standing: Option<Registration>,
    writing: Option<Registration>,
    /// A write has an unknown outcome.
    doubtful: bool,
    must_read: bool,
    in_flight: bool,
    patience: Patience,
}

impl Registry {
    /// It begins with reading.
    pub fn new() -> Self {
        Self { standing: None, writing: None, doubtful: false, must_read: true, in_flight: false, patience: Patience::default() }
    }

    /// The record as it was last known to stand.
    pub const fn standing(&self) -> Option<Registration> {
        self.standing
    }

    /// Whether a record is to be written and was not yet.
    pub const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    pub const fn fault(&self) -> Option<&Fault> {
        self.patience.fault()
    }

    pub fn wake_at(&self) -> Option<Instant> {
        self.patience.wake_at().filter(|_| !self.in_flight)
    }

    /// Writes `record` in the place of what stands.
    pub const fn write(&mut self, record: Registration) {
        self.writing = Some(record);
        self.doubtful = false;
    }

    /// The call to make now, if any.
    pub fn poll(&mut self, now: Instant) -> Option<Call> {
        if self.in_flight || !self.patience.is_due(now) {
            return None;
        }
        let call = match self.writing {
            _ if self.must_read => Call::ReadRecord,
            Some(record) => Call::Register { record, replaces: self.standing },
            None => return None,
        };
        self.in_flight = true;
        self.patience.called();
        Some(call)
    }

    /// Takes the answer.
    pub fn answer(&mut self, now: Instant, answer: Answer) -> Option<Told> {
        self.in_flight = false;
        match answer {
            Answer::Record(Ok(found)) => {
                self.patience.succeeded();
                self.must_read = false;
                self.read(found)
            }
            Answer::Registered(Outcome::Done(true)) => {
                self.patience.succeeded();
                self.standing = self.writing.take();
                Some(Told::Written)
            }
            Answer::Registered(Outcome::Done(false)) => {
                self.patience.succeeded();
                self.must_read = true;
                None
            }
            Answer::Registered(Outcome::Unknown(fault)) => {
                self.doubtful = true;
                self.must_read = true;
                self.patience.failed(now, fault);
                None
            }
            Answer::Record(Err(fault)) | Answer::Registered(Outcome::NotDone(fault)) => {
                self.patience.failed(now, fault);
                None
            }
            _ => None,
        }
    }

    fn read(&mut self, found: Option<Registration>) -> Option<Told> {
        let before = core::mem::replace(&mut self.standing, found);
        match self.writing {
            None => Some(Told::Read),
            // One's own write whose answer was lost. A record that merely looks like it, where no write is in doubt, is another owner's.
            Some(wanted) if self.doubtful && found == Some(wanted) => {
                self.writing = None;
                Some(Told::Written)
            }
            Some(_) if found == before => None,
            Some(_) => {
                self.writing = None;
                Some(Told::Conflict)
            }
        }
    }
}
