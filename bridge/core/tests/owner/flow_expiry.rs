//! How long messages are kept.

use crate::support::{Rig, Store, at_ms, fault, message, ms, options};
use causeway_core::message::{Message, Properties};
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::worker::options::Fate;
use proptest::prelude::*;

fn expiring(text: &str, seconds: u32) -> Message {
    Message { properties: Properties { expiry_seconds: Some(seconds), ..Properties::default() }, ..message(text) }
}

#[test]
fn flow_c5_a_message_without_time_has_one_attempt() {
    let mut rig = Rig::opened(options(1), Store::default());
    rig.deliver("in", expiring("now", 0));
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), rig.letters.len()), (1, 0), "its first attempt is in time");

    let mut rig = Rig::opened(options(1), Store::default());
    rig.on_send = Box::new(|_, _| Outcome::NotDone(fault(FaultCode::Unavailable)));
    rig.deliver("in", expiring("now", 0));
    rig.run_to_rest();
    assert_eq!((rig.calls.sends, rig.delivered.len()), (1, 0));
    assert_eq!(rig.letters.values().map(|letter| letter.error_code.as_str()).collect::<Vec<_>>(), ["MESSAGE_EXPIRED"]);
}

#[test]
fn flow_c5_a_message_is_sent_until_its_last_millisecond_and_not_after() {
    for (seconds, until, sent) in [(10, 9_900, true), (10, 10_100, false)] {
        let mut rig = Rig::opened(options(1), Store::default());
        let opens = rig.now.plus(ms(until));
        rig.on_send = Box::new(move |now, _| if now < opens { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) });
        rig.deliver("in", expiring("soon", seconds));
        rig.run_to_rest();
        // Pauses between attempts decide whether one falls into what is left: none is after the end.
        let expires = at_ms(1_000).plus(ms(u64::from(seconds) * 1_000 + 200));
        assert!(rig.sends.iter().all(|send| send.at < expires), "{:?}", rig.sends.iter().map(|send| send.at).collect::<Vec<_>>());
        assert_eq!(rig.delivered.len() + rig.letters.len(), 1);
        if !sent {
            assert_eq!(rig.letters.len(), 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// P11: nothing is sent after its expiry, but for the one attempt of what has no time at all; and everything comes to an end that is counted.
    #[test]
    fn flow_p11_nothing_is_sent_after_its_expiry(
        messages in prop::collection::vec((0_u32..6, 0_u64..2_000), 1..20),
        outage in 0_u64..8_000,
        drops in any::<bool>(),
    ) {
        let mut options = options(1);
        if drops {
            options.legs[0].policy.on_expired = Fate::Drop;
        }
        let mut rig = Rig::opened(options, Store::default());
        let heals = rig.now.plus(ms(outage));
        rig.on_send = Box::new(move |now, _| if now < heals { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) });
        let started = rig.now;
        let began = rig.wall();
        for (seconds, pause) in &messages {
            rig.deliver("in", expiring("m", *seconds));
            rig.run_for(ms(*pause));
        }
        rig.run_to_rest();
        for send in &rig.sends {
            let wall = began.plus(send.at.since(started));
            for entry in &send.entries {
                let in_time = entry.expires_at.is_none_or(|at| wall < at);
                prop_assert!(in_time || entry.message.properties.expiry_seconds == Some(0), "{entry:?} at {wall:?}");
            }
        }
        let counters = rig.counters(0);
        prop_assert_eq!(counters.delivered + counters.dead_lettered + counters.expired, messages.len() as u64);
    }
}
