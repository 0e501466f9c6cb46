//! The description of the control API that a gateway serves, as what its answers are held to.

use serde_json::{Value, json};

use super::{Gateway, http::Answer};

/// An `OpenAPI` document.
pub(crate) struct Document(pub(crate) Value);

/// One method of one path.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) id: String,
    /// In upper case.
    pub(crate) method: String,
    pub(crate) template: String,
    description: Value,
}

impl Operation {
    /// The path with names in place of its braces.
    pub(crate) fn path(&self, session: &str, task: &str, terminal: &str) -> String {
        self.template.replace("{session}", session).replace("{task}", task).replace("{terminal}", terminal)
    }

    pub(crate) fn is_of(&self, path: &str) -> bool {
        let path = path.split('?').next().unwrap();
        let (template, path): (Vec<_>, Vec<_>) = (self.template.split('/').collect(), path.split('/').collect());
        template.len() == path.len() && template.iter().zip(path).all(|(a, b)| a.starts_with('{') || *a == b)
    }

    /// The statuses that it is said to answer.
    pub(crate) fn statuses(&self) -> Vec<u16> {
        self.description["responses"].as_object().unwrap().keys().map(|status| status.parse().unwrap()).collect()
    }

    /// The media type of the body that it takes.
    pub(crate) fn takes(&self) -> Option<String> {
        self.description["requestBody"]["content"].as_object()?.keys().next().cloned()
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.id.starts_with("stream")
    }
}

impl Document {
    pub(crate) fn of(gateway: &Gateway) -> Self {
        let answer = gateway.control("GET", "/openapi.json", None);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        Self(answer.json())
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        let paths = self.0["paths"].as_object().unwrap().iter();
        let operations = paths.flat_map(|(template, item)| {
            item.as_object().unwrap().iter().map(|(method, description)| Operation {
                id: description["operationId"].as_str().unwrap().to_owned(),
                method: method.to_uppercase(),
                template: template.clone(),
                description: description.clone(),
            })
        });
        operations.collect()
    }

    pub(crate) fn operation(&self, id: &str) -> Operation {
        let mut found = self.operations().into_iter().filter(|operation| operation.id == id);
        let operation = found.next().unwrap_or_else(|| panic!("no operation {id}"));
        assert!(found.next().is_none(), "{id} is there twice");
        operation
    }

    /// Asserts that an answer is one of those that the operation is said to have.
    pub(crate) fn check(&self, operation: &Operation, answer: &Answer) {
        let id = &operation.id;
        let response = &operation.description["responses"][answer.status.to_string()];
        assert!(response.is_object(), "{id} is not said to answer {answer:?}");
        let response = self.resolved(response);
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let is_there = answer.header(&name.to_ascii_lowercase()).is_some();
            assert!(is_there || self.resolved(header)["required"] != true, "{id}: no {name} in {answer:?}");
        }
        let Some(content) = response["content"].as_object() else {
            return assert_eq!(answer.body, "", "{id} is said to have no body: {answer:?}");
        };
        if operation.method == "HEAD" {
            return assert_eq!(answer.body, "");
        }
        let media_type = answer.header("content-type").unwrap().split(';').next().unwrap();
        let content = content.get(media_type).unwrap_or_else(|| panic!("{id} is not said to answer {media_type}"));
        let body = if media_type.ends_with("json") { answer.json() } else { Value::from(answer.body.as_str()) };
        self.validate(&content["schema"], &body, id);
        if media_type == "application/problem+json" {
            let examples = content["examples"].as_object().unwrap().values();
            let mut alike = examples.filter(|example| example["value"]["type"] == body["type"]);
            assert_eq!(alike.next().unwrap()["value"]["title"], body["title"], "{id}");
        }
    }

    /// Asserts that the data of a stream's event is as the operation says.
    pub(crate) fn check_event(&self, operation: &Operation, data: &Value) {
        let content = &operation.description["responses"]["200"]["content"]["text/event-stream"];
        assert!(content.is_object(), "{} is not said to be a stream", operation.id);
        self.validate(&content["x-event-data"], data, &operation.id);
    }

    /// Asserts that each example in it is one of its schema.
    pub(crate) fn check_examples(&self) {
        let mut checked = 0;
        walk(&self.0, &mut |node| {
            let (schema, examples): (_, Vec<&Value>) = if let Some(schema) = node.get("schema") {
                let named = node.get("examples").and_then(Value::as_object).into_iter().flatten();
                (schema, node.get("example").into_iter().chain(named.map(|(_, example)| &example["value"])).collect())
            } else {
                (node, node.get("examples").and_then(Value::as_array).into_iter().flatten().collect())
            };
            for example in examples {
                self.validate(schema, example, "an example");
                checked += 1;
            }
        });
        assert!(checked > 50, "{checked}");
    }

    fn resolved<'a>(&'a self, node: &'a Value) -> &'a Value {
        let Some(reference) = node["$ref"].as_str() else { return node };
        self.0.pointer(reference.strip_prefix('#').unwrap()).unwrap_or_else(|| panic!("{reference} leads nowhere"))
    }

    fn validate(&self, schema: &Value, instance: &Value, what: &str) {
        // What the schema refers to stands at the same place in here.
        let schema = json!({ "allOf": [schema], "components": self.0["components"] });
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let errors: Vec<_> = validator.iter_errors(instance).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{what}: {instance}: {errors:?}");
    }
}

/// Visits each object in a document.
fn walk<'a>(node: &'a Value, visit: &mut impl FnMut(&'a Value)) {
    match node {
        Value::Object(fields) => {
            visit(node);
            fields.values().for_each(|field| walk(field, visit));
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
