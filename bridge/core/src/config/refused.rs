//! What is refused for good, and why: keys that other bridges know and this one never will.

use super::decode::Verdict;
use super::tree::{Node, Scalar, Typed, Value};

/// Judges a key that the model does not know.
pub(super) fn judge(path: &str, node: &Node) -> Option<Verdict> {
    let key = path.rsplit('.').next().unwrap_or(path);
    let refused = |code, message: &str, remedy: &str| Some(Verdict::Refused(code, message.to_owned(), remedy.to_owned()));
    match key {
        "insecure_skip_verify" if is_false(node) => Some(Verdict::Harmless),
        "allow_unfenced" if is_false(node) => Some(Verdict::Harmless),
        "allow_unfenced" => refused(
            "E_UNFENCED",
            "allow_unfenced is refused: an outbox without a fence lets a former owner go on writing, and messages would be lost or sent out of order",
            "remove it; every outbox is fenced",
        ),
        _ if path.contains(".tls.") && turns_verification_off(key) => refused(
            "E_TLS_VERIFICATION",
            "turning TLS verification off is refused: anybody on the way could read and change the messages",
            "remove it, and trust a private authority with `ca_cert_file` or `ca_cert_pem`",
        ),
        _ if path == "config_watch" => refused(
            "E_CONFIG_WATCH",
            "config_watch is refused: a running bridge never changes its configuration",
            "remove it; publish a changed configuration as a new task revision, which rolls out by itself",
        ),
        "rollout" | "members" | "confirm_window" if path.starts_with("bridge.cluster.") => refused(
            "E_CLUSTER_ROLLOUT",
            "changing the configuration of a running cluster is refused: it is the orchestrator that rolls out a new revision, one replica after another",
            "remove it; publish a changed configuration as a new task revision",
        ),
        "region" | "endpoint" if path.starts_with("stores.") => refused(
            "E_STORE_REGION",
            "stores take region and endpoint from the AWS SDK's chain only",
            "remove it; set AWS_REGION, or AWS_ENDPOINT_URL_DYNAMODB for another endpoint",
        ),
        "auto_redrive_window" if path.starts_with("stores.") => refused(
            "E_REDRIVE_WINDOW",
            "auto_redrive_window belongs to the dead-letter store alone",
            "move it to `stores.dlq.auto_redrive_window`",
        ),
        _ => None,
    }
}

fn turns_verification_off(key: &str) -> bool {
    ["insecure", "verify", "verification", "skip"].iter().any(|word| key.to_ascii_lowercase().contains(word))
}

fn is_false(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar(scalar @ Scalar { interpolated: false, .. }) if scalar.typed() == Typed::Bool(false))
}
