//! One thing that goes wrong at a time, and what exactly has to come of it.
//!
//! The time is the runtime's, which jumps: a bound is compared with what the program computed, not with how fast a machine is.

use crate::on_paused_time;
use crate::world::{BROKER_STEP_DOWN, CALL_TIMEOUT, GRACE, POLL, Played, TTL, World};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_ports::fake::{Injection, LeaseCall, OutboxCall};
use causeway_sim::rng::Rng;
use std::time::Duration;

/// A life with so many messages, of which half are there before anything happens.
async fn settled(hosts: usize, messages: u64) -> (World, usize) {
    let mut world = World::new(Rng::new(1), hosts, messages, 100);
    let holder = world.holder_after("").await;
    world.publish(1..=messages / 2);
    world.arrived(usize::try_from(messages / 2).unwrap()).await;
    (world, holder)
}

async fn since<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = tokio::time::Instant::now();
    let done = work.await;
    (done, began.elapsed())
}

async fn ended(mut world: World) -> Played {
    world.heal().await;
    let played = world.end().await;
    assert_eq!(played.violations, Vec::<String>::new());
    played
}

fn no_answer() -> Fault {
    Fault::new(FaultCode::Timeout, "no answer")
}

#[test]
fn another_host_takes_over_from_one_that_crashed() {
    on_paused_time(async {
        let (mut world, owner) = settled(2, 40).await;
        let name = world.name_of(owner);
        world.publish(21..=40);
        world.crash(owner);
        let (_, took) = since(world.holder_after(&name)).await;
        // The row stood unchanged for the lease's time since a look at it; then a look more, and the claim.
        assert!(took > TTL - 2 * POLL, "taken over after {took:?}, while the lease held");
        assert!(took <= TTL + 2 * POLL + 2 * CALL_TIMEOUT, "taken over after {took:?}");
        world.arrived(40).await;
        let played = ended(world).await;
        assert_eq!((played.holders, played.acknowledged), (2, 40));
    });
}

#[test]
fn an_owner_whose_answers_get_lost_keeps_its_lease_and_knows_its_rows() {
    on_paused_time(async {
        let (mut world, _) = settled(2, 40).await;
        // Every other renewal, and most appends, for a while.
        for nth in 0..6 {
            world.shared.leases.inject(LeaseCall::Write, nth, 1, Injection::LoseAnswer(no_answer()));
        }
        world.shared.outbox.inject(OutboxCall::Put, 0, 4, Injection::LoseAnswer(no_answer()));
        let puts = world.shared.outbox.calls(OutboxCall::Put);
        world.publish(21..=40);
        world.arrived(40).await;
        tokio::time::sleep(4 * TTL).await;
        assert!(world.shared.outbox.calls(OutboxCall::Put) > puts + 4, "no answer was lost");
        let played = ended(world).await;
        assert_eq!((played.holders, played.refused_puts, played.repeated), (1, 0, 0), "one owner, fenced by nobody, nothing twice");
    });
}

#[test]
fn a_lease_store_that_just_answers_in_time_changes_nothing() {
    on_paused_time(async {
        let (mut world, _) = settled(2, 40).await;
        for call in [LeaseCall::Read, LeaseCall::Write] {
            world.shared.leases.inject(call, 0, u64::MAX, Injection::Delay(CALL_TIMEOUT - Duration::from_millis(20)));
        }
        tokio::time::sleep(6 * TTL).await;
        world.publish(21..=40);
        world.arrived(40).await;
        let played = ended(world).await;
        assert_eq!((played.holders, played.repeated), (1, 0));
    });
}

#[test]
fn with_a_lease_store_that_answers_just_too_late_nobody_acts() {
    on_paused_time(async {
        let (mut world, _) = settled(2, 40).await;
        for call in [LeaseCall::Read, LeaseCall::Write] {
            world.shared.leases.inject(call, 0, u64::MAX, Injection::Delay(CALL_TIMEOUT + Duration::from_millis(20)));
        }
        tokio::time::sleep(TTL + CALL_TIMEOUT).await;
        let acts = world.shared.truth(|truth| truth.acts);
        world.publish(21..=40);
        tokio::time::sleep(6 * TTL).await;
        assert_eq!(world.shared.truth(|truth| truth.acts), acts, "somebody acted without a lease");
        assert_eq!(world.shared.broker.held(), 20, "the broker keeps what nobody may take");
        let played = ended(world).await;
        assert_eq!(played.acknowledged, 40);
    });
}

#[test]
fn an_owner_that_loses_its_broker_hands_over() {
    on_paused_time(async {
        let (mut world, owner) = settled(2, 40).await;
        let name = world.name_of(owner);
        world.shared.broker.disconnect();
        world.publish(21..=40);
        let (_, took) = since(world.holder_after(&name)).await;
        assert!(took >= BROKER_STEP_DOWN, "handed over after {took:?}: no time to reconnect");
        assert!(took <= BROKER_STEP_DOWN + GRACE + 2 * POLL + 2 * CALL_TIMEOUT, "handed over after {took:?}");
        world.arrived(40).await;
        let played = ended(world).await;
        assert_eq!((played.holders, played.repeated), (2, 0), "a clean hand-over repeats nothing");
    });
}

#[test]
fn an_append_that_the_store_carries_out_after_the_takeover_is_refused() {
    on_paused_time(async {
        let (mut world, owner) = settled(2, 40).await;
        let name = world.name_of(owner);
        // Until what arrived is told to be settled: a crash before that repeats it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.shared.outbox.inject_next(OutboxCall::Put, Injection::ApplyLate(no_answer()));
        world.publish(21..=40);
        tokio::time::sleep(Duration::from_millis(1)).await;
        world.crash(owner);
        world.holder_after(&name).await;
        world.arrived(40).await;
        let rows = world.shared.outbox.calls(OutboxCall::Put);
        assert_eq!(world.shared.outbox.apply_late().await, 1, "no append was under way");
        // The successor goes on: a row of somebody else at its slot would fence it.
        world.shared.broker.publish_text("in", "t", "20");
        tokio::time::sleep(4 * TTL).await;
        assert!(world.shared.outbox.calls(OutboxCall::Put) > rows, "nothing was appended afterwards");
        let played = ended(world).await;
        assert_eq!((played.holders, played.refused_puts, played.repeated), (2, 0, 1), "only what was published twice");
    });
}

#[test]
fn an_owner_that_slept_past_its_lease_does_nothing_when_it_wakes() {
    on_paused_time(async {
        let (mut world, owner) = settled(2, 40).await;
        let name = world.name_of(owner);
        // It sleeps in the middle of an append, and messages wait in its hands.
        world.shared.outbox.inject_next(OutboxCall::Put, Injection::Delay(Duration::from_millis(50)));
        world.publish(21..=40);
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.sleep(owner, 3 * TTL);
        world.holder_after(&name).await;
        world.arrived(40).await;
        // Its own effects, had there been any, are violations: the ledger sees each begin.
        tokio::time::sleep(4 * TTL).await;
        let played = ended(world).await;
        assert_eq!((played.holders, played.pauses), (2, 1));
    });
}
