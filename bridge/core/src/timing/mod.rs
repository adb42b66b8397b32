//! The lease's cadence and what a failover may cost: integer nanoseconds, checked, and closed where anything is doubtful.
//!
//! [`cadence`] turns what was configured into intervals and refuses those that could lose the lease of a healthy owner. [`budget`] adds up the worst
//! case from failure detection to a successor at full service, and admits a declared objective only if it holds.

pub mod budget;
pub mod cadence;

pub use budget::{Activation, Budget, BudgetError, BudgetTerms, MqttActivation};
pub use cadence::{Cadence, CadenceError, CadenceInput, Profile};

/// A span in whole nanoseconds. Signed, so that a negative term is seen and refused instead of wrapping.
pub type Nanos = i64;

/// Nanoseconds in a millisecond.
pub const MILLI: Nanos = 1_000_000;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;
