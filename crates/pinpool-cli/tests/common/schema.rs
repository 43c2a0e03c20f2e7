//! Holds JSON against benches/schema.json: as much of JSON Schema (draft 2020-12) as that uses, and
//! a panic where it uses more.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::path::Path;

use serde_json::Value;

/// The schema of results.
#[derive(Debug)]
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/schema.json");
        let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        Self(schema)
    }

    /// The names of the scenarios that it knows.
    pub(crate) fn scenarios(&self) -> Vec<&str> {
        let all = self.0["oneOf"].as_array().unwrap();
        all.iter().map(|one| one["$ref"].as_str().unwrap().rsplit('/').next().unwrap()).collect()
    }

    /// What is wrong with a result; nothing where it is right.
    pub(crate) fn errors(&self, json: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        self.check("", &self.0, json, &mut errors);
        errors
    }

    fn check(&self, at: &str, schema: &Value, json: &Value, errors: &mut Vec<String>) {
        for (keyword, wanted) in schema.as_object().unwrap() {
            match keyword.as_str() {
                "$schema"
                | "$defs"
                | "title"
                | "description"
                | "properties"
                | "additionalProperties" => {}
                "$ref" => self.check(at, self.referred(wanted), json, errors),
                "oneOf" | "anyOf" => self.check_any(at, keyword, wanted, json, errors),
                "const" if json == wanted => {}
                "enum" if wanted.as_array().unwrap().contains(json) => {}
                "type" if is_of_type(json, wanted) => {}
                "const" | "enum" | "type" => errors.push(format!("{at}: {json}, {wanted} wanted")),
                "minimum" => {
                    if json.as_f64().is_some_and(|number| number < wanted.as_f64().unwrap()) {
                        errors.push(format!("{at}: {json} is less than {wanted}"));
                    }
                }
                "items" => {
                    for (index, item) in json.as_array().into_iter().flatten().enumerate() {
                        self.check(&format!("{at}/{index}"), wanted, item, errors);
                    }
                }
                "required" => {
                    for key in wanted.as_array().unwrap().iter().map(|key| key.as_str().unwrap()) {
                        if json.is_object() && json.get(key).is_none() {
                            errors.push(format!("{at}: no {key}"));
                        }
                    }
                }
                other => panic!("the schema says {other}, which this test does not know"),
            }
        }
        self.check_fields(at, schema, json, errors);
    }

    /// Fields by name, and all others.
    fn check_fields(&self, at: &str, schema: &Value, json: &Value, errors: &mut Vec<String>) {
        for (key, value) in json.as_object().into_iter().flatten() {
            let at = format!("{at}/{key}");
            match (
                schema.get("properties").and_then(|all| all.get(key)),
                &schema["additionalProperties"],
            ) {
                (Some(field), _) => self.check(&at, field, value, errors),
                (None, Value::Bool(false)) => errors.push(format!("{at}: not in the schema")),
                (None, Value::Null) => {}
                (None, others) => self.check(&at, others, value, errors),
            }
        }
    }

    /// One of several; where none fits, the errors of the one that fits best.
    fn check_any(
        &self,
        at: &str,
        keyword: &str,
        choices: &Value,
        json: &Value,
        errors: &mut Vec<String>,
    ) {
        let tried = choices.as_array().unwrap().iter().map(|choice| {
            let mut errors = Vec::new();
            self.check(at, choice, json, &mut errors);
            errors
        });
        let tried: Vec<Vec<String>> = tried.collect();
        let fitting = tried.iter().filter(|errors| errors.is_empty()).count();
        if fitting == 0 {
            errors.extend(tried.into_iter().min_by_key(Vec::len).into_iter().flatten());
        } else if keyword == "oneOf" && fitting > 1 {
            errors.push(format!("{at}: {fitting} of the choices fit, one should"));
        }
    }

    fn referred(&self, reference: &Value) -> &Value {
        let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
        self.0.pointer(pointer).unwrap_or_else(|| panic!("the schema has no {pointer}"))
    }
}

fn is_of_type(json: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Array(choices) => choices.iter().any(|wanted| is_of_type(json, wanted)),
        _ => match wanted.as_str().unwrap() {
            "null" => json.is_null(),
            "boolean" => json.is_boolean(),
            "string" => json.is_string(),
            "number" => json.is_number(),
            "integer" => json.is_i64() || json.is_u64(),
            "array" => json.is_array(),
            "object" => json.is_object(),
            other => panic!("the schema has a type {other}"),
        },
    }
}
