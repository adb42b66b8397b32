//! Tree to model, finding every fault of a section in one go.
//!
//! The model's own `Deserialize` implementations stop at their first error. So each error is recorded, its value is taken out (replaced by nothing, or by
//! a stand-in where something must be there), and the section is decoded again, until it passes. A section that needed this is never used, only
//! checked further.

use super::tree::{Mark, Node, Typed, Value, child, element};
use super::values::SEPARATOR;
use core::fmt;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// One thing that a section gets wrong.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) path: String,
    pub(super) at: Mark,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) remedy: String,
    /// The field that was probably meant, where the key is unknown.
    pub(super) suspect: Option<String>,
}

/// What became of the last attempt, so that the next one can do without.
#[derive(Default)]
struct State {
    findings: Vec<Finding>,
    /// Values that are left out, by path.
    taken_out: BTreeSet<String>,
    /// Elements of lists for which nothing can stand in: they are passed over.
    passed_over: BTreeSet<String>,
    /// Required fields that stand-ins replace: path of the mapping, name of the field.
    stand_ins: BTreeSet<(String, &'static str)>,
    unknown: BTreeSet<String>,
}

/// More findings than anybody reads; the bound on the work that a hostile file can cause.
pub(super) const MAX_FINDINGS: usize = 200;

/// Judges a key that the model does not know: code, message and remedy, or `None` where it is simply unknown.
pub(super) type Judge = fn(path: &str, node: &Node) -> Option<Verdict>;

/// What is to be said about a key that the model does not know.
pub(super) enum Verdict {
    /// Refused for a reason of its own.
    Refused(&'static str, String, String),
    /// Without effect, and so let pass: it says what is so anyway.
    Harmless,
}

/// Decodes `node`, with every finding. The value is whole only if there are none.
pub(super) fn decode<T: DeserializeOwned>(path: &str, node: &Node, judge: Judge) -> (Option<T>, Vec<Finding>) {
    let state = RefCell::new(State::default());
    loop {
        let root = De { node: Some(node), path: path.to_owned(), at: node.at, state: &state, judge };
        let result = root.open(|de| T::deserialize(de));
        let mut state_now = state.borrow_mut();
        let done = match result {
            Ok(value) => Some(Some(value)),
            Err(error) => (!state_now.repair(path, error)).then_some(None),
        };
        if let Some(value) = done {
            return (value, core::mem::take(&mut state_now.findings));
        }
    }
}

impl State {
    /// Records an error and arranges for the next attempt to pass the place; false where there is no use in another.
    fn repair(&mut self, root: &str, error: DecodeError) -> bool {
        let path = error.path.unwrap_or_else(|| root.to_owned());
        let at = error.at.unwrap_or(Mark::START);
        if self.findings.len() >= MAX_FINDINGS {
            return false;
        }
        match error.kind {
            Kind::Missing(field) => {
                let full = child(&path, field);
                let stands_in = self.taken_out.contains(&path) || self.stand_ins.iter().any(|(above, name)| child(above, name) == path);
                if !stands_in && !self.taken_out.contains(&full) {
                    self.findings.push(Finding {
                        message: format!("{full} is required"),
                        remedy: format!("add `{field}: …`"),
                        path: full,
                        at,
                        code: "E_REQUIRED",
                        suspect: None,
                    });
                }
                self.stand_ins.insert((path, field))
            }
            Kind::Type { found, expected } => {
                let expected = plainly(&expected);
                let remedy = match (expected.as_str(), found.as_str()) {
                    ("a text", "a list" | "a mapping" | "nothing") => "write a text".to_owned(),
                    ("a text", _) => "put the value in quotes".to_owned(),
                    (_, "a text") if expected == "a whole number" || expected == "a number" => {
                        "write a number, without quotes and units".to_owned()
                    }
                    _ => format!("write {expected}"),
                };
                self.push(path, at, "E_TYPE", format!("expected {expected}, found {found}"), remedy)
            }
            Kind::Choice { found, choices } => {
                let listed = choices.join(", ");
                let remedy = match closest(&found, choices) {
                    Some(near) => format!("write `{near}`"),
                    None => format!("write one of: {listed}"),
                };
                self.push(path, at, "E_CHOICE", format!("\"{found}\" is not possible here; must be one of: {listed}"), remedy)
            }
            Kind::Value(text) => {
                let mut parts = text.split(SEPARATOR);
                let code = parts.next().unwrap_or_default();
                match (code_of(code), parts.next(), parts.next()) {
                    (Some(code), Some(message), Some(remedy)) => self.push(path, at, code, message.to_owned(), remedy.to_owned()),
                    _ => self.push(path, at, "E_VALUE", text.clone(), "see the reference of this field".to_owned()),
                }
            }
        }
    }

    fn push(&mut self, path: String, at: Mark, code: &'static str, message: String, remedy: String) -> bool {
        if !self.taken_out.insert(path.clone()) {
            // Not even nothing is a value here: an address for example.
            return path.ends_with(']') && self.passed_over.insert(path);
        }
        self.findings.push(Finding { path, at, code, message, remedy, suspect: None });
        true
    }
}

/// The codes that values of the model give themselves.
fn code_of(text: &str) -> Option<&'static str> {
    ["E_DURATION", "E_DURATION_UNIT", "E_DURATION_NEGATIVE", "E_STEP_DOWN", "E_ID", "E_BROKER_URL", "E_LISTEN_ADDR"]
        .into_iter()
        .find(|code| *code == text)
}

/// serde's words for what it expected, in words for people.
fn plainly(expected: &str) -> String {
    match expected {
        "a string" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number".to_owned(),
        "i32" | "i64" => "a whole number".to_owned(),
        "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        other if other.starts_with("struct ") || other.starts_with("a map") => "a mapping of fields".to_owned(),
        other => other.to_owned(),
    }
}

/// The known name nearest to a misspelt one, if any is near enough to be meant.
fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = name.to_ascii_lowercase();
    known
        .iter()
        .map(|candidate| (distance(&lower, candidate), *candidate))
        .filter(|(d, candidate)| *d <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance; names longer than any field count as far away.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 64 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// An error with its place, kept apart by kind.
#[derive(Debug)]
struct DecodeError {
    kind: Kind,
    path: Option<String>,
    at: Option<Mark>,
}

#[derive(Debug)]
enum Kind {
    Missing(&'static str),
    Type { found: String, expected: String },
    Choice { found: String, choices: &'static [&'static str] },
    Value(String),
}

impl From<Kind> for DecodeError {
    fn from(kind: Kind) -> Self {
        Self { kind, path: None, at: None }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

impl core::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Kind::Value(message.to_string()).into()
    }

    /// Only the type is told, never the value: it may be a secret.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(_) => "true or false",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a whole number",
            Unexpected::Float(_) => "a number with decimals",
            Unexpected::Str(_) | Unexpected::Char(_) => "a text",
            Unexpected::Unit | Unexpected::Option => "nothing",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a mapping",
            _ => "something else",
        };
        Kind::Type { found: found.to_owned(), expected: expected.to_string() }.into()
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Signed(n) if n < 0 => "a negative number",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a number out of range",
            _ => "another value",
        };
        Kind::Type { found: found.to_owned(), expected: expected.to_string() }.into()
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Kind::Choice { found: variant.to_owned(), choices: expected }.into()
    }

    fn missing_field(field: &'static str) -> Self {
        Kind::Missing(field).into()
    }
}

/// A deserializer over one node; without a node it stands in for a value that must be there.
struct De<'a> {
    node: Option<&'a Node>,
    path: String,
    at: Mark,
    state: &'a RefCell<State>,
    judge: Judge,
}

impl<'a> De<'a> {
    /// Runs `f` and gives an error without a place this one's.
    fn open<T>(self, f: impl FnOnce(Self) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        let (path, at) = (self.path.clone(), self.at);
        f(self).map_err(|error| match error.path {
            Some(_) => error,
            None => DecodeError { path: Some(path), at: Some(at), ..error },
        })
    }

    fn child(&self, path: String, at: Mark, node: Option<&'a Node>) -> Self {
        let taken_out = self.state.borrow().taken_out.contains(&path);
        Self { node: node.filter(|_| !taken_out), path, at, state: self.state, judge: self.judge }
    }

    fn fields(self, known: Option<&'static [&'static str]>) -> Result<Fields<'a>, DecodeError> {
        let mut pairs: Vec<(String, De<'a>)> = Vec::new();
        match self.node.map(|node| &node.value) {
            Some(Value::Map(entries)) => {
                for entry in entries {
                    let path = child(&self.path, &entry.key);
                    match known {
                        Some(known) if !known.contains(&entry.key.as_str()) => {
                            self.unknown(path, entry.key_at, &entry.key, &entry.node, known)
                        }
                        _ if entry.node.is_null() || self.state.borrow().taken_out.contains(&path) => {}
                        _ => pairs.push((entry.key.clone(), self.child(path, entry.node.at, Some(&entry.node)))),
                    }
                }
            }
            None => {}
            Some(Value::Seq(_)) => return Err(de::Error::invalid_type(Unexpected::Seq, &"a map")),
            Some(Value::Scalar(scalar)) => {
                return Err(de::Error::invalid_type(unexpected(&scalar.typed()), &"a map"));
            }
        }
        for (_, field) in self.state.borrow().stand_ins.iter().filter(|(path, _)| *path == self.path) {
            pairs.push((
                (*field).to_owned(),
                Self { node: None, path: child(&self.path, field), at: self.at, state: self.state, judge: self.judge },
            ));
        }
        Ok(Fields { pairs: pairs.into_iter(), value: None })
    }

    fn unknown(&self, path: String, at: Mark, key: &str, node: &Node, known: &'static [&'static str]) {
        let mut state = self.state.borrow_mut();
        if state.findings.len() >= MAX_FINDINGS || !state.unknown.insert(path.clone()) {
            return;
        }
        let (code, message, remedy) = match (self.judge)(&path, node) {
            Some(Verdict::Harmless) => return,
            Some(Verdict::Refused(code, message, remedy)) => (code, message, remedy),
            None => {
                let remedy = match closest(key, known) {
                    Some(near) => format!("did you mean `{near}`? Otherwise remove it"),
                    None => format!("remove it; known here: {}", known.join(", ")),
                };
                ("E_UNKNOWN_KEY", format!("unknown key `{key}`"), remedy)
            }
        };
        let suspect = closest(key, known).map(|near| child(&self.path, near));
        state.findings.push(Finding { path, at, code, message, remedy, suspect });
    }
}

fn unexpected<'t>(typed: &Typed<'t>) -> Unexpected<'t> {
    match *typed {
        Typed::Null => Unexpected::Unit,
        Typed::Bool(value) => Unexpected::Bool(value),
        Typed::Unsigned(number) => Unexpected::Unsigned(number),
        Typed::Signed(number) => Unexpected::Signed(number),
        Typed::Huge => Unexpected::Unsigned(u64::MAX),
        Typed::Float(number) => Unexpected::Float(number),
        Typed::Text(text) => Unexpected::Str(text),
    }
}

macro_rules! stand_in {
    ($($method:ident => $visit:ident($value:expr)),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            if self.node.is_none() { visitor.$visit($value) } else { self.deserialize_any(visitor) }
        })*
    };
}

impl<'de> Deserializer<'de> for De<'_> {
    type Error = DecodeError;

    stand_in! {
        deserialize_bool => visit_bool(false),
        deserialize_u8 => visit_u8(0),
        deserialize_u16 => visit_u16(0),
        deserialize_u32 => visit_u32(0),
        deserialize_u64 => visit_u64(0),
        deserialize_i32 => visit_i32(0),
        deserialize_i64 => visit_i64(0),
        deserialize_f64 => visit_f64(0.0),
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.map(|node| &node.value) {
            None => visitor.visit_unit(),
            Some(Value::Seq(_)) => self.deserialize_seq(visitor),
            Some(Value::Map(_)) => self.deserialize_map(visitor),
            Some(Value::Scalar(scalar)) => match scalar.typed() {
                Typed::Bool(value) => visitor.visit_bool(value),
                Typed::Unsigned(number) => visitor.visit_u64(number),
                Typed::Signed(number) => visitor.visit_i64(number),
                Typed::Float(number) if number.is_finite() => visitor.visit_f64(number),
                Typed::Text(text) => visitor.visit_str(text),
                other @ (Typed::Null | Typed::Huge | Typed::Float(_)) => Err(de::Error::invalid_value(unexpected(&other), &visitor)),
            },
        }
    }

    /// A plain number is a text only where it came from the environment: `${PASSWORD}` may consist of digits.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.map(|node| &node.value) {
            None => visitor.visit_str(""),
            Some(Value::Scalar(scalar)) => match scalar.typed() {
                Typed::Text(text) => visitor.visit_str(text),
                _ if scalar.interpolated => visitor.visit_str(&scalar.text),
                other => Err(de::Error::invalid_type(unexpected(&other), &visitor)),
            },
            Some(Value::Seq(_) | Value::Map(_)) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.node.is_none_or(Node::is_null) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.map(|node| &node.value) {
            None => visitor.visit_seq(Elements { de: self, nodes: [].iter(), index: 0 }),
            Some(Value::Seq(nodes)) => visitor.visit_seq(Elements { nodes: nodes.iter(), de: self, index: 0 }),
            Some(Value::Map(_)) => Err(de::Error::invalid_type(Unexpected::Map, &"a sequence")),
            Some(Value::Scalar(scalar)) => Err(de::Error::invalid_type(unexpected(&scalar.typed()), &"a sequence")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_map(self.fields(None)?)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_map(self.fields(Some(known))?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let name = match self.node.map(|node| &node.value) {
            None => variants.first().copied().unwrap_or_default(),
            Some(Value::Scalar(scalar)) => scalar.text.as_str(),
            Some(Value::Seq(_)) => {
                return Err(de::Error::invalid_type(Unexpected::Seq, &"a string"));
            }
            Some(Value::Map(_)) => {
                return Err(de::Error::invalid_type(Unexpected::Map, &"a string"));
            }
        };
        visitor.visit_enum(name.to_owned().into_deserializer())
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { i8 i16 i128 u128 f32 char bytes byte_buf unit_struct tuple tuple_struct }
}

struct Elements<'a> {
    de: De<'a>,
    nodes: core::slice::Iter<'a, Node>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        for node in self.nodes.by_ref() {
            let path = element(&self.de.path, self.index);
            self.index += 1;
            if !self.de.state.borrow().passed_over.contains(&path) {
                return self.de.child(path, node.at, Some(node)).open(|de| seed.deserialize(de)).map(Some);
            }
        }
        Ok(None)
    }
}

struct Fields<'a> {
    pairs: std::vec::IntoIter<(String, De<'a>)>,
    value: Option<De<'a>>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        let Some((key, value)) = self.pairs.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        match self.value.take() {
            Some(de) => de.open(|de| seed.deserialize(de)),
            None => Err(de::Error::custom("a value without a key")),
        }
    }
}
