//! Changing the number of lanes, and closing the log for good. Both happen only when every lane is drained.
//!
//! More lanes: the record first, then the new lanes are opened. Fewer: the lanes that go away are closed by a retired anchor first, then the record.
//! Whatever is interrupted in between, the record names every lane in which something may stand.

use super::events::{Effect, End};
use super::lane::Lane;
use super::registry::Told;
use super::{Owner, Stage};
use crate::log::{LogState, Registration};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;

/// A change of the number of lanes holds the intake up for so long at most, and is then put off.
const HOLD: Duration = Duration::from_secs(1);
/// A change that was put off is tried again after so long.
const HOLD_AGAIN: Duration = Duration::from_secs(60);

/// A change under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// There is nothing to change, or it is put off until then.
    None { not_before: Option<Instant> },
    /// Nothing is taken in until every lane is drained.
    Holding { until: Instant },
    /// The record is being written with more lanes; then they are opened.
    Growing,
    /// Lanes from this one on are being closed; then the record is written.
    Shrinking { to: u32 },
    /// Every lane is being closed; then the record is written.
    Retiring,
}

impl Change {
    /// Whether nothing may be taken in meanwhile.
    pub const fn holds_up(self) -> bool {
        !matches!(self, Self::None { .. })
    }

    pub const fn wake_at(self) -> Option<Instant> {
        match self {
            Self::None { not_before } => not_before,
            Self::Holding { until } => Some(until),
            Self::Growing | Self::Shrinking { .. } | Self::Retiring => None,
        }
    }
}

impl Owner {
    /// Whether everything in every lane is settled.
    pub(super) fn is_drained(&self) -> bool {
        self.drain.is_empty() && self.lanes.iter().all(Lane::is_drained)
    }

    /// Whether another number of lanes is configured than is registered.
    fn wants_other_lanes(&self) -> bool {
        self.options.has_log() && self.options.lanes as usize != self.lanes.len()
    }

    /// Begins a change, or goes on with it.
    pub(super) fn change(&mut self, now: Instant, wall: UnixMillis) {
        match self.change {
            Change::None { .. } | Change::Holding { .. } if self.stage != Stage::Running || !self.recovered => {
                self.change = Change::None { not_before: None };
            }
            Change::None { .. } if self.options.retire_when_drained => {
                if self.is_drained() {
                    self.change = Change::Retiring;
                    self.retire_from(0, now, wall);
                }
            }
            // Where nothing waits there is nothing to hold up, whatever was put off.
            Change::None { not_before } if self.wants_other_lanes() && (not_before.is_none_or(|at| now >= at) || self.is_drained()) => {
                self.change = Change::Holding { until: now.plus(HOLD) };
                self.resize(now, wall);
            }
            Change::None { .. } => {}
            Change::Holding { until } => {
                if self.is_drained() {
                    self.resize(now, wall);
                } else if now >= until {
                    self.change = Change::None { not_before: Some(now.plus(HOLD_AGAIN)) };
                }
            }
            Change::Growing => {
                if !self.registry.is_writing() && self.lanes.iter().all(|lane| lane.writer.is_running()) {
                    self.change = Change::None { not_before: None };
                }
            }
            Change::Shrinking { to } => self.register_when_closed(to, to, LogState::Open),
            Change::Retiring => {
                let lanes = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
                self.register_when_closed(0, lanes, LogState::Retired);
            }
        }
    }

    fn resize(&mut self, now: Instant, wall: UnixMillis) {
        if !self.is_drained() {
            return;
        }
        let (wanted, present) = (self.options.lanes.max(1), u32::try_from(self.lanes.len()).unwrap_or(u32::MAX));
        if wanted > present {
            self.change = Change::Growing;
            self.registry.write(Registration { epoch: self.epoch, lanes: wanted, state: LogState::Open });
        } else {
            self.change = Change::Shrinking { to: wanted };
            self.retire_from(wanted, now, wall);
        }
    }

    fn retire_from(&mut self, first: u32, now: Instant, wall: UnixMillis) {
        for lane in self.lanes.iter_mut().skip(first as usize) {
            let drained = lane.settled.drained();
            lane.writer.retire(now, wall, drained);
        }
    }

    fn register_when_closed(&mut self, first: u32, lanes: u32, state: LogState) {
        let closed = self.lanes.iter().skip(first as usize).all(|lane| lane.writer.is_retired());
        if closed && !self.registry.is_writing() {
            self.registry.write(Registration { epoch: self.epoch, lanes, state });
        }
    }

    /// The registry answered to a change.
    pub(super) fn change_registered(&mut self, told: Told) {
        if told == Told::Conflict {
            // Nobody but an owner with a higher epoch replaces this one's record.
            let found = self.registry.standing().map(|record| record.epoch).unwrap_or_default();
            self.fenced_by_record(found);
            return;
        }
        match self.change {
            Change::Growing => self.add_lanes(self.options.lanes.max(1)),
            Change::Shrinking { to } => {
                self.lanes.truncate(to as usize);
                self.change = Change::None { not_before: None };
            }
            Change::Retiring => {
                self.stage = Stage::Finished;
                self.effects.push(Effect::Finished(End::Retired));
            }
            Change::None { .. } | Change::Holding { .. } => {}
        }
    }
}
