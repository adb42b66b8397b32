//! Rules of `flow`. One file for each of its blocks.

mod inbound;
mod limits;
mod outbound;
mod quota;
mod store;

use super::Check;
use crate::config::model::Receiver;
use crate::flow::{Pairs, PairsError};

pub(super) fn check(check: &mut Check<'_>) {
    inbound::check(check);
    limits::check(check);
    quota::check(check);
    outbound::check(check);
    store::check(check);
}

/// Whether messages come by a receiver that their source would repeat.
fn repeats(receiver: &Receiver) -> bool {
    receiver.session_id.is_none() || receiver.topics.iter().any(|topic| topic.qos > 0)
}

/// Pairs that can be read, and that all matter.
fn pairs(check: &mut Check<'_>, path: &str, text: &str) -> Option<Pairs> {
    match Pairs::parse(text) {
        Ok(pairs) => {
            for idle in pairs.idle() {
                check.warning(
                    "W_LIMIT_IDLE",
                    path,
                    &[],
                    format!("the pair {idle} never matters: another pair keeps below it"),
                    "remove it, or lower its count",
                );
            }
            Some(pairs)
        }
        Err(error) => {
            let remedy = match error {
                PairsError::Syntax(_) => "write COUNT:SECONDS, and a comma between pairs, such as `10:1,300:60`",
                PairsError::Range(_) => "write a smaller number",
                PairsError::Duplicate(_) => "write one pair for each time",
            };
            check.error(error.code(), path, &[], error.to_string(), remedy);
            None
        }
    }
}
