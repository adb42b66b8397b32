//! The reference scenario is accepted as it stands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use causeway_core::config::{Source, load};

const SCENARIO: &str = include_str!("../../../tests/vectors/scenario.yaml");

#[test]
fn the_scenario_is_valid_and_admitted() {
    let loaded = load(&[Source { name: "scenario.yaml", text: SCENARIO }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}"));
    let budgets = loaded.config.budgets();
    assert_eq!(budgets.len(), 1);
    assert_eq!(budgets[0].session_id, "mqtt-conn");
    let budget = budgets[0].budget.unwrap().unwrap();
    assert_eq!(budget.calls, 81);
    assert_eq!(budget.owner_death, 967_500_000_000);
    assert_eq!(budget.broker_path, None);
    assert_eq!(budgets[0].admitted, Some(Ok(())));
    assert_eq!(budgets[0].timing.unwrap().objective, Some(980_000_000_000));
}
