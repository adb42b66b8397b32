//! The control process beside two workers: it tells how the bridge stands, and what a failover cost, as seen from outside.

use crate::exclusive::shared;
use causeway_e2e::{Run, Setup};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use xtask::cluster::Cluster;
use xtask::worker::Role;

const FLEET: &[(&str, Role)] = &[("worker-1", Role::Worker), ("worker-2", Role::Worker), ("control", Role::Control)];
const PATIENCE: Duration = Duration::from_secs(120);

/// What the role of the stack for these tasks is granted of ECS is made from this.
pub fn recorded(caller: &str) -> BTreeSet<String> {
    let file = xtask::stack::repository().join("infra/lib/generated/task-operations.json");
    let recorded: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    recorded[caller].values().flatten().cloned().collect()
}

/// Waits until the control process tells these values.
async fn tells(cluster: &Cluster, wanted: &[(&str, f64)]) {
    let control = cluster.named("control").unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let metrics = cluster.members[control].worker.metrics().await;
        let told: Vec<(&str, Option<f64>)> =
            wanted.iter().map(|(name, _)| (*name, metrics.as_ref().ok().and_then(|metrics| metrics.get(name)))).collect();
        if told.iter().zip(wanted).all(|((_, told), (_, wanted))| *told == Some(*wanted)) {
            return;
        }
        assert!(Instant::now() < deadline, "{told:?}, wanted {wanted:?}\n{}", cluster.log_tails());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_control_process_tells_of_workers_zones_holders_and_what_a_failover_cost() {
    let mut run = Run::start(&Setup { stopped_after: Some(1), ..shared(FLEET, 500) }).await.unwrap();
    let former = run.cluster().unwrap().holder().await.unwrap();
    let all_is_well = [
        ("causeway_fleet_workers", 2.0),
        ("causeway_az_spread", 1.0),
        ("causeway_warm_standby_available", 1.0),
        ("causeway_lease_holders", 1.0),
        ("causeway_fleet_unseen_tasks", 0.0),
    ];
    let cluster = run.cluster().unwrap();
    tells(cluster, &all_is_well).await;
    for member in cluster.members.iter().filter(|member| member.name() != "control") {
        let metrics = member.worker.metrics().await.unwrap();
        assert_eq!(metrics.get("causeway_lease_holders"), None, "a worker tells nothing of the others");
    }
    let (fleet, cluster) = run.fleet().unwrap();
    cluster.members[former.member].worker.process.kill().await.unwrap();
    fleet.has_lost(&cluster.members[former.member].launch).unwrap();
    let successor = cluster.successor(&former.lease).await.unwrap();
    assert_eq!(cluster.members[successor.member].launch.role, Role::Worker, "the control process is the last to take over");
    tells(
        cluster,
        &[
            ("causeway_fleet_failure_to_full_seconds_count", 1.0),
            ("causeway_fleet_workers", 1.0),
            ("causeway_warm_standby_available", 0.0),
            ("causeway_lease_holders", 1.0),
        ],
    )
    .await;
    fleet.replace(&mut cluster.members[former.member].launch);
    cluster.start_again(former.member).await.unwrap();
    tells(cluster, &all_is_well).await;
    let control = cluster.named("control").unwrap();
    let topology = cluster.members[control].worker.topology().await.unwrap();
    let failover = &topology["fleet"]["sessions"][0]["last_failover"];
    assert_eq!(
        (&failover["cause"], &failover["to"]),
        (&serde_json::json!("crash"), &serde_json::json!(successor.lease.owner)),
        "{topology}"
    );
    // What stands for ECS does not tell apart who asks.
    assert_eq!(run.fleet().unwrap().0.ecs().called(), &recorded("control") | &recorded("worker"));
    run.publish(0..500, 0);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (500, 500, 0));
}
