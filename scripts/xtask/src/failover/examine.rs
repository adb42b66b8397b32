//! Whether a deployed session can be taken from its owner now, and who that is. Decides over what was read, and reads nothing itself.

use causeway_aws::TaskArn;
use causeway_core::lease::row::{LeaseRow, RawLease};
use causeway_ports::{Described, MemberRecord};
use thiserror::Error;

/// Why no task is stopped.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// There is no row.
    #[error("NEVER_OWNED: table `{table}` has no lease of session `{session}`; it has {known}")]
    NeverOwned {
        /// The table.
        table: String,
        /// The session.
        session: String,
        /// The sessions that have one.
        known: String,
    },
    /// The row cannot be believed.
    #[error("LEASE_CORRUPT: {0}")]
    Corrupt(String),
    /// Nobody has the lease.
    #[error("NO_OWNER: nobody owns session `{0}` now: wait until a task has taken it over")]
    NoOwner(String),
    /// The row does not tell.
    #[error(
        "NO_TASK_ARN: the lease row names no ECS task: its owner, {0}, runs elsewhere, or ECS did not tell it its name \
         (ECS_CONTAINER_METADATA_URI_V4; the owner's log says so at its start)"
    )]
    NoTaskArn(String),
    /// The row tells something else.
    #[error("BAD_TASK_ARN: the lease row has `{0}` for the owner's task, which is no ARN of one")]
    BadTaskArn(String),
    /// A task of another cluster.
    #[error("OTHER_CLUSTER: the owner's task {arn} is in cluster `{found}`, not in `{asked}`: give --ecs {found}")]
    OtherCluster {
        /// The task.
        arn: String,
        /// Its cluster.
        found: String,
        /// The cluster that was asked for.
        asked: String,
    },
    /// A task of another region.
    #[error("OTHER_REGION: the owner's task is in {found}, and this asks {asked}: give --region {found}")]
    OtherRegion {
        /// The task's region.
        found: String,
        /// The region that is asked.
        asked: String,
    },
    /// The cluster does not have it.
    #[error(
        "TASK_UNKNOWN: cluster `{cluster}` does not know the owner's task {arn} ({reason}): it ended some time ago, and its lease is about to run out"
    )]
    TaskUnknown {
        /// The cluster.
        cluster: String,
        /// The task.
        arn: String,
        /// What ECS says.
        reason: String,
    },
    /// It is on its way out already.
    #[error("TASK_NOT_UP: the owner's task {arn} is {last} and is to be {desired}: wait for its successor")]
    TaskNotUp {
        /// The task.
        arn: String,
        /// What it does.
        last: String,
        /// What it is to do.
        desired: String,
    },
    /// A task of another service.
    #[error("OTHER_SERVICE: the owner's task {arn} belongs to {group}, not to service `{service}`: give the right --service, or none")]
    OtherService {
        /// The task.
        arn: String,
        /// What it belongs to.
        group: String,
        /// What was asked for.
        service: String,
    },
    /// The session has no full service to lose.
    #[error(
        "NOT_AT_FULL_SERVICE: the lease row says `{level}`: wait until the owner gives full service (it tells so when it renews), then try again"
    )]
    NotFull {
        /// What the row says.
        level: String,
    },
    /// Nobody would take over.
    #[error("NO_STANDBY: no other task of cluster `{cluster}` is up and serves session `{session}` ({members}): nobody would take over")]
    NoStandby {
        /// The cluster.
        cluster: String,
        /// The session.
        session: String,
        /// Who else is known.
        members: String,
    },
    /// Nobody said yes.
    #[error("NOT_CONFIRMED: no task was stopped; --yes stops without a question")]
    NotConfirmed,
}

impl Refusal {
    /// Whether it passes by itself after a failover: a successor settles, and ECS starts a task in the place of the stopped one.
    pub const fn passes(&self) -> bool {
        matches!(self, Self::NoOwner(_) | Self::NotFull { .. } | Self::NoStandby { .. } | Self::TaskNotUp { .. } | Self::TaskUnknown { .. })
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The cluster, by name or ARN.
    pub cluster: String,
    /// The region, where it is known.
    pub region: Option<String>,
    /// The table of the leases.
    pub table: String,
    /// The session.
    pub session: String,
    /// The owner's service, where it matters.
    pub service: Option<String>,
}

/// The owner and its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The lease.
    pub row: LeaseRow,
    /// The task's ARN.
    pub task: String,
}

/// Who owns the session, as its row says.
///
/// # Errors
/// [`Refusal`]
pub fn owner(asked: &Asked, raw: Option<RawLease>, known: &[(String, RawLease)]) -> Result<Owner, Refusal> {
    let Some(raw) = raw else {
        let sessions: Vec<&str> = known.iter().filter_map(|(key, _)| key.strip_prefix("LEASE#")).collect();
        let known = if sessions.is_empty() { "none of any".to_owned() } else { sessions.join(", ") };
        return Err(Refusal::NeverOwned { table: asked.table.clone(), session: asked.session.clone(), known });
    };
    let row = LeaseRow::try_from(raw).map_err(|corrupt| Refusal::Corrupt(corrupt.to_string()))?;
    if row.tuple.is_released() || row.tuple.is_housekeeping() {
        return Err(Refusal::NoOwner(asked.session.clone()));
    }
    let task = row.facts.task_arn.clone().ok_or_else(|| Refusal::NoTaskArn(row.tuple.owner.clone()))?;
    let arn = TaskArn::parse(&task).ok_or_else(|| Refusal::BadTaskArn(task.clone()))?;
    if let Some(region) = asked.region.as_ref().filter(|region| **region != arn.region) {
        return Err(Refusal::OtherRegion { found: arn.region, asked: region.clone() });
    }
    let cluster = asked.cluster.rsplit('/').next().unwrap_or(&asked.cluster);
    if let Some(found) = arn.cluster.filter(|found| found != cluster) {
        return Err(Refusal::OtherCluster { arn: task, found, asked: cluster.to_owned() });
    }
    match row.facts.service_level.as_deref() {
        Some("full") => Ok(Owner { row, task }),
        level => Err(Refusal::NotFull { level: level.unwrap_or("nothing yet").to_owned() }),
    }
}

/// The other members that serve the session, by the names of their tasks.
pub fn others<'m>(asked: &Asked, owner: &Owner, members: &'m [MemberRecord]) -> Vec<&'m MemberRecord> {
    let serves = |member: &&MemberRecord| member.owner != owner.row.tuple.owner && member.sessions.contains_key(&asked.session);
    members.iter().filter(serves).collect()
}

/// Looks whether the owner's task may be stopped. `described` is what ECS says of it and of the tasks of `others`; `of_service` are the tasks of the
/// service that was asked for. Answers who stands by.
///
/// # Errors
/// [`Refusal`]
pub fn standbys(
    asked: &Asked,
    owner: &Owner,
    others: &[&MemberRecord],
    described: &Described,
    of_service: Option<&[String]>,
) -> Result<Vec<String>, Refusal> {
    let task = |arn: &str| described.tasks.iter().find(|task| task.arn == arn);
    let arn = owner.task.clone();
    let Some(owners) = task(&owner.task) else {
        let reason = described.missing.iter().find(|(missing, _)| *missing == arn).map_or("no answer", |(_, reason)| reason).to_owned();
        return Err(Refusal::TaskUnknown { cluster: asked.cluster.clone(), arn, reason });
    };
    if owners.last_status != "RUNNING" || owners.desired_status != "RUNNING" {
        return Err(Refusal::TaskNotUp { arn, last: owners.last_status.clone(), desired: owners.desired_status.clone() });
    }
    if let Some(service) = asked.service.as_ref().filter(|_| of_service.is_some_and(|tasks| !tasks.contains(&arn))) {
        let group = owners.group.clone().unwrap_or_else(|| "no service".to_owned());
        return Err(Refusal::OtherService { arn, group, service: service.clone() });
    }
    let is_up = |member: &&&MemberRecord| member.facts.task_arn.as_deref().and_then(task).is_some_and(causeway_ports::TaskRecord::is_up);
    let up: Vec<String> = others.iter().filter(is_up).map(|member| member.owner.clone()).collect();
    if up.is_empty() {
        let state = |member: &&MemberRecord| match member.facts.task_arn.as_deref().map(task) {
            None => format!("{} names no task", member.owner),
            Some(None) => format!("{}: its task is gone", member.owner),
            Some(Some(task)) => format!("{}: its task is {}", member.owner, task.last_status),
        };
        let members = if others.is_empty() {
            "the owner is the only one".to_owned()
        } else {
            others.iter().map(state).collect::<Vec<_>>().join(", ")
        };
        return Err(Refusal::NoStandby { cluster: asked.cluster.clone(), session: asked.session.clone(), members });
    }
    Ok(up)
}

/// Whether this row is of a successor of `former` at full service.
pub fn has_succeeded(former: &LeaseRow, row: &LeaseRow) -> bool {
    is_taken_over(former, row) && row.facts.service_level.as_deref() == Some("full")
}

/// Whether this row is of a successor of `former`.
pub fn is_taken_over(former: &LeaseRow, row: &LeaseRow) -> bool {
    let tuple = &row.tuple;
    !tuple.is_released() && !tuple.is_housekeeping() && tuple.owner != former.tuple.owner && tuple.version > former.tuple.version
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use causeway_core::lease::row::OwnerFacts;
    use causeway_ports::TaskRecord;

    const MINE: &str = "arn:aws:ecs:eu-west-1:1:task/plant/aaa";
    const OTHER: &str = "arn:aws:ecs:eu-west-1:1:task/plant/bbb";

    fn asked() -> Asked {
        Asked { cluster: "plant".into(), region: Some("eu-west-1".into()), table: "leases".into(), session: "s".into(), service: None }
    }

    fn raw(owner: &str, version: i128, task: Option<&str>, level: Option<&str>) -> RawLease {
        let facts = OwnerFacts { task_arn: task.map(str::to_owned), service_level: level.map(str::to_owned), ..OwnerFacts::default() };
        let expires = if owner.is_empty() { 0 } else { 46_000 };
        RawLease {
            owner: Some(owner.to_owned()),
            version: Some(version),
            renewed_at: Some(1_000),
            expires_at: Some(expires),
            facts,
            ..RawLease::default()
        }
    }

    fn found() -> Owner {
        owner(&asked(), Some(raw("w1#1", 4, Some(MINE), Some("full"))), &[]).unwrap()
    }

    fn member(owner: &str, task: Option<&str>) -> MemberRecord {
        MemberRecord {
            owner: owner.into(),
            facts: OwnerFacts { task_arn: task.map(str::to_owned), ..OwnerFacts::default() },
            sessions: [("s".to_owned(), "none".to_owned())].into(),
            ..MemberRecord::default()
        }
    }

    fn task(arn: &str, last: &str, desired: &str) -> TaskRecord {
        TaskRecord {
            arn: arn.into(),
            last_status: last.into(),
            desired_status: desired.into(),
            group: Some("service:workers".into()),
            ..TaskRecord::default()
        }
    }

    fn both_run() -> Described {
        Described { tasks: vec![task(MINE, "RUNNING", "RUNNING"), task(OTHER, "RUNNING", "RUNNING")], missing: Vec::new() }
    }

    fn code(refusal: &Refusal) -> String {
        refusal.to_string().split(':').next().unwrap().to_owned()
    }

    #[test]
    fn a_row_that_names_no_task_to_stop_is_refused_with_its_reason() {
        let region = Asked { region: Some("us-east-1".into()), ..asked() };
        let cluster = Asked { cluster: "arn:aws:ecs:eu-west-1:1:cluster/other".into(), ..asked() };
        for (asked, row, expected) in [
            (asked(), None, "NEVER_OWNED"),
            (asked(), Some(RawLease::default()), "LEASE_CORRUPT"),
            (asked(), Some(raw("", 4, Some(MINE), None)), "NO_OWNER"),
            (asked(), Some(raw("#housekeeping#1", 4, None, None)), "NO_OWNER"),
            (asked(), Some(raw("w1#1", 4, None, Some("full"))), "NO_TASK_ARN"),
            (asked(), Some(raw("w1#1", 4, Some("aaa"), Some("full"))), "BAD_TASK_ARN"),
            (region, Some(raw("w1#1", 4, Some(MINE), Some("full"))), "OTHER_REGION"),
            (cluster, Some(raw("w1#1", 4, Some(MINE), Some("full"))), "OTHER_CLUSTER"),
            (asked(), Some(raw("w1#1", 4, Some(MINE), None)), "NOT_AT_FULL_SERVICE"),
            (asked(), Some(raw("w1#1", 4, Some(MINE), Some("degraded"))), "NOT_AT_FULL_SERVICE"),
        ] {
            assert_eq!(code(&owner(&asked, row.clone(), &[]).unwrap_err()), expected, "{row:?}");
        }
        let known = [("LEASE#mqtt".to_owned(), RawLease::default()), ("LEASE#plc".to_owned(), RawLease::default())];
        assert!(owner(&asked(), None, &known).unwrap_err().to_string().ends_with("it has mqtt, plc"));
        let by_arn = Asked { cluster: "arn:aws:ecs:eu-west-1:1:cluster/plant".into(), ..asked() };
        assert!(owner(&by_arn, Some(raw("w1#1", 4, Some(MINE), Some("full"))), &[]).is_ok());
        let short = "arn:aws:ecs:eu-west-1:1:task/aaa";
        assert!(owner(&asked(), Some(raw("w1#1", 4, Some(short), Some("full"))), &[]).is_ok(), "the short form names no cluster");
    }

    #[test]
    fn a_task_stands_by_if_it_is_up_and_its_process_serves_the_session() {
        let other_session = MemberRecord { sessions: [("t".to_owned(), "full".to_owned())].into(), ..member("w3#1", Some(OTHER)) };
        let members = [member("w1#1", Some(MINE)), member("w2#1", Some(OTHER)), other_session];
        let (asked, owner) = (asked(), found());
        let others = others(&asked, &owner, &members);
        assert_eq!(others.iter().map(|member| member.owner.as_str()).collect::<Vec<_>>(), ["w2#1"]);
        assert_eq!(standbys(&asked, &owner, &others, &both_run(), None), Ok(vec!["w2#1".to_owned()]));
        let refused = |described: &Described| code(&standbys(&asked, &owner, &others, described, None).unwrap_err());
        for (last, desired) in [("PENDING", "RUNNING"), ("RUNNING", "STOPPED"), ("STOPPED", "STOPPED")] {
            let described = Described { tasks: vec![task(MINE, "RUNNING", "RUNNING"), task(OTHER, last, desired)], missing: Vec::new() };
            assert_eq!(refused(&described), "NO_STANDBY", "{last} {desired}");
            let described = Described { tasks: vec![task(MINE, last, desired), task(OTHER, "RUNNING", "RUNNING")], missing: Vec::new() };
            assert_eq!(refused(&described), "TASK_NOT_UP", "{last} {desired}");
        }
        let ill = TaskRecord { health: Some("UNHEALTHY".into()), ..task(OTHER, "RUNNING", "RUNNING") };
        assert_eq!(refused(&Described { tasks: vec![task(MINE, "RUNNING", "RUNNING"), ill], missing: Vec::new() }), "NO_STANDBY");
        let gone = Described { tasks: Vec::new(), missing: vec![(MINE.to_owned(), "MISSING".to_owned())] };
        assert_eq!(refused(&gone), "TASK_UNKNOWN");
        let nobody = standbys(&asked, &owner, &[], &both_run(), None).unwrap_err();
        assert!(nobody.to_string().contains("the owner is the only one"), "{nobody}");
        let nameless = member("w2#1", None);
        assert_eq!(code(&standbys(&asked, &owner, &[&nameless], &both_run(), None).unwrap_err()), "NO_STANDBY");
    }

    #[test]
    fn a_service_that_is_named_must_be_the_owners() {
        let asked = Asked { service: Some("control".into()), ..asked() };
        let (owner, standby) = (found(), member("w2#1", Some(OTHER)));
        let answer = |tasks: &[String]| standbys(&asked, &owner, &[&standby], &both_run(), Some(tasks));
        let refused = answer(&[OTHER.to_owned()]).unwrap_err();
        assert!(code(&refused) == "OTHER_SERVICE" && refused.to_string().contains("service:workers"), "{refused}");
        assert!(answer(&[MINE.to_owned()]).is_ok());
    }

    #[test]
    fn a_successor_has_another_name_a_higher_version_and_full_service() {
        let former = found().row;
        let row = |owner: &str, version, level| LeaseRow::try_from(raw(owner, version, Some(OTHER), level)).unwrap();
        assert!(has_succeeded(&former, &row("w2#1", 5, Some("full"))));
        for other in [
            row("w1#1", 4, Some("full")),
            row("w1#1", 5, Some("full")),
            row("w2#1", 4, Some("full")),
            row("", 4, Some("full")),
            row("#housekeeping#1", 5, Some("full")),
            row("w2#1", 5, None),
            row("w2#1", 5, Some("degraded")),
        ] {
            assert!(!has_succeeded(&former, &other), "{other:?}");
        }
        assert!(is_taken_over(&former, &row("w2#1", 5, None)));
    }

    #[test]
    fn what_passes_is_waited_for_between_two_runs_and_nothing_else() {
        let passing = owner(&asked(), Some(raw("w1#1", 4, Some(MINE), None)), &[]).unwrap_err();
        assert!(passing.passes());
        assert!(!owner(&asked(), Some(raw("w1#1", 4, None, None)), &[]).unwrap_err().passes());
    }
}
