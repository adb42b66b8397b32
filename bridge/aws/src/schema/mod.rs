//! Every table that the product keeps: the one definition from which tables are created, checked, and written into templates.

mod create;
mod verify;

pub use create::{create_input, create_missing_tables};
pub use verify::verify;

use serde_json::{Value, json};

/// A key attribute's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// Text.
    S,
    /// A number.
    N,
}

/// A key attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: KeyType,
}

const fn s(name: &'static str) -> Key {
    Key { name, kind: KeyType::S }
}

const fn n(name: &'static str) -> Key {
    Key { name, kind: KeyType::N }
}

/// What a global secondary index holds besides its keys and the table's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    /// Nothing.
    KeysOnly,
    /// These attributes.
    Include(&'static [&'static str]),
}

/// A global secondary index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name.
    pub name: &'static str,
    /// Its partition key.
    pub partition: Key,
    /// Its sort key.
    pub sort: Key,
    /// What it holds.
    pub projection: Projection,
}

/// Whether DynamoDB may remove items by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeToLive {
    /// Never. The text says what would be lost.
    Forbidden(&'static str),
    /// Not used; harmless where it is switched on.
    Unused,
    /// By this attribute, in seconds since 1970.
    Attribute(&'static str),
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its role, and the last part of its default name.
    pub role: &'static str,
    /// Its partition key.
    pub partition: Key,
    /// Its sort key.
    pub sort: Option<Key>,
    /// Its indexes.
    pub indexes: &'static [Index],
    /// Whether DynamoDB may remove items.
    pub time_to_live: TimeToLive,
}

/// Leases, quotas and members. Its rows carry the fencing version.
pub const LEASES: Table = Table {
    role: "leases",
    partition: s("pk"),
    sort: None,
    indexes: &[],
    time_to_live: TimeToLive::Forbidden("its rows carry the fencing versions, and a version that vanished would be given out twice"),
};

/// The outbox logs and their registry.
pub const OUTBOX: Table = Table {
    role: "outbox",
    partition: s("pk"),
    sort: Some(s("sk")),
    indexes: &[],
    time_to_live: TimeToLive::Forbidden("a message that waits to be sent must never be able to vanish"),
};

/// Dead letters. The indexes leave the payload out: a letter is read by its key once the index named it.
pub const DLQ: Table = Table {
    role: "dlq",
    partition: s("pk"),
    sort: Some(s("sk")),
    indexes: &[
        Index {
            name: BY_ROUTE,
            partition: s("route_id"),
            sort: s("failed_sort"),
            projection: Projection::Include(&["category", "error_code", "state"]),
        },
        Index {
            name: BY_CATEGORY,
            partition: s("category"),
            sort: s("failed_sort"),
            projection: Projection::Include(&["route_id", "error_code", "state"]),
        },
    ],
    time_to_live: TimeToLive::Attribute("ttl"),
};

/// The dead letters' index by route.
pub const BY_ROUTE: &str = "by_route";
/// The dead letters' index by category.
pub const BY_CATEGORY: &str = "by_category";

/// What persistent sessions have subscribed to.
pub const MANAGED_SUBSCRIPTIONS: Table =
    Table { role: "managed_subscriptions", partition: s("storage_identity"), sort: None, indexes: &[], time_to_live: TimeToLive::Unused };

/// Commands that wait for their responses.
pub const COMMANDS: Table = Table {
    role: "commands",
    partition: s("pk"),
    sort: None,
    indexes: &[Index { name: "by_due", partition: n("due_shard"), sort: n("due_at"), projection: Projection::KeysOnly }],
    time_to_live: TimeToLive::Attribute("ttl"),
};

/// What was dropped, by client, reason, topic and direction.
pub const LEDGER: Table =
    Table { role: "ledger", partition: s("pk"), sort: Some(s("sk")), indexes: &[], time_to_live: TimeToLive::Attribute("ttl") };

/// Every table.
pub const TABLES: [&Table; 6] = [&LEASES, &OUTBOX, &DLQ, &MANAGED_SUBSCRIPTIONS, &COMMANDS, &LEDGER];

impl Table {
    /// The name that the table has unless the configuration says otherwise: `causeway-<role>`, with hyphens.
    #[must_use]
    pub fn default_name(&self) -> String {
        format!("causeway-{}", self.role.replace('_', "-"))
    }

    /// Every attribute that is a key of the table or of an index, once each.
    #[must_use]
    pub fn key_attributes(&self) -> Vec<Key> {
        let indexed = self.indexes.iter().flat_map(|index| [index.partition, index.sort]);
        let mut keys: Vec<Key> = Vec::new();
        for key in core::iter::once(self.partition).chain(self.sort).chain(indexed) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }
}

/// All definitions as JSON, for templates and documents that must not differ from them.
#[must_use]
pub fn to_json() -> Value {
    let key = |key: &Key| json!({ "name": key.name, "type": format!("{:?}", key.kind) });
    let index = |index: &Index| {
        let (projection, attributes) = match index.projection {
            Projection::KeysOnly => ("KEYS_ONLY", Vec::new()),
            Projection::Include(names) => ("INCLUDE", names.to_vec()),
        };
        json!({
            "name": index.name, "partition_key": key(&index.partition), "sort_key": key(&index.sort),
            "projection": projection, "non_key_attributes": attributes,
        })
    };
    let table = |table: &&Table| {
        let attribute = match table.time_to_live {
            TimeToLive::Attribute(name) => Some(name),
            TimeToLive::Forbidden(_) | TimeToLive::Unused => None,
        };
        json!({
            "role": table.role, "default_name": table.default_name(), "partition_key": key(&table.partition),
            "sort_key": table.sort.as_ref().map(key), "indexes": table.indexes.iter().map(index).collect::<Vec<_>>(),
            "ttl_attribute": attribute, "ttl_forbidden": matches!(table.time_to_live, TimeToLive::Forbidden(_)),
            "billing": "PAY_PER_REQUEST", "point_in_time_recovery": true, "deletion_protection": true,
        })
    };
    json!({ "tables": TABLES.iter().map(table).collect::<Vec<_>>() })
}
