//! What housekeeping does seldom: a log that nobody owns, one that is retired, and rows whose retention is over.

use crate::bridge::invoke;
use crate::cloud::Cloud;
use crate::stack::Made;
use anyhow::{Context as _, Result, ensure};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use causeway_aws::{DynamoCommands, DynamoDeadLetters, DynamoLeases, DynamoOutbox};
use causeway_core::commands::Command;
use causeway_core::identity::{Epoch, Id128, LogName, Slot};
use causeway_core::lease::row::{LeaseRow, OwnerFacts, Tuple};
use causeway_core::lease::{Condition, LeaseWrite};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::Outcome;
use causeway_core::rows::{Anchor, CODEC_POSTCARD_ZSTD, Head, Row, Segment, pack};
use causeway_core::units::UnixMillis;
use causeway_ports::{
    Clock as _, Commands as _, DeadLetters as _, Leases as _, LogRecord, LogState, OrphanAnswer, Outbox as _, SystemClock,
};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The bridge of the local settings.
const BRIDGE: &str = "local-bridge";
/// More than a dead letter holds in one row.
const LARGE: usize = 600_000;
const HOUR: u64 = 3_600_000;
const MONTH: Duration = Duration::from_secs(30 * 86_400);

/// Leaves behind what a sweep has to do something about, and lets the deployed function do it. No member of the bridge may be alive.
///
/// # Errors
/// Something is still there afterwards.
pub async fn tidy_up(cloud: &Cloud, made: &Made) -> Result<()> {
    let client = Client::new(&cloud.sdk().await);
    let outbox = DynamoOutbox::new(client.clone(), made.table("-outbox")?);
    let leases = DynamoLeases::new(client.clone(), made.table("-leases")?);
    abandoned(&outbox, &leases).await?;
    retired(&outbox).await?;
    rows_that_are_over(&client, made).await?;
    let function = &made.one("AWS::Lambda::Function", "Housekeeping")?.physical;
    let answer = invoke(cloud, function, &json!({ "op": "sweep" })).await?;
    ensure!(answer["errors"] == json!([]), "the sweep answered {answer}");
    // Looked at where it stands: the scheduler's own run may have come first.
    let letters = DynamoDeadLetters::new(client.clone(), made.table("-dlq")?);
    for id in [1, 2] {
        let letter = letters.get(Id128(id)).await.map_err(|fault| anyhow::anyhow!("{fault}"))?;
        ensure!(letter.is_some(), "entry {id} of a log without an owner is no dead letter: {answer}");
    }
    let logs = outbox.list_logs().await.map_err(|fault| anyhow::anyhow!("{fault}"))?;
    ensure!(logs.iter().all(|record| record.state == LogState::Open), "a retired log is still there: {answer}");
    for table in ["-commands", "-ledger"] {
        let left = client.scan().table_name(made.table(table)?).send().await?.count;
        ensure!(left == 0, "{left} rows whose retention is over are left in …{table}: {answer}");
    }
    Ok(())
}

fn name(session: &str) -> Result<LogName> {
    LogName::new(BRIDGE, session, 0).map_err(|fault| anyhow::anyhow!("{fault}"))
}

fn done<T: core::fmt::Debug>(outcome: Outcome<T>) -> Result<()> {
    ensure!(matches!(outcome, Outcome::Done(_)), "it could not be written: {outcome:?}");
    Ok(())
}

fn segment(id: u128, expires_at: UnixMillis) -> Result<Row> {
    let message = Message { topic: "t".into(), payload: Bytes::from("x".repeat(LARGE)), qos: 1, ..Message::default() };
    let entry = Entry {
        id: Id128(id),
        route: "telemetry-to-queue".into(),
        binding: "to-queue".into(),
        address: None,
        refusal: None,
        source: "telemetry".into(),
        received_at: UnixMillis(1_000),
        expires_at: Some(expires_at),
        redrive: None,
        message,
    };
    Ok(Row::Segment(Segment {
        epoch: Epoch(1),
        segment_id: Id128(id),
        count: 1,
        codec: CODEC_POSTCARD_ZSTD,
        body: pack(&[Arc::new(entry)]).context("an entry cannot be packed")?,
        created_at: UnixMillis(1_000),
        earliest_expiry: Some(expires_at),
        drained: Slot(0),
    }))
}

/// A log with entries that expired, whose lease was given back an hour ago.
async fn abandoned(outbox: &DynamoOutbox, leases: &DynamoLeases) -> Result<()> {
    let log = name("abandoned")?;
    done(outbox.replace_record(&LogRecord { log: log.clone(), epoch: Epoch(1), lanes: 1, state: LogState::Open }, None).await)?;
    for slot in 1..=2 {
        done(outbox.put(&log, Slot(slot), &segment(u128::from(slot), UnixMillis(2_000))?).await)?;
    }
    let at = UnixMillis(SystemClock.wall().0 - HOUR);
    let tuple = Tuple { owner: String::new(), version: 1, renewed_at: at, expires_at: UnixMillis(0) };
    let row = LeaseRow { tuple, acquired_at: at, evidence: None, facts: OwnerFacts::default() };
    done(leases.write("LEASE#abandoned", &LeaseWrite { condition: Condition::Absent, row }).await)
}

/// A log that was drained and closed long ago.
async fn retired(outbox: &DynamoOutbox) -> Result<()> {
    let log = name("retired")?;
    done(outbox.replace_record(&LogRecord { log: log.clone(), epoch: Epoch(1), lanes: 1, state: LogState::Retired }, None).await)?;
    let opened_at = UnixMillis(1_000);
    let anchor = Anchor { epoch: Epoch(1), anchor_id: Id128(3), owner: "gone".to_owned(), opened_at, drained: Slot(0), retired: true };
    done(outbox.put(&log, Slot(1), &Row::Anchor(anchor)).await)?;
    done(outbox.put_head(&log, &Head { epoch: Epoch(1), drained: Slot(1), ..Head::default() }).await)
}

/// A command that nobody ended, an answer to nobody, and a line of the ledger, whose retention is over.
async fn rows_that_are_over(client: &Client, made: &Made) -> Result<()> {
    let (s, n) = (|text: &str| AttributeValue::S(text.to_owned()), |number: u64| AttributeValue::N(number.to_string()));
    let now = SystemClock.wall().0;
    let commands = DynamoCommands::new(client.clone(), made.table("-commands")?, MONTH, MONTH, Arc::new(SystemClock));
    let began = UnixMillis(now - u64::try_from(2 * MONTH.as_millis())?);
    let command = Command::new(Id128(7), "pump-1", "worker-1", began, Duration::from_secs(10));
    done(commands.create(&command, Some("over"), &[1; 32]).await)?;
    done(commands.keep_orphan(&OrphanAnswer { id: Id128(8), by: "pump-1".to_owned(), came_at: began }).await)?;
    let put = client.put_item().table_name(made.table("-ledger")?).item("pk", s("client")).item("sk", s("over"));
    put.item("ttl", n(now / 1_000 - 10)).send().await?;
    Ok(())
}
