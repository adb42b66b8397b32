//! A crash at any moment: nothing acknowledged is lost, and no more is sent again than the owner said it would.

use crate::support::{Rig, Store, Trouble, fault, message, ms, options};
use causeway_core::drain::retry::Jitter;
use causeway_core::identity::EntryId;
use causeway_core::message::Message;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::rows::Row;
use causeway_core::units::Instant;
use causeway_core::worker::Event;
use causeway_core::worker::options::OwnerOptions;
use std::collections::BTreeSet;

struct Dice(Jitter);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        (self.0.fraction() * limit as f64) as u64
    }

    fn index(&mut self, limit: u64) -> usize {
        usize::try_from(self.below(limit)).unwrap()
    }

    fn chance(&mut self, share: f64) -> bool {
        self.0.fraction() < share
    }
}

/// One life after another over the same store; each ends in a crash at a random step.
fn lives(seed: u64) {
    let mut dice = Dice(Jitter::new(seed));
    let mut store = Store { page_rows: Some(3), ..Store::default() };
    let mut now = crate::support::at_ms(1_000);
    let (mut acknowledged, mut gone) = (BTreeSet::new(), BTreeSet::new());
    let mut published = 0;
    for life in 1..=4_u64 {
        let known_before: BTreeSet<EntryId> = store.unsettled().iter().map(|(_, entry)| entry.id).collect();
        let last_before = store.tail();
        let mut rig = Rig::new(drawn_options(life, &mut dice), store);
        rig.now = now;
        misfortunes(&mut rig, &mut dice);
        rig.event(Event::Tick);
        let mut texts = Vec::new();
        for _ in 0..dice.below(250) {
            if rig.owner.wants_input() && dice.chance(0.5) {
                published += 1;
                texts.push(format!("{published}"));
                rig.deliver("in", message(&format!("{published}")));
            } else if dice.chance(0.1) {
                rig.run_for(ms(dice.below(300)));
            } else {
                rig.step();
            }
        }
        // It crashes here.
        let acked = rig.acks.last().map_or(0, |last| last.ordinal);
        acknowledged.extend(texts.into_iter().take(usize::try_from(acked).unwrap()));
        let settled: BTreeSet<EntryId> = rig.delivered.keys().chain(rig.letters.keys()).copied().collect();
        let sent = rig.sends.iter().flat_map(|sent| &sent.entries).filter(|entry| settled.contains(&entry.id));
        gone.extend(sent.map(|entry| text(&entry.message)).chain(rig.letters.values().map(|letter| text(&letter.message))));
        let unsettled = rig.store.unsettled();
        let again = unsettled.iter().filter(|(_, entry)| settled.contains(&entry.id)).count();
        assert!(
            again <= rig.owner.exposed(),
            "seed {seed}, life {life}: {again} would be sent again, {} were announced",
            rig.owner.exposed()
        );
        for (position, entry) in &unsettled {
            let forgotten = position.slot <= last_before && !known_before.contains(&entry.id);
            assert!(!forgotten, "seed {seed}, life {life}: {position:?} was settled when this life began");
        }
        let safe: BTreeSet<String> = unsettled.iter().map(|(_, entry)| text(&entry.message)).collect();
        let lost: Vec<&String> = acknowledged.iter().filter(|text| !gone.contains(*text) && !safe.contains(*text)).collect();
        assert!(lost.is_empty(), "seed {seed}, life {life}: lost {lost:?}");
        now = rig.now.plus(ms(10));
        store = rig.store.clone();
    }
    drains_to_the_end(seed, store, now);
}

fn drawn_options(life: u64, dice: &mut Dice) -> OwnerOptions {
    let mut options = options(life);
    options.segment.max_messages = 1 + dice.index(12);
    if dice.chance(0.4) {
        options.segment.max_row_bytes = 50 + dice.index(150);
    }
    options.memory_entries = 5 + dice.index(40);
    options.max_settled_ahead = 5 + dice.index(40);
    options.keep_settled = ms(dice.below(3) * 40);
    options.legs[0].policy.max_in_flight = 1 + dice.index(25);
    options
}

fn misfortunes(rig: &mut Rig, dice: &mut Dice) {
    let refusals = dice.0.fraction() * 0.4;
    let mut fates = Dice(Jitter::new(dice.below(u64::MAX)));
    rig.on_send = Box::new(move |_, _| match fates.chance(refusals) {
        true if fates.chance(0.1) => Outcome::NotDone(fault(FaultCode::InvalidPayload)),
        true => Outcome::NotDone(fault(FaultCode::Unavailable)),
        false => Outcome::Done(()),
    });
    let mut troubles = Dice(Jitter::new(dice.below(u64::MAX)));
    rig.on_call = Box::new(move |_, _| match troubles.below(20) {
        0 => Some(Trouble::Refused),
        1 => Some(Trouble::AnswerLost),
        2 => Some(Trouble::RequestLost),
        _ => None,
    });
}

/// One last owner, without misfortune, delivers what is left and leaves a clean log.
fn drains_to_the_end(seed: u64, store: Store, now: Instant) {
    let mut rig = Rig::new(options(99), store);
    rig.now = now;
    rig.event(Event::Tick);
    rig.run_to_rest();
    assert!(rig.store.unsettled().is_empty(), "seed {seed}");
    assert_eq!((rig.owner.exposed(), rig.owner.status(rig.wall()).in_memory), (0, 0), "seed {seed}");
    let segments = rig.store.rows.values().filter(|row| matches!(row, Row::Segment(_))).count();
    assert_eq!(segments, 0, "seed {seed}: garbage stays behind");
}

fn text(message: &Message) -> String {
    String::from_utf8(message.payload.to_vec()).unwrap()
}

#[test]
fn no_crash_loses_what_was_acknowledged_or_repeats_more_than_was_announced() {
    for seed in 0..200 {
        lives(seed);
    }
}
