//! The dead letters in SQLite.

use super::SqliteStore;
use super::reserve::Purpose;
use super::value::{Id, Number, unknown};
use crate::paging::{Cursor, PAGE_BYTES};
use async_trait::async_trait;
use bytes::Bytes;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState, Redriven};
use causeway_core::identity::EntryId;
use causeway_core::message::{Message, Properties};
use causeway_core::outcome::{Fault, FaultClass, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::{DeadLetterFilter, DeadLetterPage, DeadLetters, OldLetters};
use rusqlite::types::{Type, Value};
use rusqlite::{Connection, OptionalExtension, named_params, params, params_from_iter};

/// Dead letters in a SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteDeadLetters {
    pub(super) store: SqliteStore,
}

const PARK: &str = "
INSERT INTO dlq (id, route, binding, session, source, address, category, error_code, reason, last_error, attempts, redrive_count, state,
    failed_at, received_at, topic, qos, retain, headers, correlation_data, payload, redriven_at, redriven_by, dropped_bytes, expires_at, bridge)
VALUES (:id, :route, :binding, :session, :source, :address, :category, :error_code, :reason, :last_error, :attempts, :redrive_count, :state,
    :failed_at, :received_at, :topic, :qos, :retain, :headers, :correlation_data, :payload, :redriven_at, :redriven_by, :dropped_bytes, NULL, :bridge)
ON CONFLICT (id) DO UPDATE
SET bridge = excluded.bridge, route = excluded.route, binding = excluded.binding, session = excluded.session, source = excluded.source, address = excluded.address,
    category = excluded.category, error_code = excluded.error_code, reason = excluded.reason, last_error = excluded.last_error,
    attempts = excluded.attempts, state = excluded.state, failed_at = excluded.failed_at, received_at = excluded.received_at,
    topic = excluded.topic, qos = excluded.qos, retain = excluded.retain, headers = excluded.headers,
    correlation_data = excluded.correlation_data, payload = excluded.payload, redriven_at = excluded.redriven_at,
    redriven_by = excluded.redriven_by, dropped_bytes = excluded.dropped_bytes, expires_at = NULL
WHERE dlq.state = 'redriven' AND dlq.redrive_count = excluded.redrive_count";

/// The columns in the order in which [`letter`] reads them.
pub(super) const SELECT: &str = "
SELECT id, route, binding, session, source, address, category, error_code, reason, last_error, attempts, redrive_count, state,
    failed_at, received_at, topic, qos, retain, headers, correlation_data, payload, redriven_at, redriven_by, dropped_bytes, bridge FROM dlq";

const DELETE: &str = "DELETE FROM dlq WHERE id = ?";
const DELETE_OLD: &str = "
DELETE FROM dlq WHERE id IN (SELECT id FROM dlq WHERE failed_at < ? AND state <> 'redriven' ORDER BY failed_at, id LIMIT ?)";

const CATEGORIES: [FaultClass; 5] =
    [FaultClass::Transient, FaultClass::Permanent, FaultClass::Rejected, FaultClass::Expired, FaultClass::Poison];

#[async_trait]
impl DeadLetters for SqliteDeadLetters {
    async fn park(&self, letter: &DeadLetter) -> Outcome<()> {
        let letter = letter.clone();
        // A letter that is parked lets its entry be deleted.
        self.store.shared.thread.write(Purpose::Settle, move |connection| park(connection, &letter)).await
    }

    async fn get(&self, id: EntryId) -> Result<Option<DeadLetter>, Fault> {
        let call = move |connection: &mut Connection| {
            connection.prepare_cached(&format!("{SELECT} WHERE id = ?"))?.query_row([Id(id)], letter).optional()
        };
        self.store.shared.thread.read(call).await
    }

    async fn list(&self, filter: &DeadLetterFilter, limit: usize, continuation: Option<&str>) -> Result<DeadLetterPage, Fault> {
        let cursor = continuation.map(Cursor::parse).transpose()?;
        let filter = filter.clone();
        self.store.shared.thread.read(move |connection| list(connection, filter, limit, cursor)).await
    }

    async fn delete(&self, id: EntryId) -> Outcome<bool> {
        let call = move |connection: &mut Connection| Ok(connection.prepare_cached(DELETE)?.execute([Id(id)])? > 0);
        self.store.shared.thread.write(Purpose::Settle, call).await
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.store.probe().await
    }

    /// Creates nothing: whoever opened the store to write has its file and tables. [`SqliteStore::create`] makes a missing one.
    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.store.probe().await.map(|()| Vec::new())
    }
}

#[async_trait]
impl OldLetters for SqliteDeadLetters {
    async fn delete_old(&self, failed_before: UnixMillis, limit: usize) -> Outcome<usize> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let call =
            move |connection: &mut Connection| connection.prepare_cached(DELETE_OLD)?.execute(params![Number(failed_before.0), limit]);
        self.store.shared.thread.write(Purpose::Settle, call).await
    }
}

fn park(connection: &Connection, letter: &DeadLetter) -> rusqlite::Result<()> {
    let Message { topic, payload, qos, retain, properties } = &letter.message;
    let mut properties = properties.clone();
    // Bytes, and kept as such; everything else of the properties is readable.
    let correlation_data = properties.correlation_data.take();
    let headers = serde_json::to_string(&properties).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    connection.prepare_cached(PARK)?.execute(named_params! {
        ":id": Id(letter.id), ":bridge": letter.bridge, ":route": letter.route, ":binding": letter.binding, ":session": letter.session, ":source": letter.source,
        ":address": letter.address, ":category": letter.category.as_str(), ":error_code": letter.error_code, ":reason": letter.reason,
        ":last_error": letter.last_error, ":attempts": letter.attempts, ":redrive_count": letter.redrive_count,
        ":state": letter.state.as_str(), ":failed_at": Number(letter.failed_at.0), ":received_at": Number(letter.received_at.0),
        ":topic": topic, ":qos": qos, ":retain": retain, ":headers": headers, ":correlation_data": correlation_data.as_deref(),
        ":payload": &payload[..],
        ":redriven_at": letter.redriven.as_ref().map(|redriven| Number(redriven.at.0)),
        ":redriven_by": letter.redriven.as_ref().map(|redriven| redriven.request.as_str()),
        ":dropped_bytes": letter.redriven.as_ref().map(|redriven| Number(redriven.dropped_bytes)),
    })?;
    Ok(())
}

/// Every form of the filter has an index that gives its letters in their order, so a page costs what it holds, not what the store holds; only an
/// error code or a state alone is looked for along the index by age.
fn list(connection: &Connection, filter: DeadLetterFilter, limit: usize, cursor: Option<Cursor>) -> rusqlite::Result<DeadLetterPage> {
    let mut conditions: Vec<&str> = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    let mut condition = |sql, value: Option<Value>| {
        if let Some(value) = value {
            conditions.push(sql);
            values.push(value);
        }
    };
    condition("route = ?", filter.route.map(Value::Text));
    condition("category = ?", filter.category.map(Value::Text));
    condition("error_code = ?", filter.error_code.map(Value::Text));
    condition("state = ?", filter.state.map(|state| Value::Text(state.as_str().to_owned())));
    condition("failed_at >= ?", filter.since.map(|since| Number(since.0).into()));
    condition("failed_at < ?", filter.before.map(|before| Number(before.0).into()));
    if let Some(cursor) = cursor {
        conditions.push("(failed_at, id) > (?, ?)");
        values.extend([Number(cursor.failed_at.0).into(), Value::Text(cursor.id.to_string())]);
    }
    let conditions = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    let mut statement = connection.prepare_cached(&format!("{SELECT}{conditions} ORDER BY failed_at, id"))?;
    let mut found = statement.query(params_from_iter(values))?;
    let mut page = DeadLetterPage::default();
    let mut bytes = 0;
    while let Some(next) = found.next()? {
        if page.letters.len() >= limit || bytes >= PAGE_BYTES {
            page.continuation = page.letters.last().map(|last| Cursor::after(last).to_string());
            break;
        }
        let letter = letter(next)?;
        bytes += letter.message.weight();
        page.letters.push(letter);
    }
    Ok(page)
}

pub(super) fn letter(row: &rusqlite::Row<'_>) -> rusqlite::Result<DeadLetter> {
    let category = row.get_ref(6)?.as_str()?;
    let state = row.get_ref(12)?.as_str()?;
    let (Id(id), Number(failed_at), Number(received_at)) = (row.get(0)?, row.get(13)?, row.get(14)?);
    Ok(DeadLetter {
        id,
        bridge: row.get(24)?,
        route: row.get(1)?,
        binding: row.get(2)?,
        session: row.get(3)?,
        source: row.get(4)?,
        address: row.get(5)?,
        category: CATEGORIES.into_iter().find(|class| class.as_str() == category).ok_or_else(|| unknown(6, category))?,
        error_code: row.get(7)?,
        reason: row.get(8)?,
        last_error: row.get(9)?,
        attempts: row.get(10)?,
        redrive_count: row.get(11)?,
        state: DeadLetterState::parse(state).ok_or_else(|| unknown(12, state))?,
        failed_at: UnixMillis(failed_at),
        received_at: UnixMillis(received_at),
        message: message(row)?,
        redriven: redriven(row)?,
    })
}

fn redriven(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Redriven>> {
    let Some(Number(at)) = row.get(21)? else { return Ok(None) };
    let dropped_bytes = row.get::<_, Option<Number>>(23)?.map_or(0, |Number(bytes)| bytes);
    Ok(Some(Redriven { at: UnixMillis(at), request: row.get::<_, Option<String>>(22)?.unwrap_or_default(), dropped_bytes }))
}

fn message(row: &rusqlite::Row<'_>) -> rusqlite::Result<Message> {
    let headers = row.get_ref(18)?.as_str()?;
    let headers: Properties =
        serde_json::from_str(headers).map_err(|error| rusqlite::Error::FromSqlConversionFailure(18, Type::Text, error.into()))?;
    Ok(Message {
        topic: row.get(15)?,
        qos: row.get(16)?,
        retain: row.get(17)?,
        payload: Bytes::copy_from_slice(row.get_ref(20)?.as_blob()?),
        properties: Properties { correlation_data: row.get_ref(19)?.as_blob_or_null()?.map(Bytes::copy_from_slice), ..headers },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::schema;
    use rusqlite::Connection;

    /// Pages must not sort the whole table.
    #[test]
    fn every_list_walks_an_index() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::create(&mut connection).unwrap();
        for conditions in
            ["1", "route = 'r'", "category = 'c'", "route = 'r' AND category = 'c'", "failed_at >= 5 AND failed_at < 9", "state = 'dead'"]
        {
            let sql = format!(
                "EXPLAIN QUERY PLAN SELECT payload FROM dlq WHERE {conditions} AND (failed_at, id) > (1, 'x') ORDER BY failed_at, id"
            );
            let mut statement = connection.prepare(&sql).unwrap();
            let plan: Vec<String> = statement.query_map([], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
            let plan = plan.join("; ");
            assert!(plan.contains("USING INDEX dlq_by_") && !plan.contains("TEMP B-TREE"), "{conditions}: {plan}");
        }
    }
}
