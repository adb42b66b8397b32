//! The filters that one connection gives up, and the answers to that.

use crate::fault;
use causeway_core::outcome::{Fault, FaultCode};
use rumqttc::UnsubAckReason;
use std::collections::{HashMap, VecDeque};

/// A filter that nobody subscribes to; asking to unsubscribe from it makes the broker answer.
const PROBE_FILTER: &str = "causeway/liveness";

/// One UNSUBSCRIBE per filter. The liveness question travels the same way and is told apart by its place in the order.
#[derive(Debug, Default)]
pub(crate) struct Unsubscriptions {
    unsent: VecDeque<String>,
    /// `None` is the liveness question.
    queued: VecDeque<Option<String>>,
    pending: HashMap<u16, String>,
    refused: Vec<(String, Fault)>,
}

impl Unsubscriptions {
    /// Gives `filters` up.
    pub(crate) fn begin(&mut self, filters: impl IntoIterator<Item = String>) {
        self.unsent.extend(filters);
    }

    /// The next filter to hand to the client.
    pub(crate) fn next_request(&self) -> Option<&str> {
        self.unsent.front().map(String::as_str)
    }

    /// The client took it.
    pub(crate) fn request_queued(&mut self) {
        self.queued.extend(self.unsent.pop_front().map(Some));
    }

    /// The client does not take it at all.
    pub(crate) fn request_invalid(&mut self) {
        if let Some(filter) = self.unsent.pop_front() {
            self.refuse(filter, Fault::new(FaultCode::InvalidConfig, "no valid topic filter"));
        }
    }

    /// What to ask in order to make the broker answer.
    pub(crate) const fn probe_filter() -> &'static str {
        PROBE_FILTER
    }

    /// The client took the liveness question.
    pub(crate) fn probe_queued(&mut self) {
        self.queued.push_back(None);
    }

    /// The client wrote the next queued request, under this packet identifier.
    pub(crate) fn request_written(&mut self, packet_id: u16) {
        if let Some(Some(filter)) = self.queued.pop_front() {
            self.pending.insert(packet_id, filter);
        }
    }

    /// The broker's answer. The filter, where it is unsubscribed now.
    pub(crate) fn answered(&mut self, packet_id: u16, reasons: &[UnsubAckReason]) -> Option<String> {
        let filter = self.pending.remove(&packet_id)?;
        match reasons.first().map(fault::unsubscription) {
            Some(Ok(())) => return Some(filter),
            Some(Err(fault)) => self.refuse(filter, fault),
            None => self.refuse(filter, Fault::new(FaultCode::ProtocolError, "the broker's answer says nothing")),
        }
        None
    }

    fn refuse(&mut self, filter: String, fault: Fault) {
        tracing::warn!(%filter, %fault, "the filter could not be unsubscribed; the next connection tries again");
        let detail = format!("still subscribed although no longer wanted: {}", fault.detail);
        self.refused.push((filter, Fault { detail, ..fault }));
    }

    /// Whether the client has requests that it did not write yet.
    pub(crate) fn is_writing(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Whether every filter has its answer.
    pub(crate) fn is_complete(&self) -> bool {
        self.unsent.is_empty() && self.pending.is_empty() && self.queued.iter().all(Option::is_none)
    }

    /// Which filters stay subscribed although they should not, and why.
    pub(crate) fn refused(&self) -> &[(String, Fault)] {
        &self.refused
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn answers_belong_to_their_filter_and_the_liveness_question_to_none() {
        let mut all = Unsubscriptions::default();
        assert!(all.is_complete() && !all.is_writing());
        all.begin(["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        assert_eq!(all.next_request(), Some("a"));
        all.request_queued();
        all.probe_queued();
        all.request_queued();
        all.request_invalid();
        assert!(all.next_request().is_none() && !all.is_complete());
        for packet_id in [5, 6, 7] {
            assert!(all.is_writing());
            all.request_written(packet_id);
        }
        assert!(!all.is_writing(), "all are written, and two wait for an answer");
        assert_eq!(all.answered(6, &[UnsubAckReason::NoSubscriptionExisted]), None, "the liveness question");
        assert_eq!(all.answered(7, &[UnsubAckReason::NoSubscriptionExisted]).as_deref(), Some("b"));
        assert_eq!(all.answered(7, &[UnsubAckReason::Success]), None, "only once");
        assert!(!all.is_complete());
        assert_eq!(all.answered(5, &[UnsubAckReason::NotAuthorized]), None);
        assert!(all.is_complete());
        let refused: Vec<_> = all.refused().iter().map(|(filter, fault)| (filter.as_str(), fault.code)).collect();
        assert_eq!(refused, [("c", FaultCode::InvalidConfig), ("a", FaultCode::NotAuthorized)]);
    }
}
