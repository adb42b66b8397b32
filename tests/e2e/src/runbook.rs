//! The runbooks of docs/OPERATIONS.md, as something that can be walked: what to type, and what it answers.
//!
//! A runbook is a heading of the third level below "Runbooks". In its `console` blocks a line that begins with `$ ` is typed, and the lines below it are
//! what has to be found in the answer, in this order; `…` stands for anything. Other lines of the answer may come between.

use std::fmt::Write as _;

/// One runbook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runbook {
    /// Its heading.
    pub title: String,
    /// Its blocks, each of which is walked in one state of the world.
    pub blocks: Vec<Vec<Step>>,
}

/// Something to type, and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// For a shell.
    pub command: String,
    /// The lines that the answer has.
    pub expected: Vec<String>,
}

/// Every runbook of a page.
#[must_use]
pub fn runbooks(page: &str) -> Vec<Runbook> {
    let (mut books, mut inside, mut in_block): (Vec<Runbook>, bool, bool) = (Vec::new(), false, false);
    for line in page.lines() {
        if in_block {
            match (line == "```", books.last_mut()) {
                (true, _) => in_block = false,
                (false, Some(book)) => book.take(line),
                (false, None) => {}
            }
        } else if let Some(title) = line.strip_prefix("## ") {
            inside = title == "Runbooks";
        } else if let (true, Some(title)) = (inside, line.strip_prefix("### ")) {
            books.push(Runbook { title: title.to_owned(), blocks: Vec::new() });
        } else if line == "```console"
            && let (true, Some(book)) = (inside, books.last_mut())
        {
            in_block = true;
            book.blocks.push(Vec::new());
        }
    }
    books
}

impl Runbook {
    fn take(&mut self, line: &str) {
        let Some(block) = self.blocks.last_mut() else { return };
        match (line.strip_prefix("$ "), block.last_mut()) {
            (Some(command), _) => block.push(Step { command: command.to_owned(), expected: Vec::new() }),
            (None, Some(step)) if step.command.ends_with('\\') => {
                let _ = write!(step.command, "\n{line}");
            }
            (None, Some(step)) => step.expected.push(line.to_owned()),
            (None, None) => {}
        }
    }
}

impl Step {
    /// The first expected line that `answer` does not have.
    #[must_use]
    pub fn missing(&self, answer: &str) -> Option<&str> {
        let mut lines = answer.lines();
        self.expected
            .iter()
            .filter(|expected| expected.trim() != "…")
            .find(|expected| !lines.any(|line| fits(expected, line)))
            .map(String::as_str)
    }
}

/// Whether `line` is as `pattern` says; spaces count as one, and none at the ends.
fn fits(pattern: &str, line: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, line) = (plain(pattern), plain(line));
    let mut parts = pattern.split('…').map(str::trim);
    let (first, mut rest) = (parts.next().unwrap_or_default(), line.as_str());
    let Some(after) = rest.strip_prefix(first) else { return false };
    rest = after;
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Operations
### not one
## Runbooks
words
### The first
```sh
$ not walked
```
```console
$ echo one \\
  two
one …
$ true
```
then
```console
$ false
```
### The second
## Alarms
### Not one
";

    #[test]
    fn a_page_is_taken_apart() {
        let books = runbooks(PAGE);
        let step = |command: &str, expected: &[&str]| Step {
            command: command.to_owned(),
            expected: expected.iter().map(|line| (*line).to_owned()).collect(),
        };
        let first = vec![vec![step("echo one \\\n  two", &["one …"]), step("true", &[])], vec![step("false", &[])]];
        assert_eq!(
            books,
            [Runbook { title: "The first".to_owned(), blocks: first }, Runbook { title: "The second".to_owned(), blocks: Vec::new() },]
        );
    }

    #[test]
    fn an_answer_has_the_lines_in_their_order_and_nothing_else_fits() {
        let expects = |lines: &[&str]| Step { command: String::new(), expected: lines.iter().map(|line| (*line).to_owned()).collect() };
        let answer = "LEASE  STATE  OWNER\nLEASE#a  held  worker-2#77  2\nend";
        assert_eq!(expects(&["LEASE STATE OWNER", "LEASE#a held worker-2#… 2", "…", "end"]).missing(answer), None);
        assert_eq!(expects(&["… worker-2…"]).missing(answer), None);
        assert_eq!(expects(&["LEASE#a held worker-2#…"]).missing(answer), None);
        assert_eq!(expects(&["LEASE#a held worker-1#… 2"]).missing(answer), Some("LEASE#a held worker-1#… 2"));
        assert_eq!(expects(&["LEASE#a held"]).missing(answer), Some("LEASE#a held"));
        assert_eq!(expects(&["end", "LEASE STATE OWNER"]).missing(answer), Some("LEASE STATE OWNER"));
        assert_eq!(expects(&["a…b…c"]).missing("a b\nab-c"), None);
        assert_eq!(expects(&["a…b…c"]).missing("a c b"), Some("a…b…c"));
    }
}
