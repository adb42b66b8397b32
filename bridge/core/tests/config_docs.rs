//! The reference page and the schema in the repository are those that the model generates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests, which read fixtures")]

use causeway_core::config::{json_schema, reference_markdown};
use std::path::Path;

#[test]
fn what_is_generated_from_the_model_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let schema = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
    for (file, generated) in [("docs/configuration.md", reference_markdown()), ("infra/lib/generated/config.schema.json", schema)] {
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(root.join(file), &generated).unwrap();
        }
        let written = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        assert!(written == generated, "{file} is out of date: run `UPDATE_DOCS=1 cargo test -p causeway-core --test config_docs`");
    }
}
