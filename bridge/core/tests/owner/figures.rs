//! What a message costs in steady state, counted in calls: the same figures on every machine.

use crate::support::{Calls, Rig, Store, message, ms, options};
use causeway_core::units::Instant;
use std::time::Duration;

/// Calls for `rate` messages a second over `seconds`, after a second of warming up.
fn steady(rate: u64, seconds: u64, tight_in_flight: Option<usize>) -> (Calls, u64, Vec<Duration>) {
    let mut options = options(1);
    if let Some(most) = tight_in_flight {
        options.legs[0].policy.max_in_flight = most;
    }
    let mut rig = Rig::opened(options, Store::default());
    let began = rig.now;
    let gap = 1_000_000_000 / rate;
    let arrival = |nth: u64| Instant::from_nanos(began.as_nanos() + nth * gap);
    let mut warm = Calls::default();
    for nth in 0..rate * (seconds + 1) {
        rig.run_until(arrival(nth));
        if nth == rate {
            warm = rig.calls.clone();
        }
        assert!(rig.owner.wants_input(), "the owner keeps up");
        rig.deliver("in", message(&format!("{nth}")));
    }
    rig.run_until(arrival(rate * (seconds + 1)));
    let calls = Calls {
        puts: rig.calls.puts - warm.puts,
        head_writes: rig.calls.head_writes - warm.head_writes,
        deletes: rig.calls.deletes - warm.deletes,
        reads: rig.calls.reads + rig.calls.registry + rig.calls.mail_reads - warm.reads - warm.registry - warm.mail_reads,
        registry: 0,
        mail_reads: 0,
        sends: rig.calls.sends - warm.sends,
    };
    let mut first = std::collections::BTreeMap::new();
    for sent in &rig.sends {
        for entry in &sent.entries {
            first.entry(entry.id).or_insert((sent.at, entry.message.payload.clone()));
        }
    }
    let delays = first.values().map(|(at, payload)| at.since(arrival(std::str::from_utf8(payload).unwrap().parse().unwrap()))).collect();
    rig.run_to_rest();
    assert_eq!(rig.delivered.len() as u64, rate * (seconds + 1));
    assert!(rig.delivered.values().all(|times| *times == 1));
    (calls, rate * seconds, delays)
}

fn assert_figures(rate: u64, tight_in_flight: Option<usize>, puts: f64, sends: f64) {
    let (calls, messages, mut delays) = steady(rate, 5, tight_in_flight);
    let per = |count: u64| count as f64 / messages as f64;
    delays.sort();
    let (median, worst) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    println!(
        "{rate} msg/s: {:.4} puts, {:.4} sends, {:.5} deletes, {:.5} head writes, {:.5} reads per message; arrival to send {median:?} median, {worst:?} at worst",
        per(calls.puts),
        per(calls.sends),
        per(calls.deletes),
        per(calls.head_writes),
        per(calls.reads)
    );
    assert_eq!(calls.reads, 0, "the log is not read while it runs");
    assert!(per(calls.puts) <= puts, "{} puts per message", per(calls.puts));
    assert!(per(calls.sends) <= sends, "{} sends per message", per(calls.sends));
    assert!(per(calls.head_writes) <= 0.001, "{} head writes per message", per(calls.head_writes));
    assert!(per(calls.deletes) <= 0.005, "{} deletes per message", per(calls.deletes));
    assert!(worst <= ms(10 + 3 + 10 + 8), "{worst:?}: a linger, an append, a linger, and a send before it at most");
}

#[test]
fn at_1000_messages_a_second_a_message_costs_a_tenth_of_a_put_and_of_a_send() {
    assert_figures(1_000, None, 0.11, 0.11);
}

#[test]
fn at_5000_messages_a_second_it_costs_no_more() {
    assert_figures(5_000, None, 0.08, 0.11);
}

#[test]
fn at_rates_between_it_costs_no_more_than_lingers_allow() {
    for rate in [700, 900, 950, 1_050, 1_100, 1_500, 2_000, 3_000] {
        // Below ten messages to a linger a batch cannot be full without waiting longer.
        let share = if rate < 1_000 { 1_000.0 / (rate as f64) * 0.125 } else { 0.11 };
        assert_figures(rate, None, share, share);
    }
}

#[test]
fn at_ten_messages_a_second_each_costs_its_own_put_and_is_never_held_up() {
    let (calls, messages, delays) = steady(10, 10, None);
    assert_eq!((calls.puts, calls.sends, calls.reads), (messages, messages, 0));
    assert!(delays.iter().all(|delay| *delay == ms(3)), "an append's time, nothing else");
    assert!(calls.head_writes <= messages + 1 && calls.deletes <= messages + 1);
}
