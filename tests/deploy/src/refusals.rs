//! What a role does not need it may not do.

use crate::cloud::Cloud;
use crate::stack::Made;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Tries, in each role, something that is next to what it may do. Answers how much was refused.
///
/// # Errors
/// Something was allowed.
pub async fn verify(cloud: &Cloud, made: &Made) -> Result<usize> {
    let (leases, outbox, dlq) = (made.table("-leases")?, made.table("-outbox")?, made.table("-dlq")?);
    let queue = made.of("AWS::SQS::Queue").first().map(|queue| queue.physical.clone()).unwrap_or_default();
    let attempts: [(&str, Vec<&str>); 6] = [
        ("workertaskrole", vec!["dynamodb", "delete-table", "--table-name", &outbox]),
        ("workertaskrole", vec!["dynamodb", "scan", "--table-name", &outbox]),
        (
            "controltaskrole",
            vec![
                "dynamodb",
                "update-time-to-live",
                "--table-name",
                &leases,
                "--time-to-live-specification",
                "Enabled=true,AttributeName=ttl",
            ],
        ),
        ("workertaskrole", vec!["sqs", "purge-queue", "--queue-url", &queue]),
        ("HousekeepingRole", vec!["sqs", "send-message", "--queue-url", &queue, "--message-body", "x"]),
        ("RedriveRole", vec!["dynamodb", "scan", "--table-name", &dlq]),
    ];
    let roles = made.of("AWS::IAM::Role");
    let mut refused = 0;
    let mut somebody = BTreeMap::new();
    for (part, arguments) in &attempts {
        let found = roles.iter().find(|role| role.logical.contains(part));
        let Some(role) = found else { anyhow::bail!("the stack made no role like {part}") };
        let arn = format!("arn:aws:iam::{}:role/{}", crate::cloud::ACCOUNT, role.physical);
        let caller = match somebody.entry(arn) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let caller = cloud.in_role(new.key()).await?;
                new.insert(caller)
            }
        };
        let answer = caller.aws(arguments).await;
        let denied = answer.as_ref().err().is_some_and(|fault| {
            let said = format!("{fault:#}");
            said.contains("AccessDenied") || said.contains("not authorized")
        });
        ensure!(denied, "{} was not refused: aws {}: {answer:?}", role.logical, arguments.join(" "));
        refused += 1;
    }
    Ok(refused)
}
