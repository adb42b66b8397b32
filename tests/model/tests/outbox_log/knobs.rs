//! What each seed draws for itself: which faults there are and how many, and the owners' settings.

use crate::dice::Dice;
use crate::mutant::Mutant;
use causeway_core::dead_letter::Destination;
use causeway_core::drain::retry::Backoff;
use causeway_core::drain::{BatchLimits, Pacing};
use causeway_core::hold::Order;
use causeway_core::identity::Epoch;
use causeway_core::log::writer::{MAX_ROW_BYTES, SegmentOptions};
use causeway_core::worker::options::{Delivery, Fate, LegOptions, OwnerOptions, Policy, to_first_legs};
use std::sync::Arc;
use std::time::Duration;

/// The receiver of each route: a message of `a` makes two entries, one of `b` makes one.
pub const ROUTES: [&str; 3] = ["a", "a", "b"];
pub const MOST_MESSAGES: usize = 12;

/// Shares of the steps, and of the requests.
#[derive(Clone, Debug)]
pub struct Knobs {
    pub steps: usize,
    pub starts: f64,
    pub crashes: f64,
    pub stops: f64,
    pub disconnects: f64,
    pub publishes: f64,
    pub times: f64,
    pub give_ups: f64,
    pub refusals: f64,
    pub lost_requests: f64,
    /// Of the requests that are applied: the answer is lost.
    pub lost_answers: f64,
    /// Of the requests: held back for very long.
    pub laggards: f64,
    /// Of the anchors: held back for very long, while others append, drain and delete.
    pub lagging_anchors: f64,
    /// Of the head rows: given up at once, and held back for very long.
    pub lagging_heads: f64,
    pub send_refusals: f64,
    pub send_unknowns: f64,
    pub send_rejections: f64,
    pub page_rows: usize,
    /// Bytes in a row: few enough to need parts, or not.
    pub row_bytes: usize,
    /// Of the starts: with an epoch that another owner had, as after a restored lease table.
    pub repeats: f64,
    /// Of the starts: an owner that only drains and closes the log.
    pub adopters: f64,
    /// Of the starts: another number of lanes is configured.
    pub resizes: f64,
    pub posts: f64,
    pub withdrawals: f64,
}

impl Knobs {
    pub fn draw(dice: &mut Dice) -> Self {
        let mut some = |most: f64| if dice.chance(0.25) { 0.0 } else { dice.fraction() * most };
        Self {
            starts: 0.004 + some(0.02),
            crashes: some(0.015),
            stops: some(0.004),
            disconnects: some(0.01),
            publishes: 0.08 + some(0.25),
            times: 0.05 + some(0.15),
            give_ups: some(0.06),
            refusals: some(0.05),
            lost_requests: some(0.03),
            lost_answers: some(0.25),
            laggards: some(0.15),
            lagging_anchors: some(1.0),
            lagging_heads: some(0.6),
            send_refusals: some(0.4),
            send_unknowns: some(0.2),
            send_rejections: some(0.05),
            repeats: some(0.4),
            adopters: some(0.5),
            resizes: some(0.8),
            posts: some(0.06),
            withdrawals: some(0.01),
            page_rows: 1 + dice.index(5),
            row_bytes: dice.pick(&[40, 100, MAX_ROW_BYTES, MAX_ROW_BYTES]),
            steps: 350 + dice.index(450),
        }
    }

    /// For a rule that concerns neither several lanes nor mail: without what only dilutes the runs that break it.
    pub fn narrow(&mut self, mutant: Mutant) {
        let parts = matches!(mutant, Mutant::None | Mutant::ParallelParts | Mutant::HeadInsideSegment);
        if !parts {
            self.row_bytes = MAX_ROW_BYTES;
        }
        let lanes = matches!(mutant, Mutant::None | Mutant::FewerLanes);
        let epochs = matches!(mutant, Mutant::None | Mutant::FencedByHigherEpochsOnly | Mutant::IdsOfEpochAndSlot);
        for (kept, knob) in [
            (lanes, &mut self.resizes),
            (lanes, &mut self.adopters),
            (epochs, &mut self.repeats),
            (matches!(mutant, Mutant::None | Mutant::MoveWithoutDelete), &mut self.posts),
        ] {
            if !kept {
                *knob = 0.0;
            }
        }
    }

    /// Whether one owner runs undisturbed.
    pub fn is_calm(&self) -> bool {
        self.starts == 0.0
    }

    /// No faults from now on.
    pub fn calm(&mut self) {
        for fault in [
            &mut self.starts,
            &mut self.crashes,
            &mut self.stops,
            &mut self.disconnects,
            &mut self.give_ups,
            &mut self.refusals,
            &mut self.lost_requests,
            &mut self.lost_answers,
            &mut self.laggards,
            &mut self.lagging_anchors,
            &mut self.lagging_heads,
            &mut self.send_refusals,
            &mut self.send_unknowns,
            &mut self.send_rejections,
            &mut self.repeats,
            &mut self.adopters,
            &mut self.withdrawals,
        ] {
            *fault = 0.0;
        }
    }
}

/// How often the mailbox is read without a hint.
const MAILBOX_POLL: Duration = Duration::from_secs(20);

/// How many topics there are: each keeps its lane.
pub const TOPICS: u64 = 6;

/// The settings of the `nth` owner.
pub fn options(nth: usize, epoch: Option<Epoch>, lanes: u32, adopts: bool, row_bytes: usize, dice: &mut Dice) -> OwnerOptions {
    let policy = Policy {
        max_in_flight: dice.pick(&[1, 2, 5, 20]),
        max_replay_attempts: dice.pick(&[0, 3]),
        replay_budget: Duration::from_millis(dice.below(200)),
        on_expired: Fate::DeadLetter,
        on_permanent_failure: Fate::DeadLetter,
        backoff: Backoff { initial: Duration::from_millis(20), max: Duration::from_millis(200), multiplier: 2.0, jitter: 0.5 },
        send_timeout: Duration::from_secs(1),
    };
    let limits = BatchLimits { entries: dice.pick(&[1, 3, 10]), bytes: dice.pick(&[250, 1_000]), entry_bytes: 250 };
    let legs: Vec<LegOptions> = ROUTES
        .iter()
        .enumerate()
        .map(|(route, receiver)| LegOptions {
            route: format!("r{route}").into(),
            receiver: (*receiver).into(),
            destination: Destination { binding: "b".to_owned(), ..Destination::default() },
            delivery: Delivery::Logged,
            depth: None,
            breaker: None,
            send_limits: Vec::new(),
            sender: Default::default(),
            pacing: None,
            policy,
            limits,
            size_of: Arc::new(|entry| 100 + entry.message.payload.len()),
            key_of: Arc::new(|_| None),
        })
        .collect();
    let mut options = OwnerOptions {
        owner: format!("n{nth}"),
        dispatch: to_first_legs(&legs),
        legs,
        epoch,
        acknowledge: Order::OfArrival,
        limits: Vec::new(),
        ack_hold: None,
        quota: None,
        store: None,
        lanes,
        mailbox_poll: (!adopts).then_some(MAILBOX_POLL),
        retire_when_drained: adopts,
        segment: SegmentOptions {
            max_messages: dice.pick(&[1, 2, 3, 5, MOST_MESSAGES]),
            max_bytes: dice.pick(&[300, 1_500, 100_000]),
            max_row_bytes: row_bytes,
            linger: Duration::from_millis(dice.pick(&[0, 2, 10])),
            doubt_after: Duration::from_millis(dice.pick(&[20, 30_000])),
        },
        send_linger: Duration::from_millis(dice.pick(&[0, 10])),
        max_settled_ahead: dice.pick(&[1, 5, 1_000]),
        // Some owners keep what is settled for a while, and others that come after them do not.
        keep_settled: Duration::from_millis([0, 0, 50][nth % 3]),
        memory_entries: dice.pick(&[2, 8, 1_000]),
        memory_bytes: dice.pick(&[1_000, 4_000, 1 << 20]),
        entry_id_base: (nth as u128 + 1) << 64,
        row_id_base: (nth as u128 + 1) << 96,
        jitter_seed: dice.next(),
    };
    let pacing = Pacing {
        shortest: Duration::from_millis(50),
        longest: Duration::from_millis(300),
        multiplier: 2.0,
        first: dice.pick(&[1, 3]),
        most: dice.pick(&[3, 100]),
        max_sends: dice.pick(&[1, 4]),
    };
    let pacing = dice.pick(&[None, Some(pacing)]);
    options.legs.iter_mut().for_each(|leg| leg.pacing = pacing);
    options
}
