//! Dead letters: list, show, put back, delete.

use super::{Admin, Caller, Desked, body, failed, invalid, ok, refusal};
use crate::dead_letters::{self, Conditions, Deleted, Doomed, InvalidCondition};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use causeway_core::identity::EntryId;
use causeway_core::redrive::{Mode, Request};
use causeway_duties::redrive::run;
use causeway_ports::DeadLetters;
use core::time::Duration;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// A redrive ends after so long and says where to go on, a deletion says that it is not complete: before the request's own time is over.
const WORK: Duration = Duration::from_secs(20);
/// Letters of one listing.
const MOST_LISTED: usize = 1_000;
/// Letters of one deletion by name.
const MOST_NAMED: usize = 1_000;
/// Letters that are counted by category.
const MOST_COUNTED: usize = 10_000;

/// Conditions, as they stand in a query.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    route_id: Option<String>,
    category: Option<String>,
    error_code: Option<String>,
    state: Option<String>,
    since: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
    continuation: Option<String>,
    count: bool,
}

fn letters(admin: &Admin) -> Result<Arc<dyn DeadLetters>, Box<Response>> {
    let missing = || Box::new(refusal(StatusCode::CONFLICT, "NO_DLQ", "stores.dlq is not configured"));
    admin.desk.letters.clone().ok_or_else(missing)
}

fn unmet(condition: &InvalidCondition) -> Response {
    invalid(condition.field, &condition.message)
}

pub(super) async fn list(State(admin): State<Admin>, query: Result<Query<Listing>, QueryRejection>) -> Response {
    let Listing { route_id, category, error_code, state, since, before, limit, continuation, count } = match query {
        Ok(Query(listing)) => listing,
        Err(rejection) => return invalid("query", &rejection.body_text()),
    };
    let limit = limit.unwrap_or(100);
    if !(1..=MOST_LISTED).contains(&limit) {
        return invalid("limit", "1 to 1000 are expected");
    }
    let conditions = Conditions { route_id, category, error_code, state, since, before };
    let filter = match conditions.filter(admin.desk.clock.wall()) {
        Ok(filter) => filter,
        Err(condition) => return unmet(&condition),
    };
    let store = match letters(&admin) {
        Ok(store) => store,
        Err(response) => return *response,
    };
    let page = match dead_letters::list(&*store, &filter, limit, continuation).await {
        Ok(page) => page,
        Err(fault) => return failed(&fault),
    };
    let shown: Vec<Value> = page.letters.iter().map(|letter| dead_letters::view(letter, false)).collect();
    let mut answer = json!({ "letters": shown, "continuation": page.continuation });
    if count {
        match dead_letters::count(&*store, MOST_COUNTED).await {
            Ok((by_category, complete)) => answer["dead"] = json!({ "by_category": by_category, "complete": complete }),
            Err(fault) => return failed(&fault),
        }
    }
    ok(answer)
}

pub(super) async fn show(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse::<EntryId>() else { return invalid("id", "32 hexadecimal digits are expected") };
    let store = match letters(&admin) {
        Ok(store) => store,
        Err(response) => return *response,
    };
    match store.get(id).await {
        Ok(Some(letter)) => ok(dead_letters::view(&letter, true)),
        Ok(None) => refusal(StatusCode::NOT_FOUND, "NOT_FOUND", format!("there is no dead letter {id}")),
        Err(fault) => failed(&fault),
    }
}

/// The event of the function, and its answer: `dry_run` is true unless it says otherwise.
pub(super) async fn redrive(State(admin): State<Admin>, Extension(Caller(key)): Desked, bytes: Bytes) -> Response {
    let event: Value = match body(&bytes) {
        Ok(event) => event,
        Err(response) => return *response,
    };
    let mut nonce = [0; 8];
    if let Err(error) = getrandom::fill(&mut nonce) {
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "UNAVAILABLE", format!("no random bits: {error}"));
    }
    // The name of a key may hold what a request's may not.
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let who: String = key.chars().take(64).map(plain).collect();
    let request = match Request::parse(&event, &format!("admin-{who}-{:016x}", u64::from_be_bytes(nonce))) {
        Ok(request) if request.mode == Mode::Sqs => {
            return invalid("mode", "outbox or queue is expected: the redrive function moves dead-letter queues of SQS");
        }
        Ok(request) => request,
        Err(wrong) => return invalid(&wrong.field, &wrong.message),
    };
    let ports = match &admin.desk.redrive {
        Ok(ports) => ports,
        Err(missing) => return refusal(StatusCode::CONFLICT, "NOT_CONFIGURED", *missing),
    };
    let deadline = admin.desk.clock.now().plus(WORK);
    match run(&request, &admin.desk.routes, ports, deadline, &|_| {}).await {
        Ok(report) => ok(dead_letters::redriven(&request, &report)),
        Err(broken) => failed(&broken.fault),
    }
}

/// Which letters are deleted, and whether that is meant.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Deletion {
    ids: Vec<String>,
    filter: Conditions,
    all: bool,
    confirm: bool,
}

pub(super) async fn delete(State(admin): State<Admin>, bytes: Bytes) -> Response {
    let deletion: Deletion = match body(&bytes) {
        Ok(deletion) => deletion,
        Err(response) => return *response,
    };
    let said = [!deletion.ids.is_empty(), !deletion.filter.is_empty(), deletion.all];
    if said.into_iter().filter(|said| *said).count() != 1 {
        return invalid("body", "say which letters in one way: `ids`, `filter`, or `all: true`");
    }
    if deletion.ids.len() > MOST_NAMED {
        return invalid("ids", "1000 at most");
    }
    let doomed = if deletion.ids.is_empty() {
        match deletion.filter.filter(admin.desk.clock.wall()) {
            Ok(filter) => Doomed::Meant(filter),
            Err(condition) => return unmet(&condition),
        }
    } else {
        match deletion.ids.iter().map(|id| id.parse()).collect() {
            Ok(ids) => Doomed::Named(ids),
            Err(_) => return invalid("ids", "32 hexadecimal digits each are expected"),
        }
    };
    let store = match letters(&admin) {
        Ok(store) => store,
        Err(response) => return *response,
    };
    let mut deleted = Deleted { dry_run: !deletion.confirm, ..Deleted::default() };
    let ended = tokio::time::timeout(WORK, dead_letters::delete(&*store, &doomed, &mut deleted)).await;
    match ended {
        Ok(Err(fault)) if deleted.deleted == 0 => failed(&fault),
        // What was done is told, also where it ended halfway.
        ended => {
            let mut answer = json!(deleted);
            answer["complete"] = json!(matches!(ended, Ok(Ok(()))));
            ok(answer)
        }
    }
}
