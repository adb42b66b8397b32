//! The redrive function.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    causeway_lambda::run::<causeway_redrive::Parts>().await
}
