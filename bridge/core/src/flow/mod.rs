//! Limits on what is taken in: so many messages in so much time, for each key.
//!
//! A limit is a list of [`Pairs`], all of which must hold. How they are kept is a [`Mode`]; who shares one budget is said by a [`LimitKey`]. A
//! [`Limiter`] keeps the budgets of one limit, and a [`Gate`] asks all limits about a message.
//!
//! What is sent has bounds of its own: [`sender`].

mod bucket;
pub mod capacity;
mod configured;
mod expiry;
mod gate;
mod key;
mod limiter;
mod pairs;
pub mod quota;
mod reason;
pub mod sender;
pub mod share;
mod store;
mod window;

pub use configured::{arrival_limits, send_limits};
pub use expiry::{Expiry, forwarded_expiry};
pub use gate::{Exceeded, Gate, Limit, OnExceed, Verdict};
pub use key::{KeyError, LimitKey, NO_KEY};
pub use limiter::{Limiter, Mode, OVERFLOW_KEY};
pub use pairs::{MAX_COUNT, MAX_SECONDS, Pair, Pairs, PairsError};
pub use reason::Reason;
pub use store::{DEFAULT_MESSAGES, MAX_KEYS, OnFull, StoreBound, StoreKey, StoreUsage, StoreVerdict, Usage};
