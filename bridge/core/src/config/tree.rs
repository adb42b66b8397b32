//! A YAML document as a tree that remembers where everything stood.

/// Where a node stood: the layer it came from, and its line and column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) source: usize,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Mark {
    /// The beginning of the first layer.
    pub(super) const START: Self = Self { source: 0, line: 1, column: 1 };
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Mark,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Scalar(Scalar),
    Seq(Vec<Node>),
    Map(Vec<Entry>),
}

/// A scalar as it was written. What type it has depends on its notation and, after interpolation, on the text that came in.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Written without quotes, so that `5` is a number and `true` a boolean.
    pub(super) plain: bool,
    /// Holds something from the environment: never shown.
    pub(super) interpolated: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: Mark,
    pub(super) node: Node,
}

/// The YAML 1.2 core schema's reading of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Typed<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    /// An integer beyond 64 bits.
    Huge,
    Float(f64),
    Text(&'a str),
}

impl Scalar {
    pub(super) fn typed(&self) -> Typed<'_> {
        if self.plain { resolve(&self.text) } else { Typed::Text(&self.text) }
    }
}

impl Node {
    /// Whether this is `null` or nothing at all; such a field counts as left out.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.typed() == Typed::Null)
    }

    /// The entry of a mapping.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node),
            Value::Scalar(_) | Value::Seq(_) => None,
        }
    }

    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            Value::Seq(_) | Value::Map(_) => None,
        }
    }
}

/// The path of `key` below `path`.
pub(super) fn child(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The path of element `index` of the list at `path`.
pub(super) fn element(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

fn resolve(text: &str) -> Typed<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Typed::Null,
        "true" | "True" | "TRUE" => return Typed::Bool(true),
        "false" | "False" | "FALSE" => return Typed::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Typed::Float(f64::NAN),
        _ => {}
    }
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        return Typed::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    let radix = match (text.get(..2), digits.bytes().all(|byte| byte.is_ascii_digit())) {
        (Some("0x"), _) => Some((16, &text[2..])),
        (Some("0o"), _) => Some((8, &text[2..])),
        (_, true) if !digits.is_empty() => Some((10, digits)),
        _ => None,
    };
    if let Some((radix, digits)) = radix {
        if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
            return Typed::Text(text);
        }
        return match (u64::from_str_radix(digits, radix), negative) {
            (Ok(number), false) => Typed::Unsigned(number),
            (Ok(number), true) => 0_i64.checked_sub_unsigned(number).map_or(Typed::Huge, Typed::Signed),
            (Err(_), _) => Typed::Huge,
        };
    }
    let numeric = digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(number) if numeric && digits.bytes().any(|byte| byte.is_ascii_digit()) => Typed::Float(number),
        _ => Typed::Text(text),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn scalars_have_the_types_of_yaml_1_2() {
        for (text, typed) in [
            ("off", Typed::Text("off")),
            ("yes", Typed::Text("yes")),
            ("~", Typed::Null),
            ("True", Typed::Bool(true)),
            ("30", Typed::Unsigned(30)),
            ("-5", Typed::Signed(-5)),
            ("+7", Typed::Unsigned(7)),
            ("0x1F", Typed::Unsigned(31)),
            ("0o17", Typed::Unsigned(15)),
            ("0xZZ", Typed::Text("0xZZ")),
            ("99999999999999999999", Typed::Huge),
            ("-9223372036854775808", Typed::Signed(i64::MIN)),
            ("2.0", Typed::Float(2.0)),
            ("1e3", Typed::Float(1000.0)),
            (".5", Typed::Float(0.5)),
            ("-.inf", Typed::Float(f64::NEG_INFINITY)),
            ("30s", Typed::Text("30s")),
            ("1.2.3.4", Typed::Text("1.2.3.4")),
            ("e", Typed::Text("e")),
            ("-", Typed::Text("-")),
            ("nan", Typed::Text("nan")),
            ("inf", Typed::Text("inf")),
        ] {
            assert_eq!(resolve(text), typed, "{text:?}");
        }
    }
}
