//! Which logs a process adopts: those that processes left behind whose session is not owned exclusively.
//!
//! Such a process has a log of its own. When it is gone, any other process of the bridge may drain that log and close it for good. This decides
//! only which logs come into question, and in which order; whether the owner of one is gone, and who of several adopts it, the log's lease decides
//! ([`Standby`](crate::lease::standby::Standby)).

use crate::identity::{LogName, session_of};
use crate::log::LogState;
use std::collections::BTreeSet;

/// What a process knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopter {
    /// Its bridge.
    pub bridge: String,
    /// The sessions whose logs it can drain: those that it runs itself and that are not owned exclusively.
    pub sessions: BTreeSet<String>,
    /// The partitions of its own logs.
    pub own: BTreeSet<String>,
    /// Which of several candidates it looks at first. Another number in each process, so that not all go for the same one.
    pub turn: u64,
}

impl Adopter {
    /// Whether the log comes into question.
    #[must_use]
    pub fn may_adopt(&self, log: &LogName, state: LogState) -> bool {
        let (session, of_one_process) = session_of(log.partition());
        state == LogState::Open
            && of_one_process
            && log.bridge() == self.bridge
            && self.sessions.contains(session)
            && !self.own.contains(log.partition())
    }

    /// The registered logs that come into question, in the order in which to look at them.
    #[must_use]
    pub fn candidates<'r>(&self, registered: impl IntoIterator<Item = (&'r LogName, LogState)>) -> Vec<LogName> {
        let found = registered.into_iter().filter(|(log, state)| self.may_adopt(log, *state));
        // A partition has one record and one lease, however many lanes it has.
        let mut logs: Vec<LogName> = found.map(|(log, _)| log.clone()).collect();
        logs.sort_unstable();
        logs.dedup_by(|one, other| one.partition() == other.partition());
        if let Some(first) = self.turn.checked_rem(logs.len() as u64) {
            logs.rotate_left(usize::try_from(first).unwrap_or_default());
        }
        logs
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::identity::partition_of_process;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn log() -> impl Strategy<Value = (LogName, LogState)> {
        let partition = (select(vec!["s", "t", "s@home", "x"]), proptest::option::of(0_u64..4))
            .prop_map(|(session, nonce)| nonce.map_or_else(|| session.to_owned(), |nonce| partition_of_process(session, nonce)));
        let state = select(vec![LogState::Open, LogState::Retired]);
        (select(vec!["b", "c"]), partition, 0_u32..2, state)
            .prop_map(|(bridge, partition, lane, state)| (LogName::new(bridge, &partition, lane).unwrap(), state))
    }

    proptest! {
        /// Held against the rule in other words: by its parts, and none left out.
        #[test]
        fn exactly_the_open_logs_of_other_processes_of_its_sessions(logs in proptest::collection::vec(log(), 0..24), turn: u64) {
            let own = partition_of_process("s", 1);
            let adopter = Adopter {
                bridge: "b".to_owned(),
                sessions: ["s".to_owned(), "s@home".to_owned()].into(),
                own: [own.clone()].into(),
                turn,
            };
            let chosen = adopter.candidates(logs.iter().map(|(log, state)| (log, *state)));
            let partitions: BTreeSet<&str> = chosen.iter().map(LogName::partition).collect();
            prop_assert_eq!(partitions.len(), chosen.len(), "each partition once");
            for (log, state) in &logs {
                let parts: Vec<&str> = log.as_str().split('#').collect();
                let of_process = parts[2].starts_with("s@0") || parts[2].starts_with("s@home@0");
                let wanted = *state == LogState::Open && parts[1] == "b" && of_process && parts[2] != own;
                if wanted {
                    prop_assert!(partitions.contains(parts[2]), "{} is left out", log);
                }
                let elsewhere = logs.iter().any(|(other, state)| {
                    *state == LogState::Open && other.bridge() == "b" && other.partition() == parts[2]
                });
                if !wanted && !elsewhere {
                    prop_assert!(!chosen.contains(log), "{} is not for it", log);
                }
            }
            prop_assert!(!partitions.contains(own.as_str()), "its own log is no one else's");
        }

        #[test]
        fn whichever_it_begins_with_it_looks_at_the_same_ones(logs in proptest::collection::vec(log(), 0..24), turn: u64) {
            let adopter = |turn| Adopter { bridge: "b".to_owned(), sessions: ["s".to_owned(), "t".to_owned()].into(), turn, ..Adopter::default() };
            let set = |turn| adopter(turn).candidates(logs.iter().map(|(log, state)| (log, *state))).into_iter().collect::<BTreeSet<_>>();
            prop_assert_eq!(set(turn), set(0));
        }
    }
}
