//! What a member of a bridge tells of itself, in the table of the leases. Key: `MEMBER#<bridge>#<owner>`; there is no sort key.

use super::lease::{decode_facts, encode_facts};
use super::{Item, ItemError, PK, n, number, s, text};
use aws_sdk_dynamodb::types::AttributeValue;
use causeway_core::units::UnixMillis;
use causeway_ports::MemberRecord;

/// What every member's key begins with.
pub(crate) const PREFIX: &str = "MEMBER#";

pub(crate) const BRIDGE: &str = "bridge";
const OWNER: &str = "owner";
const ROLE: &str = "role";
const STARTED_AT: &str = "started_at";
const WRITTEN_AT: &str = "written_at";
const SESSIONS: &str = "sessions";

/// What the keys of the members of `bridge` begin with; those of other bridges do not, as long as no bridge's name holds `#`.
#[must_use]
pub fn prefix(bridge: &str) -> String {
    format!("{PREFIX}{bridge}#")
}

/// The key of a member; `None` where the bridge's name holds `#`, which separates it from the owner's, or is empty.
#[must_use]
pub fn key(bridge: &str, owner: &str) -> Option<Item> {
    (!bridge.is_empty() && !bridge.contains('#')).then(|| Item::from([(PK.to_owned(), s(prefix(bridge) + owner))]))
}

/// The item of `member`; `None` where it has no key.
#[must_use]
pub fn encode(member: &MemberRecord) -> Option<Item> {
    let mut item = key(&member.bridge, &member.owner)?;
    item.extend([
        (BRIDGE.to_owned(), s(member.bridge.as_str())),
        (OWNER.to_owned(), s(member.owner.as_str())),
        (ROLE.to_owned(), s(member.role.as_str())),
        (STARTED_AT.to_owned(), n(member.started_at.0)),
        (WRITTEN_AT.to_owned(), n(member.written_at.0)),
    ]);
    let sessions = member.sessions.iter().map(|(session, level)| (session.clone(), s(level.as_str()))).collect();
    item.insert(SESSIONS.to_owned(), AttributeValue::M(sessions));
    encode_facts(&mut item, &member.facts);
    Some(item)
}

/// Reads it back.
///
/// # Errors
/// [`ItemError`] where the item is not a member.
pub fn decode(item: &Item) -> Result<MemberRecord, ItemError> {
    // Of an older release, or of a newer one: nothing is decided by it.
    let sessions = item.get(SESSIONS).and_then(|value| value.as_m().ok());
    let level = |(session, level): (&String, &AttributeValue)| Some((session.clone(), level.as_s().ok()?.clone()));
    Ok(MemberRecord {
        sessions: sessions.into_iter().flatten().filter_map(level).collect(),
        bridge: text(item, BRIDGE)?.to_owned(),
        owner: text(item, OWNER)?.to_owned(),
        role: text(item, ROLE)?.to_owned(),
        facts: decode_facts(item),
        started_at: UnixMillis(number(item, STARTED_AT)?),
        written_at: UnixMillis(number(item, WRITTEN_AT)?),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::lease::tests::any_facts;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(bridge in "[^#]{1,20}", owner in ".*", role in ".*", facts in any_facts(), sessions in proptest::collection::btree_map(".{1,12}", ".*", 0..4), started_at: u64, written_at: u64) {
            let member = MemberRecord { bridge, owner, role, facts, sessions, started_at: UnixMillis(started_at), written_at: UnixMillis(written_at) };
            prop_assert_eq!(decode(&encode(&member).unwrap()).unwrap(), member);
        }

        #[test]
        fn no_two_members_share_a_key(a in ("[a#]{0,4}", "[a#]{0,4}"), b in ("[a#]{0,4}", "[a#]{0,4}")) {
            let (one, other) = (key(&a.0, &a.1), key(&b.0, &b.1));
            prop_assert_eq!(one.is_some(), !a.0.is_empty() && !a.0.contains('#'));
            prop_assert!(one.is_none() || (one == other) == (a == b));
        }
    }
}
