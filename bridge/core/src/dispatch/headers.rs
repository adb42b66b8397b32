//! Headers that belong to bridges: what is believed of them, and how a message that goes in circles is found out.

use crate::message::Message;

/// Headers of this beginning are a bridge's to set. Whoever else sets them is not heard.
pub const RESERVED: &str = "x-bridge.";
/// Over how many bridges a message came.
pub const HOPS: &str = "x-bridge.forwarded-hop";
/// The bridge that forwarded it last.
pub const FORWARDED_FROM: &str = "x-bridge.forwarded-from";
/// The tenant that it belongs to.
pub const TENANT: &str = "x-bridge.tenant-id";

/// What its order is kept by, in the place of its topic.
pub const ORDERING_KEY: &str = "x-bridge.ordering-key";
/// What repetitions of it are told by, in the place of its entry's id.
pub const DEDUP_ID: &str = "x-bridge.dedup-id";

/// A message goes over so many bridges at most; one that would go over more goes in circles.
pub const MAX_HOPS: u32 = 8;

/// What another bridge may tell, where a route believes it: all else under [`RESERVED`] is internal to a bridge.
const TRUSTED: [&str; 8] =
    ["x-bridge.correlation-id", "x-bridge.causation-id", "x-bridge.idempotency-key", DEDUP_ID, ORDERING_KEY, TENANT, FORWARDED_FROM, HOPS];

fn is_reserved(name: &str) -> bool {
    name.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
}

/// Takes the reserved headers off, but for those that may be believed if `trust` is given. Gives the number of bridges that it came over: that one is
/// always read, since it can only bring its own message to an end.
pub fn strip(message: &mut Message, trust: bool) -> u32 {
    let user = &mut message.properties.user;
    let hops = user.iter().filter(|(name, _)| name.eq_ignore_ascii_case(HOPS)).map(|(_, value)| value.parse().unwrap_or(u32::MAX)).max();
    if user.iter().any(|(name, _)| is_reserved(name)) {
        user.retain(|(name, _)| !is_reserved(name) || trust && TRUSTED.iter().any(|trusted| name.eq_ignore_ascii_case(trusted)));
    }
    hops.unwrap_or(0)
}

/// What a header of a message that came through [`strip`] says, which took off what is not believed. The last one of that name counts.
#[must_use]
pub fn believed<'m>(message: &'m Message, name: &str) -> Option<&'m str> {
    let user = message.properties.user.iter().rev();
    user.filter(|(_, value)| !value.is_empty()).find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Sets a header in the place of every one of that name.
pub fn set(message: &mut Message, name: &str, value: String) {
    let user = &mut message.properties.user;
    user.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    user.push((name.to_owned(), value));
}
