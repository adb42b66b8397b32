//! `${NAME}` and `${NAME:-default}` inside scalars, filled from the environment after the YAML was read, so that no value can break the document.

use super::tree::{Mark, Node, Value, child, element};

/// A variable's name and what it stood for. The value is kept only to be struck out of messages.
pub(super) type Filled = (String, String);

/// What interpolation does with one document.
pub(super) struct Interpolation<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// Every value that came from the environment.
    pub(super) filled: Vec<Filled>,
    /// What could not be filled: path, place, code, what, remedy.
    pub(super) missing: Vec<(String, Mark, &'static str, String, String)>,
}

impl Interpolation<'_> {
    /// Fills every scalar below `node`.
    pub(super) fn fill(&mut self, path: &str, node: &mut Node) {
        match &mut node.value {
            Value::Seq(nodes) => {
                for (index, node) in nodes.iter_mut().enumerate() {
                    self.fill(&element(path, index), node);
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    self.fill(&child(path, &entry.key), &mut entry.node);
                }
            }
            Value::Scalar(scalar) if scalar.text.contains("${") => match self.text(&scalar.text) {
                Ok((text, interpolated)) => {
                    scalar.text = text;
                    scalar.interpolated = interpolated;
                }
                Err((code, what, remedy)) => {
                    self.missing.push((path.to_owned(), node.at, code, what, remedy));
                    scalar.interpolated = true;
                }
            },
            Value::Scalar(_) => {}
        }
    }

    fn text(&mut self, text: &str) -> Result<(String, bool), (&'static str, String, String)> {
        let mut out = String::with_capacity(text.len());
        let mut interpolated = false;
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            // `$${` stands for a literal `${`.
            if rest[..start].ends_with('$') {
                out.push_str(&rest[..start]);
                out.push('{');
                rest = &rest[start + 2..];
                continue;
            }
            out.push_str(&rest[..start]);
            let inner = &rest[start + 2..];
            let Some(end) = inner.find('}') else {
                return Err((
                    "E_INTERPOLATION",
                    "`${` without a closing `}`".to_owned(),
                    "write `${NAME}`, or `$${` for the characters themselves".to_owned(),
                ));
            };
            let (name, default) = match inner[..end].split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (&inner[..end], None),
            };
            if !is_name(name) {
                return Err((
                    "E_INTERPOLATION",
                    format!("`{name}` is not the name of an environment variable"),
                    "write `${NAME}` or `${NAME:-default}`; names have letters, digits and `_`".to_owned(),
                ));
            }
            interpolated = true;
            match ((self.env)(name), default) {
                (Some(value), None) => out.push_str(self.remember(name, value)),
                (Some(value), Some(_)) if !value.is_empty() => out.push_str(self.remember(name, value)),
                (_, Some(default)) => out.push_str(default),
                (None, None) => {
                    return Err((
                        "E_ENV_MISSING",
                        format!("the environment variable `{name}` is not set"),
                        format!("set {name}, or give a default: `${{{name}:-default}}`"),
                    ));
                }
            }
            rest = &inner[end + 1..];
        }
        out.push_str(rest);
        Ok((out, interpolated))
    }

    fn remember(&mut self, name: &str, value: String) -> &str {
        self.filled.push((name.to_owned(), value));
        self.filled.last().map_or("", |(_, value)| value.as_str())
    }
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_') && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    fn fill(text: &str) -> Result<(String, bool), (&'static str, String, String)> {
        let env = |name: &str| match name {
            "HOST" => Some("mqtt.example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOST}".to_owned()),
            _ => None,
        };
        Interpolation { env: &env, filled: Vec::new(), missing: Vec::new() }.text(text)
    }

    #[test]
    fn variables_are_filled_once_and_defaults_like_a_shell_does() {
        for (text, out) in [
            ("tls://${HOST}:8883", "tls://mqtt.example.com:8883"),
            ("${NOPE:-a}${NOPE:-}b", "ab"),
            ("${EMPTY:-fallback}", "fallback"),
            ("${EMPTY}", ""),
            ("${HOST:-x}", "mqtt.example.com"),
            ("${NESTED}", "${HOST}"),
            ("$${HOST}", "${HOST}"),
            ("$share/g/t ${EMPTY}$", "$share/g/t $"),
        ] {
            assert_eq!(fill(text).unwrap().0, out, "{text}");
        }
        assert!(!fill("$${HOST}").unwrap().1);
        for (text, code) in
            [("${", "E_INTERPOLATION"), ("${}", "E_INTERPOLATION"), ("${A B}", "E_INTERPOLATION"), ("${NOPE}", "E_ENV_MISSING")]
        {
            assert_eq!(fill(text).unwrap_err().0, code, "{text}");
        }
    }
}
