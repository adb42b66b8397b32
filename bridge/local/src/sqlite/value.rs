//! How unsigned numbers and names stand in the database.

use causeway_core::identity::Id128;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Value, ValueRef};

/// An unsigned 64-bit number. SQLite's integers are signed: what does not fit is kept as text of 20 digits, which in SQLite's order stands
/// above every integer, and among its like in the order of the numbers. The columns have no affinity (`ANY`), so nothing is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(pub(super) u64);

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        i64::try_from(number.0).map_or_else(|_| Self::Text(format!("{:020}", number.0)), Self::Integer)
    }
}

impl ToSql for Number {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Owned(Value::from(*self)))
    }
}

impl FromSql for Number {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Integer(number) => u64::try_from(number).map(Self).map_err(|_| FromSqlError::OutOfRange(number)),
            ValueRef::Text(_) => value.as_str()?.parse().map(Self).map_err(FromSqlError::other),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

/// An identifier, as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(pub(super) Id128);

impl ToSql for Id {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Owned(Value::Text(self.0.to_string())))
    }
}

impl FromSql for Id {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_str()?.parse().map(Self).map_err(FromSqlError::other)
    }
}

/// The error for a text in column `column` that is none of the values that it may have.
pub(super) fn unknown(column: usize, text: &str) -> rusqlite::Error {
    let error = format!("unknown value `{}`", text.chars().take(40).collect::<String>());
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn numbers_keep_their_order_in_the_database() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE numbers (n ANY NOT NULL PRIMARY KEY) STRICT, WITHOUT ROWID").unwrap();
        let far = i64::MAX as u64;
        let numbers = [0, 1, 9, 10, far - 1, far, far + 1, 10_u64.pow(19), u64::MAX - 1, u64::MAX];
        for number in numbers.iter().rev() {
            connection.execute("INSERT INTO numbers VALUES (?)", [Number(*number)]).unwrap();
        }
        let mut statement = connection.prepare("SELECT n FROM numbers ORDER BY n").unwrap();
        let found: Vec<u64> =
            statement.query_map([], |row| row.get(0)).unwrap().map(|number: rusqlite::Result<Number>| number.unwrap().0).collect();
        assert_eq!(found, numbers);
        for pair in numbers.windows(2) {
            let less: bool = connection.query_row("SELECT ? < ?", [Number(pair[0]), Number(pair[1])], |row| row.get(0)).unwrap();
            assert!(less, "{} < {}", pair[0], pair[1]);
        }
    }
}
