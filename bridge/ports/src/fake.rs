//! Scriptable doubles of the ports.
