//! What others were reported for when more came than went: a slow store that costs the connection, and a queue in memory without a bound.
//!
//! Here for as long as a test may take. With `CAUSEWAY_LONG_TESTS=1` for as long as those reports say.

use causeway_e2e::{Run, Setup};
use std::time::Duration;
use tokio::time::Instant;
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;
use xtask::worker::CLIENT_ID;

const RECONNECTS: &str = "causeway_mqtt_reconnects_total";
const RECEIVED: &str = "causeway_mqtt_received_total";
const ACKNOWLEDGED: &str = "causeway_mqtt_acknowledged_total";
const UNACKNOWLEDGED_PEAK: &str = "causeway_mqtt_unacknowledged_peak";
const WINDOW_OVERRUNS: &str = "causeway_mqtt_receive_window_overruns_total";
/// The most memory that the worker may ever have held, in KiB.
const LIMIT_KIB: u64 = 128 * 1024;

/// `usual`, or what a report says.
fn seconds(usual: u64, reported: u64) -> u64 {
    if std::env::var_os("CAUSEWAY_LONG_TESTS").is_some() { reported } else { usual }
}

/// A figure of a process's memory, in KiB: `VmRSS` now, `VmHWM` at most so far.
pub fn memory_kib(pid: u32, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(&format!("{figure}:"))).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Every append takes a third of a second, messages come every 20 ms, and a broker's patience with a silent client ends after 15 seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_store_and_a_steady_stream_cost_no_connection() {
    let messages = 50 * seconds(40, 120);
    let layer = "sessions: [{ id: mqtt-conn, options: { session: { keep_alive: 10 } } }]";
    let setup = Setup { proxies: true, tap: true, layer: Some(layer), ..Setup::new(Store::Dynamodb, messages) };
    let mut run = Run::start(&setup).await.unwrap();
    run.dynamodb().unwrap().inject(Rule::always(Fault::Delay(Duration::from_millis(300))).of("PutItem"));
    run.publish(0..messages, 50);
    run.publishing_done().await.unwrap();
    run.delivered(messages).await.unwrap();
    assert!(run.dynamodb().unwrap().injected() >= messages / 50, "the store was slow all the time");
    assert_eq!(run.metrics().await.unwrap().get(RECONNECTS).unwrap_or(0.0), 0.0);
    assert_eq!(run.tap.as_ref().unwrap().logins(CLIENT_ID), (1, 1));
    run.dynamodb().unwrap().heal();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (messages, messages, 0, 0));
}

/// Store and queue stand still while messages of 1 KB come, 5,000 a second or as fast as publisher and broker are: they wait with the broker.
#[allow(clippy::print_stdout, reason = "the figures are kept in docs/VERIFICATION.md")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_while_store_and_queue_stand_still_waits_with_the_broker() {
    const RATE: u64 = 5_000;
    let messages = RATE * seconds(6, 30);
    let stalled_for = Duration::from_secs(seconds(15, 60));
    let setup = Setup { proxies: true, tap: true, size: 1_024, ..Setup::new(Store::Dynamodb, messages) };
    let mut run = Run::start(&setup).await.unwrap();
    let window = run.settings().receive_maximum;
    let stalled = Instant::now();
    run.dynamodb().unwrap().inject(Rule::always(Fault::Hang));
    run.sqs().unwrap().inject(Rule::always(Fault::Hang));
    let pid = run.worker().unwrap().process.pid().unwrap();
    run.publish(0..messages, RATE);
    run.metric_reaches(RECEIVED, f64::from(window)).await.unwrap();
    run.published(messages / 6).await.unwrap();
    let before = memory_kib(pid, "VmRSS");
    let mut most = before;
    while run.progress.acknowledged() < messages || stalled.elapsed() < stalled_for {
        run.worker().unwrap().process.expect_running().unwrap();
        most = most.max(memory_kib(pid, "VmRSS"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    run.publishing_done().await.unwrap();
    // What is published after that would, in memory, be tens of megabytes.
    assert!(most <= before + 4 * 1024, "{before} KiB with the window full, {most} KiB after {messages} messages");
    let metrics = run.metrics().await.unwrap();
    assert_eq!(metrics.get(ACKNOWLEDGED).unwrap_or(0.0), 0.0, "nothing is durable yet");
    assert!(metrics.get(UNACKNOWLEDGED_PEAK).unwrap() <= f64::from(window));
    let (took, held) = (stalled.elapsed(), run.tap.as_ref().unwrap().most_unacknowledged());
    assert!(held <= usize::from(window), "{held} on the wire, of {window}");

    run.dynamodb().unwrap().heal();
    run.sqs().unwrap().heal();
    let healed = Instant::now();
    run.delivered(1).await.unwrap();
    let resumed = healed.elapsed();
    run.delivered(messages).await.unwrap();
    let (peak, drained) = (memory_kib(pid, "VmHWM"), healed.elapsed());
    let tap = run.tap.as_ref().unwrap();
    assert_eq!(tap.logins(CLIENT_ID), (1, 1), "one connection, all the time");
    // mosquitto 2.0.11 hands out more than the window while it works off what it kept. The worker counts that, and takes it.
    let (most_held, overruns) = (tap.most_unacknowledged(), run.metrics().await.unwrap().get(WINDOW_OVERRUNS).unwrap_or(0.0));
    assert!(most_held <= usize::from(window) || overruns > 0.0, "{most_held} on the wire, of {window}, and no overrun was counted");
    assert_eq!(run.metrics().await.unwrap().get(RECONNECTS).unwrap_or(0.0), 0.0);
    assert!(peak <= LIMIT_KIB, "{peak} KiB");
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (messages, messages, 0));
    println!(
        "{messages} messages, {} s stalled: VmRSS {before} KiB with the window full, {most} KiB at the end of the stall; VmHWM {peak} KiB; the first arrived {:.1} s after healing, the last after {:.0} s",
        took.as_secs(),
        resumed.as_secs_f64(),
        drained.as_secs_f64(),
    );
}
