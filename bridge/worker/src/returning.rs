//! Putting back what died because its subscription had been removed, once a filter asks for its topic again.
//!
//! Each time that a session is subscribed after its owner began, the dead letters of [`FaultCode::SubscriptionRemoved`] are looked through. That nothing but
//! the configuration as it is and the letters as they are decide makes it safe to be interrupted anywhere: the next start looks again.

use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::redrive::{DEFAULT_MAX_REDRIVES, Filter, MAX_RATE, Mode, Request, Routes};
use causeway_core::units::UnixMillis;
use causeway_duties::redrive::{Ports, run};
use causeway_ports::{Clock, DeadLetterFilter, DeadLetters, Redrives};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Letters in memory at once.
const PAGE: usize = 25;
/// One look, with all that it puts back, takes no longer; the next one goes on.
const LIMIT: Duration = Duration::from_secs(600);

/// What putting back needs.
#[derive(Clone)]
pub struct Returning {
    /// The session.
    pub session: String,
    /// The filters that the configuration has.
    pub filters: Vec<String>,
    /// Whether a filter asks for a topic.
    pub asks: fn(&str, &str) -> bool,
    /// How far back letters are put back.
    pub window: Duration,
    /// The routes, which tell the way back.
    pub routes: Routes,
    /// The letters.
    pub letters: Arc<dyn DeadLetters>,
    /// Their way back.
    pub redrives: Arc<dyn Redrives>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Names the redrive: kept with every message that it puts back.
    pub request_id: String,
}

impl core::fmt::Debug for Returning {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Returning").field("session", &self.session).field("window", &self.window).finish_non_exhaustive()
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// Letters that are on their way again.
    pub redriven: u64,
    /// Letters that stay, each for a reason of its own.
    pub left: u64,
}

impl Returning {
    /// Whether a letter is meant: of this session, for a topic that is asked for now.
    fn means(&self, letter: &DeadLetter) -> bool {
        letter.session == self.session && self.filters.iter().any(|filter| (self.asks)(filter, &letter.message.topic))
    }

    /// Looks through the letters of the window, and puts back those that are meant.
    ///
    /// # Errors
    /// Where a store cannot be used; what was put back stays so, and the next look goes on.
    pub async fn put_back(&self) -> Result<Returned, Fault> {
        let window = u64::try_from(self.window.as_millis()).unwrap_or(u64::MAX);
        let code = FaultCode::SubscriptionRemoved;
        let filter = DeadLetterFilter {
            // By category there is an index everywhere.
            category: Some(code.class().as_str().to_owned()),
            error_code: Some(code.as_str().to_owned()),
            since: Some(UnixMillis(self.clock.wall().0.saturating_sub(window))),
            state: Some(DeadLetterState::Dead),
            ..DeadLetterFilter::default()
        };
        let ports = Ports {
            letters: Arc::clone(&self.letters),
            redrives: Arc::clone(&self.redrives),
            sinks: BTreeMap::new(),
            clock: Arc::clone(&self.clock),
        };
        let deadline = self.clock.now().plus(LIMIT);
        let (mut returned, mut at) = (Returned::default(), None);
        loop {
            let page = self.letters.list(&filter, PAGE, at.as_deref()).await?;
            let ids: Vec<_> = page.letters.iter().filter(|letter| self.means(letter)).map(|letter| letter.id).collect();
            if !ids.is_empty() {
                let report = run(&self.request(ids), &self.routes, &ports, deadline, &|_| {}).await.map_err(|broken| broken.fault)?;
                let (tally, broke_off) = (report.tally, report.continuation.is_some());
                returned.redriven += tally.redriven;
                returned.left += tally.skipped + tally.parked + tally.failed;
                for error in &tally.errors {
                    tracing::warn!(id = %error.id, code = error.code, "a message of a subscription that is back stays a dead letter: {}", error.message);
                }
                if broke_off {
                    return Err(unfinished());
                }
            }
            at = page.continuation;
            if at.is_none() {
                return Ok(returned);
            }
            if self.clock.now() >= deadline {
                return Err(unfinished());
            }
        }
    }

    fn request(&self, ids: Vec<causeway_core::identity::EntryId>) -> Request {
        Request {
            limit: u32::try_from(ids.len()).unwrap_or(u32::MAX),
            filter: Filter { ids, ..Filter::default() },
            dry_run: false,
            rate: u32::try_from(MAX_RATE).unwrap_or(u32::MAX),
            max_redrives: u32::try_from(DEFAULT_MAX_REDRIVES).unwrap_or(u32::MAX),
            mode: Mode::Outbox,
            include_expired: false,
            resume: None,
            request_id: self.request_id.clone(),
            queue: None,
            destination: None,
        }
    }
}

/// Not every letter was looked at: whoever asked asks again.
fn unfinished() -> Fault {
    Fault::new(FaultCode::Unavailable, "putting messages back broke off before its end")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use causeway_core::config::{Source, load};
    use causeway_core::dead_letter::Destination;
    use causeway_core::identity::Id128;
    use causeway_core::message::{Entry, Message};
    use causeway_local::memory::{MemoryDeadLetters, MemoryOutbox, MemoryRedrives};
    use causeway_ports::{Mailbox as _, MailboxName, SystemClock};

    const CONFIG: &str = "
bridge: { id: b }
stores:
  outbox: { type: memory, options: { acknowledge_volatile: true } }
  dlq: { type: memory, options: { acknowledge_volatile: true } }
sessions: [{ id: s, transport: mqtt, session_mode: persistent, options: { session: { broker_url: 'mqtt://127.0.0.1:1883', client_id: c } } }]
receivers: [{ id: in, session_id: s, topics: [{ topic: 'a/#', qos: 1 }] }]
senders: [{ id: q, transport: sqs, options: { queue_url: 'https://sqs.eu-west-1.amazonaws.com/1/q' } }]
bindings: [{ id: to, sender_id: q, address: x }]
routes: [{ id: r, receiver_id: in, delivery_mode: shared_outbox, bindings: [to] }]
";

    fn letter(id: u128, session: &str, topic: &str, code: FaultCode, age: Duration) -> DeadLetter {
        let failed_at = UnixMillis(SystemClock.wall().0 - u64::try_from(age.as_millis()).unwrap());
        let entry = Entry {
            id: Id128(id),
            route: "r".into(),
            binding: "to".into(),
            address: None,
            refusal: None,
            source: "in".into(),
            received_at: failed_at,
            expires_at: None,
            message: Message { topic: topic.to_owned(), ..Message::default() },
            redrive: None,
        };
        let destination =
            Destination { bridge: "b".to_owned(), binding: "to".to_owned(), session: session.to_owned(), ..Destination::default() };
        DeadLetter::new(&entry, &destination, &Fault::new(code, "no"), 1, failed_at)
    }

    #[tokio::test]
    async fn what_a_filter_asks_for_again_is_put_back_and_nothing_else() {
        let (hour, removed) = (Duration::from_secs(3_600), FaultCode::SubscriptionRemoved);
        let (letters, outbox) = (Arc::new(MemoryDeadLetters::new()), Arc::new(MemoryOutbox::new()));
        // More than one page of what is meant.
        for id in 0..60 {
            letters.park(&letter(1_000 + id, "s", "a/b", removed, hour / 2)).await.done().unwrap();
        }
        let others = [
            letter(1, "other", "a/b", removed, hour / 2),
            letter(2, "s", "b/b", removed, hour / 2),
            letter(3, "s", "a/b", removed, hour * 2),
            letter(4, "s", "a/b", FaultCode::NoBinding, hour / 2),
        ];
        for other in &others {
            letters.park(other).await.done().unwrap();
        }
        let config = load(&[Source { name: "test", text: CONFIG }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}")).config;
        let returning = Returning {
            session: "s".to_owned(),
            filters: vec!["c".to_owned(), "$share/g/a/+".to_owned()],
            asks: causeway_mqtt::filter::matches,
            window: hour,
            routes: Routes::of("b", &config).unwrap(),
            redrives: Arc::new(MemoryRedrives::new(Arc::clone(&letters), Arc::clone(&outbox))),
            letters: Arc::clone(&letters) as Arc<dyn DeadLetters>,
            clock: Arc::new(SystemClock),
            request_id: "returned-1".to_owned(),
        };
        assert_eq!(returning.put_back().await.unwrap(), Returned { redriven: 60, left: 0 });
        assert_eq!(returning.put_back().await.unwrap(), Returned::default(), "once");
        let mail = outbox.read_mail(&MailboxName::new("b", "s").unwrap(), 99).await.unwrap();
        assert_eq!((mail.len(), mail[0].entry.redrive.as_ref().map(|redrive| redrive.causation.as_str())), (60, Some("returned-1")));
        for other in &others {
            assert_eq!(letters.get(other.id).await.unwrap().as_ref(), Some(other));
        }
    }
}
