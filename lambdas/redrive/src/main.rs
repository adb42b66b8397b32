//! The redrive function.

use causeway_redrive::{Parts, handler};
use std::sync::Arc;
use tokio::sync::OnceCell;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    causeway_lambda::start_logs();
    let parts = Arc::new(OnceCell::new());
    // While the process starts, which costs nothing; what fails now is tried again, and told, by the first invocation.
    drop(parts.get_or_try_init(Parts::connect).await.inspect_err(|error| tracing::warn!(%error, "not ready yet")));
    causeway_lambda::serve(move |event, invocation| {
        let parts = Arc::clone(&parts);
        async move { handler::handle(&event, &invocation, parts.get_or_try_init(Parts::connect).await?).await }
    })
    .await
}
