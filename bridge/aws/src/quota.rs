//! Budgets in DynamoDB, in the table of the leases: one row each, and one conditional update for each draw.

use crate::fault::classify;
use crate::items::quota::{BURST, COUNT, PERIOD_MS, REVISION, TAT, decode, key};
use crate::items::{Item, ItemError, PK, n, number};
use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use causeway_core::flow::quota::{QuotaAnswer, QuotaRow, QuotaWrite, Terms};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_ports::Quota;

/// Budgets in one DynamoDB table.
#[derive(Clone, Debug)]
pub struct DynamoQuota {
    client: Client,
    table: String,
}

impl DynamoQuota {
    /// The budgets in `table`, which is one of leases.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    fn call(&self, operation: &str) -> String {
        format!("{operation} on table `{}`", self.table)
    }

    fn unreadable(&self, name: &str, error: &ItemError) -> Fault {
        let detail = format!("table `{}`, item QUOTA#{name}: {error}; delete the item: the budget begins anew, whole", self.table);
        Fault::new(FaultCode::InvalidConfig, detail)
    }

    fn decoded(&self, name: &str, item: Option<&Item>) -> Result<Option<QuotaRow>, Fault> {
        item.filter(|item| !item.is_empty()).map(decode).transpose().map_err(|error| self.unreadable(name, &error))
    }
}

/// The names and values of terms, as conditions and updates use them.
fn of_terms(request: UpdateItemFluentBuilder, terms: &Terms) -> UpdateItemFluentBuilder {
    request
        .expression_attribute_names("#tat", TAT)
        .expression_attribute_names("#n", COUNT)
        .expression_attribute_names("#period", PERIOD_MS)
        .expression_attribute_names("#burst", BURST)
        .expression_attribute_values(":n", n(terms.count))
        .expression_attribute_values(":period", n(terms.period_ms))
        .expression_attribute_values(":burst", n(terms.burst))
}

fn expressed(request: UpdateItemFluentBuilder, write: &QuotaWrite) -> UpdateItemFluentBuilder {
    match write {
        QuotaWrite::Busy { terms, add, low, high } => of_terms(request, terms)
            .update_expression("SET #tat = #tat + :add")
            .condition_expression("#n = :n AND #period = :period AND #burst = :burst AND #tat BETWEEN :low AND :high")
            .expression_attribute_values(":add", n(add))
            .expression_attribute_values(":low", n(low))
            .expression_attribute_values(":high", n(high)),
        QuotaWrite::Idle { terms, below, tat } => of_terms(request, terms)
            .update_expression("SET #tat = :tat, #n = :n, #period = :period, #burst = :burst, #rev = if_not_exists(#rev, :one)")
            .condition_expression("attribute_not_exists(#pk) OR (#n = :n AND #period = :period AND #burst = :burst AND #tat < :below)")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#rev", REVISION)
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":tat", n(tat))
            .expression_attribute_values(":below", n(below)),
        QuotaWrite::Replace { seen, terms, tat } => of_terms(request, terms)
            .update_expression("SET #tat = :tat, #n = :n, #period = :period, #burst = :burst, #rev = #rev + :one")
            .condition_expression("#tat = :seen AND #rev = :seen_rev AND #n = :seen_n AND #period = :seen_period AND #burst = :seen_burst")
            .expression_attribute_names("#rev", REVISION)
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":tat", n(tat))
            .expression_attribute_values(":seen", n(seen.tat))
            .expression_attribute_values(":seen_rev", n(seen.revision))
            .expression_attribute_values(":seen_n", n(seen.terms.count))
            .expression_attribute_values(":seen_period", n(seen.terms.period_ms))
            .expression_attribute_values(":seen_burst", n(seen.terms.burst)),
        QuotaWrite::Return { terms, subtract } => of_terms(request, terms)
            .update_expression("SET #tat = #tat - :subtract")
            .condition_expression("#n = :n AND #period = :period AND #burst = :burst AND attribute_exists(#tat)")
            .expression_attribute_values(":subtract", n(subtract)),
    }
}

#[async_trait]
impl Quota for DynamoQuota {
    async fn read(&self, name: &str) -> Result<Option<QuotaRow>, Fault> {
        let request = self.client.get_item().table_name(&self.table).set_key(Some(key(name))).consistent_read(true);
        let answer = request.send().await.map_err(|error| classify(&self.call("GetItem"), &error).fault)?;
        self.decoded(name, answer.item.as_ref())
    }

    async fn write(&self, name: &str, write: &QuotaWrite) -> Outcome<QuotaAnswer> {
        let request = self.client.update_item().table_name(&self.table).set_key(Some(key(name)));
        let request = expressed(request, write)
            .return_values(ReturnValue::UpdatedNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match request.send().await {
            Ok(answer) => match number(&answer.attributes.unwrap_or_default(), TAT) {
                Ok(tat) => Outcome::Done(QuotaAnswer::Written(tat)),
                // It took effect, and nobody knows how.
                Err(error) => Outcome::Unknown(self.unreadable(name, &error)),
            },
            Err(SdkError::ServiceError(refusal)) if refusal.err().is_conditional_check_failed_exception() => {
                let standing = match refusal.into_err() {
                    UpdateItemError::ConditionalCheckFailedException(failed) => failed.item,
                    _ => None,
                };
                match self.decoded(name, standing.as_ref()) {
                    Ok(row) => Outcome::Done(QuotaAnswer::Refused(row)),
                    Err(fault) => Outcome::NotDone(fault),
                }
            }
            Err(error) => classify(&self.call("UpdateItem"), &error).outcome(),
        }
    }
}
