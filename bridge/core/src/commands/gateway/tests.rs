//! Whole fleets of gateways over one table and one broker, driven through every order of events that chance finds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::super::command::{CommandResult, State, Verdict};
use super::*;
use crate::identity::{ConnectionEpoch, DeliveryId};
use crate::outcome::FaultCode;
use crate::source_id::ContentDigest;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;

const INSTANCES: usize = 3;
const TIMEOUT: u64 = 10_000;

fn options(instance: usize) -> GatewayOptions {
    GatewayOptions {
        instance: format!("i{instance}"),
        rules: Rules { late_window: Duration::from_secs(3_600), no_subscriber_fails: false },
        max_pending_per_target: 100,
        ordered: false,
        replay: false,
        backoff: Backoff { initial: Duration::from_millis(50), max: Duration::from_secs(1), multiplier: 2.0, jitter: 0.2 },
        jitter_seed: instance as u64,
    }
}

/// A reply that the broker has yet to deliver.
#[derive(Clone, Debug)]
struct OnTheWay {
    id: Id128,
    by: String,
    verdict: Option<Verdict>,
    digest: ContentDigest,
}

/// A table, a broker and some gateways.
struct Fleet {
    now: u64,
    gateways: Vec<Option<Gateway>>,
    calls: Vec<(usize, Effect)>,
    rows: BTreeMap<Id128, Command>,
    results: BTreeMap<Id128, CommandResult>,
    keys: BTreeMap<String, (Id128, ContentDigest)>,
    orphans: Vec<Id128>,
    publishes: Vec<Id128>,
    answers: BTreeMap<(usize, WaiterId), Answer>,
    notices: Vec<(usize, Id128)>,
    unacknowledged: Vec<Vec<(DeliveryId, OnTheWay)>>,
    ordinals: Vec<u64>,
    next_waiter: u64,
}

impl Fleet {
    fn new() -> Self {
        Self::with(options)
    }

    fn with(options: impl Fn(usize) -> GatewayOptions) -> Self {
        let mut fleet = Self {
            now: 1_000,
            gateways: (0..INSTANCES).map(|nth| Some(Gateway::new(options(nth)))).collect(),
            calls: Vec::new(),
            rows: BTreeMap::new(),
            results: BTreeMap::new(),
            keys: BTreeMap::new(),
            orphans: Vec::new(),
            publishes: Vec::new(),
            answers: BTreeMap::new(),
            notices: Vec::new(),
            unacknowledged: vec![Vec::new(); INSTANCES],
            ordinals: vec![0; INSTANCES],
            next_waiter: 0,
        };
        for nth in 0..INSTANCES {
            fleet.tell(nth, Event::Listening(true));
        }
        fleet
    }

    fn tell(&mut self, nth: usize, event: Event) {
        let (now, wall) = (Instant::from_nanos(self.now * 1_000_000), UnixMillis(self.now));
        let Some(gateway) = &mut self.gateways[nth] else { return };
        for effect in gateway.apply(now, wall, event) {
            match effect {
                Effect::Answer { waiter, answer } => {
                    let before = self.answers.insert((nth, waiter), answer);
                    assert!(before.is_none(), "{waiter:?} is answered twice");
                }
                Effect::Acknowledge(up_to) => self.unacknowledged[nth].retain(|(delivery, _)| *delivery > up_to),
                Effect::Notify { id } => self.notices.extend((0..INSTANCES).map(|other| (other, id))),
                Effect::Observe(_) => {}
                Effect::Finished => self.gateways[nth] = None,
                call => self.calls.push((nth, call)),
            }
            if self.gateways[nth].is_none() {
                break;
            }
        }
    }

    fn ask(&mut self, nth: usize, id: u128, key: Option<&str>, digest: u8, patience: Option<u64>) -> WaiterId {
        let waiter = WaiterId(self.next_waiter);
        self.next_waiter += 1;
        self.tell(
            nth,
            Event::Asked(Ask {
                waiter,
                id: Id128(id),
                request: Arc::new(Request { target: "pump".to_owned(), ..Request::default() }),
                digest: [digest; 32],
                key: key.map(str::to_owned),
                timeout: Duration::from_millis(TIMEOUT),
                patience: patience.map(Duration::from_millis),
            }),
        );
        waiter
    }

    fn write(&mut self, command: &Command, result: Option<CommandResult>) -> Written {
        match self.rows.get(&command.id) {
            Some(row) if row.version + 1 == command.version => {
                assert!(!row.state.is_final() || row.state == command.state, "{row:?} became {command:?}");
                self.rows.insert(command.id, command.clone());
                if let Some(result) = result.filter(|_| command.answer.is_some()) {
                    self.results.insert(command.id, result);
                }
                Written::Stands(Box::new(command.clone()))
            }
            other => Written::Refused(other.cloned().map(Box::new)),
        }
    }

    /// Carries out a call that waits; with `lost` nobody hears how it ended, and with `refused` it does not take effect.
    fn carry_out(&mut self, at: usize, lost: bool, refused: bool) {
        let (nth, call) = self.calls.remove(at);
        let fault = || Fault::new(FaultCode::Unavailable, "away");
        let event = match call {
            Effect::Create { command, key, digest } => {
                let id = command.id;
                let known = key.as_ref().and_then(|key| self.keys.get(key)).copied();
                let outcome = match known {
                    _ if refused => Outcome::NotDone(fault()),
                    None if self.rows.contains_key(&id) => {
                        Outcome::Done(Created::Before { command: Box::new(self.rows[&id].clone()), digest })
                    }
                    Some((before, digest)) => Outcome::Done(Created::Before { command: Box::new(self.rows[&before].clone()), digest }),
                    None => {
                        key.map(|key| self.keys.insert(key, (id, digest)));
                        self.rows.insert(id, (*command).clone());
                        if lost { Outcome::Unknown(fault()) } else { Outcome::Done(Created::New(command)) }
                    }
                };
                Event::Created { id, outcome }
            }
            Effect::Read { id } => {
                Event::Read { id, outcome: if refused || lost { Err(fault()) } else { Ok(self.rows.get(&id).cloned()) } }
            }
            Effect::Write { command, result } => {
                let id = command.id;
                let outcome = if refused { Outcome::NotDone(fault()) } else { Outcome::Done(self.write(&command, result)) };
                Event::Written { id, outcome: if lost { Outcome::Unknown(fault()) } else { outcome } }
            }
            Effect::KeepOrphan { id, .. } => {
                if !refused {
                    self.orphans.push(id);
                }
                Event::OrphanKept { id, outcome: if refused || lost { Outcome::Unknown(fault()) } else { Outcome::Done(()) } }
            }
            Effect::Publish { id, expiry_seconds, .. } => {
                assert!(expiry_seconds >= 1);
                assert!(self.rows.contains_key(&id), "published without a row");
                if !refused {
                    self.publishes.push(id);
                }
                let outcome = if refused { Outcome::NotDone(fault()) } else { Outcome::Done(false) };
                Event::Published { id, outcome: if lost { Outcome::Unknown(fault()) } else { outcome } }
            }
            other => panic!("{other:?} is no call"),
        };
        self.tell(nth, event);
    }

    /// Gives a reply to an instance, by its own subscription or by the shared one.
    /// Answers whether it is there to take it.
    fn deliver(&mut self, nth: usize, path: Path, reply: &OnTheWay) -> bool {
        if self.gateways[nth].is_none() {
            return false;
        }
        self.ordinals[nth] += 1;
        let delivery = DeliveryId { connection: ConnectionEpoch(1), ordinal: self.ordinals[nth] };
        self.unacknowledged[nth].push((delivery, reply.clone()));
        self.tell(
            nth,
            Event::Replied(Reply {
                delivery,
                path,
                id: reply.id,
                by: reply.by.clone(),
                verdict: reply.verdict,
                digest: reply.digest,
                result: CommandResult { payload: Bytes::copy_from_slice(&reply.digest), ..CommandResult::default() },
            }),
        );
        true
    }

    fn pass(&mut self, millis: u64) {
        self.now += millis;
        for nth in 0..INSTANCES {
            self.tell(nth, Event::Tick);
        }
    }

    fn settle(&mut self) {
        for _ in 0..2_000 {
            if !self.calls.is_empty() {
                self.carry_out(0, false, false);
            } else if let Some((nth, id)) = self.notices.pop() {
                self.tell(nth, Event::Notified { id });
            } else {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// What an instance that is gone can still have: nothing that it was asked comes back.
    fn kill(&mut self, nth: usize) {
        self.gateways[nth] = None;
        self.calls.retain(|(owner, _)| *owner != nth);
    }
}

fn reply(id: u128, digest: u8) -> OnTheWay {
    OnTheWay { id: Id128(id), by: "pump".to_owned(), verdict: Some(Verdict::Succeeded), digest: [digest; 32] }
}

#[test]
fn r1_a_command_is_recorded_before_it_is_published() {
    let mut fleet = Fleet::new();
    let waiter = fleet.ask(0, 1, None, 1, None);
    assert!(matches!(fleet.calls[..], [(0, Effect::Create { .. })]));
    fleet.carry_out(0, false, false);
    assert!(matches!(fleet.calls[..], [(0, Effect::Publish { .. })]));
    assert!(matches!(fleet.answers[&(0, waiter)], Answer::Accepted(_)));
    fleet.settle();
    assert_eq!((fleet.publishes.len(), fleet.rows[&Id128(1)].state), (1, State::Published));
}

#[test]
fn the_direct_path_answers_who_waits() {
    let mut fleet = Fleet::new();
    let waiter = fleet.ask(0, 1, None, 1, Some(5_000));
    fleet.settle();
    assert!(fleet.answers.is_empty());
    fleet.deliver(0, Path::Direct, &reply(1, 7));
    fleet.settle();
    let Answer::Over(row) = &fleet.answers[&(0, waiter)] else { panic!("{:?}", fleet.answers) };
    assert_eq!((row.state, row.late), (State::Succeeded, false));
    assert!(fleet.unacknowledged[0].is_empty() && fleet.notices.is_empty());
}

#[test]
fn r2_r5_an_answer_that_another_instance_got_reaches_who_waits() {
    let mut fleet = Fleet::new();
    let waiter = fleet.ask(0, 1, None, 1, Some(5_000));
    fleet.settle();
    fleet.deliver(2, Path::Shared, &reply(1, 7));
    // It tells the others only after the row says so.
    assert!(fleet.notices.is_empty());
    fleet.settle();
    assert!(matches!(fleet.answers[&(0, waiter)], Answer::Over(_)));
}

#[test]
fn r2_where_the_notice_is_lost_the_row_is_looked_at() {
    let mut fleet = Fleet::new();
    let waiter = fleet.ask(0, 1, None, 1, Some(5_000));
    fleet.settle();
    fleet.deliver(2, Path::Shared, &reply(1, 7));
    while !fleet.calls.is_empty() {
        fleet.carry_out(0, false, false);
    }
    fleet.notices.clear();
    fleet.pass(1_000);
    fleet.settle();
    assert!(matches!(fleet.answers[&(0, waiter)], Answer::Over(_)));
}

#[test]
fn rr2_r3_of_two_answers_the_first_stands() {
    let mut fleet = Fleet::new();
    fleet.ask(0, 1, None, 1, None);
    fleet.settle();
    fleet.deliver(1, Path::Shared, &reply(1, 7));
    fleet.settle();
    fleet.deliver(2, Path::Shared, &reply(1, 8));
    fleet.settle();
    assert_eq!(fleet.results[&Id128(1)].payload[..], [7; 32]);
    assert!(fleet.unacknowledged.iter().all(Vec::is_empty));
}

#[test]
fn rr3_r6_an_answer_to_nobody_is_kept() {
    let mut fleet = Fleet::new();
    fleet.deliver(1, Path::Shared, &reply(9, 7));
    fleet.settle();
    assert_eq!(fleet.orphans, [Id128(9)]);
    assert!(fleet.unacknowledged[1].is_empty());
}

#[test]
fn rr4_r10_an_answer_of_another_target_changes_nothing() {
    let mut fleet = Fleet::new();
    let waiter = fleet.ask(0, 1, None, 1, Some(5_000));
    fleet.settle();
    fleet.deliver(0, Path::Direct, &OnTheWay { by: "other".to_owned(), ..reply(1, 7) });
    fleet.settle();
    assert_eq!((fleet.rows[&Id128(1)].state, fleet.answers.contains_key(&(0, waiter))), (State::Published, false));
    assert!(fleet.unacknowledged[0].is_empty());
}

#[test]
fn rr5_a_repeat_is_the_same_command() {
    let mut fleet = Fleet::new();
    fleet.ask(0, 1, Some("key"), 1, None);
    let early = fleet.ask(1, 2, Some("key"), 1, None);
    fleet.carry_out(0, false, false);
    fleet.carry_out(0, false, false);
    assert_eq!(fleet.answers[&(1, early)], Answer::Refused(Refusal::Running));
    fleet.settle();
    let (same, other) = (fleet.ask(2, 3, Some("key"), 1, None), fleet.ask(2, 4, Some("key"), 2, None));
    fleet.settle();
    assert!(matches!(&fleet.answers[&(2, same)], Answer::Accepted(row) if row.id == Id128(1)));
    assert_eq!(fleet.answers[&(2, other)], Answer::Refused(Refusal::KeyReused));
    assert_eq!(fleet.publishes, [Id128(1)]);
}

#[test]
fn rr6_r5_the_answer_outlives_the_instance_that_waited() {
    let mut fleet = Fleet::new();
    fleet.ask(0, 1, None, 1, Some(5_000));
    fleet.settle();
    fleet.kill(0);
    fleet.deliver(1, Path::Shared, &reply(1, 7));
    fleet.settle();
    assert_eq!(fleet.rows[&Id128(1)].state, State::Succeeded);
}

#[test]
fn rr7_both_subscriptions_bring_it_and_one_write_wins() {
    let mut fleet = Fleet::new();
    let waiter = fleet.ask(0, 1, None, 1, Some(5_000));
    fleet.settle();
    fleet.deliver(0, Path::Direct, &reply(1, 7));
    fleet.deliver(1, Path::Shared, &reply(1, 7));
    fleet.settle();
    assert_eq!(fleet.rows[&Id128(1)].version, 3, "created, published, answered");
    assert!(matches!(fleet.answers[&(0, waiter)], Answer::Over(_)));
    assert!(fleet.unacknowledged.iter().all(Vec::is_empty));
}

#[test]
fn r8_what_cannot_be_published_in_time_is_not_published() {
    let mut fleet = Fleet::new();
    let waiter = fleet.ask(0, 1, None, 1, Some(TIMEOUT + 5_000));
    fleet.carry_out(0, false, false);
    while fleet.now < 1_000 + TIMEOUT + 2_000 {
        while !fleet.calls.is_empty() {
            let publishing = matches!(fleet.calls[0].1, Effect::Publish { .. });
            fleet.carry_out(0, false, publishing);
        }
        fleet.pass(100);
    }
    assert!(fleet.publishes.is_empty());
    assert!(matches!(&fleet.answers[&(0, waiter)], Answer::Over(row) if row.state == State::TimedOut));
    assert!(fleet.gateways[0].as_ref().unwrap().wake_at().is_none());
}

#[test]
fn r9_in_order_a_target_gets_one_at_a_time() {
    let mut fleet = Fleet::with(|nth| GatewayOptions { ordered: true, ..options(nth) });
    for id in 1..=3 {
        fleet.ask(0, id, None, 1, None);
    }
    fleet.settle();
    assert_eq!(fleet.publishes, [Id128(1)]);
    fleet.deliver(0, Path::Direct, &reply(1, 7));
    fleet.settle();
    assert_eq!(fleet.publishes, [Id128(1), Id128(2)]);
    fleet.pass(TIMEOUT + 1);
    fleet.settle();
    assert_eq!(fleet.rows[&Id128(3)].state, State::TimedOut);
    assert_eq!(fleet.gateways[0].as_ref().unwrap().pending(), 0);
}

#[test]
fn r14_rr11_a_stop_answers_everybody() {
    let mut fleet = Fleet::new();
    let waiters: Vec<_> = (1..=3).map(|id| fleet.ask(0, id, None, 1, Some(5_000))).collect();
    fleet.settle();
    fleet.tell(0, Event::Stop { until: Instant::from_nanos(9_000_000_000) });
    for waiter in waiters {
        assert!(matches!(&fleet.answers[&(0, waiter)], Answer::Running { row: Some(_), .. }));
    }
    assert!(fleet.gateways[0].is_none());
}

#[test]
fn too_many_under_way_are_refused() {
    let mut fleet = Fleet::with(|nth| GatewayOptions { max_pending_per_target: 2, ..options(nth) });
    fleet.ask(0, 1, None, 1, None);
    fleet.ask(0, 2, None, 1, None);
    let third = fleet.ask(0, 3, None, 1, None);
    assert_eq!(fleet.answers[&(0, third)], Answer::Refused(Refusal::TooManyPending));
    fleet.settle();
    fleet.deliver(0, Path::Direct, &reply(1, 7));
    fleet.settle();
    fleet.ask(0, 4, None, 1, None);
    fleet.settle();
    assert_eq!(fleet.publishes.len(), 3);
}

#[test]
fn what_is_published_is_not_taken_back() {
    let mut fleet = Fleet::new();
    fleet.ask(0, 1, None, 1, None);
    fleet.carry_out(0, false, false);
    fleet.tell(1, Event::Cancelled { waiter: WaiterId(90), id: Id128(1) });
    while let Some(at) = fleet.calls.iter().position(|(nth, _)| *nth == 1) {
        fleet.carry_out(at, false, false);
    }
    assert!(matches!(&fleet.answers[&(1, WaiterId(90))], Answer::Over(row) if row.state == State::Cancelled));
    fleet.settle();
    fleet.ask(0, 2, None, 1, None);
    fleet.settle();
    fleet.tell(1, Event::Cancelled { waiter: WaiterId(91), id: Id128(2) });
    fleet.tell(1, Event::Cancelled { waiter: WaiterId(92), id: Id128(77) });
    fleet.settle();
    assert_eq!(fleet.answers[&(1, WaiterId(91))], Answer::Refused(Refusal::NotCancelled(Why::OnItsWay)));
    assert_eq!(fleet.answers[&(1, WaiterId(92))], Answer::Refused(Refusal::Unknown));
}

#[test]
fn what_is_being_published_is_taken_back_only_if_it_did_not_go_out() {
    for (lost, refused, expected) in [
        (false, false, Answer::Refused(Refusal::NotCancelled(Why::OnItsWay))),
        (true, false, Answer::Refused(Refusal::NotCancelled(Why::OnItsWay))),
    ] {
        let mut fleet = Fleet::new();
        fleet.ask(0, 1, None, 1, None);
        fleet.carry_out(0, false, false);
        fleet.tell(0, Event::Cancelled { waiter: WaiterId(90), id: Id128(1) });
        assert!(!fleet.answers.contains_key(&(0, WaiterId(90))), "it is not known yet whether it went out");
        fleet.carry_out(0, lost, refused);
        fleet.settle();
        assert_eq!(fleet.answers[&(0, WaiterId(90))], expected);
    }
    // The broker did not get it: it is taken back, once and for all, and whoever asks again is told the same.
    let mut fleet = Fleet::new();
    fleet.ask(0, 1, None, 1, None);
    fleet.carry_out(0, false, false);
    fleet.tell(0, Event::Cancelled { waiter: WaiterId(90), id: Id128(1) });
    fleet.carry_out(0, false, true);
    fleet.settle();
    assert!(matches!(&fleet.answers[&(0, WaiterId(90))], Answer::Over(row) if row.state == State::Cancelled));
    fleet.tell(0, Event::Cancelled { waiter: WaiterId(91), id: Id128(1) });
    fleet.settle();
    assert!(matches!(&fleet.answers[&(0, WaiterId(91))], Answer::Over(row) if row.state == State::Cancelled));
    assert_eq!(fleet.publishes, [], "it never went out");
}

#[test]
fn nothing_is_published_while_answers_would_not_come() {
    let mut fleet = Fleet::new();
    fleet.tell(0, Event::Listening(false));
    fleet.ask(0, 1, None, 1, None);
    fleet.settle();
    assert_eq!(fleet.publishes, []);
    fleet.tell(0, Event::Listening(true));
    fleet.pass(100);
    fleet.settle();
    assert_eq!(fleet.publishes, [Id128(1)]);
}

#[test]
fn a_recording_whose_answer_is_lost_is_repeated_under_the_same_name() {
    for key in [None, Some("key")] {
        let mut fleet = Fleet::new();
        let waiter = fleet.ask(0, 1, key, 1, None);
        fleet.carry_out(0, true, false);
        assert!(!fleet.answers.contains_key(&(0, waiter)));
        fleet.pass(10_000);
        fleet.settle();
        assert!(matches!(&fleet.answers[&(0, waiter)], Answer::Accepted(row) if row.id == Id128(1)), "{:?}", fleet.answers);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Ask { nth: usize, patience: Option<u64> },
    Carry { at: prop::sample::Index, lost: bool, refused: bool },
    Notice(prop::sample::Index),
    LoseNotice(prop::sample::Index),
    Reply { command: prop::sample::Index, digest: u8, shared_to: usize, direct: bool },
    Pass(u64),
    Stop(usize),
    Kill(usize),
}

fn acts() -> impl Strategy<Value = Act> {
    let nth = 0..INSTANCES;
    prop_oneof![
        6 => (nth.clone(), prop::option::of(0_u64..12_000)).prop_map(|(nth, patience)| Act::Ask { nth, patience }),
        30 => (any::<prop::sample::Index>(), prop::bool::weighted(0.1), prop::bool::weighted(0.1))
            .prop_map(|(at, lost, refused)| Act::Carry { at, lost, refused }),
        6 => any::<prop::sample::Index>().prop_map(Act::Notice),
        1 => any::<prop::sample::Index>().prop_map(Act::LoseNotice),
        8 => (any::<prop::sample::Index>(), 1_u8..3, nth.clone(), any::<bool>())
            .prop_map(|(command, digest, shared_to, direct)| Act::Reply { command, digest, shared_to, direct }),
        6 => (0_u64..3_000).prop_map(Act::Pass),
        1 => nth.clone().prop_map(Act::Stop),
        1 => nth.prop_map(Act::Kill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Whatever is lost, repeated, delayed or killed: no command changes its end, nobody is answered twice or left hanging by an instance that lives,
    /// and an answer that an instance acknowledged stands in the row.
    #[test]
    fn p18_p19_every_command_ends_and_everybody_is_answered(acts in prop::collection::vec(acts(), 1..150)) {
        let mut fleet = Fleet::new();
        let (mut asked, mut answered): (Vec<(usize, WaiterId, Id128)>, Vec<Id128>) = (Vec::new(), Vec::new());
        let mut next_id = 1;
        for act in acts {
            match act {
                Act::Ask { nth, patience } => {
                    if fleet.gateways[nth].is_some() {
                        let waiter = fleet.ask(nth, next_id, None, 1, patience);
                        asked.push((nth, waiter, Id128(next_id)));
                        next_id += 1;
                    }
                }
                Act::Carry { at, lost, refused } => if !fleet.calls.is_empty() {
                    fleet.carry_out(at.index(fleet.calls.len()), lost, refused);
                },
                Act::Notice(at) => if !fleet.notices.is_empty() {
                    let (nth, id) = fleet.notices.remove(at.index(fleet.notices.len()));
                    fleet.tell(nth, Event::Notified { id });
                },
                Act::LoseNotice(at) => if !fleet.notices.is_empty() {
                    fleet.notices.remove(at.index(fleet.notices.len()));
                },
                Act::Reply { command, digest, shared_to, direct } => if !fleet.publishes.is_empty() {
                    let id = fleet.publishes[command.index(fleet.publishes.len())];
                    let reply = OnTheWay { id, ..reply(0, digest) };
                    let owner = asked.iter().find(|(_, _, asked)| *asked == id).map(|(nth, ..)| *nth);
                    let direct = direct && owner.is_some_and(|owner| fleet.deliver(owner, Path::Direct, &reply));
                    if fleet.deliver(shared_to, Path::Shared, &reply) || direct {
                        answered.push(id);
                    }
                },
                Act::Pass(millis) => fleet.pass(millis),
                Act::Stop(nth) => {
                    let until = Instant::from_nanos((fleet.now + 5_000) * 1_000_000);
                    fleet.tell(nth, Event::Stop { until });
                }
                Act::Kill(nth) => {
                    asked.retain(|(owner, ..)| *owner != nth);
                    fleet.kill(nth);
                }
            }
        }
        // Everything works again for long enough.
        for _ in 0..40 {
            fleet.settle();
            fleet.pass(500);
        }
        fleet.settle();
        for (nth, waiter, id) in &asked {
            let answer = fleet.answers.get(&(*nth, *waiter));
            prop_assert!(answer.is_some(), "{:?} waits for {:?} for ever", waiter, id);
            let taken = !matches!(answer, Some(Answer::Refused(_)));
            prop_assert!(!taken || fleet.rows.contains_key(id), "an accepted command has a row");
        }
        for (nth, gateway) in fleet.gateways.iter().enumerate() {
            let Some(gateway) = gateway else { continue };
            prop_assert!(fleet.unacknowledged[nth].is_empty(), "replies stay unacknowledged");
            prop_assert_eq!((gateway.pending(), gateway.waiting(), gateway.known.len()), (0, 0, 0));
            prop_assert!(gateway.wake_at().is_none());
        }
        for id in answered {
            let row = &fleet.rows[&id];
            let held = fleet.unacknowledged.iter().flatten().any(|(_, reply)| reply.id == id);
            prop_assert!(row.state == State::Succeeded || held || row.answer.is_some(), "an acknowledged answer is not in its row: {:?}", row);
            prop_assert_eq!(row.answer.is_some(), fleet.results.contains_key(&id));
        }
    }
}
