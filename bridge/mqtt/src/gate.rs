//! Asking the gate on one connection, beside everything else that happens on it.

use causeway_core::outcome::{Fault, FaultCode};
use causeway_ports::ConnectionGate;
use core::future::Future;
use core::pin::Pin;
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::time::timeout;

/// What the gate said.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Which filters are to be unsubscribed before anything is subscribed.
    Stale(Result<BTreeSet<String>, Fault>),
    /// It took note of a filter that is unsubscribed.
    Noted,
}

/// One question at a time, in the order in which they arose. Questions that are still open when the connection ends are dropped with it: the next
/// connection asks anew.
pub(crate) struct Inquiry {
    gate: Option<Arc<dyn ConnectionGate>>,
    limit: Duration,
    asked: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    unsubscribed: VecDeque<String>,
}

impl Inquiry {
    /// Asks at once what is to be unsubscribed. Every question may take `limit`, and the first one a little less: there has to be time to act on it.
    pub(crate) fn new(gate: Option<Arc<dyn ConnectionGate>>, session_present: bool, limit: Duration) -> Self {
        let first_limit = limit.saturating_sub(farewell(limit));
        let mut inquiry = Self { gate, limit, asked: None, unsubscribed: VecDeque::new() };
        if let Some(gate) = inquiry.gate.clone() {
            inquiry.asked = Some(Box::pin(async move {
                let answer = timeout(first_limit, gate.before_subscribe(session_present)).await;
                Answer::Stale(answer.unwrap_or_else(|_| Err(late(first_limit))))
            }));
        }
        inquiry
    }

    /// Tells the gate that `filter` is unsubscribed.
    pub(crate) fn unsubscribed(&mut self, filter: String) {
        self.unsubscribed.push_back(filter);
        self.ask_next();
    }

    fn ask_next(&mut self) {
        if self.asked.is_some() {
            return;
        }
        let (Some(gate), Some(filter)) = (self.gate.clone(), self.unsubscribed.pop_front()) else { return };
        let limit = self.limit;
        self.asked = Some(Box::pin(async move {
            if timeout(limit, gate.unsubscribed(&filter)).await.is_err() {
                tracing::warn!(%filter, ?limit, "nobody took note in time that the filter is unsubscribed; it will be unsubscribed again");
            }
            Answer::Noted
        }));
    }

    /// Whether an answer is awaited.
    pub(crate) const fn is_open(&self) -> bool {
        self.asked.is_some()
    }

    /// The next answer; never, while nothing is asked. Cancel-safe.
    pub(crate) async fn answer(&mut self) -> Answer {
        let answer = match &mut self.asked {
            Some(asked) => asked.await,
            None => core::future::pending().await,
        };
        self.asked = None;
        self.ask_next();
        answer
    }
}

/// What is left of `limit` for leaving in order once the gate did not agree.
pub(crate) fn farewell(limit: Duration) -> Duration {
    (limit / 10).min(Duration::from_secs(1))
}

/// Asks whether a connection may be made, for at most `limit`.
pub(crate) async fn before_connect(gate: &dyn ConnectionGate, reconnect: bool, limit: Duration) -> Result<(), Fault> {
    timeout(limit, gate.before_connect(reconnect)).await.unwrap_or_else(|_| Err(late(limit)))
}

fn late(limit: Duration) -> Fault {
    Fault::new(FaultCode::Timeout, format!("nobody answered within {} ms whether this process may use the session", limit.as_millis()))
}
