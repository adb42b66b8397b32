//! Values that a state tells apart by what they print: many of the core's types can be printed and cannot be hashed.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A value and a digest of its whole `Debug` form. Cheap to copy, compare and hash.
#[derive(Debug)]
pub struct Named<T> {
    digest: u64,
    value: Arc<T>,
}

impl<T: Debug> Named<T> {
    pub fn new(value: T) -> Self {
        Self { digest: digest(&value), value: Arc::new(value) }
    }

    pub const fn digest(&self) -> u64 {
        self.digest
    }
}

impl<T> std::ops::Deref for Named<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Clone for Named<T> {
    fn clone(&self) -> Self {
        Self { digest: self.digest, value: Arc::clone(&self.value) }
    }
}

impl<T> PartialEq for Named<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}
impl<T> Eq for Named<T> {}

impl<T> Hash for Named<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// A digest of what the value prints.
pub fn digest(value: &impl Debug) -> u64 {
    let mut hash = DefaultHasher::new();
    format!("{value:?}").hash(&mut hash);
    hash.finish()
}
