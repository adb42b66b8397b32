//! Models of the protocols of Causeway. They live in `tests/`: each drives the core's own state machines against an adversary and checks what
//! the core promises, and each proves that its net catches by breaking the protocol's rules one at a time.
