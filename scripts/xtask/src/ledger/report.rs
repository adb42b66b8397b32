//! The ledger for people and for programs.

use super::Account;
use serde::Serialize;
use std::fmt::Write as _;

/// What held while the queue stood still.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stall {
    /// How long it stood still.
    pub seconds: f64,
    /// The most messages that waited in the outbox.
    pub most_in_outbox: u64,
    /// The most messages that the broker had handed over and that were not acknowledged.
    pub most_unacknowledged: u64,
    /// After how many seconds nothing more was taken in. `None`: there was room all the time.
    pub paused_after_seconds: Option<f64>,
    /// From the moment on that the queue answered again until the next message arrived. `None`: none did.
    pub resumed_after_seconds: Option<f64>,
}

/// A run's account with what it cost.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What became of the messages.
    #[serde(flatten)]
    pub account: Account,
    /// From the kill of the active worker until its successor was at full service, in seconds. `None`: there is no second worker, or nobody was
    /// killed.
    pub failover_seconds: Option<f64>,
    /// From the kill until the killed worker was back, in seconds: as the active one where it is alone, else as a standby after the failover. `None`: nobody was killed.
    pub restart_seconds: Option<f64>,
    /// Write units that the store charged, by message. `None`: the store charges none.
    pub write_units_per_message: Option<f64>,
    /// Requests to SQS, by message.
    pub sqs_requests_per_message: Option<f64>,
    /// Reads of the log while messages flowed undisturbed.
    pub log_reads_in_steady_state: Option<u64>,
    /// How many workers were killed.
    pub kills: u32,
    /// The store.
    pub store: String,
    /// The wanted rate, messages a second.
    pub rate: u64,
    /// How long publishing and draining took, in seconds.
    pub seconds: f64,
    /// What held while the queue stood still, where it did.
    pub stall: Option<Stall>,
    /// What else went wrong.
    pub notes: Vec<String>,
}

impl Report {
    /// Everything that makes the run a failure.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.account.faults();
        faults.extend(self.notes.iter().cloned());
        if self.stall.as_ref().is_some_and(|stall| stall.resumed_after_seconds.is_none()) {
            faults.push("nothing arrived after the queue answered again".to_owned());
        }
        faults
    }

    /// One line of JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|fault| format!("{{\"error\":\"{fault}\"}}"))
    }

    /// A table.
    #[must_use]
    pub fn table(&self) -> String {
        let account = &self.account;
        let mut text = String::new();
        let mut row = |name: &str, value: String, remark: &str| {
            let _ = writeln!(text, "  {name:<26} {value:>12}   {remark}");
        };
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        row("published", account.published.to_string(), "acknowledged by the broker");
        row("delivered", account.delivered.to_string(), "handed out by the queue");
        row("unique", account.unique.to_string(), "");
        row("duplicates", account.duplicates.to_string(), &bound_text(account));
        row("lost", account.lost.to_string(), "must be 0");
        row("corrupted", account.corrupted.to_string(), "must be 0");
        row("out of order", account.order_violations.to_string(), "first sends, per device; a standard queue promises none");
        row("workers killed", self.kills.to_string(), "with SIGKILL");
        row("restart seconds", number(self.restart_seconds), "from the kill until it was back");
        row("failover seconds", number(self.failover_seconds), "from the kill until the successor was at full service");
        row("write units / message", number(self.write_units_per_message), &self.store);
        row("SQS requests / message", number(self.sqs_requests_per_message), "");
        row("log reads, steady state", self.log_reads_in_steady_state.map_or_else(|| "-".to_owned(), |reads| reads.to_string()), "");
        if let Some(stall) = &self.stall {
            row("queue stood still", format!("{:.0}", stall.seconds), "seconds");
            row("most in the outbox", stall.most_in_outbox.to_string(), "meanwhile");
            row(
                "most unacknowledged",
                stall.most_unacknowledged.to_string(),
                "handed over; mosquitto overruns its window when it works off what it kept",
            );
            row("paused after", number(stall.paused_after_seconds), "seconds: the outbox was full, and the broker kept the rest");
            row("resumed after", number(stall.resumed_after_seconds), "seconds, by itself, once the queue answered");
        }
        row("seconds", format!("{:.1}", self.seconds), "");
        if account.publisher_repeats + account.unrouted + account.queue_repetitions > 0 {
            row("publisher's repeats", account.publisher_repeats.to_string(), "its connection broke");
            row("without subscriber", account.unrouted.to_string(), "the broker had nobody to give them to");
            row("queue's repeats", account.queue_repetitions.to_string(), "the same queue message twice");
        }
        text
    }
}

fn bound_text(account: &Account) -> String {
    let terms = account.exposures.iter().flat_map(|exposure| &exposure.terms).map(|(name, count)| format!("{count} {name}"));
    let terms: Vec<String> = terms.collect();
    if terms.is_empty() { "at most 0".to_owned() } else { format!("at most {} = {}", account.duplicate_bound, terms.join(" + ")) }
}
