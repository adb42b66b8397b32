//! One budget for everything that many processes take in: so many tokens in so much time, in a row that all of them draw from.
//!
//! Each owner loop is a [`Node`] of its own. It draws tokens in blocks and spends them without asking anybody; it spends nothing that it does not
//! have. So the processes together admit, in any window of time, at most what the row gives in it, the burst, and what the nodes had drawn before: a
//! block and one charge each.
//!
//! - [`row`](QuotaRow) is the arithmetic of the row: which conditional write a draw makes, and what its answer means.
//! - [`Node`] decides when to draw, to give back, to look, and what to do while the store cannot be asked.

mod configured;
mod node;
mod notice;
mod row;
mod share;
#[cfg(test)]
mod tests;

pub use configured::{node_options, terms_of};
pub use node::{BudgetSpent, Cause, Node, NodeCounters, NodeOptions, NodeStatus, OnExhausted, OutagePolicy, QuotaCall, QuotaReply, Ticket};
pub use row::{Draw, DrawRequest, Drawn, QuotaAnswer, QuotaRow, QuotaWrite, Terms};
