//! The log's store as plain maps: the reference that every other store is measured by.

use causeway_core::identity::Slot;
use causeway_core::log::{Page, Put};
use causeway_core::rows::{Head, Row, RowMeta};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Store {
    pub rows: BTreeMap<Slot, Row>,
    pub head: Option<Head>,
}

impl Store {
    pub fn tail(&self) -> Slot {
        self.rows.last_key_value().map_or(Slot(0), |(slot, _)| *slot)
    }

    pub fn tail_meta(&self) -> Option<RowMeta> {
        self.rows.last_key_value().map(|(slot, row)| row.meta(*slot))
    }

    /// Rows up to here are garbage, whatever they hold.
    pub fn effective_head(&self) -> Slot {
        let of_tail = self.rows.last_key_value().map_or(Slot(0), |(_, row)| row.drained());
        self.head.as_ref().map_or(of_tail, |head| of_tail.max(head.drained))
    }

    pub fn put(&mut self, slot: Slot, row: &Row, overwrite: bool) -> Put {
        if overwrite {
            self.rows.insert(slot, row.clone());
            return Put::Stored;
        }
        let standing = self.rows.entry(slot).or_insert_with(|| row.clone());
        if standing.id() == row.id() { Put::Stored } else { Put::Occupied(standing.meta(slot)) }
    }

    pub fn put_head(&mut self, head: &Head) -> bool {
        let forward = self.head.as_ref().is_none_or(|old| head.may_replace(old));
        if forward {
            self.head = Some(head.clone());
        }
        forward
    }

    pub fn page(&self, after: Slot, up_to: Slot, most: usize) -> Page {
        let mut page = Page::default();
        if after < up_to {
            for (slot, row) in self.rows.range(after.next()..=up_to) {
                if page.rows.len() >= most {
                    page.next_after = page.rows.last().map(|(slot, _)| *slot);
                    break;
                }
                page.rows.push((*slot, row.clone()));
            }
        }
        page
    }
}
