//! Retries and recovery in rounds, and the clustered scenario's own route carried out.

use crate::exclusive::{counter, shared};
use causeway_e2e::{Run, Setup};
use rustix::process::Signal;
use std::time::Duration;
use xtask::proxy::{Fault, Rule};
use xtask::worker::Role;

const ONE: &[(&str, Role)] = &[("worker-1", Role::Worker)];
const SEND: &str = "SendMessageBatch";
const DEPTH: &str = "causeway_outbox_depth";

/// Twenty messages in a round, and so long a pause that none follows while a test looks.
const SLOW: &str = "
routes:
  - id: ingest
    session:
      session_id: mqtt-conn
      sender_id: sqs-out
      drain_interval: 20s
      drain_batch_size: 20
      drain_max_batch_size: 1000
      drain_max_concurrency: 1
";

fn outage() -> Rule {
    Rule::always(Fault::FailBefore { status: 503, code: String::new() })
}

/// The routes of the clustered scenario, whose names are those of the rigs.
fn routes_of_the_scenario() -> &'static str {
    let text = include_str!("../../../vectors/scenario.yaml");
    &text[text.find("\nroutes:").unwrap()..]
}

async fn waiting(run: &mut Run, least: f64) {
    for _ in 0..1_200 {
        if counter(run.cluster().unwrap(), 0, DEPTH).await >= least {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never {least} in the outbox\n{}", run.cluster().unwrap().log_tails());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_takes_up_a_backlog_in_rounds_while_the_queue_is_away() {
    let mut run = Run::start(&Setup { proxies: true, layer: Some(SLOW), ..shared(ONE, 500) }).await.unwrap();
    let former = run.cluster().unwrap().holder().await.unwrap();

    // A send that never ends is the only one: `drain_max_concurrency`.
    run.sqs().unwrap().inject(Rule::always(Fault::Hang).of(SEND));
    run.publish(0..100, 200);
    run.publishing_done().await.unwrap();
    waiting(&mut run, 90.0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(run.sqs().unwrap().calls(SEND), 1);

    run.sqs().unwrap().heal();
    run.sqs().unwrap().inject(outage());
    run.publish(100..500, 0);
    run.publishing_done().await.unwrap();
    waiting(&mut run, 490.0).await;
    let owner = &mut run.cluster().unwrap().members[0].worker;
    let reported = owner.metrics().await.unwrap();
    owner.process.kill().await.unwrap();
    let before = run.sqs().unwrap().calls(SEND);
    run.cluster().unwrap().start_again(0).await.unwrap();
    run.cluster().unwrap().successor(&former.lease).await.unwrap();
    waiting(&mut run, 490.0).await;
    // `drain_batch_size` in batches of ten, and nothing more before `drain_interval` is over.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(run.sqs().unwrap().calls(SEND) - before, 2, "{}", run.cluster().unwrap().log_tails());

    run.sqs().unwrap().heal();
    run.expose_member("the owner was killed", &reported);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.delivered, account.lost, account.corrupted), (500, 500, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clustered_scenario_s_own_route_runs_through_an_outage_and_a_restart() {
    let mut run = Run::start(&Setup { proxies: true, layer: Some(routes_of_the_scenario()), ..shared(ONE, 1_000) }).await.unwrap();
    let former = run.cluster().unwrap().holder().await.unwrap();
    run.publish(0..200, 0);
    run.delivered(200).await.unwrap();
    run.publishing_done().await.unwrap();
    run.sqs().unwrap().inject(outage());
    run.publish(200..1_000, 0);
    run.publishing_done().await.unwrap();
    waiting(&mut run, 790.0).await;
    let worker = &mut run.cluster().unwrap().members[0].worker.process;
    worker.signal(Signal::TERM);
    worker.wait(Duration::from_secs(90)).await.unwrap();
    run.cluster().unwrap().start_again(0).await.unwrap();
    run.cluster().unwrap().successor(&former.lease).await.unwrap();
    waiting(&mut run, 790.0).await;
    run.sqs().unwrap().heal();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.delivered, account.duplicates, account.lost), (1_000, 1_000, 0, 0));
}
