//! A bridge's processes as one that watches them sees them: who lives, where, who owns what, and how long a session was without full service when it changed
//! hands. For people, metrics and alarms: nothing about ownership is decided by it. Times of several hosts are compared, by their wall clocks.

use crate::lease::row::{LeaseRow, Tuple};
use crate::metrics::FailoverCause;
use crate::units::{Instant, UnixMillis};
use core::time::Duration;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Wall clocks of hosts that are kept in time differ by less.
const SKEW: Duration = Duration::from_secs(5);
/// The role of a process that moves messages, as its row names it.
const WORKER: &str = "worker";
/// A level of service under which a session is owned: as rows name them.
const SERVING: [&str; 2] = ["degraded", FULL];
const FULL: &str = "full";

/// What a process told of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its owner name.
    pub owner: String,
    /// `worker` or `control`.
    pub role: String,
    /// Its availability zone.
    pub az: Option<String>,
    /// Its task.
    pub task: Option<String>,
    /// The level of service that it gives to each of its sessions.
    pub sessions: BTreeMap<String, String>,
    /// When it told that, by its wall clock.
    pub written_at: UnixMillis,
}

/// What the orchestrator told of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// It runs and is to go on, and nobody found it ill.
    pub is_up: bool,
    /// When it had ended.
    pub stopped_at: Option<UnixMillis>,
}

/// One look at everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The members' rows.
    pub members: Vec<Member>,
    /// The lease rows of the sessions that are watched; `None`: there is none, or none that can be believed.
    pub leases: BTreeMap<String, Option<LeaseRow>>,
    /// What the orchestrator told, by task; nothing of tasks that it does not know, or where it was not asked.
    pub tasks: BTreeMap<String, Task>,
    /// The tasks of the members' services that are to run, as the orchestrator lists them; `None` where it was not asked, or did not answer.
    pub listed: Option<BTreeSet<String>>,
}

impl Look {
    /// The sessions whose row names an owner whose task has stopped: those that wait for them may look at once.
    #[must_use]
    pub fn owners_that_stopped(&self) -> Vec<String> {
        let has_stopped = |row: &LeaseRow| {
            let task = row.facts.task_arn.as_ref().and_then(|task| self.tasks.get(task));
            !row.tuple.is_released() && task.is_some_and(|task| task.stopped_at.is_some())
        };
        self.leases.iter().filter(|(_, row)| row.as_ref().is_some_and(has_stopped)).map(|(id, _)| id.clone()).collect()
    }
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemberView {
    /// Its owner name.
    pub owner: String,
    /// `worker` or `control`.
    pub role: String,
    /// Its availability zone.
    pub az: Option<String>,
    /// Its task.
    pub task: Option<String>,
    /// Whether it lives: it wrote its row not long ago, and its task, where that is known, is up.
    pub alive: bool,
    /// The level of service that it gives to each of its sessions.
    pub sessions: BTreeMap<String, String>,
}

/// A session that changed hands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailoverView {
    /// Who owned it before.
    pub from: String,
    /// Who owns it since.
    pub to: String,
    /// The version that it owns it under.
    pub version: u64,
    /// Why.
    pub cause: FailoverCause,
    /// From the failure to full service, in seconds.
    pub seconds: f64,
    /// When full service was reached, by the successor's wall clock.
    pub at: UnixMillis,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionView {
    /// Its id.
    pub id: String,
    /// Who holds its lease, or serves it: one, where all is well.
    pub holders: BTreeSet<String>,
    /// The version of its lease.
    pub version: u64,
    /// Workers that live, know the session, and do not hold it.
    pub standbys: usize,
    /// The last time that it changed hands while this was watched.
    pub last_failover: Option<FailoverView>,
}

/// All processes and sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetView {
    /// When it was looked at, by the watcher's wall clock.
    pub taken_at: UnixMillis,
    /// The processes, by owner name.
    pub members: Vec<MemberView>,
    /// Workers that live.
    pub workers: usize,
    /// The availability zones that those run in, as far as they tell.
    pub zones: BTreeSet<String>,
    /// The sessions, by id.
    pub sessions: Vec<SessionView>,
    /// Tasks of the members' services that no row names: they start, or fail before they tell of themselves. `None` where nobody lists tasks.
    pub unseen_tasks: Option<BTreeSet<String>>,
}

/// An owner that is gone, and whose successor is not at full service yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loss {
    from: String,
    task: Option<String>,
    cause: FailoverCause,
    /// The last renewal of an owner that fell silent; when one that gave back had reason to.
    told_at: UnixMillis,
}

/// What is remembered of a session.
#[derive(Clone, Debug, Default, PartialEq)]
struct Watched {
    row: Option<LeaseRow>,
    /// When exactly this row was seen first.
    since: Instant,
    loss: Option<Loss>,
    last_failover: Option<FailoverView>,
}

/// One that watches.
#[derive(Clone, Debug, PartialEq)]
pub struct Watcher {
    /// A member's row that is older tells of a process that is gone.
    stale_after: Duration,
    sessions: BTreeMap<String, Watched>,
}

impl Watcher {
    /// One that has seen nothing yet.
    #[must_use]
    pub const fn new(stale_after: Duration) -> Self {
        Self { stale_after, sessions: BTreeMap::new() }
    }

    /// The tasks to ask the orchestrator about, after a look at members and leases: those that rows name, and those of owners that are gone.
    #[must_use]
    pub fn tasks(&self, look: &Look) -> BTreeSet<String> {
        let of_members = look.members.iter().filter_map(|member| member.task.clone());
        let of_owners = look.leases.values().flatten().filter_map(|row| row.facts.task_arn.clone());
        let of_former = self.sessions.values().filter_map(|watched| watched.loss.as_ref()?.task.clone());
        let of_last = self.sessions.values().filter_map(|watched| watched.row.as_ref()?.facts.task_arn.clone());
        of_members.chain(of_owners).chain(of_former).chain(of_last).collect()
    }

    /// Takes one look. Answers how everything stands, and the sessions that reached full service with another owner since the last look.
    pub fn see(&mut self, now: Instant, wall: UnixMillis, look: &Look) -> (FleetView, Vec<(String, FailoverView)>) {
        let members: Vec<MemberView> = look.members.iter().map(|member| self.member(wall, member, look)).collect();
        let (mut sessions, mut changed) = (Vec::new(), Vec::new());
        for (id, row) in &look.leases {
            let watched = self.sessions.entry(id.clone()).or_default();
            if let Some(failover) = watched.update(now, row.as_ref(), look) {
                changed.push((id.clone(), failover));
            }
            sessions.push(watched.view(now, id, &members, look));
        }
        self.sessions.retain(|id, _| look.leases.contains_key(id));
        let workers = || members.iter().filter(|member| member.alive && member.role == WORKER);
        let zones = workers().filter_map(|member| member.az.clone()).collect();
        let workers = workers().count();
        let named: BTreeSet<&String> = look.members.iter().filter_map(|member| member.task.as_ref()).collect();
        let unseen = |listed: &BTreeSet<String>| listed.iter().filter(|task| !named.contains(task)).cloned().collect();
        let unseen_tasks = look.listed.as_ref().map(unseen);
        (FleetView { taken_at: wall, workers, zones, sessions, members, unseen_tasks }, changed)
    }

    fn member(&self, wall: UnixMillis, member: &Member, look: &Look) -> MemberView {
        let is_down = member.task.as_ref().and_then(|task| look.tasks.get(task)).is_some_and(|task| !task.is_up);
        let alive = !is_down && wall.since(member.written_at) < self.stale_after;
        let Member { owner, role, az, task, sessions, .. } = member.clone();
        MemberView { owner, role, az, task, alive, sessions }
    }
}

impl Watched {
    /// Takes what the row says now.
    fn update(&mut self, now: Instant, row: Option<&LeaseRow>, look: &Look) -> Option<FailoverView> {
        // A row that is gone, or that nobody can believe, tells nothing of who has the session.
        let row = row?;
        let before = self.row.replace(row.clone());
        if before.as_ref().is_none_or(|before| before.tuple != row.tuple) {
            self.since = now;
        }
        if let Some(before) = &before {
            self.note_loss(before, row);
        }
        if row.tuple.is_released() || row.tuple.is_housekeeping() || row.facts.service_level.as_deref() != Some(FULL) {
            return None;
        }
        let at = row.facts.service_level_since.filter(|at| *at >= row.acquired_at)?;
        // An owner that came back to full service itself replaced nobody.
        let loss = self.loss.take().filter(|loss| loss.from != row.tuple.owner)?;
        let failover = loss.ended(row, at, look);
        self.last_failover = Some(failover.clone());
        Some(failover)
    }

    /// Notes that an owner is gone: its lease was given back, or taken over.
    fn note_loss(&mut self, before: &LeaseRow, row: &LeaseRow) {
        let owned = |tuple: &Tuple| !tuple.is_released() && !tuple.is_housekeeping();
        if !owned(&before.tuple) || before.tuple.owner == row.tuple.owner {
            return;
        }
        let released = row.tuple.is_released();
        let because = row.facts.left_because.as_deref().and_then(FailoverCause::parse);
        // Of several owners in a row that never served, the first was the last to serve.
        self.loss.get_or_insert_with(|| Loss {
            from: before.tuple.owner.clone(),
            task: before.facts.task_arn.clone(),
            cause: if released { because.unwrap_or(FailoverCause::Release) } else { FailoverCause::Crash },
            told_at: if released { row.facts.left_since.unwrap_or(row.tuple.renewed_at) } else { before.tuple.renewed_at },
        });
    }

    fn view(&self, now: Instant, id: &str, members: &[MemberView], look: &Look) -> SessionView {
        let holders = self.row.as_ref().map(|row| self.holders(now, id, row, look)).unwrap_or_default();
        let stands_by = |member: &&MemberView| {
            member.alive && member.role == WORKER && member.sessions.contains_key(id) && !holders.contains(&member.owner)
        };
        SessionView {
            id: id.to_owned(),
            standbys: members.iter().filter(stands_by).count(),
            version: self.row.as_ref().map_or(0, |row| row.tuple.version),
            holders,
            last_failover: self.last_failover.clone(),
        }
    }

    /// Who has the session: whom the row names, while that owner gives signs of life; and whoever told that it serves, well after the row had another owner.
    fn holders(&self, now: Instant, id: &str, row: &LeaseRow, look: &Look) -> BTreeSet<String> {
        let has_stopped = row.facts.task_arn.as_ref().and_then(|task| look.tasks.get(task)).is_some_and(|task| task.stopped_at.is_some());
        let named = !row.tuple.is_released() && !row.tuple.is_housekeeping() && now.since(self.since) < row.tuple.ttl() && !has_stopped;
        let after = row.acquired_at.plus(SKEW);
        let serves = |member: &&Member| {
            let level = member.sessions.get(id).map(String::as_str).unwrap_or_default();
            SERVING.contains(&level) && member.written_at > after && member.owner != row.tuple.owner
        };
        let others = look.members.iter().filter(serves).map(|member| member.owner.clone());
        named.then(|| row.tuple.owner.clone()).into_iter().chain(others).collect()
    }
}

impl Loss {
    /// The failure began when the task had ended, where that is known and can be; else with the last that the former owner told. It ended `at`.
    fn ended(self, row: &LeaseRow, at: UnixMillis, look: &Look) -> FailoverView {
        let stopped = self.task.as_ref().and_then(|task| look.tasks.get(task)?.stopped_at);
        let stopped = stopped.filter(|stopped| self.cause == FailoverCause::Crash && (self.told_at..=row.acquired_at).contains(stopped));
        let began = stopped.unwrap_or(self.told_at);
        FailoverView {
            from: self.from,
            to: row.tuple.owner.clone(),
            version: row.tuple.version,
            cause: self.cause,
            seconds: at.since(began).as_secs_f64(),
            at,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::lease::row::OwnerFacts;
    use proptest::prelude::*;

    const STALE: Duration = Duration::from_secs(90);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn wall(seconds: u64) -> UnixMillis {
        UnixMillis(seconds * 1_000)
    }

    /// Owned by `owner` since `acquired`, renewed then; at full service where `full` says since when.
    fn owned(owner: &str, version: u64, acquired: u64, renewed: u64, full: Option<u64>) -> LeaseRow {
        let tuple = Tuple { owner: owner.into(), version, renewed_at: wall(renewed), expires_at: wall(renewed + 45) };
        let facts = OwnerFacts {
            task_arn: Some(format!("task/{owner}")),
            service_level: Some(if full.is_some() { "full" } else { "none" }.to_owned()),
            service_level_since: full.map(wall),
            ..OwnerFacts::default()
        };
        LeaseRow { tuple, acquired_at: wall(acquired), evidence: None, facts }
    }

    fn member(owner: &str, role: &str, az: &str, level: &str, written: u64) -> Member {
        Member {
            owner: owner.to_owned(),
            role: role.to_owned(),
            az: Some(az.to_owned()),
            task: Some(format!("task/{owner}")),
            sessions: BTreeMap::from([("s".to_owned(), level.to_owned())]),
            written_at: wall(written),
        }
    }

    fn look(row: Option<LeaseRow>, members: Vec<Member>) -> Look {
        Look { members, leases: BTreeMap::from([("s".to_owned(), row)]), tasks: BTreeMap::new(), listed: None }
    }

    #[test]
    fn a_task_that_no_row_names_is_told_and_without_a_list_nothing_is() {
        let mut watcher = Watcher::new(STALE);
        let silent = member("b", "worker", "z2", "none", 1);
        let mut seen = look(None, vec![member("a", "worker", "z1", "full", 500), silent]);
        assert_eq!(watcher.see(at(1), wall(500), &seen).0.unseen_tasks, None);
        seen.listed = Some(["task/a", "task/b", "task/new"].map(str::to_owned).into());
        let (view, _) = watcher.see(at(2), wall(501), &seen);
        assert_eq!(view.unseen_tasks, Some(BTreeSet::from(["task/new".to_owned()])), "a row that is old names its task still");
        assert_eq!(view.workers, 1, "nobody is counted for a task alone");
    }

    fn up() -> Task {
        Task { is_up: true, stopped_at: None }
    }

    #[test]
    fn workers_that_live_are_counted_with_their_zones() {
        let members = vec![
            member("a#1", "worker", "z1", "full", 1_000),
            member("b#1", "worker", "z2", "none", 1_000),
            member("c#1", "control", "z3", "none", 1_000),
            member("old#1", "worker", "z4", "none", 900),
            member("dead#1", "worker", "z5", "none", 1_000),
        ];
        let mut seen = look(Some(owned("a#1", 1, 900, 1_000, Some(901))), members);
        seen.tasks = BTreeMap::from([("task/a#1".to_owned(), up()), ("task/dead#1".to_owned(), Task::default())]);
        let (view, changed) = Watcher::new(STALE).see(at(5), wall(1_001), &seen);
        assert_eq!((view.workers, view.zones.iter().map(String::as_str).collect::<Vec<_>>()), (2, vec!["z1", "z2"]));
        assert_eq!(view.members.iter().map(|member| member.alive).collect::<Vec<_>>(), [true, true, true, false, false]);
        let session = &view.sessions[0];
        assert_eq!((session.holders.iter().map(String::as_str).collect::<Vec<_>>(), session.standbys), (vec!["a#1"], 1));
        assert!(changed.is_empty() && session.last_failover.is_none(), "whoever owned it when the watch began replaced nobody");
    }

    #[test]
    fn a_session_has_no_holder_once_its_owner_is_silent_gone_or_gave_it_back() {
        let row = owned("a#1", 1, 900, 1_000, Some(901));
        let holders =
            |watcher: &mut Watcher, now: u64, seen: &Look| watcher.see(at(now), wall(1_000 + now), seen).0.sessions[0].holders.len();
        let mut watcher = Watcher::new(STALE);
        let seen = look(Some(row.clone()), Vec::new());
        assert_eq!((holders(&mut watcher, 5, &seen), holders(&mut watcher, 49, &seen), holders(&mut watcher, 50, &seen)), (1, 1, 0));
        let mut stopped = look(Some(owned("a#1", 1, 900, 1_060, Some(901))), Vec::new());
        stopped.tasks.insert("task/a#1".to_owned(), Task { is_up: false, stopped_at: Some(wall(1_060)) });
        assert_eq!(holders(&mut watcher, 61, &stopped), 0);
        assert_eq!((stopped.owners_that_stopped(), seen.owners_that_stopped()), (vec!["s".to_owned()], Vec::new()));
        let released = LeaseRow { tuple: Tuple { owner: String::new(), expires_at: UnixMillis(0), ..row.tuple }, ..row };
        assert_eq!(holders(&mut watcher, 62, &look(Some(released), Vec::new())), 0);
        assert_eq!(holders(&mut Watcher::new(STALE), 62, &look(None, Vec::new())), 0);
    }

    #[test]
    fn who_still_tells_that_it_serves_well_after_another_took_over_is_a_second_holder() {
        let row = || Some(owned("b#1", 2, 1_000, 1_020, Some(1_001)));
        let holders = |written: u64| {
            let members = vec![member("a#1", "worker", "z1", "full", written), member("b#1", "worker", "z2", "full", 1_020)];
            Watcher::new(STALE).see(at(5), wall(1_021), &look(row(), members)).0.sessions[0].holders.len()
        };
        assert_eq!((holders(999), holders(1_004), holders(1_010)), (1, 1, 2));
    }

    #[test]
    fn a_crash_counts_from_the_end_of_the_task_else_from_the_last_renewal() {
        for (stopped, seconds) in [(None, 12.0), (Some(1_003), 9.0), (Some(1_200), 12.0), (Some(900), 12.0)] {
            let mut watcher = Watcher::new(STALE);
            watcher.see(at(1), wall(1_001), &look(Some(owned("a#1", 1, 900, 1_000, Some(901))), Vec::new()));
            let mut seen = look(Some(owned("b#1", 2, 1_010, 1_010, None)), Vec::new());
            let (view, changed) = watcher.see(at(11), wall(1_011), &seen);
            assert!(changed.is_empty() && view.sessions[0].last_failover.is_none(), "it does not serve yet");
            assert!(watcher.tasks(&seen).contains("task/a#1"), "the end of the former owner's task is asked for");
            seen = look(Some(owned("b#1", 2, 1_010, 1_013, Some(1_012))), Vec::new());
            seen.tasks.insert("task/a#1".to_owned(), Task { is_up: false, stopped_at: stopped.map(wall) });
            let (view, changed) = watcher.see(at(14), wall(1_014), &seen);
            let failover = view.sessions[0].last_failover.clone().unwrap();
            assert_eq!((failover.cause, failover.seconds, failover.version), (FailoverCause::Crash, seconds, 2), "{stopped:?}");
            assert_eq!((failover.from.as_str(), failover.to.as_str(), changed.len()), ("a#1", "b#1", 1));
            assert!(watcher.see(at(15), wall(1_015), &seen).1.is_empty(), "told once");
        }
    }

    #[test]
    fn a_lease_that_was_given_back_counts_from_when_its_owner_had_reason_to() {
        let mut watcher = Watcher::new(STALE);
        watcher.see(at(1), wall(1_001), &look(Some(owned("a#1", 1, 900, 1_000, Some(901))), Vec::new()));
        let mut row = owned("", 1, 900, 1_005, None);
        row.tuple.expires_at = UnixMillis(0);
        row.facts = OwnerFacts { left_because: Some("broker_path".to_owned()), left_since: Some(wall(998)), ..OwnerFacts::default() };
        watcher.see(at(6), wall(1_006), &look(Some(row), Vec::new()));
        // A first successor never serves; the session was without service all the same.
        watcher.see(at(8), wall(1_008), &look(Some(owned("b#1", 2, 1_007, 1_007, None)), Vec::new()));
        let (_, changed) = watcher.see(at(20), wall(1_020), &look(Some(owned("c#1", 3, 1_015, 1_019, Some(1_018))), Vec::new()));
        assert_eq!(changed.len(), 1);
        let failover = &changed[0].1;
        assert_eq!((failover.cause, failover.seconds), (FailoverCause::BrokerPath, 20.0));
        assert_eq!((failover.from.as_str(), failover.to.as_str()), ("a#1", "c#1"));
    }

    #[test]
    fn an_owner_that_takes_its_own_lease_again_is_no_failover() {
        let mut watcher = Watcher::new(STALE);
        watcher.see(at(1), wall(1_001), &look(Some(owned("a#1", 1, 900, 1_000, Some(901))), Vec::new()));
        let mut row = owned("", 1, 900, 1_005, None);
        row.tuple.expires_at = UnixMillis(0);
        watcher.see(at(6), wall(1_006), &look(Some(row), Vec::new()));
        let (view, changed) = watcher.see(at(9), wall(1_009), &look(Some(owned("a#1", 2, 1_007, 1_009, Some(1_008))), Vec::new()));
        assert!(changed.is_empty() && view.sessions[0].last_failover.is_none());
    }

    proptest! {
        /// Whatever rows come in whatever order: a failover is told at most once for each version, between two owners, and never takes less than no time.
        #[test]
        fn a_failover_is_told_once_for_each_version(steps in proptest::collection::vec((0_u8..3, any::<bool>(), any::<bool>(), 0_u64..30), 1..60)) {
            let (mut watcher, mut version, mut now, mut told) = (Watcher::new(STALE), 1_u64, 1_000_u64, BTreeSet::new());
            let mut row = owned("o0#1", version, now, now, None);
            for (who, takes, full, pause) in steps {
                now += pause;
                let owner = format!("o{who}#1");
                if takes && owner != row.tuple.owner {
                    version += 1;
                    row = owned(&owner, version, now, now, None);
                } else {
                    let acquired = row.acquired_at.0 / 1_000;
                    row = owned(&row.tuple.owner.clone(), version, acquired, now, full.then_some(now));
                }
                let (view, changed) = watcher.see(at(now), wall(now), &look(Some(row.clone()), Vec::new()));
                prop_assert!(view.sessions[0].holders.len() <= 1);
                for (_, failover) in changed {
                    prop_assert!(told.insert(failover.version), "version {} is told twice", failover.version);
                    prop_assert!(failover.from != failover.to && failover.seconds >= 0.0);
                }
            }
        }
    }
}
