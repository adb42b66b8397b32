//! Where operators ask a session's owner to hand over, and the sessions' loops listen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// The sessions that can be handed over. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct StepDowns(Arc<Mutex<BTreeMap<String, Arc<Notify>>>>);

impl StepDowns {
    /// What tells the loop of `session` to hand over.
    #[must_use]
    pub fn listen(&self, session: &str) -> Arc<Notify> {
        Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(session.to_owned()).or_default())
    }

    /// Asks the loop of `session`; answers whether there is one that could hand over. A loop that does not own its session at that moment does nothing.
    #[must_use]
    pub fn ask(&self, session: &str) -> bool {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(session).map(|place| place.notify_one()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_loop_that_listens_can_be_asked() {
        let step_downs = StepDowns::default();
        let loop_of_one = step_downs.listen("one");
        assert!(!step_downs.ask("other"));
        assert!(step_downs.ask("one"));
        loop_of_one.notified().await;
    }
}
