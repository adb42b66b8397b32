//! `chaos --matrix`: every delivery mode over every store, before both kinds of queue, under each of four harms. One table.

mod cell;

pub use cell::Scale;

use super::Options;
use crate::stack::{Stack, StackOptions, Store};
use crate::terminal::{note, result, stop_requested};
use anyhow::{Context as _, Result, bail, ensure};
use cell::{Cell, Outcome, Place};
use futures_util::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// The table.
#[derive(Clone, Debug, Serialize)]
pub struct Matrix {
    /// Whether every promise was kept in every cell.
    pub ok: bool,
    scale: Scale,
    store: &'static str,
    seconds: f64,
    cells: Vec<Outcome>,
}

impl Matrix {
    /// For a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let rows: Vec<[String; 11]> =
            std::iter::once(Outcome::HEADINGS.map(str::to_owned)).chain(self.cells.iter().map(Outcome::columns)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..Outcome::HEADINGS.len()).map(width).collect();
        let line = |row: &[String; 11]| {
            let columns = row.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
            columns.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// For a page.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |columns: &[String]| format!("| {} |", columns.join(" | "));
        let mut lines = vec![line(&Outcome::HEADINGS.map(str::to_owned)), format!("|{}", "---|".repeat(Outcome::HEADINGS.len()))];
        lines.extend(self.cells.iter().map(|cell| line(&cell.columns())));
        lines.join("\n")
    }

    /// The sums, in a line.
    #[must_use]
    pub fn ending(&self) -> String {
        let failed = self.cells.iter().filter(|cell| !cell.ok).count();
        let (published, lost) = self.cells.iter().fold((0, 0), |sums, cell| (sums.0 + cell.published, sums.1 + cell.lost));
        format!("{} cells, {failed} FAILED; lost {lost} of {published} messages; {:.0} s; {}", self.cells.len(), self.seconds, self.store)
    }

    /// Everything that is wrong.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let of = |cell: &Outcome| format!("{}:\n  {}", cell.columns()[..4].join(", "), cell.faults.join("\n  "));
        self.cells.iter().filter(|cell| !cell.ok).map(of).collect()
    }
}

/// Plays what the options ask for, and prints the table. `true`: everything was kept.
///
/// # Errors
/// The stack cannot be started.
pub(super) async fn run(options: &Options) -> Result<bool> {
    let dir = tempfile::Builder::new().prefix("causeway-matrix-").tempdir().context("cannot create a temporary folder")?;
    let scale = if options.short { Scale::SHORT } else { Scale::FULL };
    let matrix = tokio::select! {
        matrix = play(scale, options.cells.as_deref().unwrap_or_default(), dir.path()) => matrix?,
        () = stop_requested() => bail!("interrupted"),
    };
    let table = if options.markdown { matrix.markdown() } else { matrix.text() };
    if options.json {
        note(&format!("{table}\n{}", matrix.ending()));
        result(&serde_json::to_string(&matrix)?);
    } else {
        result(&format!("{table}\n{}", matrix.ending()));
    }
    if !matrix.ok {
        matrix.faults().iter().for_each(|fault| note(fault));
        note(&format!("the logs of all processes are in {}", dir.keep().display()));
    }
    Ok(matrix.ok)
}

/// Plays every cell whose name has `only` in it, several at a time, each with a broker, a queue, tables or files and proxies of its own.
///
/// # Errors
/// The stack that they share cannot be started, or there is no such cell.
pub async fn play(scale: Scale, only: &str, dir: &Path) -> Result<Matrix> {
    let started = Instant::now();
    note("building the worker");
    let binary = crate::worker::binary().await?;
    let cells: Vec<Cell> = Cell::all().into_iter().filter(|cell| cell.name().contains(only)).collect();
    ensure!(!cells.is_empty(), "no cell has `{only}` in its name; one is `{}`", Cell::all()[0].name());
    let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {elapsed}  {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(cells.len() as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.set_message("starting queue and store");
    let stack = Stack::start(&StackOptions::bound(&dir.join("shared"), Store::Dynamodb)).await?;
    bar.set_message(format!("{} cells at a time", scale.at_once));
    let played = futures_util::stream::iter(cells.into_iter().enumerate().map(|(number, cell)| {
        let place = Place { stack: &stack, binary: binary.clone(), dir: dir.join(number.to_string()), number };
        let bar = &bar;
        async move {
            let outcome = cell::play(cell, scale, place).await;
            bar.suspend(|| note(&outcome.columns().join("  ")));
            bar.inc(1);
            (number, outcome)
        }
    }));
    let mut outcomes: Vec<(usize, Outcome)> = played.buffer_unordered(scale.at_once).collect().await;
    bar.finish_and_clear();
    outcomes.sort_by_key(|(number, _)| *number);
    let cells: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    let (ok, seconds) = (cells.iter().all(|cell| cell.ok), started.elapsed().as_secs_f64().round());
    Ok(Matrix { ok, scale, store: stack.store_name, seconds, cells })
}
