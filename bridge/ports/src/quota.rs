//! Budgets that many processes draw from.

use async_trait::async_trait;
use causeway_core::flow::quota::{Draw, DrawRequest, Drawn, QuotaAnswer, QuotaRow, QuotaWrite, Terms};
use causeway_core::outcome::{Fault, Outcome};

/// Where the rows of budgets are kept.
#[async_trait]
pub trait Quota: Send + Sync {
    /// The row of the budget `name`, as of every write that was answered before.
    async fn read(&self, name: &str) -> Result<Option<QuotaRow>, Fault>;

    /// Carries the write out if its condition holds; the look and the write are one step. Made once: a repeated return gave tokens back twice.
    async fn write(&self, name: &str, write: &QuotaWrite) -> Outcome<QuotaAnswer>;

    /// Draws tokens, in one write if the request guesses the row right. A write whose answer got lost ends it: what it drew is nobody's.
    async fn draw(&self, name: &str, request: DrawRequest) -> Outcome<Drawn> {
        let (mut draw, mut write) = Draw::new(request);
        loop {
            match self.write(name, &write).await {
                Outcome::Done(QuotaAnswer::Written(tat)) => return Outcome::Done(draw.written(tat)),
                Outcome::Done(QuotaAnswer::Refused(row)) => match draw.refused(row) {
                    Ok(next) => write = next,
                    Err(drawn) => return Outcome::Done(drawn),
                },
                Outcome::NotDone(fault) => return Outcome::NotDone(fault),
                Outcome::Unknown(fault) => return Outcome::Unknown(fault),
            }
        }
    }

    /// Gives tokens back; answers whether the row took them. One of other terms does not.
    async fn give_back(&self, name: &str, terms: Terms, tokens: u64) -> Outcome<bool> {
        self.write(name, &terms.give_back(tokens)).await.map(|answer| matches!(answer, QuotaAnswer::Written(_)))
    }
}
