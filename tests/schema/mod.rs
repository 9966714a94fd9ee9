//! Reads what `--json` printed, and holds it against docs/schema.json.
#![allow(dead_code)]

use std::process::Output;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::{Value, json};

/// The schema as it is kept in docs/.
pub fn kept() -> Value {
    serde_json::from_str(include_str!("../../docs/schema.json")).unwrap()
}

/// The document that a command printed. Fails where it is none, or does not keep the schema: a key that the schema does not
/// know is a fault too, though a reader has to skip it.
#[track_caller]
pub fn document(output: &Output) -> Value {
    let document = serde_json::from_slice(&output.stdout);
    let document = document.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    check(&document);
    document
}

#[track_caller]
fn check(document: &Value) {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    let validator = VALIDATOR.get_or_init(|| {
        let mut schema = kept();
        forbid_unknown_keys(&mut schema);
        jsonschema::validator_for(&schema).unwrap()
    });
    let errors: Vec<String> = validator
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(
        errors.is_empty(),
        "not as docs/schema.json says:\n{}\n{document:#}",
        errors.join("\n")
    );
}

/// Closes each object whose keys are listed. The documents themselves are parts of the root, which is closed as a whole.
fn forbid_unknown_keys(schema: &mut Value) {
    let mut documents = Vec::new();
    for variant in schema["oneOf"].as_array_mut().unwrap() {
        match variant["$ref"].as_str() {
            Some(reference) => documents.push(reference.replace("#/$defs/", "")),
            None if variant["properties"].as_object().unwrap().len() == 1 => {
                variant["additionalProperties"] = json!(true);
            }
            None => {}
        }
    }
    for (name, definition) in schema["$defs"].as_object_mut().unwrap() {
        if !documents.contains(name) && definition.get("properties").is_some() {
            definition["unevaluatedProperties"] = json!(false);
        }
    }
    schema["unevaluatedProperties"] = json!(false);
}

/// A key that nobody declared and a value of another type are found, wherever they are.
pub fn check_that_faults_are_found() {
    let good = json!({ "format": 2, "kind": "readings", "warnings": [], "metrics": [
        { "name": "v", "value": 1.0, "unit": "", "better": null }
    ] });
    check(&good);
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut wrong = good.clone();
        change(&mut wrong);
        std::panic::catch_unwind(|| check(&wrong)).is_err()
    };
    assert!(refused(&|it| it["more"] = json!(1)));
    assert!(refused(&|it| it["metrics"][0]["more"] = json!(1)));
    assert!(refused(&|it| it["metrics"][0]["value"] = json!(null)));
    assert!(refused(&|it| it["format"] = json!(1)));
    assert!(refused(&|it| it["kind"] = json!("log")));
    assert!(refused(&|it| it["warnings"] = json!(null)));
}
