//! Commands to devices: the shell around the decisions of [`causeway_core::commands`].

pub mod api;
