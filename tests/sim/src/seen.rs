//! What a batch of runs has to have met: a net that never saw a fish proves nothing.

use core::fmt;

macro_rules! sights {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something that happens sometimes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Sight { $($(#[$doc])* $name,)* }

        impl Sight {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

sights! {
    /// A lease was taken over from an owner that fell silent.
    TakeoverByExpiry,
    /// A lease was taken over because the owner's task was said to have stopped.
    TakeoverByTestimony,
    /// The same, and the owner lived.
    TakeoverByFalseTestimony,
    /// A lease that was given back was taken.
    TakeoverByRelease,
    /// A renewal whose answer was lost was found to be one's own.
    OwnRenewalRecognised,
    /// A claim whose answer was lost was found to be one's own.
    OwnClaimRecognised,
    /// A put of unknown outcome turned out to be done.
    PutResolvedAsDone,
    /// A put of unknown outcome turned out not to be done.
    PutResolvedAsNotDone,
    /// The store refused a put of an owner that was replaced.
    StalePutRefused,
    /// The store refused a lease write of a member whose picture was old.
    StaleLeaseWriteRefused,
    /// A request took effect after its caller had given it up.
    AppliedAfterGivenUp,
    /// The broker delivered a message again.
    Redelivered,
    /// The destination received the same entry twice.
    EntrySentAgain,
    /// A batch came back with different outcomes for its entries.
    PartialBatch,
    /// An entry was dead-lettered.
    Parked,
    /// A newer connection of the same client ended an older one.
    SessionTakenOver,
    /// A disconnected source was kept from reconnecting because somebody else holds the lease.
    GateHeldBack,
    /// An owner lost its way to the broker and stepped down for it.
    BrokerPathStepDown,
    /// An owner was paused past its deadline and woke up.
    WokeUpTooLate,
    /// An owner was told by the log that it was replaced.
    Fenced,
    /// A lease older than its log was raised above it.
    LeaseRaised,
    /// Observations outlived the observer that wrote them and another one counted on.
    EvidenceWritten,
    /// Entries of a former owner were recovered.
    Recovered,
    /// A message went to another lane than the first.
    OtherLaneUsed,
    /// Mail was put back while nobody served the session.
    MailPostedDuringTakeover,
    /// Mail that was put back under one owner was moved by another.
    MailMovedAfterTakeover,
    /// The store refused a move of mail because somebody else's row stands at its slot.
    MailMoveRefused,
    /// Mail was gone when it was to be moved again.
    MailGone,
    /// A redrive whose answer was lost was found done.
    RedriveRepeated,
    /// Of two redrives of one letter the second was refused.
    RedriveRefused,
    /// A message was acknowledged that was never in the log.
    AcknowledgedWithoutLog,
    /// A message that had been sent past the log was sent from the log.
    Spilled,
    /// A member was told to stop and handed over.
    HandedOver,
    /// The lease table was put back to an older copy.
    LeaseTableRestored,
    /// A connection passed packets one way only.
    HalfOpenConnection,
    /// Settings were drawn that the timing check refuses.
    SettingsRefused,
    /// A worker with other filters than the one before reconciled the subscriptions.
    SubscriptionsReconciled,
    /// A session of which nothing was known was found to be new, and its account begun.
    BaselineSeeded,
    /// A session that nobody knew of stood at the broker, and a person told what it has.
    BaselineToldByHand,
}

/// Which of them were seen, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen([u64; Sight::ALL.len()]);

impl Default for Seen {
    fn default() -> Self {
        Self([0; Sight::ALL.len()])
    }
}

impl Seen {
    /// Notes one.
    pub const fn note(&mut self, sight: Sight) {
        self.0[sight as usize] += 1;
    }

    /// How often it was seen.
    #[must_use]
    pub const fn count(&self, sight: Sight) -> u64 {
        self.0[sight as usize]
    }

    /// Adds what another run saw.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Those never seen.
    #[must_use]
    pub fn missing(&self) -> Vec<Sight> {
        Sight::ALL.iter().copied().filter(|sight| self.count(*sight) == 0).collect()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sight in Sight::ALL {
            write!(f, "{sight:?} {}  ", self.count(*sight))?;
        }
        Ok(())
    }
}
