//! The scalar types of the configuration: durations with a unit, identifiers, secrets.

use core::fmt;
use core::time::Duration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// Separates code, message and remedy in the text of a value's own error, so that the decoder can take them apart again.
pub(super) const SEPARATOR: char = '\u{1f}';

pub(super) fn value_error<E: de::Error>(code: &str, message: impl fmt::Display, remedy: impl fmt::Display) -> E {
    E::custom(format_args!("{code}{SEPARATOR}{message}{SEPARATOR}{remedy}"))
}

/// A span of time in whole nanoseconds, never negative. Written with a unit: `500ms`, `45s`, `1h30m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i64);

/// A span of time that may be negative, where a negative one means "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignedSpan(i64);

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// `seconds` seconds, saturating.
    #[must_use]
    pub const fn secs(seconds: u32) -> Self {
        Self(seconds as i64 * 1_000_000_000)
    }

    /// `millis` milliseconds, saturating.
    #[must_use]
    pub const fn millis(millis: u32) -> Self {
        Self(millis as i64 * 1_000_000)
    }

    /// `nanos` nanoseconds; zero for a negative number.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        if nanos < 0 { Self(0) } else { Self(nanos) }
    }

    /// Whole nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The same as the standard library's type.
    #[must_use]
    pub const fn get(self) -> Duration {
        Duration::from_nanos(self.0.unsigned_abs())
    }

    /// Whether it is no time at all.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl SignedSpan {
    /// `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// `seconds` seconds.
    #[must_use]
    pub const fn secs(seconds: i32) -> Self {
        Self(seconds as i64 * 1_000_000_000)
    }

    /// Whole nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The span; `None` where it is negative.
    #[must_use]
    pub fn get(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

/// Seconds with as many decimals as needed, such as `967.5s`; below a second the largest fitting unit.
fn write_span(nanos: i64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let (unit, name, digits) = match n {
        0 | 1_000_000_000.. => (1_000_000_000, "s", 9),
        1_000_000.. => (1_000_000, "ms", 6),
        1_000.. => (1_000, "us", 3),
        _ => (1, "ns", 0),
    };
    let fraction = format!("{:0digits$}", n % unit, digits = digits);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { write!(f, "{sign}{}{name}", n / unit) } else { write!(f, "{sign}{}.{fraction}{name}", n / unit) }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_span(self.0, f)
    }
}

impl fmt::Display for SignedSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_span(self.0, f)
    }
}

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotASpan {
    NoUnit,
    Malformed,
    TooLong,
}

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Reads `1h30m`, `1.5s`, `-1s`: numbers each followed by a unit.
fn parse_span(text: &str) -> Result<i64, NotASpan> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return Err(NotASpan::Malformed);
    }
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        if tail.is_empty() && number.parse::<f64>().is_ok() {
            return Err(NotASpan::NoUnit);
        }
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale).ok_or(NotASpan::Malformed)?;
        let nanos = scaled(number, scale)?;
        total = total.checked_add(nanos).ok_or(NotASpan::TooLong)?;
        rest = tail;
    }
    Ok(sign * total)
}

/// `number` (digits with at most one point) times `scale`, in integers; what is finer than a nanosecond is cut off.
fn scaled(number: &str, scale: i64) -> Result<i64, NotASpan> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(NotASpan::Malformed);
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| NotASpan::TooLong)? };
    let mut nanos = i128::from(whole) * i128::from(scale);
    let mut place = i128::from(scale);
    for digit in fraction.bytes().take(18) {
        place /= 10;
        nanos += place * i128::from(digit - b'0');
    }
    i64::try_from(nanos).map_err(|_| NotASpan::TooLong)
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as `30s`")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<i64, E> {
        Err(no_unit(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<i64, E> {
        Err(no_unit(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<i64, E> {
        Err(no_unit(number))
    }

    fn visit_unit<E: de::Error>(self) -> Result<i64, E> {
        Ok(0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<i64, E> {
        parse_span(text.trim()).map_err(|fault| match fault {
            NotASpan::NoUnit => no_unit(text),
            NotASpan::Malformed => value_error(
                "E_DURATION",
                format_args!("invalid duration \"{text}\""),
                "write a number and a unit, such as `500ms`, `45s`, `15m` or `1h`",
            ),
            NotASpan::TooLong => {
                value_error("E_DURATION", format_args!("invalid duration \"{text}\": longer than 292 years"), "write a shorter duration")
            }
        })
    }
}

fn no_unit<E: de::Error>(number: impl fmt::Display) -> E {
    value_error(
        "E_DURATION_UNIT",
        format_args!("invalid duration \"{number}\": the unit is missing"),
        format_args!("write a unit, such as `{number}s` or `{number}ms`"),
    )
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let nanos = deserializer.deserialize_any(SpanVisitor)?;
        if nanos < 0 {
            return Err(value_error(
                "E_DURATION_NEGATIVE",
                format_args!("invalid duration \"{}\": must not be negative", SignedSpan(nanos)),
                "write a duration of zero or more",
            ));
        }
        Ok(Self(nanos))
    }
}

impl<'de> Deserialize<'de> for SignedSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpanVisitor).map(Self)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for SignedSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

const SPAN_PATTERN: &str = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h|d)";

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "title": "duration", "pattern": format!(r"^\+?({SPAN_PATTERN})+$"), "description": "A number and a unit (ns, us, ms, s, m, h, d), such as 500ms, 45s or 1h30m." })
    }
}

impl JsonSchema for SignedSpan {
    fn schema_name() -> Cow<'static, str> {
        "SignedDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "title": "duration", "pattern": format!(r"^[+-]?({SPAN_PATTERN})+$"), "description": "A duration; a negative one means never." })
    }
}

/// The tri-state of `broker_health_step_down`, where it was decided: off, or after how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepDown {
    /// A broker outage never costs the owner its lease.
    Off,
    /// An owner whose broker path stays unhealthy for this long lets go of the lease.
    After(Span),
}

impl<'de> Deserialize<'de> for StepDown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = StepDown;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`off` or a duration such as `90s`")
            }
            fn visit_unit<E: de::Error>(self) -> Result<StepDown, E> {
                Ok(StepDown::Off)
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<StepDown, E> {
                Err(not_a_step_down(value))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<StepDown, E> {
                Err(not_a_step_down(number))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<StepDown, E> {
                Err(not_a_step_down(number))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<StepDown, E> {
                Err(not_a_step_down(number))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<StepDown, E> {
                match (text, parse_span(text.trim())) {
                    ("off", _) => Ok(StepDown::Off),
                    (_, Ok(nanos)) if nanos > 0 => Ok(StepDown::After(Span(nanos))),
                    _ => Err(not_a_step_down(text)),
                }
            }
        }
        deserializer.deserialize_any(V)
    }
}

fn not_a_step_down<E: de::Error>(value: impl fmt::Display) -> E {
    value_error(
        "E_STEP_DOWN",
        format_args!("broker_health_step_down \"{value}\" must be a positive duration or \"off\""),
        "write `off`, or a duration such as `90s`",
    )
}

impl Serialize for StepDown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::After(span) => span.serialize(serializer),
        }
    }
}

impl JsonSchema for StepDown {
    fn schema_name() -> Cow<'static, str> {
        "StepDown".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "title": "`off` or duration", "pattern": format!(r"^(off|\+?({SPAN_PATTERN})+)$"), "description": "`off`, or a positive duration." })
    }
}

/// The name of a configured thing: not empty, at most 128 characters, without spaces, control characters and `#`, which separates the parts of store keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Id(String);

impl Id {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::ops::Deref for Id {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bad = |c: char| c.is_whitespace() || c.is_control() || c == '#';
        if text.chars().count() > 128 || text.chars().any(bad) {
            return Err(value_error(
                "E_ID",
                "not usable as a name",
                "use at most 128 characters, without spaces, control characters and `#`",
            ));
        }
        Ok(Self(text))
    }
}

impl JsonSchema for Id {
    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "title": "name", "pattern": r"^[^\s#]{1,128}$", "description": "A name: at most 128 characters, without spaces and `#`." })
    }
}

/// A text that must not be seen: it prints as `***` everywhere.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

/// The shortest key or token that somebody shows to this program, in characters.
pub const MIN_KEY_CHARS: usize = 16;

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Callers hand it to the protocol that needs it, and to nothing else.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing to hide.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "title": "secret", "description": "A secret: take it from the environment, as in `${NAME}`." })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn durations_have_units_and_whole_nanoseconds() {
        for (text, nanos) in [
            ("45s", 45_000_000_000),
            ("500ms", 500_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("0s", 0),
            ("-1s", -1_000_000_000),
            ("1us", 1_000),
            ("2µs", 2_000),
            ("7ns", 7),
            ("1d", 86_400_000_000_000),
            ("75.555555555s", 75_555_555_555),
        ] {
            assert_eq!(parse_span(text), Ok(nanos), "{text}");
        }
        for (text, fault) in [
            ("300", NotASpan::NoUnit),
            ("1.5", NotASpan::NoUnit),
            ("1h30", NotASpan::NoUnit),
            ("", NotASpan::Malformed),
            ("-", NotASpan::Malformed),
            ("s", NotASpan::Malformed),
            ("5 s", NotASpan::Malformed),
            ("5sec", NotASpan::Malformed),
            ("1.2.3s", NotASpan::Malformed),
            ("..", NotASpan::Malformed),
            ("99999999999h", NotASpan::TooLong),
            ("99999999999999999999s", NotASpan::TooLong),
        ] {
            assert_eq!(parse_span(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn durations_print_as_they_may_be_written() {
        for nanos in [0, 1, 999, 1_000, 1_500, 1_000_000, 967_500_000_000, 75_555_555_555, -1_000_000_000, i64::MAX] {
            assert_eq!(parse_span(&SignedSpan(nanos).to_string()), Ok(nanos), "{nanos}");
        }
        assert_eq!(Span(967_500_000_000).to_string(), "967.5s");
        assert_eq!(Span(500_000_000).to_string(), "500ms");
    }

    #[test]
    fn secrets_do_not_print() {
        let secret = Secret("hunter2".to_owned());
        assert_eq!(format!("{secret:?} {secret} {}", serde_json::to_string(&secret).unwrap()), "*** *** \"***\"");
    }
}
