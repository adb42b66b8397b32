//! The lease derivation and the failover budget against published vectors, and against their own definitions on random input.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use causeway_core::timing::budget::MAX_STARTUP_ALLOWANCE;
use causeway_core::timing::{Activation, BudgetError, BudgetTerms, Cadence, CadenceError, CadenceInput, MqttActivation, Profile, SECOND};
use proptest::prelude::*;
use serde_json::Value;

fn vectors(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn derivation() -> Value {
    vectors(include_str!("../../../tests/vectors/lease-derivation.json"))
}

fn budgets() -> Value {
    vectors(include_str!("../../../tests/vectors/failover-budget.json"))
}

/// `name_ns` as it stands, or `name_s` in nanoseconds.
fn nanos(case: &Value, name: &str) -> Option<i64> {
    case[format!("{name}_ns")].as_i64().or_else(|| {
        let seconds = case[format!("{name}_s")].as_f64()?;
        Some((seconds * 1_000.0).round() as i64 * (SECOND / 1_000))
    })
}

fn ttl(seconds: i64) -> CadenceInput {
    CadenceInput { lease_ttl: Some(seconds * SECOND), ..CadenceInput::default() }
}

#[test]
fn every_derivation_vector_holds() {
    let vectors = derivation();
    let rows = vectors["derived_mrf_3"].as_array().unwrap();
    assert_eq!(rows.len(), 11);
    for row in rows {
        let cadence = ttl(row["ttl_s"].as_i64().unwrap()).resolve().unwrap();
        let got = [cadence.renew_interval, cadence.lease_renew_jitter, cadence.renew_call_timeout, cadence.acquire_poll_interval];
        let wanted = ["renew_ns", "jitter_ns", "call_ns", "poll_ns"].map(|name| row[name].as_i64().unwrap());
        assert_eq!(got, wanted, "{row}");
    }
}

#[test]
fn both_profiles_hold() {
    let vectors = derivation();
    let standalone = CadenceInput::default().resolve().unwrap();
    assert_eq!(standalone.profile, Profile::Standalone);
    let wanted = &vectors["profiles"]["standalone"];
    assert_eq!(Some(standalone.lease_ttl), nanos(wanted, "lease_ttl"));
    assert_eq!(Some(standalone.step_down_grace), nanos(wanted, "step_down_grace"));
    assert_eq!(u64::from(standalone.max_renew_fails), wanted["max_renew_fails"].as_u64().unwrap());

    let ha = CadenceInput { clustered: true, ..CadenceInput::default() }.resolve().unwrap();
    assert_eq!(ha.profile, Profile::ClusteredHa);
    let wanted = &vectors["profiles"]["clustered_ha (neither lease_ttl nor renew_interval pinned)"];
    for (name, got) in [
        ("lease_ttl", ha.lease_ttl),
        ("renew_interval", ha.renew_interval),
        ("lease_renew_jitter", ha.lease_renew_jitter),
        ("renew_call_timeout", ha.renew_call_timeout),
        ("acquire_poll_interval", ha.acquire_poll_interval),
        ("step_down_grace", ha.step_down_grace),
    ] {
        assert_eq!(Some(got), nanos(wanted, name), "{name}");
    }
    let pinned = CadenceInput { clustered: true, ..ttl(300) }.resolve().unwrap();
    assert_eq!((pinned.profile, pinned.step_down_grace), (Profile::Standalone, 15 * SECOND));
}

/// The cadence of a budget vector: what the vector leaves out does not enter its sum.
fn cadence_of(case: &Value) -> Cadence {
    Cadence {
        profile: Profile::Standalone,
        lease_ttl: nanos(case, "lease_ttl").unwrap(),
        renew_interval: nanos(case, "renew_interval").unwrap_or(SECOND),
        lease_renew_jitter: nanos(case, "lease_renew_jitter").unwrap_or(0),
        renew_call_timeout: nanos(case, "renew_call_timeout").unwrap(),
        acquire_poll_interval: nanos(case, "acquire_poll_interval").unwrap(),
        step_down_grace: nanos(case, "step_down_grace").unwrap_or(SECOND),
        max_renew_fails: 3,
    }
}

fn activation_of(case: &Value) -> Activation {
    match nanos(case, "activation") {
        Some(activation) => Activation::Known(activation),
        None => MqttActivation {
            connect_timeout: nanos(case, "connect_timeout").unwrap(),
            reconcile_timeout: nanos(case, "reconcile_timeout").unwrap(),
            unmatched_grace: nanos(case, "unmatched_grace").unwrap(),
        }
        .bound(),
    }
}

#[test]
fn every_budget_vector_holds() {
    let vectors = budgets();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 8);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let step_down = nanos(case, "broker_health_step_down");
        let mut terms = BudgetTerms {
            cadence: cadence_of(case),
            activation: activation_of(case),
            startup_allowance: nanos(case, "startup_allowance").unwrap(),
            broker_health_step_down: step_down,
        };
        let budget = terms.sum().unwrap();
        if let Some(calls) = case["expect_calls"].as_i64() {
            assert_eq!(budget.calls, calls, "{name}");
        }
        assert_eq!(Some(budget.owner_death), nanos(case, "expect_owner_death"), "{name}");
        if let Some(wanted) = nanos(case, "expect_broker_path") {
            assert_eq!(budget.broker_path, Some(wanted), "{name}");
        }
        if let Some(wanted) = nanos(case, "expect_broker_path_minus_step_down") {
            terms.broker_health_step_down = Some(7 * SECOND);
            assert_eq!(terms.sum().unwrap().broker_path, Some(wanted + 7 * SECOND), "{name}");
        }
        if let (Some(objective), Some(admitted)) = (nanos(case, "failover_slo"), case["admitted"].as_bool()) {
            assert_eq!(budget.admit(objective).is_ok(), admitted, "{name}: {budget:?}");
        }
    }
}

/// A sum that holds, to break one part of it at a time.
fn sound() -> BudgetTerms {
    BudgetTerms {
        cadence: CadenceInput::default().resolve().unwrap(),
        activation: Activation::Known(240 * SECOND),
        startup_allowance: 0,
        broker_health_step_down: Some(90 * SECOND),
    }
}

#[test]
fn everything_doubtful_is_refused() {
    assert_eq!(budgets()["fail_closed"].as_array().unwrap().len(), 6);
    assert!(sound().sum().is_ok());
    type Break = (&'static str, fn(&mut BudgetTerms, i64));
    let required: [Break; 6] = [
        ("lease_ttl", |terms, n| terms.cadence.lease_ttl = n),
        ("acquire_poll_interval", |terms, n| terms.cadence.acquire_poll_interval = n),
        ("renew_call_timeout", |terms, n| terms.cadence.renew_call_timeout = n),
        ("activation", |terms, n| terms.activation = Activation::Known(n)),
        ("renew_interval", |terms, n| terms.cadence.renew_interval = n),
        ("broker_health_step_down", |terms, n| terms.broker_health_step_down = Some(n)),
    ];
    for (term, set) in required {
        for nanos in [0, -1, i64::MIN] {
            let mut terms = sound();
            set(&mut terms, nanos);
            assert_eq!(terms.sum(), Err(BudgetError::Term { term }), "{term} = {nanos}");
        }
        let mut terms = sound();
        set(&mut terms, i64::MAX);
        assert_eq!(terms.sum(), Err(BudgetError::Overflow), "{term}");
    }
    let optional: [Break; 3] = [
        ("startup_allowance", |terms, n| terms.startup_allowance = n),
        ("lease_renew_jitter", |terms, n| terms.cadence.lease_renew_jitter = n),
        ("step_down_grace", |terms, n| terms.cadence.step_down_grace = n),
    ];
    for (term, set) in optional {
        let mut terms = sound();
        set(&mut terms, 0);
        assert!(terms.sum().is_ok(), "{term}");
        set(&mut terms, -1);
        assert_eq!(terms.sum(), Err(BudgetError::Term { term }), "{term}");
    }
    let terms = BudgetTerms { activation: Activation::Unknown, ..sound() };
    assert_eq!(terms.sum(), Err(BudgetError::UnknownActivation));
    let terms = BudgetTerms { startup_allowance: MAX_STARTUP_ALLOWANCE, ..sound() };
    assert!(terms.sum().is_ok());
    let terms = BudgetTerms { startup_allowance: MAX_STARTUP_ALLOWANCE + 1, ..sound() };
    assert_eq!(terms.sum(), Err(BudgetError::AllowanceTooLong));
    for objective in [0, -1] {
        assert_eq!(sound().sum().unwrap().admit(objective), Err(BudgetError::Term { term: "failover_slo" }));
    }
}

#[test]
fn an_activation_of_doubtful_parts_is_unknown() {
    let sound = MqttActivation { connect_timeout: 30 * SECOND, reconcile_timeout: 30 * SECOND, unmatched_grace: 30 * SECOND };
    assert_eq!(sound.bound(), Activation::Known(240 * SECOND));
    for doubtful in [
        MqttActivation { connect_timeout: 0, ..sound },
        MqttActivation { reconcile_timeout: -1, ..sound },
        MqttActivation { unmatched_grace: -1, ..sound },
        MqttActivation { reconcile_timeout: i64::MAX / 2, ..sound },
    ] {
        assert_eq!(doubtful.bound(), Activation::Unknown, "{doubtful:?}");
    }
}

#[test]
fn cadences_without_room_are_refused() {
    let fails = |seconds, fails| CadenceInput { max_renew_fails: Some(fails), ..ttl(seconds) }.resolve();
    assert_eq!(ttl(4).resolve(), Err(CadenceError::TtlTooShort));
    assert_eq!(CadenceInput { lease_ttl: Some(5 * SECOND - 1), ..CadenceInput::default() }.resolve(), Err(CadenceError::TtlTooShort));
    assert_eq!(fails(5, 5), Err(CadenceError::NoRoom));
    assert_eq!(fails(45, 50), Err(CadenceError::NoRoom));
    let poll = CadenceInput { acquire_poll_interval: Some(SECOND / 4 - 1), ..ttl(45) };
    assert_eq!(poll.resolve(), Err(CadenceError::TooFrequent { field: "acquire_poll_interval" }));
    // Strictly below: (12 + 1/2 + 2.5) * 3 = 45.
    let pinned = |renew| CadenceInput {
        renew_interval: Some(renew),
        lease_renew_jitter: Some(SECOND),
        renew_call_timeout: Some(5 * SECOND / 2),
        ..ttl(45)
    };
    assert_eq!(pinned(12 * SECOND).resolve(), Err(CadenceError::NoRoom));
    assert!(pinned(12 * SECOND - 1).resolve().is_ok());
    let grace = |seconds| CadenceInput { step_down_grace: Some(seconds * SECOND), ..ttl(20) }.resolve().unwrap().step_down_grace;
    assert_eq!((grace(19), grace(20), grace(500)), (19 * SECOND, 10 * SECOND, 10 * SECOND));
}

fn maybe(range: core::ops::Range<i64>) -> impl Strategy<Value = Option<i64>> {
    proptest::option::of(prop_oneof![4 => range, 1 => any::<i64>()])
}

prop_compose! {
    fn any_input()(
        clustered in any::<bool>(),
        lease_ttl in maybe(0..1_000 * SECOND),
        renew_interval in maybe(0..200 * SECOND),
        lease_renew_jitter in maybe(0..50 * SECOND),
        renew_call_timeout in maybe(0..10 * SECOND),
        acquire_poll_interval in maybe(0..20 * SECOND),
        step_down_grace in maybe(0..100 * SECOND),
        max_renew_fails in proptest::option::of(0_u32..20),
    ) -> CadenceInput {
        CadenceInput { clustered, lease_ttl, renew_interval, lease_renew_jitter, renew_call_timeout, acquire_poll_interval, step_down_grace, max_renew_fails }
    }
}

proptest! {
    /// Whatever is configured: a cadence that is accepted cannot lose a healthy owner's lease, and what was pinned stays.
    #[test]
    fn an_accepted_cadence_is_safe(input in any_input()) {
        if let Ok(cadence) = input.resolve() {
            let once = i128::from(cadence.renew_interval) + i128::from(cadence.lease_renew_jitter / 2) + i128::from(cadence.renew_call_timeout);
            prop_assert!(once * i128::from(cadence.max_renew_fails) < i128::from(cadence.lease_ttl));
            prop_assert!(cadence.lease_ttl >= 5 * SECOND);
            prop_assert!(cadence.renew_interval >= SECOND / 4 && cadence.acquire_poll_interval >= SECOND / 4);
            prop_assert!(cadence.step_down_grace < cadence.lease_ttl && cadence.lease_renew_jitter >= 0);
            prop_assert!(input.renew_interval.is_none_or(|pinned| pinned == cadence.renew_interval));
            prop_assert!(input.lease_renew_jitter.is_none_or(|pinned| pinned == cadence.lease_renew_jitter));
            prop_assert!(input.renew_call_timeout.is_none_or(|pinned| pinned == cadence.renew_call_timeout));
        }
    }

    /// The sums agree with exact arithmetic, never wrap, and the boundary is exact.
    #[test]
    fn a_budget_is_exact_or_refused(input in any_input(), activation in 0..1_000 * SECOND, startup in 0..700 * SECOND, after in proptest::option::of(-10_i64..i64::MAX)) {
        let Ok(cadence) = input.resolve() else { return Ok(()) };
        let terms = BudgetTerms { cadence, activation: Activation::Known(activation), startup_allowance: startup, broker_health_step_down: after };
        let Ok(budget) = terms.sum() else { return Ok(()) };
        let poll = i128::from(cadence.acquire_poll_interval);
        let min_poll = (poll - (poll / 2) / 2).max(1_000_000);
        let max_poll = ((5 * poll + 3) / 4).max(1_000_000);
        let calls = 1 + (i128::from(cadence.lease_ttl) + min_poll - 1) / min_poll;
        let tail = 2 * max_poll + i128::from(activation) + i128::from(startup);
        let call = i128::from(cadence.renew_call_timeout);
        prop_assert_eq!(i128::from(budget.owner_death), i128::from(cadence.lease_ttl) + calls * call + tail);
        let grace = i128::from(cadence.step_down_grace);
        let path = after.map(|after| i128::from(after) + i128::from(cadence.renew_interval) + i128::from(cadence.lease_renew_jitter / 2)
            + 2 * grace.min(5 * i128::from(SECOND)) + grace + 4 * call + tail);
        prop_assert_eq!(budget.broker_path.map(i128::from), path);
        let worst = budget.owner_death.max(budget.broker_path.unwrap_or(0));
        prop_assert!(budget.admit(worst).is_ok());
        prop_assert!(budget.admit(worst - 1).is_err());
    }
}
