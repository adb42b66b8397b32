//! Answering invocations.
//!
//! The runtime's own way to fail has room for a type and a text. A function of ours fails with `{"error": {"code", "field", "message"}}` as its
//! payload, so the answer is sent from a layer around it; polling, the context and the process's life stay the runtime's.

use crate::{FunctionError, start_logs};
use async_trait::async_trait;
use causeway_core::units::Instant;
use causeway_ports::{Clock as _, SystemClock};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use lambda_runtime::tower::{Layer, Service};
use lambda_runtime::{Error, LambdaEvent, LambdaInvocation, Runtime, service_fn};
use lambda_runtime_api_client::body::Body;
use lambda_runtime_api_client::{BoxError, Client, build_request};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Time kept back for the answer: a tenth of what there is, within these bounds.
const MARGIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// Echoed, so that an answer is never taken for that of another invocation.
const INVOCATION_ID: &str = "lambda-runtime-invocation-id";

/// One invocation.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// Its id.
    pub request_id: String,
    /// Nothing begins at or after this.
    pub deadline: Instant,
    /// When it began.
    pub began: Instant,
}

impl Invocation {
    fn new(request_id: &str, deadline_ms: u64) -> Self {
        let began = SystemClock.now();
        let left = Duration::from_millis(deadline_ms.saturating_sub(SystemClock.wall().0));
        let margin = (left / 10).clamp(MARGIN.0, MARGIN.1);
        Self { request_id: request_id.to_owned(), deadline: began.plus(left.saturating_sub(margin)), began }
    }

    /// How long it took so far.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        SystemClock.now().since(self.began)
    }
}

/// A function: what it is made of, and what it does with an event.
#[async_trait]
pub trait Function: Sized + Send + Sync + 'static {
    /// Makes the parts that every invocation uses.
    ///
    /// # Errors
    /// Where the environment is incomplete or the configuration cannot be read.
    async fn connect() -> Result<Self, FunctionError>;

    /// Carries out one event.
    ///
    /// # Errors
    /// A bad event, or a store without which nothing could be done.
    async fn handle(&self, event: &Value, invocation: &Invocation) -> Result<Value, FunctionError>;
}

/// Answers invocations with `F` until Lambda ends the process.
///
/// # Errors
/// Where the runtime's interface cannot be reached.
pub async fn run<F: Function>() -> Result<(), Error> {
    start_logs();
    let parts = Arc::new(OnceCell::new());
    // While the process starts, which costs nothing; what fails now is tried again, and told, by the first invocation.
    drop(parts.get_or_try_init(F::connect).await.inspect_err(|error| tracing::warn!(%error, "not ready yet")));
    serve(move |event, invocation| {
        let parts = Arc::clone(&parts);
        async move { parts.get_or_try_init(F::connect).await?.handle(&event, &invocation).await }
    })
    .await
}

async fn serve<H, F>(handler: H) -> Result<(), Error>
where
    H: Fn(Value, Invocation) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Value, FunctionError>> + Send + 'static,
{
    let client = Arc::new(Client::builder().build()?);
    let answering = Answering { handler: Arc::new(handler), client };
    // Never called: the layer answers.
    let inner = service_fn(|_: LambdaEvent<Value>| async { Ok::<Value, Error>(Value::Null) });
    Runtime::new(inner).layer(AnsweringLayer(answering)).run().await
}

struct Answering<H> {
    handler: Arc<H>,
    client: Arc<Client>,
}

impl<H> Clone for Answering<H> {
    fn clone(&self) -> Self {
        Self { handler: Arc::clone(&self.handler), client: Arc::clone(&self.client) }
    }
}

struct AnsweringLayer<H>(Answering<H>);

impl<S, H> Layer<S> for AnsweringLayer<H> {
    type Service = Answering<H>;

    fn layer(&self, _: S) -> Answering<H> {
        self.0.clone()
    }
}

impl<H, F> Service<LambdaInvocation> for Answering<H>
where
    H: Fn(Value, Invocation) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Value, FunctionError>> + Send + 'static,
{
    type Response = ();
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: LambdaInvocation) -> Self::Future {
        let (handler, client) = (Arc::clone(&self.handler), Arc::clone(&self.client));
        Box::pin(async move {
            let request_id = event.context.request_id.clone();
            let invocation = Invocation::new(&request_id, event.context.deadline);
            let answer = match serde_json::from_slice(&event.body) {
                // In a task of its own, so that a panic is an answer too.
                Ok(payload) => match tokio::spawn(handler(payload, invocation)).await {
                    Ok(answer) => answer,
                    Err(_) => Err(FunctionError::new("internal", "event", "the function failed; its log tells where")),
                },
                Err(error) => Err(FunctionError::new("invalid_request", "event", format!("not JSON: {error}"))),
            };
            let (path, kind, body) = match &answer {
                Ok(value) => ("response", None, value.clone()),
                Err(error) => {
                    tracing::error!(request_id, code = error.code, field = error.field, "{}", error.message);
                    ("error", Some(error.code.as_str()), error.payload())
                }
            };
            let mut request = build_request()
                .method("POST")
                .uri(format!("/2018-06-01/runtime/invocation/{request_id}/{path}"))
                .header("content-type", "application/json");
            if let Some(kind) = kind {
                request = request.header("lambda-runtime-function-error-type", kind);
            }
            if let Some(id) = event.parts.headers.get(INVOCATION_ID) {
                request = request.header(INVOCATION_ID, id.clone());
            }
            client.call(request.body(Body::from(serde_json::to_vec(&body)?))?).await?;
            Ok(())
        })
    }
}
