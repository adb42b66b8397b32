//! P1, P16, P17: random schedules of up to ten nodes, with answers that come late or never, tokens that go back, crashes, and outages. In every window
//! of time at most burst + rate x window + nodes x (block + widest charge) is admitted; with shares, what blind nodes owe besides.

use super::*;
use crate::drain::retry::Jitter;
use std::collections::BTreeMap;

struct Trial {
    random: Jitter,
    options: NodeOptions,
    rate_per_ms: f64,
    widest: u64,
    row: Row,
    nodes: Vec<Node>,
    /// What is on its way: when it comes, to whom.
    answers: BTreeMap<(u64, u64), (usize, QuotaReply)>,
    tickets: u64,
    drawing: Vec<usize>,
    /// How far above a steady flow at the rate the admissions ever were.
    level: f64,
    worst: f64,
    at: u64,
    admitted: u64,
}

impl Trial {
    fn below(&mut self, most: u64) -> u64 {
        (self.random.fraction() * most as f64) as u64
    }

    fn new(seed: u64) -> Self {
        let mut random = Jitter::new(seed);
        let mut below = |most: u64| (random.fraction() * most as f64) as u64;
        let count = u32::try_from(10 + below(2_000)).unwrap();
        let burst = u64::from(count).max(20) * (1 + below(3)) / (1 + below(3));
        let terms = Terms { count, period_ms: 1_000, burst: burst.max(12) };
        let options = NodeOptions {
            terms,
            block: (1 + below(u64::from(count) / 5 + 1)).min(burst),
            lease_return: [None, Some(millis(100)), Some(millis(1_000))][usize::try_from(below(3)).unwrap()],
            dry_backoff: millis(10 + below(50)),
            draw_timeout: millis(500),
            probe_interval: millis(100 + below(900)),
            book_ahead: millis([0, 300, 1_000][usize::try_from(below(3)).unwrap()]),
            outage: if below(2) == 0 { OutagePolicy::LocalShare } else { OutagePolicy::FailClosed },
            on_exhausted: OnExhausted::Hold,
            notice: Duration::from_secs(300),
        };
        let nodes = usize::try_from(1 + below(10)).unwrap();
        let widest = 1 + below(10);
        let mut trial = Self {
            random,
            rate_per_ms: f64::from(count) / 1_000.0,
            widest,
            row: Row::default(),
            nodes: Vec::new(),
            answers: BTreeMap::new(),
            tickets: 0,
            drawing: vec![0; nodes],
            level: 0.0,
            worst: 0.0,
            at: 0,
            admitted: 0,
            options,
        };
        trial.nodes = (0..nodes).map(|_| trial.fresh()).collect();
        trial
    }

    fn fresh(&self) -> Node {
        let mut node = Node::new(self.options.clone());
        node.know_nodes(u32::try_from(self.drawing.len()).unwrap());
        node
    }

    fn admitted(&mut self, now: u64, cost: u64) {
        self.level = (self.level - self.rate_per_ms * (now - self.at) as f64).max(0.0) + cost as f64;
        self.at = now;
        self.worst = self.worst.max(self.level);
        self.admitted += cost;
    }

    /// Sends what the node calls for; the answer comes later.
    fn send(&mut self, now: u64, which: usize, outage: bool) {
        for call in self.nodes[which].take_calls() {
            let (there, back) = (self.below(8), self.below(8));
            let lost = self.below(40) == 0;
            let reply = match call {
                _ if outage => failed(&call),
                QuotaCall::Draw(request) => {
                    let drawn = self.row.draw(request);
                    QuotaReply::Drawn(if lost { Outcome::Unknown(gone()) } else { Outcome::Done(drawn) })
                }
                QuotaCall::Return(write) => {
                    let before = self.row.row;
                    let written = matches!(self.row.write(&write), QuotaAnswer::Written(_));
                    // P16
                    assert!(self.row.row.is_none_or(|row| row.terms.available(row.tat, wall(now)) <= row.terms.burst), "{before:?}");
                    QuotaReply::Returned(if lost { Outcome::Unknown(gone()) } else { Outcome::Done(written) })
                }
                QuotaCall::Look => QuotaReply::Looked(Outcome::Done(self.row.row)),
            };
            if matches!(call, QuotaCall::Draw(_)) {
                self.drawing[which] += 1;
                // P17
                assert_eq!(self.drawing[which], 1, "one draw at a time");
            }
            self.tickets += 1;
            let timeout = if lost { 500 } else { 0 };
            self.answers.insert((now + there + back + timeout, self.tickets), (which, reply));
        }
    }

    fn run(&mut self) {
        let mut waiting: Vec<Option<(Ticket, u64)>> = vec![None; self.nodes.len()];
        let outages = self.below(3);
        let (from, long) = (800 + self.below(1_000), 200 + self.below(1_500));
        let offered = self.below(4);
        for now in 0..4_000 {
            let outage = outages > 0 && (from..from + long).contains(&now) || outages > 1 && (3_500..3_700).contains(&now);
            while let Some(entry) = self.answers.first_entry().filter(|entry| entry.key().0 <= now) {
                let (which, reply) = entry.remove();
                self.drawing[which] -= usize::from(matches!(reply, QuotaReply::Drawn(_)));
                self.nodes[which].reply(at(now), wall(now), reply);
            }
            #[allow(clippy::needless_range_loop, reason = "it is the index of the nodes too, which the loop changes")]
            for which in 0..self.nodes.len() {
                // A node that ends takes what it owes with it; where nobody has a share, nobody owes.
                let may_crash = self.options.outage == OutagePolicy::FailClosed;
                if may_crash && self.below(20_000) == 0 && self.answers.values().all(|(of, _)| *of != which) {
                    self.nodes[which] = self.fresh();
                    waiting[which] = None;
                }
                self.nodes[which].settle(at(now), wall(now));
                for _ in 0..=self.below(4) {
                    if waiting[which].is_none() && self.below(4) <= offered {
                        self.tickets += 1;
                        waiting[which] = Some((Ticket(self.tickets), 1 + self.below(self.widest)));
                    }
                    let Some((ticket, cost)) = waiting[which] else { continue };
                    if self.nodes[which].ask(at(now), wall(now), ticket, cost) {
                        self.admitted(now, cost);
                        waiting[which] = None;
                    }
                }
                self.send(now, which, outage);
            }
        }
    }
}

#[test]
fn p_1_the_bound_holds_in_300_random_schedules() {
    let mut saturated = 0;
    for seed in 0..300 {
        let mut trial = Trial::new(seed);
        trial.run();
        let nodes = trial.nodes.len() as f64;
        let terms = trial.options.terms;
        let mut bound = terms.burst as f64 + nodes * (trial.options.block + trial.widest) as f64;
        if trial.options.outage == OutagePolicy::LocalShare {
            // Nodes are blind one by one here, and spend their share while others see the row and draw all of it. They pay afterwards; until then they owe.
            bound += nodes * trial.fresh().most_debt() as f64;
        }
        assert!(trial.worst <= bound + 1e-6, "seed {seed}: {} above {bound} with {:?} and {nodes} nodes", trial.worst, trial.options);
        assert!(trial.admitted > 0, "seed {seed}");
        saturated += usize::from(trial.worst >= terms.burst as f64);
    }
    assert!(saturated > 50, "the budget was spent in {saturated} trials only");
}
