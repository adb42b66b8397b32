//! Contract suites: every implementation of a port runs the same one.
