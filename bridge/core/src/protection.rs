//! Whether this process's task asks to be left alone by deployments and by scaling in: while it owns a session, unless a later deployment waits for it.
//!
//! A protected task gets no signal: a deployment waits until the protection is dropped or runs out. So one lasts for a short time only, is not asked for anew
//! once a process of a later deployment is there, which gets the sessions instead, and is dropped first when the owner leaves.

use crate::units::{Instant, UnixMillis};
use core::time::Duration;

/// How long a protection lasts unless it is asked for again. The orchestrator counts whole minutes.
pub const LASTS: Duration = Duration::from_secs(5 * 60);
/// How long after one it is asked for again.
const RENEW_AFTER: Duration = Duration::from_secs(2 * 60);
/// How long after a request that failed another one is made.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// How long after a hand-over that came to nothing another one begins.
const HAND_OVER_AGAIN: Duration = Duration::from_secs(60);

/// How the process stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// It owns a session that others wait for.
    pub owns: bool,
    /// It was told to stop.
    pub is_stopping: bool,
    /// The service goes on with another deployment than this task's.
    pub is_former: bool,
    /// A process of that deployment is there that could own it.
    pub is_superseded: bool,
}

/// What to ask the orchestrator for, or to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Protect the task for [`LASTS`].
    Protect,
    /// Drop the protection.
    Unprotect,
    /// Hand the sessions over to the later deployment.
    HandOver,
}

/// A task's protection, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// Until when one may stand with the orchestrator, whatever became of the answer.
    stands_until: Option<Instant>,
    protect_at: Instant,
    unprotect_at: Instant,
    hand_over_at: Instant,
}

impl Protection {
    /// What to do now; `None`: nothing. A request is answered with [`Protection::answered`] before this is asked again.
    pub fn decide(&mut self, now: Instant, situation: Situation) -> Option<Action> {
        if !situation.owns || situation.is_stopping {
            let stands = self.stands_until.is_some_and(|until| now < until);
            return (stands && now >= self.unprotect_at).then_some(Action::Unprotect);
        }
        if situation.is_superseded {
            // What stands goes on until nothing is owned any more, or runs out.
            return (now >= self.hand_over_at).then(|| {
                self.hand_over_at = now.plus(HAND_OVER_AGAIN);
                Action::HandOver
            });
        }
        // Of a deployment that the service does not go on with, nothing is asked for anew: what stands runs out, and then the task can be told to stop.
        (!situation.is_former && now >= self.protect_at).then_some(Action::Protect)
    }

    /// A request that was sent at `sent_at` took effect, or it is not known to have.
    pub fn answered(&mut self, sent_at: Instant, now: Instant, action: Action, took_effect: bool) {
        let again = if took_effect { sent_at.plus(RENEW_AFTER) } else { now.plus(RETRY_AFTER) };
        match action {
            Action::Protect => {
                // One whose answer was lost may stand as well.
                self.stands_until = Some(now.plus(LASTS));
                (self.protect_at, self.unprotect_at) = (again, Instant::default());
            }
            Action::Unprotect if took_effect => *self = Self { hand_over_at: self.hand_over_at, ..Self::default() },
            Action::Unprotect => self.unprotect_at = again,
            Action::HandOver => {}
        }
    }
}

/// A task, as far as it matters to who replaces whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The service that it belongs to.
    pub group: Option<String>,
    /// The deployment of the service that started it, `ecs-svc/…`.
    pub deployment: Option<String>,
    /// When it began to run.
    pub started_at: Option<UnixMillis>,
    /// It runs and is to go on, and nobody found it ill.
    pub is_up: bool,
}

impl Release {
    /// The service's name, where a service has it run.
    #[must_use]
    pub fn service(&self) -> Option<&str> {
        service_of(self.group.as_deref()?)
    }

    /// Whether the service goes on with another deployment, `primary`; `None`: nobody knows with which.
    #[must_use]
    pub fn is_former(&self, primary: Option<&str>) -> bool {
        self.deployment.as_deref().zip(primary).is_some_and(|(own, primary)| own != primary)
    }

    /// Whether `other` is of the deployment that the same service goes on with, and up: one that could go on instead. Which one that is, `primary` says. It may be
    /// of the same revision (to renew secrets), or of an earlier one, whose tasks may have started before (a rollback). Where nobody knows, it is the one
    /// whose tasks started later.
    #[must_use]
    pub fn is_superseded_by(&self, other: &Self, primary: Option<&str>) -> bool {
        let another = self.deployment.is_some() && other.deployment.is_some() && self.deployment != other.deployment;
        let goes_on = match primary {
            Some(primary) => other.deployment.as_deref() == Some(primary),
            None => self.started_at.zip(other.started_at).is_some_and(|(own, other)| own < other),
        };
        another && goes_on && other.is_up && self.group.is_some() && self.group == other.group
    }
}

/// The name of the service that a task's group is: `service:NAME`. A task that somebody ran has a group of another kind.
#[must_use]
pub fn service_of(group: &str) -> Option<&str> {
    group.strip_prefix("service:").filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const OWNS: Situation = Situation { owns: true, is_stopping: false, is_former: false, is_superseded: false };
    const STANDS_BY: Situation = Situation { owns: false, is_stopping: false, is_former: false, is_superseded: false };

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn done(protection: &mut Protection, seconds: u64, situation: Situation) -> Option<Action> {
        let action = protection.decide(at(seconds), situation)?;
        protection.answered(at(seconds), at(seconds), action, true);
        Some(action)
    }

    #[test]
    fn an_owner_is_protected_again_and_again_and_no_more_once_it_owns_nothing() {
        let mut protection = Protection::default();
        assert_eq!(done(&mut protection, 10, STANDS_BY), None);
        assert_eq!(done(&mut protection, 10, OWNS), Some(Action::Protect));
        assert_eq!((done(&mut protection, 129, OWNS), done(&mut protection, 130, OWNS)), (None, Some(Action::Protect)));
        assert_eq!(done(&mut protection, 131, STANDS_BY), Some(Action::Unprotect));
        assert_eq!(done(&mut protection, 132, STANDS_BY), None);
        assert_eq!(done(&mut protection, 133, OWNS), Some(Action::Protect), "the next term is protected at once");
    }

    #[test]
    fn who_is_told_to_stop_drops_it_first() {
        let mut protection = Protection::default();
        done(&mut protection, 10, OWNS);
        assert_eq!(done(&mut protection, 11, Situation { is_stopping: true, ..OWNS }), Some(Action::Unprotect));
        assert_eq!(done(&mut protection, 12, Situation { is_stopping: true, ..OWNS }), None);
    }

    #[test]
    fn a_newer_revision_gets_the_session_and_then_the_protection_is_dropped() {
        let mut protection = Protection::default();
        done(&mut protection, 10, OWNS);
        let superseded = Situation { is_superseded: true, ..OWNS };
        assert_eq!(done(&mut protection, 11, superseded), Some(Action::HandOver));
        assert_eq!(done(&mut protection, 70, superseded), None, "neither protected anew nor handed over again");
        assert_eq!(done(&mut protection, 71, superseded), Some(Action::HandOver), "it came to nothing");
        assert_eq!(done(&mut protection, 72, Situation { owns: false, ..superseded }), Some(Action::Unprotect));
    }

    #[test]
    fn a_former_deployment_asks_for_nothing_anew_and_hands_over_once_another_is_up() {
        let mut protection = Protection::default();
        done(&mut protection, 10, OWNS);
        let former = Situation { is_former: true, ..OWNS };
        assert_eq!(done(&mut protection, 200, former), None, "nobody is there yet that could go on");
        assert_eq!(done(&mut protection, 201, Situation { is_superseded: true, ..former }), Some(Action::HandOver));
        assert_eq!(done(&mut protection, 202, OWNS), Some(Action::Protect), "taken back: the service goes on with this one");
    }

    #[test]
    fn a_request_without_answer_is_made_again_and_may_stand() {
        let mut protection = Protection::default();
        assert_eq!(protection.decide(at(10), OWNS), Some(Action::Protect));
        protection.answered(at(10), at(14), Action::Protect, false);
        assert_eq!((protection.decide(at(23), OWNS), protection.decide(at(24), OWNS)), (None, Some(Action::Protect)));
        assert_eq!(protection.decide(at(25), STANDS_BY), Some(Action::Unprotect));
        protection.answered(at(25), at(29), Action::Unprotect, false);
        assert_eq!((protection.decide(at(38), STANDS_BY), protection.decide(at(39), STANDS_BY)), (None, Some(Action::Unprotect)));
        assert_eq!(protection.decide(at(14 + 300), STANDS_BY), None, "it has run out by itself");
    }

    #[test]
    fn only_a_later_deployment_of_the_same_service_that_is_up_supersedes() {
        let release = |group: &str, deployment: &str, started_at, is_up| Release {
            group: Some(group.into()),
            deployment: Some(deployment.into()),
            started_at: Some(UnixMillis(started_at)),
            is_up,
        };
        let own = release("service:w", "ecs-svc/9", 100, true);
        assert!(own.is_superseded_by(&release("service:w", "ecs-svc/10", 101, true), None));
        assert!(own.is_superseded_by(&release("service:w", "ecs-svc/8", 101, true), None), "their numbers say nothing");
        for other in [
            release("service:w", "ecs-svc/10", 101, false),
            release("service:w", "ecs-svc/9", 101, true),
            release("service:w", "ecs-svc/10", 99, true),
            release("service:control", "ecs-svc/10", 101, true),
            Release { deployment: None, ..release("service:w", "", 101, true) },
            Release { started_at: None, ..release("service:w", "ecs-svc/10", 101, true) },
            Release::default(),
        ] {
            assert!(!own.is_superseded_by(&other, None), "{other:?}");
        }
        assert!(!Release::default().is_superseded_by(&release("service:w", "ecs-svc/10", 101, true), None));
        // The service says with which one it goes on: in a rollback with one whose tasks started before.
        let (before, after) = (release("service:w", "ecs-svc/8", 50, true), release("service:w", "ecs-svc/10", 101, true));
        let primary = Some("ecs-svc/8");
        assert!(own.is_superseded_by(&before, primary) && !own.is_superseded_by(&after, primary));
        assert!(!own.is_superseded_by(&Release { is_up: false, ..before.clone() }, primary));
        assert!(!own.is_superseded_by(&Release { group: Some("service:control".into()), ..before.clone() }, primary));
        assert!(!before.is_superseded_by(&after, primary), "it is the one that goes on");
        assert!(own.is_former(primary) && !before.is_former(primary) && !own.is_former(None) && !Release::default().is_former(primary));
        assert_eq!((own.service(), service_of("family:w"), service_of("service:")), (Some("w"), None, None));
    }

    proptest! {
        /// Against an orchestrator that keeps what it is told: a protection is never asked for by who owns nothing, is to stop, is of a former deployment or is superseded, and of who
        /// owns nothing none stands for longer than a failed request takes to be made again, or its own time.
        #[test]
        fn nobody_keeps_a_protection_that_is_not_due(steps in proptest::collection::vec((0_u64..40, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0_u8..3), 1..120)) {
            let (mut protection, mut now, mut stands) = (Protection::default(), 100_u64, None::<u64>);
            for (pause, owns, is_stopping, is_former, is_superseded, outcome) in steps {
                now += pause;
                stands = stands.filter(|until| now < *until);
                let situation = Situation { owns, is_stopping, is_former, is_superseded };
                let action = protection.decide(at(now), situation);
                if action == Some(Action::Protect) {
                    prop_assert!(owns && !is_stopping && !is_former && !is_superseded);
                }
                prop_assert!(action != Some(Action::HandOver) || owns && !is_stopping && is_superseded);
                let Some(action) = action.filter(|action| *action != Action::HandOver) else { continue };
                // Done, not done, or done with the answer lost.
                if outcome != 1 {
                    stands = (action == Action::Protect).then_some(now + LASTS.as_secs());
                }
                protection.answered(at(now), at(now), action, outcome == 0);
            }
            // Whatever stands is dropped soon by one that owns nothing and is answered.
            let began = now;
            while stands.is_some_and(|until| now < until) {
                if protection.decide(at(now), STANDS_BY) == Some(Action::Unprotect) {
                    return Ok(());
                }
                now += 1;
                prop_assert!(now - began <= RETRY_AFTER.as_secs(), "a protection stands that nobody drops");
            }
        }
    }
}
