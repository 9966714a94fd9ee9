//! The JSON Schema of the program's documents: docs/schema.json is made from the types.

use std::fs;
use std::path::Path;

use matrix::verdicts::document;

#[path = "schema/mod.rs"]
mod json;

#[test]
fn the_schema_is_that_of_the_types() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema.json");
    let text = format!("{:#}\n", document::schema());
    if std::env::var_os("MATRIX_UPDATE").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == text,
        "docs/schema.json is not what the types say: MATRIX_UPDATE=1 cargo test --test schema renews it, \
         docs/json.md tells people what changed"
    );
}

#[test]
fn a_document_that_does_not_keep_the_schema_is_found() {
    json::check_that_faults_are_found();
}
