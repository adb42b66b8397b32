//! Dead letters in memory that can refuse.

use super::Shared;
use crate::{DeadLetterFilter, DeadLetterPage, DeadLetters};
use async_trait::async_trait;
use causeway_core::dead_letter::DeadLetter;
use causeway_core::identity::EntryId;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;

/// Keeps letters until the test makes it refuse.
#[derive(Debug, Default)]
pub struct FakeDeadLetters {
    shared: Shared<State>,
}

#[derive(Debug, Default)]
struct State {
    letters: Vec<DeadLetter>,
    refusal: Option<Fault>,
    lost_answers: usize,
    parks: u64,
}

impl FakeDeadLetters {
    /// No letters, nothing refused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses every call with `fault`, or serves again.
    pub fn refuse(&self, fault: Option<Fault>) {
        self.shared.change(|state| state.refusal = fault);
    }

    /// Keeps what the next `count` parks bring, and answers none of them.
    pub fn lose_answers(&self, count: usize) {
        self.shared.change(|state| state.lost_answers = count);
    }

    /// Everything kept, oldest first.
    #[must_use]
    pub fn letters(&self) -> Vec<DeadLetter> {
        self.shared.look().letters.clone()
    }

    /// How often a letter was brought, refused ones and repeats included.
    #[must_use]
    pub fn parks(&self) -> u64 {
        self.shared.look().parks
    }

    /// Waits until at least `count` letters are kept.
    pub async fn kept_at_least(&self, count: usize) {
        self.shared.wait_for(|state| (state.letters.len() >= count).then_some(())).await;
    }

    /// Waits until a letter was brought at least `count` times.
    pub async fn parks_at_least(&self, count: u64) {
        self.shared.wait_for(|state| (state.parks >= count).then_some(())).await;
    }

    fn served(&self) -> Result<(), Fault> {
        self.shared.look().refusal.clone().map_or(Ok(()), Err)
    }
}

/// By age, then by id.
fn key(letter: &DeadLetter) -> (UnixMillis, EntryId) {
    (letter.failed_at, letter.id)
}

fn cursor(text: &str) -> Result<(UnixMillis, EntryId), Fault> {
    text.split_once('#')
        .and_then(|(failed_at, id)| Some((UnixMillis(failed_at.parse().ok()?), id.parse().ok()?)))
        .ok_or_else(|| Fault::new(FaultCode::InvalidConfig, "not a continuation of this list"))
}

#[async_trait]
impl DeadLetters for FakeDeadLetters {
    async fn park(&self, letter: &DeadLetter) -> Outcome<()> {
        self.shared.change(|state| {
            state.parks += 1;
            if let Some(fault) = &state.refusal {
                return Outcome::NotDone(fault.clone());
            }
            state.letters.retain(|kept| kept.id != letter.id || !kept.may_be_replaced_by(letter));
            if state.letters.iter().all(|kept| kept.id != letter.id) {
                let place = state.letters.partition_point(|kept| key(kept) < key(letter));
                state.letters.insert(place, letter.clone());
            }
            if state.lost_answers > 0 {
                state.lost_answers -= 1;
                return Outcome::Unknown(Fault::new(FaultCode::Timeout, "no answer in time"));
            }
            Outcome::Done(())
        })
    }

    async fn get(&self, id: EntryId) -> Result<Option<DeadLetter>, Fault> {
        self.served()?;
        Ok(self.shared.look().letters.iter().find(|letter| letter.id == id).cloned())
    }

    async fn list(&self, filter: &DeadLetterFilter, limit: usize, continuation: Option<&str>) -> Result<DeadLetterPage, Fault> {
        self.served()?;
        let after = continuation.map(cursor).transpose()?;
        let state = self.shared.look();
        let mut meant = state.letters.iter().filter(|letter| after.is_none_or(|after| key(letter) > after) && filter.matches(letter));
        let letters: Vec<DeadLetter> = meant.by_ref().take(limit).cloned().collect();
        let more = meant.next().is_some();
        let continuation = letters.last().filter(|_| more).map(|last| format!("{}#{}", last.failed_at.0, last.id));
        Ok(DeadLetterPage { letters, continuation })
    }

    async fn delete(&self, id: EntryId) -> Outcome<bool> {
        self.shared.change(|state| {
            if let Some(fault) = &state.refusal {
                return Outcome::NotDone(fault.clone());
            }
            let before = state.letters.len();
            state.letters.retain(|letter| letter.id != id);
            Outcome::Done(state.letters.len() < before)
        })
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.served()
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.served().map(|()| Vec::new())
    }
}
