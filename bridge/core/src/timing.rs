//! Lease cadence and failover budgets.
