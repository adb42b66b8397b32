//! The filters that durable sessions may have at their brokers, in DynamoDB. Filters are added to and taken from the set where it stands, so that
//! no change undoes another.

use crate::fault::classify;
use crate::items::managed_subscriptions::{BASELINE, FILTERS, GENERATION, STORAGE_IDENTITY, decode, encode, key, set};
use crate::items::{Item, ItemError, n, number};
use crate::schema::MANAGED_SUBSCRIPTIONS;
use crate::table::Table;
use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_ports::{Generation, ManagedSubscriptions};
use std::collections::BTreeSet;

/// Managed subscriptions in one DynamoDB table.
#[derive(Clone, Debug)]
pub struct DynamoManagedSubscriptions {
    table: Table,
}

impl DynamoManagedSubscriptions {
    /// The subscriptions in `table`; [`MANAGED_SUBSCRIPTIONS`](crate::schema::MANAGED_SUBSCRIPTIONS) describes its shape.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { table: Table::new(client, table) }
    }

    /// Tags for the table, should it be created.
    #[must_use]
    pub fn with_tags(mut self, tags: Vec<(String, String)>) -> Self {
        self.table = self.table.with_tags(tags);
        self
    }

    fn unreadable(&self, identity: &str, error: &ItemError) -> Fault {
        let detail = format!(
            "table `{}`, item {identity}: {error}; it does not say what the session has subscribed to: compare it with the broker, delete the \
             item, and run `causeway baseline`",
            self.table.name
        );
        Fault::new(FaultCode::InvalidConfig, detail)
    }

    async fn item(&self, identity: &str) -> Result<Option<Item>, Fault> {
        self.table.item(key(identity)).await.map_err(|fault| fault.fault)
    }

    /// Changes a row with a baseline. Without the condition an update would make a row.
    fn update(&self, identity: &str, expression: &str) -> UpdateItemFluentBuilder {
        self.table
            .client
            .update_item()
            .table_name(&self.table.name)
            .set_key(Some(key(identity)))
            .update_expression(expression)
            .condition_expression("#baseline = :true")
            .expression_attribute_names("#baseline", BASELINE)
            .expression_attribute_names("#generation", GENERATION)
            .expression_attribute_values(":true", AttributeValue::Bool(true))
    }

    /// The attributes that were changed; `None` where the condition does not hold.
    async fn send_update(&self, request: UpdateItemFluentBuilder) -> Outcome<Option<Item>> {
        match request.return_values(ReturnValue::UpdatedNew).send().await {
            Ok(answer) => Outcome::Done(Some(answer.attributes.unwrap_or_default())),
            Err(SdkError::ServiceError(refusal)) if refusal.err().is_conditional_check_failed_exception() => Outcome::Done(None),
            Err(error) => classify(&self.table.call("UpdateItem"), &error).outcome(),
        }
    }
}

#[async_trait]
impl ManagedSubscriptions for DynamoManagedSubscriptions {
    async fn load(&self, identity: &str) -> Result<Option<BTreeSet<String>>, Fault> {
        let item = self.item(identity).await?;
        item.map(|item| decode(&item).map_err(|error| self.unreadable(identity, &error))).transpose()
    }

    async fn seed(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<bool> {
        let request = self
            .table
            .client
            .put_item()
            .table_name(&self.table.name)
            .set_item(Some(encode(identity, filters)))
            .condition_expression("attribute_not_exists(#identity)")
            .expression_attribute_names("#identity", STORAGE_IDENTITY);
        match request.send().await {
            Ok(_) => Outcome::Done(true),
            Err(SdkError::ServiceError(refusal)) if refusal.err().is_conditional_check_failed_exception() => Outcome::Done(false),
            Err(error) => classify(&self.table.call("PutItem"), &error).outcome(),
        }
    }

    async fn remember(&self, identity: &str, filters: &BTreeSet<String>) -> Outcome<Option<Generation>> {
        let request = match set(filters) {
            Some(filters) => self
                .update(identity, "ADD #generation :one, #filters :these")
                .expression_attribute_names("#filters", FILTERS)
                .expression_attribute_values(":these", filters),
            None => self.update(identity, "ADD #generation :one"),
        };
        let updated = match self.send_update(request.expression_attribute_values(":one", n(1))).await {
            Outcome::Done(Some(updated)) => updated,
            Outcome::Done(None) => return Outcome::Done(None),
            Outcome::NotDone(fault) => return Outcome::NotDone(fault),
            Outcome::Unknown(fault) => return Outcome::Unknown(fault),
        };
        match number(&updated, GENERATION) {
            Ok(generation) => Outcome::Done(Some(Generation(generation))),
            Err(error) => Outcome::Unknown(self.unreadable(identity, &error)),
        }
    }

    async fn forget(&self, identity: &str, filter: &str, generation: Generation) -> Outcome<bool> {
        let request = self
            .update(identity, "DELETE #filters :these")
            .condition_expression("#baseline = :true AND #generation = :generation")
            .expression_attribute_names("#filters", FILTERS)
            .expression_attribute_values(":these", AttributeValue::Ss(vec![filter.to_owned()]))
            .expression_attribute_values(":generation", n(generation.0));
        self.send_update(request).await.map(|updated| updated.is_some())
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.table.verify(&MANAGED_SUBSCRIPTIONS).await
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.table.create(&MANAGED_SUBSCRIPTIONS).await
    }
}
