//! Posts of messages: `POST /transport/http/receivers/{id}/messages`. Answered with 202 once the message stands in the mailbox of its route's log.
//!
//! What is decided is decided in [`causeway_core::ingress`]; here it is asked for, sent and stored.

use super::auth::ApiKey;
use super::forward::Forwarder;
use super::serve::client;
use crate::ingress::{Deposited, deposit};
use crate::secrets::Token;
use crate::telemetry::logs::AUDIT;
use crate::telemetry::{Metrics, PostResult};
use axum::Json;
use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use causeway_core::dispatch::{Arrival, Dispatch};
use causeway_core::guesses::Guesses;
use causeway_core::identity::IdSequence;
use causeway_core::ingress::{
    Attempt, Begun, Decision, Envelope, EnvelopeError, Locator, Look, Next, Place, Posts, Refused, decide, id_of_its_own, mail_of,
};
use causeway_core::message::Message;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::proxies::Proxies;
use causeway_core::source_id::content_digest;
use causeway_ports::{Clock, Leases, Mailbox, MailboxName};
use core::net::IpAddr;
use core::time::Duration;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tracing::{debug, warn};

/// Where messages are posted; `{id}` is the receiver's.
pub const PATH: &str = "/transport/http/receivers/{id}/messages";
/// Says that another member sent the post here.
pub const FORWARDED: &str = "x-bridge-forwarded";
/// The caller's id of the message.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// So much larger may the body of a post be that another member passed on: an id of 256 bytes, each of which JSON may escape.
const FORWARDED_MORE: usize = 2 * 1024;
/// Reading a lease takes no longer.
const LEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// A receiver that messages are posted to.
pub struct PostReceiver {
    /// Its id.
    pub id: Arc<str>,
    /// What callers show, and what members show each other.
    pub token: Token,
    /// The largest body, in bytes.
    pub max_body_bytes: usize,
    /// Whether the mailbox is as good where the owner cannot be told or reached.
    pub fail_open: bool,
    /// Where its messages go.
    pub dispatch: Arc<Dispatch>,
    /// The mailbox of the log that keeps them.
    pub mailbox: Arc<dyn Mailbox>,
    /// The mailbox's name.
    pub name: MailboxName,
    /// Wakes the owner loop of this process, which looks into the mailbox at once if it is the owner.
    pub mailed: Arc<Notify>,
    /// The lease of the owner; `None` where every process sends what is posted.
    pub lease: Option<OwnerLease>,
}

/// Where it stands who the owner is.
pub struct OwnerLease {
    /// The store.
    pub leases: Arc<dyn Leases>,
    /// The row's key.
    pub key: String,
    /// This process, as leases call it.
    pub me: String,
}

struct Posted {
    receiver: PostReceiver,
    key: ApiKey,
    locator: Mutex<Locator>,
    forwarder: Forwarder,
}

/// Every receiver that messages are posted to.
#[derive(Clone)]
pub struct PostBoard(Arc<Board>);

struct Board {
    receivers: BTreeMap<String, Posted>,
    posts: Mutex<Posts>,
    guesses: Mutex<Guesses>,
    proxies: Proxies,
    ids: Mutex<IdSequence>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl core::fmt::Debug for PostBoard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PostBoard").field("receivers", &self.0.receivers.keys()).finish_non_exhaustive()
    }
}

impl PostBoard {
    /// Takes posts for `receivers`, behind these proxies. `id_base` is a number that no other process draws.
    ///
    /// # Errors
    /// Where the HTTP client cannot be built.
    pub fn new(
        receivers: Vec<PostReceiver>,
        id_base: u128,
        proxies: Proxies,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Self, reqwest::Error> {
        let posted = |receiver: PostReceiver| {
            let me = receiver.lease.as_ref().map_or("", |lease| lease.me.as_str());
            let locator = Mutex::new(Locator::new(me));
            let (key, forwarder) = (ApiKey::of(receiver.token.clone()), Forwarder::new(&receiver.id, receiver.token.clone())?);
            Ok((receiver.id.to_string(), Posted { key, locator, forwarder, receiver }))
        };
        Ok(Self(Arc::new(Board {
            receivers: receivers.into_iter().map(posted).collect::<Result<_, reqwest::Error>>()?,
            posts: Mutex::default(),
            guesses: Mutex::default(),
            proxies,
            ids: Mutex::new(IdSequence::new(id_base)),
            clock,
            metrics,
        })))
    }

    /// Its route.
    pub fn router(self) -> Router {
        Router::new().route(PATH, post(take)).with_state(self)
    }
}

/// How a post ended well.
struct Accepted {
    id: String,
    kept: Kept,
    /// Whether another member has it.
    forwarded: bool,
}

/// What stands in the mailbox, or stood there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// The message.
    Now,
    /// The message, from before.
    Before,
    /// Nothing: every route that it came by filters it out, and keeps nothing of it.
    Filtered,
}

impl Kept {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Now => "accepted",
            Self::Before => "repeated",
            Self::Filtered => "filtered",
        }
    }

    /// As the owner told it.
    fn told(status: &str) -> Self {
        [Self::Before, Self::Filtered].into_iter().find(|kept| kept.as_str() == status).unwrap_or(Self::Now)
    }
}

impl Accepted {
    const fn here(id: String, kept: Kept) -> Self {
        Self { id, kept, forwarded: false }
    }
}

fn in_progress() -> Refused {
    Refused::for_now(409, "IN_PROGRESS", "a post with this id is being carried out just now")
}

fn reused() -> Refused {
    Refused::for_good(422, "ID_REUSED", "this id was given to another message: each message needs an id of its own")
}

async fn take(State(board): State<PostBoard>, Path(id): Path<String>, request: Request) -> Response {
    let board = &*board.0;
    let posted = match admit(board, &id, &Caller::of(&request, &board.proxies), request.headers()) {
        Ok(posted) => posted,
        Err(refused) => return refuse(&refused),
    };
    // Whoever passes a post on writes its id into the body.
    let envelope = if request.headers().contains_key(FORWARDED) { FORWARDED_MORE } else { 0 };
    let ended = match read(request, posted.receiver.max_body_bytes + envelope).await {
        Ok((headers, body)) => posted.handle(board, &headers, &body).await,
        Err(refused) => Err(refused),
    };
    let result = match &ended {
        Ok(Accepted { forwarded: true, .. }) => PostResult::Forwarded,
        Ok(Accepted { kept: Kept::Before, .. }) => PostResult::Repeated,
        Ok(Accepted { kept: Kept::Filtered, .. }) => PostResult::Filtered,
        Ok(Accepted { kept: Kept::Now, .. }) => PostResult::Accepted,
        Err(refused) if refused.retry_after.is_some() => PostResult::Unavailable,
        Err(_) => PostResult::Refused,
    };
    board.metrics.count_post(&id, result);
    match ended {
        Ok(Accepted { id, kept, .. }) => (StatusCode::ACCEPTED, Json(json!({ "id": id, "status": kept.as_str() }))).into_response(),
        Err(refused) => {
            debug!(receiver = id, status = refused.status, code = refused.code, "a post was refused");
            refuse(&refused)
        }
    }
}

/// Whoever posts.
struct Caller {
    address: IpAddr,
    /// Whether the address is shut out after wrong tokens. Only where it is surely one caller's: without proxies that are known, all callers of a load
    /// balancer come from its address; and a member's address passes on what many posted, and comes by no proxy itself.
    counts: bool,
}

impl Caller {
    fn of(request: &Request, proxies: &Proxies) -> Self {
        let address = client(request, proxies);
        let direct = client(request, &Proxies::default()) == address;
        let passed_on = direct && request.headers().contains_key(FORWARDED);
        Self { address, counts: !proxies.is_empty() && !passed_on }
    }
}

/// The receiver of this id, for whoever shows its token. Whoever showed wrong ones too often waits, with a right one too: else the answer would tell which one
/// is right.
fn admit<'b>(board: &'b Board, id: &str, &Caller { address, counts }: &Caller, headers: &HeaderMap) -> Result<&'b Posted, Refused> {
    let now = board.clock.now();
    let guesses = || board.guesses.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(left) = guesses().shut_out(address, now).filter(|_| counts) {
        let detail = "too many wrong tokens came from this address";
        return Err(Refused { retry_after: Some(left), ..Refused::for_now(429, "TOO_MANY_FAILURES", detail) });
    }
    let admits = |posted: &Posted| posted.key.admits(headers);
    match board.receivers.get(id) {
        Some(posted) if admits(posted) => Ok(posted),
        None if board.receivers.values().any(admits) => Err(Refused::for_good(404, "NO_RECEIVER", "there is no such receiver")),
        // Who shows no token learns nothing, not even which receivers there are.
        Some(_) | None => {
            // No token is no guess.
            if headers.contains_key("x-api-key") || headers.contains_key(header::AUTHORIZATION) {
                if counts {
                    guesses().wrong(address, now);
                }
                tracing::warn!(target: AUDIT, action = "auth.failure", receiver = id, %address, "a wrong token for a receiver");
            }
            Err(Refused::for_good(401, "UNAUTHORIZED", "send the receiver's token as a bearer token or as X-API-Key"))
        }
    }
}

/// The headers and the whole body.
async fn read(request: Request, limit: usize) -> Result<(HeaderMap, Bytes), Refused> {
    let (parts, body) = request.into_parts();
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Refused::for_good(415, "MEDIA_TYPE", "post `application/json`: an object with `payload` or `payload_base64`"));
    }
    let too_large = || Refused::for_good(413, "TOO_LARGE", format!("the body is larger than {limit} bytes"));
    let told = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if told.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    match to_bytes(body, limit).await {
        Ok(body) => Ok((parts.headers, body)),
        // Too long, or cut off; who cut it off does not read the answer.
        Err(_) => Err(too_large()),
    }
}

impl Posted {
    async fn handle(&self, board: &Board, headers: &HeaderMap, body: &[u8]) -> Result<Accepted, Refused> {
        let invalid = |error: EnvelopeError| Refused::for_good(400, "INVALID_MESSAGE", error.to_string());
        let envelope = Envelope::parse(body).map_err(invalid)?;
        let key = headers.get(IDEMPOTENCY_KEY).map(HeaderValue::to_str).transpose();
        let given = envelope.id_with(key.map_err(|_| invalid(EnvelopeError::Id))?).map_err(invalid)?;
        let id = given.unwrap_or_else(|| id_of_its_own(&mut board.ids.lock().unwrap_or_else(PoisonError::into_inner)));
        // The whole of it is looked at before anybody else is bothered.
        let message = envelope.clone().message(&self.receiver.id, Some(&id)).map_err(invalid)?;
        // What this process has accepted itself is a repeat wherever the owner is now.
        let known = board.posts.lock().unwrap_or_else(PoisonError::into_inner).known(&self.receiver.id, &id, content_digest(&message));
        match known {
            Some(Begun::Repeat) => return Ok(Accepted::here(id, Kept::Before)),
            Some(Begun::Other) => return Err(reused()),
            Some(Begun::First | Begun::Busy) | None => {}
        }
        let mut attempt = Attempt::new(board.clock.now(), self.receiver.fail_open);
        loop {
            let place = self.place(board).await;
            if let Place::Nowhere(why) = &place {
                board.metrics.count_unknown_owner(&self.receiver.id, *why);
            }
            let (owner, url) = match decide(&place, headers.contains_key(FORWARDED), self.receiver.fail_open) {
                Decision::Keep => return self.keep(board, id, message).await,
                Decision::Refuse(refused) => return Err(refused),
                Decision::Forward { owner, url } => (owner, url),
            };
            let sent = self.forwarder.send(&*board.clock, &attempt, &owner, &url, &id, &envelope).await;
            let passed = match sent {
                Ok(passed) => passed,
                Err(_) if self.receiver.fail_open => return self.keep(board, id, message).await,
                Err(refused) => return Err(refused),
            };
            match attempt.answered(board.clock.now(), &passed.answer) {
                Next::PassOn => return passed.result(id),
                Next::Again(pause) => {
                    self.locator.lock().unwrap_or_else(PoisonError::into_inner).forget();
                    tokio::time::sleep(pause).await;
                }
                Next::Keep => return self.keep(board, id, message).await,
                Next::Refuse(refused) => {
                    self.locator.lock().unwrap_or_else(PoisonError::into_inner).forget();
                    return Err(refused);
                }
            }
        }
    }

    /// Where the owner is.
    async fn place(&self, board: &Board) -> Place {
        let Some(lease) = &self.receiver.lease else { return Place::Here };
        if let Look::Known(place) = self.locator.lock().unwrap_or_else(PoisonError::into_inner).look(board.clock.now()) {
            return place;
        }
        let late = || Fault::new(FaultCode::Timeout, "the lease store does not answer");
        let row = tokio::time::timeout(LEASE_TIMEOUT, lease.leases.read(&lease.key)).await.unwrap_or_else(|_| Err(late()));
        let mut locator = self.locator.lock().unwrap_or_else(PoisonError::into_inner);
        locator.found(board.clock.now(), board.clock.wall(), row)
    }

    /// Puts the message into the mailbox.
    async fn keep(&self, board: &Board, id: String, message: Message) -> Result<Accepted, Refused> {
        let receiver = &self.receiver;
        let content = content_digest(&message);
        let begun = board.posts.lock().unwrap_or_else(PoisonError::into_inner).begin(&receiver.id, &id, content);
        match begun {
            Begun::First => {}
            Begun::Repeat => return Ok(Accepted::here(id, Kept::Before)),
            Begun::Busy => return Err(in_progress()),
            Begun::Other => return Err(reused()),
        }
        // However this ends, dropped in the middle too.
        let mut ending = Ending { board, receiver: &receiver.id, id: &id, accepted: false };
        let posted_at = board.clock.wall();
        let arrival = Arrival { receiver: &receiver.id, received_at: posted_at, message: &message };
        let dispatched = receiver.dispatch.entries(&arrival, &mut board.ids.lock().unwrap_or_else(PoisonError::into_inner));
        let mail = mail_of(&receiver.id, &id, &content, posted_at, dispatched.entries);
        let kept = match deposit(&*receiver.mailbox, &receiver.name, mail).await {
            Ok(Deposited::Nothing) => Kept::Filtered,
            Ok(Deposited::Now) => Kept::Now,
            Ok(Deposited::Before) => Kept::Before,
            Err(fault) => return Err(self.not_kept(&fault)),
        };
        receiver.mailed.notify_one();
        ending.accepted = true;
        drop(ending);
        Ok(Accepted::here(id, kept))
    }

    fn not_kept(&self, fault: &Fault) -> Refused {
        if fault.code == FaultCode::PayloadTooLarge {
            return Refused::for_good(413, "TOO_LARGE", "the outbox cannot keep a message of this size in one row");
        }
        warn!(receiver = &*self.receiver.id, code = fault.code.as_str(), detail = %fault.detail, "a post could not be kept; its caller was told");
        Refused::for_now(503, "OUTBOX_UNAVAILABLE", "the outbox did not confirm the message: post it again with the same id")
    }
}

/// Says how a post ended.
struct Ending<'p> {
    board: &'p Board,
    receiver: &'p str,
    id: &'p str,
    accepted: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.board.posts.lock().unwrap_or_else(PoisonError::into_inner).end(self.receiver, self.id, self.accepted);
    }
}

impl super::forward::Passed {
    /// The owner's answer as this process gives it.
    fn result(self, id: String) -> Result<Accepted, Refused> {
        match self.status() {
            Some(202) => Ok(Accepted { id, kept: Kept::told(self.told()), forwarded: true }),
            // What the owner says of a post. Of anything else the caller is not to blame: the token and the receiver are known here.
            Some(409) => Err(in_progress()),
            Some(413) => Err(Refused::for_good(413, "TOO_LARGE", self.reason())),
            Some(422) => Err(reused()),
            Some(status @ (400 | 415)) => Err(Refused::for_good(status, "INVALID_MESSAGE", self.reason())),
            _ => Err(Refused::for_now(502, "OWNER_ANSWER", "the owner's address answered with something else: is it this program's?")),
        }
    }
}

fn refuse(refused: &Refused) -> Response {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = Json(json!({ "error": refused.detail, "code": refused.code }));
    match refused.retry_after {
        Some(pause) => (status, [(header::RETRY_AFTER, pause.as_secs_f64().ceil().to_string())], body).into_response(),
        None => (status, body).into_response(),
    }
}
