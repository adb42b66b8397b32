//! Where a run stopped, in a form that only fits the request that it came from.

use super::fields::InvalidEvent;
use sha2::{Digest, Sha256};

/// The version of the form. Another one is refused instead of guessed at.
const VERSION: &str = "1";

/// Names what a continuation is bound to: 16 hexadecimal digits over the parts, each with its length.
#[must_use]
pub fn bound_to(parts: &[&str]) -> String {
    use core::fmt::Write;
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Writes a continuation. Opaque to whoever gives it back.
#[must_use]
pub fn write(bound_to: &str, at: &str) -> String {
    format!("{VERSION}.{bound_to}.{at}")
}

/// Reads a continuation back.
///
/// # Errors
/// Where it is none, of another version, or of another request.
pub fn read<'a>(text: &'a str, bound_to: &str) -> Result<&'a str, InvalidEvent> {
    let refuse = |message: &str| Err(InvalidEvent::new("continuation", message));
    let mut parts = text.splitn(3, '.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(VERSION), Some(bound), Some(at)) if bound == bound_to => Ok(at),
        (Some(VERSION), Some(_), Some(_)) => {
            refuse("it belongs to another filter: give it back with the request that it came from, or begin without one")
        }
        (Some(version), Some(_), Some(_)) if version.parse::<u32>().is_ok() => refuse("another release made it: begin without one"),
        _ => refuse("this is not a continuation: give back the one of the last answer, or none"),
    }
}
