//! Facts that other parts of the product are made from must not differ from the code: they are checked in, and compared here.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::path::Path;
use std::{env, fs};

/// `UPDATE_DOCS=1 cargo nextest run -p causeway-aws --test facts` writes the file anew.
#[test]
fn the_tables_of_the_stack_are_those_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/lib/generated/tables.json");
    let now = format!("{}\n", serde_json::to_string_pretty(&causeway_aws::schema::to_json()).unwrap());
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &now).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), now, "run again with UPDATE_DOCS=1");
}
