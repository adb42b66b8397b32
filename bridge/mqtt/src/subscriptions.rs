//! The filters of one connection: what was asked, what the broker answered, and whose a message is.

use crate::fault;
use crate::filter;
use crate::options::Subscription;
use causeway_core::outcome::{Fault, FaultCode};
use core::time::Duration;
use rumqttc::{QoS, RetainForwardRule, SubscribeFilterInput, SubscribeProperties, SubscribeReasonCode};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How the filters are asked for, which depends on the session and on what the broker can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The broker keeps the session: retained messages come at the first subscription only.
    pub(crate) durable: bool,
    /// The broker takes subscription identifiers.
    pub(crate) identifiers: bool,
    /// What this client published itself is not to come back.
    pub(crate) no_local: bool,
}

/// What to do in order to be in the groups of shared subscriptions, or out of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Unsubscribe these.
    Leave(Vec<String>),
    /// Nothing but sending the requests.
    Enter,
}

/// One SUBSCRIBE per filter, because a subscription identifier belongs to a whole packet.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    wanted: Arc<[Subscription]>,
    terms: Terms,
    unsent: VecDeque<usize>,
    queued: VecDeque<usize>,
    pending: HashMap<u16, usize>,
    answers: Vec<Option<Result<(), Fault>>>,
    /// Which of the answers are grants of less than was asked for.
    lowered: Vec<bool>,
    /// It stays out of the groups of shared subscriptions.
    unshared: bool,
}

impl Subscriptions {
    pub(crate) fn new(wanted: Arc<[Subscription]>, terms: Terms) -> Self {
        let count = wanted.len();
        Self {
            wanted,
            terms,
            unsent: (0..count).collect(),
            queued: VecDeque::new(),
            pending: HashMap::new(),
            answers: vec![None; count],
            lowered: vec![false; count],
            unshared: false,
        }
    }

    /// Enters or leaves the groups of shared subscriptions. `None` where nothing changes. A broker takes requests in their order, so one that is under way
    /// has nothing to say about what comes of it.
    pub(crate) fn share(&mut self, wanted: bool) -> Option<Move> {
        if self.unshared != wanted {
            return None;
        }
        let shared: Vec<usize> = (0..self.wanted.len()).filter(|index| self.is_shared(*index)).collect();
        self.unshared = !wanted;
        if shared.is_empty() {
            return None;
        }
        if wanted {
            for index in &shared {
                if let Some(answer) = self.answers.get_mut(*index) {
                    *answer = None;
                }
            }
            self.unsent.extend(shared);
            return Some(Move::Enter);
        }
        self.unsent.retain(|index| !shared.contains(index));
        Some(Move::Leave(shared.iter().filter_map(|index| Some(self.wanted.get(*index)?.filter.clone())).collect()))
    }

    fn is_shared(&self, index: usize) -> bool {
        self.wanted.get(index).is_some_and(|subscription| filter::shared(&subscription.filter).is_some())
    }

    /// Whether it is one of those that are left for a while.
    fn is_left(&self, index: usize) -> bool {
        self.unshared && self.is_shared(index)
    }

    /// Whether `filter` is among them.
    pub(crate) fn wants(&self, filter: &str) -> bool {
        self.wanted.iter().any(|subscription| subscription.filter == filter)
    }

    /// The next request to hand to the client.
    pub(crate) fn next_request(&self) -> Option<(SubscribeFilterInput, SubscribeProperties)> {
        let index = *self.unsent.front()?;
        let subscription = self.wanted.get(index)?;
        let retained = if self.terms.durable { RetainForwardRule::OnNewSubscribe } else { RetainForwardRule::OnEverySubscribe };
        let input = SubscribeFilterInput::new(subscription.filter.clone(), requested_qos(subscription))
            .retain_forward_rule(retained)
            .no_local(self.no_local(&subscription.filter));
        Some((input, SubscribeProperties { id: self.terms.identifiers.then_some(index + 1), user_properties: Vec::new() }))
    }

    /// The client took it.
    pub(crate) fn request_queued(&mut self) {
        self.queued.extend(self.unsent.pop_front());
    }

    /// The client does not take it at all.
    pub(crate) fn request_invalid(&mut self) {
        if let Some(index) = self.unsent.pop_front() {
            self.answer(index, Err(Fault::new(FaultCode::InvalidConfig, "no valid topic filter")));
        }
    }

    /// The client wrote the next queued request, under this packet identifier.
    pub(crate) fn request_written(&mut self, packet_id: u16) {
        if let Some(index) = self.queued.pop_front() {
            self.pending.insert(packet_id, index);
        }
    }

    /// Whether the broker keeps from this filter what the client itself publishes. MQTT forbids it for a shared subscription.
    fn no_local(&self, filter: &str) -> bool {
        self.terms.no_local && filter::shared(filter).is_none()
    }

    /// The broker's answer. The filter and the fault, where it is a refusal.
    pub(crate) fn answered(&mut self, packet_id: u16, codes: &[SubscribeReasonCode]) -> Option<(&str, Fault)> {
        let (index, code) = (self.pending.remove(&packet_id)?, codes.first()?);
        let subscription = self.wanted.get(index)?;
        let answer = fault::subscription(code, requested_qos(subscription));
        if let Some(lowered) = self.lowered.get_mut(index) {
            *lowered = matches!(code, SubscribeReasonCode::Success(_)) && answer.is_err();
        }
        if let Some(slot) = self.answers.get_mut(index) {
            *slot = Some(answer.clone());
        }
        Some((subscription.filter.as_str(), answer.err()?))
    }

    fn answer(&mut self, index: usize, answer: Result<(), Fault>) {
        if let Some(slot) = self.answers.get_mut(index) {
            *slot = Some(answer);
        }
    }

    /// Whether every filter has its answer, but for those that are left for a while.
    pub(crate) fn is_complete(&self) -> bool {
        self.answers.iter().enumerate().all(|(index, answer)| answer.is_some() || self.is_left(index))
    }

    /// How many were granted, and which were refused, and why. What is left for a while counts as granted: nobody refuses it.
    pub(crate) fn report(&self) -> (usize, Vec<(String, Fault)>) {
        let granted = self.answers.iter().enumerate().filter(|(index, answer)| matches!(answer, Some(Ok(()))) || self.is_left(*index));
        let granted = granted.count();
        let refused = self.wanted.iter().zip(&self.answers).enumerate().filter_map(|(index, (subscription, answer))| match answer {
            Some(Err(fault)) if !self.is_left(index) => Some((subscription.filter.clone(), fault.clone())),
            _ => None,
        });
        (granted, refused.collect())
    }

    /// Whether anything was refused altogether.
    pub(crate) fn has_refused(&self) -> bool {
        self.answers.iter().zip(&self.lowered).any(|(answer, lowered)| matches!(answer, Some(Err(_))) && !lowered)
    }

    /// After what time to ask again for what was granted with less than was asked for: the shortest of them. `None`: never.
    pub(crate) fn recheck_after(&self) -> Option<Duration> {
        let lowered = self.wanted.iter().zip(&self.lowered).filter(|(_, lowered)| **lowered);
        lowered.map(|(subscription, _)| subscription.qos_recheck).filter(|interval| !interval.is_zero()).min()
    }

    /// Asks again for what was refused; answers whether anything was.
    pub(crate) fn retry_refused(&mut self) -> bool {
        self.retry(|lowered, _| !lowered)
    }

    /// Asks again for what was granted with less than was asked for, where that is wanted; answers whether anything was.
    pub(crate) fn retry_lowered(&mut self) -> bool {
        self.retry(|lowered, subscription| lowered && !subscription.qos_recheck.is_zero())
    }

    fn retry(&mut self, which: impl Fn(bool, &Subscription) -> bool) -> bool {
        let unshared = self.unshared;
        let all = self.answers.iter_mut().zip(&self.lowered).zip(self.wanted.iter()).enumerate();
        for (index, ((answer, lowered), subscription)) in all {
            let is_left = unshared && filter::shared(&subscription.filter).is_some();
            if matches!(answer, Some(Err(_))) && !is_left && which(*lowered, subscription) {
                *answer = None;
                self.unsent.push_back(index);
            }
        }
        !self.unsent.is_empty()
    }

    /// Whose a message on `topic` is, given the subscription identifiers that came with it. An identifier may be from an earlier configuration, so it
    /// counts only where its filter matches. Without one, the first filter that matches decides; a packet stands for several receivers only where the
    /// broker says so. Empty where nothing matches.
    pub(crate) fn receivers(&self, topic: &str, identifiers: &[u32]) -> Vec<Arc<str>> {
        let mut receivers: Vec<Arc<str>> = Vec::new();
        let named = identifiers.iter().filter_map(|id| self.wanted.get(usize::try_from(*id).ok()?.checked_sub(1)?));
        for subscription in named.filter(|subscription| filter::matches(&subscription.filter, topic)) {
            if !receivers.contains(&subscription.receiver) {
                receivers.push(Arc::clone(&subscription.receiver));
            }
        }
        if receivers.is_empty() {
            receivers.extend(
                self.wanted
                    .iter()
                    .find(|subscription| filter::matches(&subscription.filter, topic))
                    .map(|found| Arc::clone(&found.receiver)),
            );
        }
        receivers
    }
}

fn requested_qos(subscription: &Subscription) -> QoS {
    if subscription.qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscriptions(filters: &[(&str, &str)]) -> Subscriptions {
        let wanted: Vec<_> = filters.iter().map(|(filter, receiver)| Subscription::new(*filter, 2, *receiver)).collect();
        Subscriptions::new(wanted.into(), Terms { durable: true, identifiers: true, no_local: false })
    }

    fn names(receivers: &[Arc<str>]) -> Vec<&str> {
        receivers.iter().map(AsRef::as_ref).collect()
    }

    #[test]
    fn the_first_match_decides_where_the_broker_does_not() {
        let all = subscriptions(&[("f/#", "a"), ("f/+/temp", "b"), ("$share/g/s/#", "c")]);
        assert_eq!(names(&all.receivers("f/1/temp", &[])), ["a"]);
        assert_eq!(names(&all.receivers("s/x", &[])), ["c"]);
        assert_eq!(names(&all.receivers("other", &[])), Vec::<&str>::new());
    }

    #[test]
    fn identifiers_decide_where_their_filter_matches() {
        let all = subscriptions(&[("f/#", "a"), ("f/+/temp", "b"), ("x", "c")]);
        assert_eq!(names(&all.receivers("f/1/temp", &[2])), ["b"]);
        assert_eq!(names(&all.receivers("f/1/temp", &[1, 2])), ["a", "b"]);
        assert_eq!(names(&all.receivers("f/1/temp", &[3, 9, 0])), ["a"], "stale identifiers fall back to the topic");
    }

    #[test]
    fn answers_are_matched_by_packet_identifier_and_refused_ones_asked_again() {
        let mut all = subscriptions(&[("a", "r"), ("b", "r")]);
        for packet_id in [11, 12] {
            assert!(all.next_request().is_some());
            all.request_queued();
            all.request_written(packet_id);
        }
        assert!(all.next_request().is_none());
        assert!(all.answered(12, &[SubscribeReasonCode::NotAuthorized]).is_some_and(|(filter, _)| filter == "b"));
        assert!(!all.is_complete());
        assert_eq!(all.answered(11, &[SubscribeReasonCode::Success(QoS::AtLeastOnce)]), None);
        assert!(all.is_complete());
        let (granted, refused) = all.report();
        assert_eq!((granted, refused[0].0.as_str(), refused[0].1.code), (1, "b", FaultCode::NotAuthorized));
        assert!(all.has_refused() && all.recheck_after().is_none());
        assert!(all.retry_refused());
        assert!(!all.is_complete());
        assert!(all.next_request().is_some());
    }

    #[test]
    fn a_lower_grant_is_asked_for_again_after_its_own_time_only() {
        let mut wanted: Vec<_> = ["a", "b", "c"].iter().map(|filter| Subscription::new(*filter, 1, "r")).collect();
        (wanted[0].qos_recheck, wanted[1].qos_recheck) = (Duration::from_secs(60), Duration::ZERO);
        let mut all = Subscriptions::new(wanted.into(), Terms { durable: true, identifiers: true, no_local: false });
        for packet_id in 1..=3 {
            all.request_queued();
            all.request_written(packet_id);
            let granted = if packet_id < 3 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
            let refusal = all.answered(packet_id, &[SubscribeReasonCode::Success(granted)]);
            assert_eq!(refusal.is_some(), packet_id < 3);
        }
        assert!(!all.has_refused() && !all.retry_refused());
        assert_eq!(all.recheck_after(), Some(Duration::from_secs(60)));
        assert!(all.retry_lowered());
        assert_eq!(all.next_request().map(|_| ()), Some(()));
        all.request_queued();
        assert!(all.next_request().is_none(), "what is never to be checked again is not asked for");
        all.request_written(4);
        assert_eq!(all.answered(4, &[SubscribeReasonCode::Success(QoS::AtLeastOnce)]), None);
        assert!(all.is_complete() && all.recheck_after().is_none());
    }

    #[test]
    fn a_group_is_left_and_entered_again() {
        let mut all = subscriptions(&[("a", "r"), ("$share/g/b", "r"), ("$share/g/c", "r")]);
        assert_eq!(all.share(true), None);
        for packet_id in [1, 2] {
            all.request_queued();
            all.request_written(packet_id);
            assert_eq!(all.answered(packet_id, &[SubscribeReasonCode::Success(QoS::AtLeastOnce)]), None);
        }
        assert_eq!(all.share(false), Some(Move::Leave(vec!["$share/g/b".to_owned(), "$share/g/c".to_owned()])));
        assert_eq!(all.share(false), None);
        assert!(all.next_request().is_none(), "what was not asked for yet is not asked for any more");
        assert!(all.is_complete() && all.report() == (3, Vec::new()));
        assert_eq!(names(&all.receivers("b", &[])), ["r"], "what is under way has its receiver");
        assert_eq!(all.share(true), Some(Move::Enter));
        assert!(!all.is_complete());
        for packet_id in [3, 4] {
            assert!(all.next_request().is_some());
            all.request_queued();
            all.request_written(packet_id);
            assert_eq!(all.answered(packet_id, &[SubscribeReasonCode::Success(QoS::AtLeastOnce)]), None);
        }
        assert!(all.next_request().is_none() && all.is_complete() && all.report() == (3, Vec::new()));
        assert_eq!(subscriptions(&[("a", "r")]).share(false), None);
    }

    #[test]
    fn what_this_client_published_is_held_back_where_that_is_allowed() {
        let wanted: Vec<_> = ["a", "$share/g/a"].iter().map(|filter| Subscription::new(*filter, 1, "r")).collect();
        let all = |no_local| Subscriptions::new(wanted.clone().into(), Terms { durable: true, identifiers: true, no_local });
        assert!(all(true).no_local("a") && !all(true).no_local("$share/g/a"));
        assert!(!all(false).no_local("a"));
    }
}
