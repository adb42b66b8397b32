//! Listing: indexes name the letters in the order in which they failed, one index partition or all categories merged.

use super::{BATCH_ROUNDS, DynamoDeadLetters, pause_before};
use crate::fault::classify;
use crate::items::letter::{
    CATEGORIES, CATEGORY, ERROR_CODE, FAILED_SORT, FIRST, ROUTE, STATE, failed_sort_prefix, is_failed_sort, partition_key,
};
use crate::items::{Item, ItemError, PK, key, s, text};
use crate::schema::{BY_CATEGORY, BY_ROUTE};
use aws_sdk_dynamodb::types::KeysAndAttributes;
use causeway_core::dead_letter::DeadLetterState;
use causeway_core::identity::EntryId;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_ports::{DeadLetterFilter, DeadLetterPage};
use std::collections::HashMap;

/// What BatchGetItem takes is 100; fewer keep an answer of large letters below its 16 MB.
const LETTERS_PER_CALL: usize = 25;

/// A place in an index: the letter's key and its sort value.
struct Found {
    id: EntryId,
    failed_sort: String,
}

/// What [`DynamoDeadLetters::scan`] read.
struct Scanned {
    found: Vec<Found>,
    /// The sort value up to which everything was looked at; `None` where that is all there is.
    read_to: Option<String>,
}

/// One partition of an index.
struct Partition {
    index: &'static str,
    attribute: &'static str,
    value: String,
}

/// The index partitions that hold every letter that `filter` can mean.
fn partitions(filter: &DeadLetterFilter) -> Vec<Partition> {
    let by_category = |value: String| Partition { index: BY_CATEGORY, attribute: CATEGORY, value };
    match (&filter.route, &filter.category) {
        (Some(route), _) => vec![Partition { index: BY_ROUTE, attribute: ROUTE, value: route.clone() }],
        (None, Some(category)) => vec![by_category(category.clone())],
        (None, None) => CATEGORIES.iter().map(|class| by_category(class.as_str().to_owned())).collect(),
    }
}

impl DynamoDeadLetters {
    /// At most `limit` letters that `filter` means, oldest first.
    pub(super) async fn page(&self, filter: &DeadLetterFilter, limit: usize, continuation: Option<&str>) -> Result<DeadLetterPage, Fault> {
        if continuation.is_some_and(|text| !is_failed_sort(text)) {
            return Err(Fault::new(
                FaultCode::InvalidConfig,
                "this continuation did not come from a list of this store: begin without one",
            ));
        }
        if limit == 0 {
            return Ok(DeadLetterPage { letters: Vec::new(), continuation: continuation.map(str::to_owned) });
        }
        let mut found = Vec::new();
        let mut read_to: Option<String> = None;
        for partition in partitions(filter) {
            let scanned = self.scan(&partition, filter, continuation, limit, self.max_pages).await?;
            found.extend(scanned.found);
            // Beyond the shortest reach letters of that partition may be missing: the page ends there.
            read_to = match (read_to, scanned.read_to) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        found.sort_by(|one, other| one.failed_sort.cmp(&other.failed_sort));
        if let Some(reach) = &read_to {
            found.retain(|letter| letter.failed_sort <= *reach);
        }
        let more_found = found.len() > limit;
        found.truncate(limit);
        let continuation = if more_found { found.last().map(|letter| letter.failed_sort.clone()) } else { read_to };
        let ids: Vec<_> = found.iter().map(|letter| letter.id).collect();
        let rows = self.first_rows(&ids).await?;
        let mut letters = Vec::with_capacity(ids.len());
        for id in ids {
            // The index may still name what was deleted or changed a moment ago.
            let Some(first) = rows.get(&partition_key(id)) else {
                continue;
            };
            let letter = self.read(first).await?;
            if filter.matches(&letter) {
                letters.push(letter);
            }
        }
        Ok(DeadLetterPage { letters, continuation })
    }

    /// One page of an index partition, after `after`, within the filter's times. Answers the letters and whether there may be more.
    async fn index_page(
        &self,
        index: &Partition,
        filter: &DeadLetterFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Found>, Option<String>), Fault> {
        let from = filter.since.map(failed_sort_prefix).unwrap_or_default();
        // Strictly after the last letter seen: a letter's own sort value with the smallest suffix.
        let from = after.map_or(from.clone(), |after| from.max(format!("{after}!")));
        let to = filter.before.map_or_else(|| "~".to_owned(), failed_sort_prefix);
        if from >= to {
            return Ok((Vec::new(), None));
        }
        let mut request = self
            .table
            .client
            .query()
            .table_name(&self.table.name)
            .index_name(index.index)
            .key_condition_expression("#partition = :partition AND #sort BETWEEN :from AND :to")
            .expression_attribute_names("#partition", index.attribute)
            .expression_attribute_names("#sort", FAILED_SORT)
            .expression_attribute_values(":partition", s(index.value.as_str()))
            .expression_attribute_values(":from", s(if from.is_empty() { "!".to_owned() } else { from }))
            .expression_attribute_values(":to", s(to))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let category = filter.category.as_deref().filter(|_| index.attribute != CATEGORY);
        let conditions =
            [(CATEGORY, category), (ERROR_CODE, filter.error_code.as_deref()), (STATE, filter.state.map(DeadLetterState::as_str))];
        let mut expression = Vec::new();
        for (name, value) in conditions {
            let Some(value) = value else { continue };
            expression.push(format!("#{name} = :{name}"));
            request =
                request.expression_attribute_names(format!("#{name}"), name).expression_attribute_values(format!(":{name}"), s(value));
        }
        if !expression.is_empty() {
            request = request.filter_expression(expression.join(" AND "));
        }
        let answer = request.send().await.map_err(|error| classify(&self.table.call("Query"), &error).fault)?;
        let found = answer.items().iter().map(|item| self.found(item)).collect::<Result<Vec<_>, _>>()?;
        let last = answer.last_evaluated_key.filter(|key| !key.is_empty());
        let last = last.map(|key| self.found(&key)).transpose()?.map(|found| found.failed_sort);
        Ok((found, last))
    }

    fn found(&self, item: &Item) -> Result<Found, Fault> {
        let read = || {
            let failed_sort = text(item, FAILED_SORT)?.to_owned();
            let id = text(item, PK)?.strip_prefix("DLQ#").and_then(|id| id.parse().ok());
            Ok(Found { id: id.ok_or(ItemError::Unreadable(PK))?, failed_sort })
        };
        read().map_err(|error: ItemError| error.fault(&self.table.name, item))
    }

    /// At least `limit` letters of an index partition if there are so many, within `budget` pages; and up to where it was read to the end.
    async fn scan(
        &self,
        index: &Partition,
        filter: &DeadLetterFilter,
        after: Option<&str>,
        limit: usize,
        budget: u32,
    ) -> Result<Scanned, Fault> {
        let mut found = Vec::new();
        let mut after = after.map(str::to_owned);
        for _ in 0..budget {
            let (mut page, last) = self.index_page(index, filter, after.as_deref(), limit).await?;
            found.append(&mut page);
            let Some(last) = last else {
                return Ok(Scanned { found, read_to: None });
            };
            after = Some(last);
            if found.len() >= limit {
                break;
            }
        }
        Ok(Scanned { found, read_to: after })
    }

    async fn first_rows(&self, ids: &[EntryId]) -> Result<HashMap<String, Item>, Fault> {
        let mut rows = HashMap::with_capacity(ids.len());
        for ids in ids.chunks(LETTERS_PER_CALL) {
            let keys = ids.iter().map(|id| key(partition_key(*id), FIRST)).collect();
            let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
            let mut wanted = wanted.map_err(|error| self.misbuilt(&error).fault)?;
            for round in 0.. {
                if round == BATCH_ROUNDS {
                    return Err(self.left_undone("BatchGetItem").fault);
                }
                pause_before(round).await;
                let answer = self.table.client.batch_get_item().request_items(&self.table.name, wanted).send().await;
                let answer = answer.map_err(|error| classify(&self.table.call("BatchGetItem"), &error).fault)?;
                for item in answer.responses.and_then(|mut tables| tables.remove(&self.table.name)).unwrap_or_default() {
                    rows.insert(text(&item, PK).unwrap_or_default().to_owned(), item);
                }
                match answer.unprocessed_keys.and_then(|mut tables| tables.remove(&self.table.name)) {
                    Some(left) => wanted = left,
                    None => break,
                }
            }
        }
        Ok(rows)
    }
}
