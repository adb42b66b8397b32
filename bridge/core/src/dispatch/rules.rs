//! How a rule compares.

use super::fields::{Field, FieldError, Found, View};
use crate::config::model::{Literal, Operator};
use core::cmp::Ordering;
use regex::Regex;
use thiserror::Error;

/// Regular expressions of at most so many characters.
pub const MAX_REGEX_CHARS: usize = 4096;

/// A condition on a message.
#[derive(Clone, Debug)]
pub struct Condition {
    field: Field,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Eq(String),
    Ne(String),
    Prefix(String),
    Contains(String),
    Regex(Regex),
    Order(String, fn(Ordering) -> bool),
    Exists,
    In(Vec<String>),
}

/// Why a condition cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConditionError {
    /// What it looks at.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// What it compares with.
    #[error("the operator and what it compares with do not fit")]
    Operand,
    /// Its regular expression.
    #[error("{0}")]
    Regex(String),
}

/// Reads a regular expression of a rule.
///
/// # Errors
/// Where it is too long, too large when compiled, or none.
pub fn regex(text: &str) -> Result<Regex, ConditionError> {
    if text.chars().count() > MAX_REGEX_CHARS {
        return Err(ConditionError::Regex(format!("longer than {MAX_REGEX_CHARS} characters")));
    }
    Regex::new(text).map_err(|error| {
        let text = error.to_string();
        // The last line says what is wrong; those above it draw the expression.
        ConditionError::Regex(text.lines().last().unwrap_or(&text).trim_start_matches("error: ").to_owned())
    })
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// [`ConditionError`] where there is none.
    pub fn new(field: &str, operator: Operator, value: Option<&Literal>, values: &[Literal]) -> Result<Self, ConditionError> {
        let field = Field::parse(field)?;
        let text = || value.map(|value| value.0.clone()).ok_or(ConditionError::Operand);
        let test = match operator {
            Operator::Eq => Test::Eq(text()?),
            Operator::Ne => Test::Ne(text()?),
            Operator::Prefix => Test::Prefix(text()?),
            Operator::Contains => Test::Contains(text()?),
            Operator::Regex => Test::Regex(regex(&text()?)?),
            Operator::Gt => Test::Order(text()?, Ordering::is_gt),
            Operator::Lt => Test::Order(text()?, Ordering::is_lt),
            Operator::Gte => Test::Order(text()?, Ordering::is_ge),
            Operator::Lte => Test::Order(text()?, Ordering::is_le),
            Operator::Exists => Test::Exists,
            Operator::In if values.is_empty() => return Err(ConditionError::Operand),
            Operator::In => Test::In(values.iter().map(|value| value.0.clone()).collect()),
        };
        Ok(Self { field, test })
    }

    /// Whether it holds. Where the message does not have the field, no condition holds, `ne` included.
    #[must_use]
    pub fn holds(&self, view: &View<'_>) -> bool {
        let Some(found) = view.value(&self.field) else { return false };
        match &self.test {
            Test::Eq(text) => equals(&found, text),
            Test::Ne(text) => !equals(&found, text),
            Test::Prefix(text) => found.text.starts_with(text.as_str()),
            Test::Contains(text) => found.text.contains(text.as_str()),
            Test::Regex(regex) => regex.is_match(&found.text),
            Test::Order(text, is_right) => order(&found.text, text).is_some_and(is_right),
            Test::Exists => true,
            Test::In(texts) => texts.iter().any(|text| equals(&found, text)),
        }
    }
}

/// As text; a JSON number also as a number: `1.0` is `1`.
fn equals(found: &Found<'_>, text: &str) -> bool {
    found.text == text || found.is_number && numbers(&found.text, text) == Some(Ordering::Equal)
}

/// As numbers where what is compared with is one, then only with numbers; else as text.
fn order(found: &str, text: &str) -> Option<Ordering> {
    if number(text).is_some() { numbers(found, text) } else { Some(found.cmp(text)) }
}

fn number(text: &str) -> Option<f64> {
    let is_like_one = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    text.parse().ok().filter(|number: &f64| is_like_one && number.is_finite())
}

/// Whole numbers exactly, others as the nearest that the machine has.
fn numbers(left: &str, right: &str) -> Option<Ordering> {
    match (left.parse::<i128>(), right.parse::<i128>()) {
        (Ok(left), Ok(right)) => Some(left.cmp(&right)),
        _ => number(left)?.partial_cmp(&number(right)?),
    }
}
