//! Leases and members in DynamoDB. Every read is consistent; a lease is only ever written as a whole, under a condition, and never deleted.

use crate::fault::{CallFault, classify};
use crate::items::lease::{self, ELAPSED_NS, EXPIRES_AT, FINGERPRINT, GENERATION, LEASE_PREFIX, OWNER, RENEWED_AT, VERSION};
use crate::items::member::{self, BRIDGE};
use crate::items::{Item, PK, n, s, text};
use crate::meter::Meter;
use crate::schema::{self, LEASES};
use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::operation::scan::builders::ScanFluentBuilder;
use aws_sdk_dynamodb::types::{ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure};
use causeway_core::lease::row::{Evidence, RawLease, Tuple};
use causeway_core::lease::{Condition, LeaseAnswer, LeaseWrite};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_ports::{Leases, MemberRecord, StoreUsage};
use core::sync::atomic::{AtomicU64, Ordering};

/// Leases and members in one DynamoDB table.
#[derive(Debug)]
pub struct DynamoLeases {
    client: Client,
    table: String,
    tags: Vec<(String, String)>,
    meter: Meter,
    refused: AtomicU64,
}

/// What the calls to a table of leases cost since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeaseUsage {
    /// Calls and units.
    pub store: StoreUsage,
    /// Writes whose condition did not hold. They are billed like writes; with a healthy owner nobody makes any.
    pub refused_writes: u64,
}

impl DynamoLeases {
    /// The leases in `table`; [`schema::LEASES`] describes its shape.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into(), tags: Vec::new(), meter: Meter::default(), refused: AtomicU64::new(0) }
    }

    /// Tags for the table, should it be created.
    #[must_use]
    pub fn with_tags(mut self, tags: Vec<(String, String)>) -> Self {
        self.tags = tags;
        self
    }

    /// The table's name.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// What the calls so far cost.
    #[must_use]
    pub fn usage(&self) -> LeaseUsage {
        LeaseUsage { store: self.meter.usage(), refused_writes: self.refused.load(Ordering::Relaxed) }
    }

    fn call(&self, operation: &str) -> String {
        format!("{operation} on table `{}`", self.table)
    }

    fn put(&self, item: Item) -> PutItemFluentBuilder {
        self.meter.count_write();
        self.client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    /// What became of a conditional put. `stands`: the condition fails only where there is a row.
    async fn send_put(&self, request: PutItemFluentBuilder, stands: bool) -> Result<LeaseAnswer, CallFault> {
        let standing = match request.send().await {
            Ok(answer) => {
                self.meter.add_write_units(answer.consumed_capacity());
                return Ok(LeaseAnswer::Written);
            }
            Err(SdkError::ServiceError(refusal)) if refusal.err().is_conditional_check_failed_exception() => match refusal.into_err() {
                PutItemError::ConditionalCheckFailedException(failed) => failed.item,
                _ => None,
            },
            Err(error) => return Err(classify(&self.call("PutItem"), &error)),
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        if standing.is_none() && stands {
            let detail = format!("{}: a row stands there, and the endpoint does not return it", self.call("PutItem"));
            return Err(CallFault { fault: Fault::new(FaultCode::ProtocolError, detail), effect: crate::fault::Effect::None });
        }
        Ok(LeaseAnswer::Refused(standing.as_ref().map(lease::decode)))
    }

    /// Every item that `filter` lets through, page by page. The table holds a row per session, duty and member, so that reading all of it is
    /// cheaper than an index that every renewal would have to write to.
    async fn scan(&self, filter: impl Fn(ScanFluentBuilder) -> ScanFluentBuilder) -> Result<Vec<Item>, Fault> {
        let mut items = Vec::new();
        let mut start = None;
        loop {
            self.meter.count_read();
            let request = self.client.scan().table_name(&self.table).consistent_read(true);
            let request = request.return_consumed_capacity(ReturnConsumedCapacity::Total).expression_attribute_names("#pk", PK);
            let answer = filter(request).set_exclusive_start_key(start).send().await;
            let answer = answer.map_err(|error| classify(&self.call("Scan"), &error).fault)?;
            self.meter.add_read_units(answer.consumed_capacity());
            items.extend(answer.items.unwrap_or_default());
            start = answer.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() {
                return Ok(items);
            }
        }
    }

    /// The members of all bridges that keep their leases here, for tools that know a session and not its bridge. A record that cannot be read is left out.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn members_of_all_bridges(&self) -> Result<Vec<MemberRecord>, Fault> {
        let of_members = |request: ScanFluentBuilder| {
            request.filter_expression("begins_with(#pk, :members)").expression_attribute_values(":members", s(member::PREFIX))
        };
        Ok(self.scan(of_members).await?.iter().filter_map(|item| member::decode(item).ok()).collect())
    }

    fn no_key(&self, bridge: &str) -> Fault {
        let detail = format!("table `{}` keeps no members of a bridge called `{bridge}`: its name is empty or holds `#`", self.table);
        Fault::new(FaultCode::InvalidConfig, detail)
    }
}

/// Adds the condition that the whole row is replaced under.
fn under(request: PutItemFluentBuilder, condition: &Condition) -> PutItemFluentBuilder {
    match condition {
        Condition::Absent => request.condition_expression("attribute_not_exists(#pk)").expression_attribute_names("#pk", PK),
        Condition::Held { owner, version } => {
            holder(request, owner, *version).condition_expression("#owner = :owner AND #version = :version")
        }
        Condition::Exactly { tuple, evidence: None } => exactly(request, tuple).condition_expression(
            "#owner = :owner AND #version = :version AND #renewed_at = :renewed_at AND #expires_at = :expires_at AND \
             attribute_not_exists(#fingerprint) AND attribute_not_exists(#elapsed) AND attribute_not_exists(#generation)",
        ),
        Condition::Exactly { tuple, evidence: Some(evidence) } => observed(exactly(request, tuple), evidence).condition_expression(
            "#owner = :owner AND #version = :version AND #renewed_at = :renewed_at AND #expires_at = :expires_at AND \
             #fingerprint = :fingerprint AND #elapsed = :elapsed AND #generation = :generation",
        ),
    }
}

fn holder(request: PutItemFluentBuilder, owner: &str, version: u64) -> PutItemFluentBuilder {
    request
        .expression_attribute_names("#owner", OWNER)
        .expression_attribute_names("#version", VERSION)
        .expression_attribute_values(":owner", s(owner))
        .expression_attribute_values(":version", n(version))
}

/// The names of the observation are needed where it must be absent, too.
fn exactly(request: PutItemFluentBuilder, tuple: &Tuple) -> PutItemFluentBuilder {
    holder(request, &tuple.owner, tuple.version)
        .expression_attribute_names("#renewed_at", RENEWED_AT)
        .expression_attribute_names("#expires_at", EXPIRES_AT)
        .expression_attribute_names("#fingerprint", FINGERPRINT)
        .expression_attribute_names("#elapsed", ELAPSED_NS)
        .expression_attribute_names("#generation", GENERATION)
        .expression_attribute_values(":renewed_at", n(tuple.renewed_at.0))
        .expression_attribute_values(":expires_at", n(tuple.expires_at.0))
}

fn observed(request: PutItemFluentBuilder, evidence: &Evidence) -> PutItemFluentBuilder {
    request
        .expression_attribute_values(":fingerprint", s(evidence.fingerprint.as_str()))
        .expression_attribute_values(":elapsed", n(evidence.elapsed_ns))
        .expression_attribute_values(":generation", n(evidence.generation))
}

#[async_trait]
impl Leases for DynamoLeases {
    async fn read(&self, key: &str) -> Result<Option<RawLease>, Fault> {
        self.meter.count_read();
        let request = self.client.get_item().table_name(&self.table).key(PK, s(key)).consistent_read(true);
        let answer = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
        let answer = answer.map_err(|error| classify(&self.call("GetItem"), &error).fault)?;
        self.meter.add_read_units(answer.consumed_capacity());
        Ok(answer.item.as_ref().map(lease::decode))
    }

    async fn write(&self, key: &str, write: &LeaseWrite) -> Outcome<LeaseAnswer> {
        let request = under(self.put(lease::encode(key, &write.row)), &write.condition);
        match self.send_put(request, write.condition == Condition::Absent).await {
            Ok(answer) => Outcome::Done(answer),
            Err(fault) => fault.outcome(),
        }
    }

    async fn list(&self) -> Result<Vec<(String, RawLease)>, Fault> {
        let leases = |request: ScanFluentBuilder| {
            request.filter_expression("begins_with(#pk, :leases)").expression_attribute_values(":leases", s(LEASE_PREFIX))
        };
        let items = self.scan(leases).await?;
        let mut rows: Vec<_> = items.iter().filter_map(|item| Some((text(item, PK).ok()?.to_owned(), lease::decode(item)))).collect();
        // A scan comes in the order of the keys' hashes.
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(rows)
    }

    async fn put_member(&self, member: &MemberRecord) -> Outcome<()> {
        let Some(item) = member::encode(member) else { return Outcome::NotDone(self.no_key(&member.bridge)) };
        match self.send_put(self.put(item), false).await {
            Ok(_) => Outcome::Done(()),
            Err(fault) => fault.outcome(),
        }
    }

    async fn remove_member(&self, bridge: &str, owner: &str) -> Outcome<()> {
        let Some(key) = member::key(bridge, owner) else { return Outcome::NotDone(self.no_key(bridge)) };
        self.meter.count_write();
        let request = self.client.delete_item().table_name(&self.table).set_key(Some(key));
        match request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await {
            Ok(answer) => {
                self.meter.add_write_units(answer.consumed_capacity());
                Outcome::Done(())
            }
            Err(error) => classify(&self.call("DeleteItem"), &error).outcome(),
        }
    }

    /// A record that cannot be read is left out and logged: who owns what does not depend on members, and one that a newer release wrote must
    /// not hide the others.
    async fn list_members(&self, bridge: &str) -> Result<Vec<MemberRecord>, Fault> {
        let prefix = member::prefix(bridge);
        let of_bridge = |request: ScanFluentBuilder| {
            request
                .filter_expression("begins_with(#pk, :prefix) AND #bridge = :bridge")
                .expression_attribute_names("#bridge", BRIDGE)
                .expression_attribute_values(":prefix", s(prefix.as_str()))
                .expression_attribute_values(":bridge", s(bridge))
        };
        let items = self.scan(of_bridge).await?;
        let readable = |item: &Item| {
            let key = text(item, PK).unwrap_or("?");
            member::decode(item)
                .inspect_err(|error| tracing::warn!(table = %self.table, key, %error, "a member's record cannot be read"))
                .ok()
        };
        let mut members: Vec<MemberRecord> = items.iter().filter_map(readable).collect();
        members.sort_by(|one, other| one.owner.cmp(&other.owner));
        Ok(members)
    }

    async fn probe(&self) -> Result<(), Fault> {
        schema::verify(&self.client, &LEASES, &self.table).await
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        schema::create_missing_tables(&self.client, &[(&LEASES, self.table.as_str())], &self.tags).await
    }
}
