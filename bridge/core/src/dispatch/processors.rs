//! What handles a message before its bindings are chosen: filters, transforms, the tenant.
//!
//! They run in the order in which the route names them, each on what the one before made of the message.

use super::fields::{Field, FieldError, Found, JsonPath, View};
use super::headers::{self, RESERVED, TENANT};
use super::rules::{Condition, ConditionError};
use crate::config::model::{FilterAction, Mapping, Processor, ProcessorKind, ValueType};
use crate::message::{Message, Refusal};
use crate::outcome::FaultCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// A processor, ready to run.
#[derive(Clone, Debug)]
pub struct Step {
    id: Arc<str>,
    work: Work,
}

#[derive(Clone, Debug)]
enum Work {
    /// All conditions hold, or not all of them.
    Filter {
        conditions: Vec<Condition>,
        invert: bool,
        action: Action,
    },
    Transform(Vec<Map>),
    /// It concerns sending alone.
    Nothing,
    Tenant {
        from: Field,
        otherwise: Option<String>,
    },
}

#[derive(Clone, Debug)]
enum Action {
    Pass,
    Drop,
    Route(Arc<str>),
}

#[derive(Clone, Debug)]
struct Map {
    from: Field,
    to: Target,
    kind: ValueType,
}

/// Where a mapping writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Into a header.
    Header(String),
    /// Into the payload, by the names on the way.
    Json(Vec<String>),
}

impl Target {
    /// Reads `header.NAME` or `$.name.name`; `None` where it is neither, or not for a configuration to write.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let Some(name) = text.strip_prefix("header.") else {
            return JsonPath::parse(text).ok().and_then(JsonPath::into_names).map(Self::Json);
        };
        let is_reserved = name.to_ascii_lowercase().starts_with(RESERVED) || name.starts_with("mqtt.");
        (!name.is_empty() && !is_reserved).then(|| Self::Header(name.to_owned()))
    }
}

/// Why a processor cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProcessorError {
    /// A condition of a filter.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// Where a value comes from.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Where a value goes.
    #[error("`{0}` is not a place to write to: `header.NAME` outside of `x-bridge.`, or `$.name.name`")]
    Target(String),
    /// Something that it needs is not there.
    #[error("`{0}` is missing")]
    Missing(&'static str),
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processed {
    /// It goes on, as it stands in the message; to this binding, if a filter said so.
    On(Option<Arc<str>>),
    /// A filter took it out.
    Filtered(Refusal),
    /// It cannot be handled.
    Refused(Refusal),
}

impl Step {
    /// Makes a processor ready.
    ///
    /// # Errors
    /// [`ProcessorError`] where it cannot be.
    pub fn new(processor: &Processor) -> Result<Self, ProcessorError> {
        let options = &processor.options;
        let work = match processor.kind {
            ProcessorKind::Filter => {
                let conditions: Vec<Condition> = options
                    .conditions
                    .iter()
                    .map(|it| Condition::new(&it.field, it.operator, it.value.as_ref(), &it.values))
                    .collect::<Result<_, _>>()?;
                if conditions.is_empty() {
                    return Err(ProcessorError::Missing("conditions"));
                }
                let action = match options.action.ok_or(ProcessorError::Missing("action"))? {
                    FilterAction::Pass => Action::Pass,
                    FilterAction::Drop => Action::Drop,
                    FilterAction::Route => Action::Route(options.binding.as_deref().ok_or(ProcessorError::Missing("binding"))?.into()),
                };
                Work::Filter { conditions, invert: options.invert, action }
            }
            ProcessorKind::Transform if options.mappings.is_empty() => return Err(ProcessorError::Missing("mappings")),
            ProcessorKind::Transform => Work::Transform(options.mappings.iter().map(Map::new).collect::<Result<_, _>>()?),
            ProcessorKind::Tenant => Work::Tenant {
                from: Field::parse(options.from.as_deref().ok_or(ProcessorError::Missing("from"))?)?,
                otherwise: options.default_tenant.clone(),
            },
            ProcessorKind::CircuitBreaker => Work::Nothing,
        };
        Ok(Self { id: processor.id.as_str().into(), work })
    }

    fn run(&self, message: &mut Message) -> Processed {
        match &self.work {
            Work::Nothing => Processed::On(None),
            Work::Filter { conditions, invert, action } => {
                let holds = {
                    let view = View::new(message);
                    conditions.iter().all(|condition| condition.holds(&view)) != *invert
                };
                let filtered =
                    || Processed::Filtered(Refusal { code: FaultCode::MessageFiltered, detail: format!("by processor `{}`", self.id) });
                match (action, holds) {
                    (Action::Drop, true) | (Action::Pass, false) => filtered(),
                    (Action::Route(binding), true) => Processed::On(Some(Arc::clone(binding))),
                    (Action::Drop | Action::Route(_), false) | (Action::Pass, true) => Processed::On(None),
                }
            }
            Work::Transform(maps) => match transform(maps, message) {
                Ok(()) => Processed::On(None),
                Err(what) => self.refuse(&what),
            },
            Work::Tenant { from, otherwise } => {
                let found = View::new(message).value(from).map(|found| found.text.into_owned()).filter(|tenant| !tenant.is_empty());
                match found.or_else(|| otherwise.clone()) {
                    Some(tenant) => {
                        headers::set(message, TENANT, tenant);
                        Processed::On(None)
                    }
                    None => self.refuse("the message tells no tenant"),
                }
            }
        }
    }

    fn refuse(&self, what: &str) -> Processed {
        Processed::Refused(Refusal { code: FaultCode::InvalidPayload, detail: format!("processor `{}`: {what}", self.id) })
    }
}

/// Lets processors handle a message, one after the other. The last filter that routes it decides where it goes.
pub fn process(steps: &[Step], message: &mut Message) -> Processed {
    let mut binding = None;
    for step in steps {
        match step.run(message) {
            Processed::On(Some(chosen)) => binding = Some(chosen),
            Processed::On(None) => {}
            end => return end,
        }
    }
    Processed::On(binding)
}

impl Map {
    fn new(mapping: &Mapping) -> Result<Self, ProcessorError> {
        let to = Target::parse(&mapping.to).ok_or_else(|| ProcessorError::Target(mapping.to.clone()))?;
        Ok(Self { from: Field::parse(&mapping.from)?, to, kind: mapping.kind })
    }
}

/// A value as its mapping wants it.
fn typed(found: &Found<'_>, kind: ValueType) -> Option<Value> {
    let text = found.text.as_ref();
    Some(match kind {
        ValueType::String => Value::String(text.to_owned()),
        ValueType::Int => Value::Number(text.parse::<i64>().ok()?.into()),
        ValueType::Float => Value::Number(serde_json::Number::from_f64(text.parse().ok()?)?),
        ValueType::Bool => Value::Bool(text.parse().ok()?),
        ValueType::Base64 => Value::String(BASE64.encode(text)),
    })
}

/// Writes what the mappings find; what is not found is left out. All of them read the payload as it came.
fn transform(maps: &[Map], message: &mut Message) -> Result<(), String> {
    let mut document: Option<String> = None;
    for map in maps {
        let value = match View::new(message).value(&map.from) {
            None => continue,
            Some(found) => typed(&found, map.kind).ok_or_else(|| format!("a value is no {}", map.kind.as_str()))?,
        };
        match &map.to {
            Target::Header(name) => headers::set(message, name, value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
            Target::Json(names) => {
                let text = match &document {
                    Some(document) => document.as_str(),
                    None => core::str::from_utf8(&message.payload).map_err(|_| "the payload is not JSON".to_owned())?,
                };
                document = Some(write(text, names, &value).ok_or_else(|| "the payload is not JSON with objects on the way".to_owned())?);
            }
        }
    }
    if let Some(document) = document {
        message.payload = Bytes::from(document);
    }
    Ok(())
}

/// The document with another value at a place. Everything beside the way to it is left as it is written, to the digit.
fn write(document: &str, names: &[String], value: &Value) -> Option<String> {
    let Some((name, rest)) = names.split_first() else { return Some(value.to_string()) };
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(document).ok()?;
    let member = write(members.get(name).map_or("{}", |member| member.get()), rest, value)?;
    members.insert(name.clone(), RawValue::from_string(member).ok()?);
    serde_json::to_string(&members).ok()
}
