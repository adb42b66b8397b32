//! When a sender sends: the state of one way out, from the bytes that its connection has not written, from what is under way, and from what the other
//! side says of its load.
//!
//! A full window is no state of its own: it only waits, and each answer makes room. A sender pauses where what it was given piles up before its
//! connection, or where the other side asks for less. From a pause it comes back by itself: once nothing is under way any more, or at the latest after a
//! fixed number of looks, and then with little at first.
//!
//! Nothing here remembers that there is something to send. Whoever drives a [`SenderFlow`] asks [`SenderFlow::window`] after each event, so that a message
//! that comes at any moment of a pause is found when the pause ends.

use crate::drain::retry::Jitter;
use crate::units::Instant;
use core::time::Duration;
use serde::Serialize;

/// Entries under way at most, when a sender comes back.
const SLOW_START: usize = 8;

/// How a sender comes back from a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeOptions {
    /// From the first look whether anything is still under way to the second.
    pub base: Duration,
    /// The longest pause between two looks, but for the jitter.
    pub max: Duration,
    /// Looks after the second, before it goes on regardless of what is under way.
    pub max_retries: u32,
    /// By how much a pause between two looks is drawn longer at most.
    pub jitter: Duration,
    /// Whether it begins with little.
    pub slow_start: bool,
}

impl Default for ResumeOptions {
    fn default() -> Self {
        Self {
            base: Duration::from_secs(1),
            max: Duration::from_secs(10),
            max_retries: 5,
            jitter: Duration::from_secs(1),
            slow_start: true,
        }
    }
}

impl ResumeOptions {
    /// The pause after the look of this number, counted from 0: with the defaults 1, 2, 3, 5, 9 and 10 seconds, and the jitter.
    fn pause(&self, look: u32, jitter: &mut Jitter) -> Duration {
        let full = match look.checked_sub(1) {
            None => self.base,
            Some(exponent) => self.base.saturating_mul(1_u32.checked_shl(exponent).unwrap_or(u32::MAX).saturating_add(1)),
        };
        full.min(self.max).saturating_add(self.jitter.mul_f64(jitter.fraction()))
    }
}

/// The bounds of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderOptions {
    /// Entries under way at most.
    pub max_in_flight: usize,
    /// Bytes under way at which nothing more is sent until an answer comes.
    pub max_unacked_bytes: usize,
    /// Bytes given to the connection and not written above which it pauses.
    pub high_water: u64,
    /// Bytes below which that pause ends.
    pub low_water: u64,
    /// How it comes back.
    pub resume: ResumeOptions,
}

impl Default for SenderOptions {
    fn default() -> Self {
        Self {
            max_in_flight: usize::MAX,
            max_unacked_bytes: 16 * 1024 * 1024,
            high_water: 1_310_720,
            low_water: 655_360,
            resume: ResumeOptions::default(),
        }
    }
}

/// What is known of a sender's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderLink {
    /// Encoded bytes that the connection was given and has not written.
    pub pending_bytes: u64,
    /// Whether it stands; `None`: there was none yet.
    pub up: Option<bool>,
    /// Whether the other side still had the session when it was made.
    pub session_present: bool,
    /// How many entries the other side takes ahead of its answers; `None`: it did not say.
    pub window: Option<u16>,
    /// Times that the other side asked for less, other than in an answer to a message.
    pub throttles: u64,
}

/// What a sender does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SenderPhase {
    /// It sends.
    #[default]
    Running,
    /// What it was given piles up before its connection: it waits until that is written.
    Paused,
    /// It waits until nothing is under way, and goes on.
    Settling,
    /// The other side asked for less: it waits a while.
    Throttled,
    /// Its connection is gone: one entry at a time, so that it is made anew.
    Down,
}

impl SenderPhase {
    /// The name in the status and in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Settling => "settling",
            Self::Throttled => "throttled",
            Self::Down => "down",
        }
    }

    /// Whether nothing is sent, and it will go on by itself without being given anything.
    #[must_use]
    pub const fn is_paused(self) -> bool {
        matches!(self, Self::Paused | Self::Settling | Self::Throttled)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Paused,
    /// The look of this number is due at a time.
    Settling {
        look: u32,
        at: Instant,
    },
    Throttled {
        until: Instant,
    },
    Down,
}

/// Times that a sender came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resumed {
    /// With nothing under way.
    pub settled: u64,
    /// Although something was.
    pub forced: u64,
}

/// One sender: when it sends, and how much.
#[derive(Clone, Debug)]
pub struct SenderFlow {
    options: SenderOptions,
    state: State,
    since: Option<Instant>,
    link: SenderLink,
    /// Entries under way at most, for now.
    window: usize,
    /// Up to here the window doubles; from here on it grows by one.
    threshold: usize,
    /// Entries accepted since the window last grew.
    accepted: usize,
    /// Times in a row that the other side asked for less.
    throttled: u32,
    resumed: Resumed,
    throttles: u64,
}

impl SenderFlow {
    /// It sends, with all of its window.
    #[must_use]
    pub fn new(options: SenderOptions) -> Self {
        let options = SenderOptions { max_in_flight: options.max_in_flight.max(1), low_water: options.low_water.max(1), ..options };
        Self {
            options,
            state: State::Running,
            since: None,
            link: SenderLink::default(),
            window: options.max_in_flight,
            threshold: options.max_in_flight,
            accepted: 0,
            throttled: 0,
            resumed: Resumed::default(),
            throttles: 0,
        }
    }

    /// What it does.
    #[must_use]
    pub const fn phase(&self) -> SenderPhase {
        match self.state {
            State::Running => SenderPhase::Running,
            State::Paused => SenderPhase::Paused,
            State::Settling { .. } => SenderPhase::Settling,
            State::Throttled { .. } => SenderPhase::Throttled,
            State::Down => SenderPhase::Down,
        }
    }

    /// Since when; `None`: since the start.
    #[must_use]
    pub const fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Times that it came back.
    #[must_use]
    pub const fn resumed(&self) -> Resumed {
        self.resumed
    }

    /// Times that the other side asked for less.
    #[must_use]
    pub const fn throttles(&self) -> u64 {
        self.throttles
    }

    /// Entries under way at most, now: none while it pauses.
    #[must_use]
    pub fn window(&self) -> usize {
        match self.state {
            State::Running => self.window.min(self.most()),
            State::Paused | State::Settling { .. } | State::Throttled { .. } => 0,
            State::Down => 1,
        }
    }

    /// How many more bytes may be under way, where so many are.
    #[must_use]
    pub const fn room_in_bytes(&self, unacked: usize) -> usize {
        self.options.max_unacked_bytes.saturating_sub(unacked)
    }

    /// When to look again although nothing happened.
    #[must_use]
    pub const fn wake_at(&self) -> Option<Instant> {
        match self.state {
            State::Settling { at, .. } | State::Throttled { until: at } => Some(at),
            State::Running | State::Paused | State::Down => None,
        }
    }

    fn most(&self) -> usize {
        let of_peer = self.link.window.map_or(usize::MAX, |window| usize::from(window).max(1));
        self.options.max_in_flight.min(of_peer)
    }

    fn become_(&mut self, now: Instant, state: State) {
        let before = self.phase();
        self.state = state;
        if self.phase() != before {
            self.since = Some(now);
        }
    }

    /// What is known of its connection changed.
    pub fn linked(&mut self, now: Instant, link: SenderLink, jitter: &mut Jitter) {
        let before = core::mem::replace(&mut self.link, link);
        match (link.up, self.state) {
            (Some(false), State::Down) => {}
            (Some(false), _) if before.up != Some(false) => self.become_(now, State::Down),
            // What was under way may still be answered where the other side kept the session; else it ended with the connection.
            (Some(true), State::Down) if link.session_present => self.become_(now, State::Settling { look: 0, at: now }),
            (Some(true), State::Down) => self.run(now),
            _ => {}
        }
        if link.throttles > before.throttles {
            self.throttle(now, jitter);
        }
        self.pending(now, link.pending_bytes);
    }

    /// So many bytes wait to be written.
    pub fn pending(&mut self, now: Instant, bytes: u64) {
        self.link.pending_bytes = bytes;
        match self.state {
            State::Running | State::Settling { .. } if bytes > self.options.high_water => self.become_(now, State::Paused),
            State::Paused if bytes < self.options.low_water => self.become_(now, State::Settling { look: 0, at: now }),
            _ => {}
        }
    }

    /// The other side asked for less. While it is left alone for that reason, what was under way before says nothing new.
    pub fn throttle(&mut self, now: Instant, jitter: &mut Jitter) {
        if matches!(self.state, State::Throttled { .. }) {
            return;
        }
        self.throttles += 1;
        let pause = self.options.resume.pause(self.throttled, jitter);
        self.throttled = self.throttled.saturating_add(1);
        self.threshold = (self.window.min(self.most()) / 2).max(1);
        self.window = self.window.min(self.threshold);
        self.accepted = 0;
        self.become_(now, State::Throttled { until: now.plus(pause) });
    }

    /// So many entries were accepted. A window of them makes it larger.
    pub fn accepted(&mut self, entries: usize) {
        self.accepted = self.accepted.saturating_add(entries);
        while self.accepted >= self.window {
            self.accepted -= self.window;
            // A whole window went through.
            self.throttled = 0;
            if self.window >= self.options.max_in_flight {
                self.accepted = 0;
                return;
            }
            let larger = if self.window < self.threshold { (self.window * 2).min(self.threshold) } else { self.window + 1 };
            self.window = larger.min(self.options.max_in_flight);
        }
    }

    /// Looks whether a pause is over. `in_flight`: the entries under way.
    pub fn tick(&mut self, now: Instant, in_flight: usize, jitter: &mut Jitter) {
        if let State::Throttled { until } = self.state
            && now >= until
        {
            // Its connection was lost, or filled up, meanwhile.
            let next = match self.link.up {
                Some(false) => State::Down,
                _ if self.link.pending_bytes >= self.options.low_water => State::Paused,
                _ => State::Settling { look: 0, at: until },
            };
            self.become_(now, next);
        }
        while let State::Settling { look, at } = self.state
            && now >= at
        {
            if in_flight == 0 {
                self.resumed.settled += 1;
                self.run(now);
            } else if look > self.options.resume.max_retries {
                self.resumed.forced += 1;
                self.run(now);
            } else {
                self.state = State::Settling { look: look + 1, at: at.plus(self.options.resume.pause(look, jitter)) };
            }
        }
    }

    fn run(&mut self, now: Instant) {
        if self.options.resume.slow_start {
            self.window = self.window.min(SLOW_START);
            self.accepted = 0;
        }
        self.become_(now, State::Running);
    }
}

#[cfg(test)]
mod tests;
