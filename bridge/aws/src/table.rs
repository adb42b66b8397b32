//! One table, as every store that lives in one holds it.

use crate::fault::{CallFault, classify};
use crate::items::Item;
use crate::schema;
use aws_sdk_dynamodb::Client;
use causeway_core::outcome::Fault;

/// A table: the client that reaches it, its name, and the tags that it gets if it is created.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) client: Client,
    pub(crate) name: String,
    tags: Vec<(String, String)>,
}

impl core::fmt::Debug for Table {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Table").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Table {
    pub(crate) fn new(client: Client, name: impl Into<String>) -> Self {
        Self { client, name: name.into(), tags: Vec::new() }
    }

    pub(crate) fn with_tags(mut self, tags: Vec<(String, String)>) -> Self {
        self.tags = tags;
        self
    }

    /// A call, as faults name it.
    pub(crate) fn call(&self, operation: &str) -> String {
        format!("{operation} on table `{}`", self.name)
    }

    /// The row of that key as it stands now.
    pub(crate) async fn item(&self, key: Item) -> Result<Option<Item>, CallFault> {
        let request = self.client.get_item().table_name(&self.name).set_key(Some(key)).consistent_read(true);
        request.send().await.map(|answer| answer.item).map_err(|error| classify(&self.call("GetItem"), &error))
    }

    /// Whether the table can be reached and has this shape.
    pub(crate) async fn verify(&self, shape: &schema::Table) -> Result<(), Fault> {
        schema::verify(&self.client, shape, &self.name).await
    }

    /// Creates it if it is missing; answers what was created.
    pub(crate) async fn create(&self, shape: &schema::Table) -> Result<Vec<String>, Fault> {
        schema::create_missing_tables(&self.client, &[(shape, self.name.as_str())], &self.tags).await
    }
}
