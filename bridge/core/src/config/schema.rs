//! JSON Schema and reference page.
/// JSON Schema of the configuration.
#[must_use]
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(super::Config).to_value()
}
/// Reference.
#[must_use]
pub fn reference_markdown() -> String {
    String::new()
}
