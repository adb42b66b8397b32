//! What commands print on stdout: tables for people, JSON for programs.

use super::error::CliError;
use core::time::Duration;
use serde_json::Value;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Prints one text and a line end.
///
/// # Errors
/// Where stdout cannot be written.
pub fn line(text: &str) -> Result<ExitCode, CliError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints indented JSON.
///
/// # Errors
/// Where stdout cannot be written.
pub fn json(value: &Value) -> Result<ExitCode, CliError> {
    line(&format!("{value:#}"))
}

/// A table: columns as wide as their widest cell, numbers to the right.
#[derive(Clone, Debug)]
pub struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, a cell for each head.
    pub fn row(&mut self, cells: Vec<String>) {
        // A cell is one line, whatever it was made from, and moves no cursor.
        let clean = |cell: String| cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// The table as text, without a last line end.
    #[must_use]
    pub fn render(&self) -> String {
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> = self
            .heads
            .iter()
            .enumerate()
            .map(|(column, head)| cells(column).map(|cell| cell.chars().count()).chain([head.chars().count()]).max().unwrap_or_default())
            .collect();
        let numeric: Vec<bool> = (0..self.heads.len())
            .map(|column| cells(column).all(|cell| cell == "-" || cell.chars().all(|c| c.is_ascii_digit() || c == '.')))
            .collect();
        let draw = |row: Vec<&str>| {
            let padded: Vec<String> = row
                .iter()
                .zip(widths.iter().zip(&numeric))
                .map(|(cell, (&width, &right))| if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") })
                .collect();
            padded.join("  ").trim_end().to_owned()
        };
        let head = draw(self.heads.clone());
        let body = self.rows.iter().map(|row| draw(row.iter().map(String::as_str).collect()));
        core::iter::once(head).chain(body).collect::<Vec<_>>().join("\n")
    }
}

pub use crate::dead_letters::time;

/// How long ago, roughly.
#[must_use]
pub fn ago(duration: Duration) -> String {
    match duration.as_secs() {
        0..=119 => format!("{}s", duration.as_secs()),
        120..=7_199 => format!("{}m", duration.as_secs() / 60),
        7_200..=172_799 => format!("{}h", duration.as_secs() / 3_600),
        days => format!("{}d", days / 86_400),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use causeway_core::units::UnixMillis;

    #[test]
    fn tables_line_up_and_cells_stay_on_their_line() {
        let mut table = Table::new(&["NAME", "COUNT", "NOTE"]);
        table.row(vec!["a".to_owned(), "7".to_owned(), "one\ntwo\u{1b}[31m".to_owned()]);
        table.row(vec!["longer".to_owned(), "1234567".to_owned(), "-".to_owned()]);
        assert_eq!(table.render(), "NAME      COUNT  NOTE\na             7  one two [31m\nlonger  1234567  -");
    }

    #[test]
    fn times_and_ages_are_readable() {
        assert_eq!(time(UnixMillis(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
        assert_eq!(time(UnixMillis(u64::MAX)), "9999-12-31T23:59:59.999Z");
        let shown: Vec<String> = [5, 120, 7_200, 200_000].map(|seconds| ago(Duration::from_secs(seconds))).into();
        assert_eq!(shown, ["5s", "2m", "2h", "2d"]);
    }
}
