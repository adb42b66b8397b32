//! A broker that restarts.

use causeway_e2e::{Run, Setup};
use xtask::stack::Store;

/// Connections that found the broker without the session it should have kept.
const SESSIONS_LOST: &str = "causeway_mqtt_session_resume_lost_total";
/// Connections after the first.
const RECONNECTS: &str = "causeway_mqtt_reconnects_total";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_keeps_its_state_loses_nothing_over_a_restart() {
    let mut run = Run::start(&Setup::new(Store::Sqlite, 6_000)).await.unwrap();
    run.publish(0..6_000, 1_500);
    run.published(3_000).await.unwrap();
    // What the worker held unacknowledged comes again over the new connection.
    let terms = run.settings().exposure_terms();
    run.expose("the broker restarted", terms);
    run.rig.stack.broker.stop().await.unwrap();
    run.rig.stack.broker.start_again().await.unwrap();
    run.metric_reaches(RECONNECTS, 1.0).await.unwrap();
    assert_eq!(run.metrics().await.unwrap().get(SESSIONS_LOST).unwrap_or(0.0), 0.0);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.lost), (6_000, 0));
    assert!(account.publisher_reconnects >= 1, "the publisher must have noticed the restart");
}

/// A broker without persistence forgets the session and whatever it had not handed over: nobody can promise those messages. What the worker
/// had acknowledged stays, the loss of the session is counted, and the subscriptions are made anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_forgets_the_session_is_noticed_and_work_goes_on() {
    let setup = Setup { broker_persistence: false, ..Setup::new(Store::Sqlite, 2_000) };
    let mut run = Run::start(&setup).await.unwrap();
    run.publish(0..1_000, 0);
    run.publishing_done().await.unwrap();
    run.delivered(1_000).await.unwrap();

    run.rig.stack.broker.stop().await.unwrap();
    run.rig.stack.broker.start_again().await.unwrap();
    run.metric_reaches(SESSIONS_LOST, 1.0).await.unwrap();
    run.worker().unwrap().ready("subscribed").await.unwrap();

    run.publish(1_000..2_000, 0);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.unrouted), (2_000, 2_000, 0, 0));
}
