//! Rules of `stores`.

use super::Check;
use crate::config::model::StoreKind;
use crate::config::values::Span;
use crate::timing::SECOND;

/// What a role's store may be, and which of its options belong to which kind.
struct Role {
    name: &'static str,
    /// The name of the interface in messages.
    title: &'static str,
    kinds: &'static [StoreKind],
    /// The option that must be true for memory.
    acknowledge: &'static str,
}

const LEASE: Role = Role {
    name: "lease",
    title: "LeaseStore",
    kinds: &[StoreKind::Dynamodb, StoreKind::Memory],
    acknowledge: "acknowledge_single_replica",
};
const OUTBOX: Role = Role {
    name: "outbox",
    title: "OutboxStore",
    kinds: &[StoreKind::Sqlite, StoreKind::Dynamodb, StoreKind::Memory],
    acknowledge: "acknowledge_volatile",
};
const DLQ: Role = Role {
    name: "dlq",
    title: "DLQStore",
    kinds: &[StoreKind::Sqlite, StoreKind::Dynamodb, StoreKind::Memory],
    acknowledge: "acknowledge_volatile",
};
const SUBSCRIPTIONS: Role = Role {
    name: "managed_subscriptions",
    title: "ManagedSubscriptionStore",
    kinds: &[StoreKind::Sqlite, StoreKind::Dynamodb],
    acknowledge: "",
};

const LEDGER: Role = Role { name: "ledger", title: "DropLedger", kinds: &[StoreKind::Sqlite, StoreKind::Dynamodb], acknowledge: "" };

const COMMANDS: Role = Role { name: "commands", title: "CommandStore", kinds: &[StoreKind::Dynamodb, StoreKind::Memory], acknowledge: "" };

/// Options that only SQLite has, and options that only DynamoDB has.
const SQLITE_ONLY: [&str; 2] = ["path", "retention"];
const DYNAMODB_ONLY: [&str; 3] = ["table_name", "compaction_grace", "max_scan_pages"];

pub(super) fn check(check: &mut Check<'_>) {
    let stores = &check.config.stores;
    if let Some(lease) = &stores.lease {
        role(check, &LEASE, lease.kind, lease.options.acknowledge_single_replica, None);
    }
    if let Some(outbox) = &stores.outbox {
        role(check, &OUTBOX, outbox.kind, outbox.options.acknowledge_volatile, outbox.options.path.as_deref());
        outbox_options(check);
    }
    if let Some(dlq) = &stores.dlq {
        role(check, &DLQ, dlq.kind, dlq.options.acknowledge_volatile, dlq.options.path.as_deref());
        check.range("stores.dlq.options.max_scan_pages", u64::from(dlq.options.max_scan_pages), 1, 100_000);
        if let Some(retention) = dlq.options.retention {
            check.positive("stores.dlq.options.retention", retention);
        }
    }
    if let Some(ledger) = &stores.ledger {
        role(check, &LEDGER, ledger.kind, true, ledger.options.path.as_deref());
    }
    if let Some(commands) = &stores.commands {
        role(check, &COMMANDS, commands.kind, true, None);
        if commands.kind == StoreKind::Dynamodb && commands.options.table_name.is_none() {
            check.error(
                "E_CMD_TABLE",
                "stores.commands.options.table_name",
                &["stores.commands.type"],
                "stores.commands.options.table_name is required for dynamodb",
                "add `options: {table_name: causeway-commands}`",
            );
        }
    }
    if let Some(history) = &stores.managed_subscriptions {
        let path = history.options.path.as_deref();
        role(check, &SUBSCRIPTIONS, history.kind, true, path);
        if history.kind == StoreKind::Sqlite && path.is_some_and(|path| !is_clean_absolute(path)) {
            check.error(
                "E_STORE_PATH",
                "stores.managed_subscriptions.options.path",
                &[],
                "the path must be absolute, without `.` and `..`",
                "write it out, such as `/var/lib/causeway/subscriptions.db`",
            );
        }
    }
}

fn is_clean_absolute(path: &str) -> bool {
    path.starts_with('/') && !path.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."))
}

fn role(check: &mut Check<'_>, role: &Role, kind: StoreKind, acknowledged: bool, path: Option<&str>) {
    let at = format!("stores.{}", role.name);
    let kind_at = format!("{at}.type");
    let option = |name: &str| format!("{at}.options.{name}");
    if !role.kinds.contains(&kind) {
        let kinds = role.kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ");
        check.error(
            "E_STORE_ROLE",
            &kind_at,
            &[],
            format!("{} cannot keep {}", kind.as_str(), role.name),
            format!("write one of: {kinds}"),
        );
    } else if check.config.bridge.is_clustered() && kind != StoreKind::Dynamodb {
        check.error(
            "E_STORE_DISTRIBUTED",
            &kind_at,
            &["bridge.deployment_mode", "bridge.cluster.endpoints"],
            format!("clustered deployment requires a distributed {}; process-local stores (memory, sqlite) provide no cross-instance coordination", role.title),
            "write `type: dynamodb`",
        );
    } else if kind == StoreKind::Memory && !acknowledged {
        check.error(
            "E_STORE_ACKNOWLEDGE",
            &kind_at,
            &[&option(role.acknowledge)],
            format!("memory forgets everything with the process, which `{}: true` must acknowledge", role.acknowledge),
            "write `type: sqlite` or `dynamodb`, or acknowledge it under `options`",
        );
    }
    if kind == StoreKind::Sqlite && role.kinds.contains(&kind) && path.is_none_or(str::is_empty) {
        check.error(
            "E_STORE_PATH_REQUIRED",
            &option("path"),
            &[],
            format!("{} is required for sqlite", option("path")),
            "add `options: {path: /var/lib/causeway/causeway.db}`",
        );
    }
    let foreign = SQLITE_ONLY.iter().filter(|_| kind != StoreKind::Sqlite).filter(|name| **name != "retention" || role.name == "outbox");
    let foreign: Vec<&str> = foreign.chain(DYNAMODB_ONLY.iter().filter(|_| kind != StoreKind::Dynamodb)).copied().collect();
    for name in foreign.into_iter().chain([role.acknowledge].into_iter().filter(|_| kind != StoreKind::Memory)) {
        if !name.is_empty() && check.is_set(&option(name)) {
            check.error(
                "E_STORE_OPTION",
                &option(name),
                &[&kind_at],
                format!("`{name}` has no meaning for {}", kind.as_str()),
                "remove it, or change `type`",
            );
        }
    }
    if check.is_set(&option("table_name")) && !table_name(check, role.name).is_some_and(is_table_name) {
        check.error(
            "E_TABLE_NAME",
            &option("table_name"),
            &[],
            "not the name of a DynamoDB table",
            "use 3 to 255 letters, digits, `_`, `-` and `.`",
        );
    }
}

fn table_name<'a>(check: &Check<'a>, role: &str) -> Option<&'a str> {
    let stores = &check.config.stores;
    match role {
        "lease" => stores.lease.as_ref()?.options.table_name.as_deref(),
        "outbox" => stores.outbox.as_ref()?.options.table_name.as_deref(),
        "dlq" => stores.dlq.as_ref()?.options.table_name.as_deref(),
        "ledger" => stores.ledger.as_ref()?.options.table_name.as_deref(),
        "commands" => stores.commands.as_ref()?.options.table_name.as_deref(),
        _ => stores.managed_subscriptions.as_ref()?.options.table_name.as_deref(),
    }
}

fn is_table_name(name: &str) -> bool {
    (3..=255).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

fn outbox_options(check: &mut Check<'_>) {
    let Some(outbox) = &check.config.stores.outbox else {
        return;
    };
    let options = &outbox.options;
    check.range("stores.outbox.options.segment_max_messages", u64::from(options.segment_max_messages), 1, 1000);
    // A DynamoDB item holds 400 KB, keys and attributes included.
    check.range("stores.outbox.options.segment_max_bytes", u64::from(options.segment_max_bytes), 4096, 384 * 1024);
    check.range("stores.outbox.options.max_settled_ahead", u64::from(options.max_settled_ahead), 1, 1_000_000);
    check.positive("stores.outbox.options.mailbox_poll", options.mailbox_poll);
    for (name, linger) in [("segment_linger", options.segment_linger), ("send_linger", options.send_linger)] {
        if linger > Span::secs(1) {
            check.error(
                "E_LINGER",
                &format!("stores.outbox.options.{name}"),
                &[],
                format!("{linger} delays messages more than it saves"),
                "write 1s or less; 10ms is enough to fill batches",
            );
        }
    }
    stale_claim(check, options.stale_claim_duration);
}

fn stale_claim(check: &mut Check<'_>, stale: Option<Span>) {
    let path = "stores.outbox.options.stale_claim_duration";
    let Some(stale) = stale else { return };
    let send = check.config.largest_send_timeout();
    if stale.get() <= send {
        check.error(
            "E_STALE_CLAIM",
            path,
            &["routes"],
            format!("stale_claim_duration {stale} must be above the largest send_timeout ({}s): a message would be sent again while its first send still runs", send.as_secs_f64()),
            "raise it, or lower send_timeout",
        );
    } else if stale.get() <= send + check.config.bridge.max_drain_timeout.get() {
        check.warning(
            "W_STALE_CLAIM",
            path,
            &["routes", "bridge"],
            format!("stale_claim_duration {stale} is not above send_timeout plus max_drain_timeout: a drain before a stop may send a message twice"),
            "raise it above their sum",
        );
    }
    let largest = check
        .config
        .sessions
        .iter()
        .filter_map(|session| check.config.session_timing(session).ok())
        .map(|timing| timing.cadence.step_down_grace)
        .max();
    if let Some(grace) = largest.filter(|grace| *grace >= stale.as_nanos()) {
        check.warning(
            "W_STALE_CLAIM_GRACE",
            path,
            &["routes"],
            format!("stale_claim_duration {stale} is not above step_down_grace ({}s)", grace / SECOND),
            "raise it above step_down_grace",
        );
    }
}
