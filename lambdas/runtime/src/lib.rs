//! What the two functions share: their environment, their errors, the way that an invocation is answered, and the line of metrics.

mod environment;
mod error;
mod serve;
mod telemetry;

pub use environment::{Environment, random};
pub use error::FunctionError;
pub use serve::{Function, Invocation, run};
pub use telemetry::{Emitter, start_logs};
