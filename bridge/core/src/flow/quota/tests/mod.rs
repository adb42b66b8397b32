#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod trials;
mod vectors;

use super::{
    Draw, DrawRequest, Drawn, Node, NodeOptions, OnExhausted, OutagePolicy, QuotaAnswer, QuotaCall, QuotaReply, QuotaRow, QuotaWrite,
    Terms, Ticket,
};
use crate::outcome::{Fault, FaultCode, Outcome};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The clock of the nodes and that of the row begin together.
fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn wall(ms: u64) -> UnixMillis {
    UnixMillis(ms)
}

/// 100:1, burst 100, block 10, as the vectors have it. Nothing is drawn ahead: what is there is taken, and asked for again.
fn options() -> NodeOptions {
    NodeOptions {
        terms: Terms { count: 100, period_ms: 1_000, burst: 100 },
        block: 10,
        lease_return: Some(millis(1_000)),
        dry_backoff: millis(50),
        draw_timeout: millis(500),
        probe_interval: millis(1_000),
        book_ahead: Duration::ZERO,
        outage: OutagePolicy::FailClosed,
        on_exhausted: OnExhausted::Hold,
        notice: Duration::from_secs(300),
    }
}

fn gone() -> Fault {
    Fault::new(FaultCode::ConnectionLost, "cut off")
}

/// The row, and who writes to it.
#[derive(Debug, Default)]
struct Row {
    row: Option<QuotaRow>,
    writes: u64,
}

impl Row {
    fn write(&mut self, write: &QuotaWrite) -> QuotaAnswer {
        self.writes += 1;
        match write.on(self.row) {
            Ok(row) => {
                self.row = Some(row);
                QuotaAnswer::Written(row.tat)
            }
            Err(row) => QuotaAnswer::Refused(row),
        }
    }

    fn draw(&mut self, request: DrawRequest) -> Drawn {
        let (mut draw, mut write) = Draw::new(request);
        loop {
            match self.write(&write) {
                QuotaAnswer::Written(tat) => return draw.written(tat),
                QuotaAnswer::Refused(row) => match draw.refused(row) {
                    Ok(next) => write = next,
                    Err(drawn) => return drawn,
                },
            }
        }
    }

    fn available(&self, ms: u64) -> u64 {
        self.row.map_or(100, |row| row.terms.available(row.tat, wall(ms)))
    }
}

/// A node whose calls are answered at once.
struct Desk {
    node: Node,
    tickets: u64,
    draws: Vec<u64>,
    returns: Vec<i128>,
}

impl Desk {
    fn new(options: NodeOptions) -> Self {
        let mut node = Node::new(options);
        node.know_nodes(1);
        Self { node, tickets: 0, draws: Vec::new(), returns: Vec::new() }
    }

    /// Asks, and answers what the node calls for.
    fn admit(&mut self, row: &mut Row, ms: u64, cost: u64) -> bool {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let granted = self.node.ask(at(ms), wall(ms), ticket, cost);
        self.carry_out(Some(row), ms);
        granted || self.node.ask(at(ms), wall(ms), ticket, cost)
    }

    fn tick(&mut self, row: &mut Row, ms: u64) {
        self.node.settle(at(ms), wall(ms));
        self.carry_out(Some(row), ms);
    }

    /// Without a row, every call fails.
    fn carry_out(&mut self, row: Option<&mut Row>, ms: u64) {
        let Some(row) = row else {
            for call in self.node.take_calls() {
                self.node.reply(at(ms), wall(ms), failed(&call));
            }
            return;
        };
        loop {
            let calls = self.node.take_calls();
            if calls.is_empty() {
                return;
            }
            for call in calls {
                let reply = match call {
                    QuotaCall::Draw(request) => {
                        self.draws.push(request.tokens);
                        QuotaReply::Drawn(Outcome::Done(row.draw(request)))
                    }
                    QuotaCall::Return(write) => {
                        if let QuotaWrite::Return { terms, subtract } = write {
                            self.returns.push(subtract / i128::from(terms.period_ms));
                        }
                        QuotaReply::Returned(Outcome::Done(matches!(row.write(&write), QuotaAnswer::Written(_))))
                    }
                    QuotaCall::Look => QuotaReply::Looked(Outcome::Done(row.row)),
                };
                self.node.reply(at(ms), wall(ms), reply);
            }
        }
    }

    fn local(&self) -> u64 {
        self.node.status(at(0)).tokens_local
    }
}

fn failed(call: &QuotaCall) -> QuotaReply {
    match call {
        QuotaCall::Draw(_) => QuotaReply::Drawn(Outcome::NotDone(gone())),
        QuotaCall::Return(_) => QuotaReply::Returned(Outcome::NotDone(gone())),
        QuotaCall::Look => QuotaReply::Looked(Outcome::NotDone(gone())),
    }
}
