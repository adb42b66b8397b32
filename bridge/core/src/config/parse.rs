//! Text to tree: YAML 1.2, refusing what a configuration has no use for.

use super::fault::{Fault, Position, Severity};
use super::tree::{Entry, Mark, Node, Scalar, Value};
use granit_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest configuration file that is read, in bytes.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// No configuration nests deeper; what does is an attack or an accident.
const MAX_DEPTH: usize = 32;

/// More values than any configuration needs: the bound on what aliases may multiply.
const MAX_NODES: usize = 500_000;

/// One document on its way to a tree.
struct Builder<'a> {
    source: usize,
    name: &'a Arc<str>,
    faults: Vec<Fault>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, (Node, usize)>,
    nodes: usize,
    documents: usize,
    root: Option<Node>,
}

/// A collection whose end has not been seen.
struct Open {
    at: Mark,
    anchor: usize,
    begun: usize,
    content: Content,
}

enum Content {
    Seq(Vec<Node>),
    Map { entries: Vec<Entry>, key: Option<(Option<String>, Mark)> },
}

/// Reads one layer. `None` for an empty document.
pub(super) fn parse(source: usize, name: &Arc<str>, text: &str) -> Result<Option<Node>, Vec<Fault>> {
    let mut builder =
        Builder { source, name, faults: Vec::new(), open: Vec::new(), anchors: BTreeMap::new(), nodes: 0, documents: 0, root: None };
    if text.len() > MAX_BYTES {
        builder.fault(
            Mark { source, line: 1, column: 1 },
            "E_FILE_TOO_LARGE",
            format!("the file has {} bytes, more than the 4 MiB that are read", text.len()),
            "split it, or move what is not configuration elsewhere",
        );
        return Err(builder.faults);
    }
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => {
                if !builder.take(event, span) {
                    break;
                }
            }
            Err(error) => {
                let mark = builder.mark(*error.marker());
                builder.fault(
                    mark,
                    "E_YAML_SYNTAX",
                    format!("not valid YAML: {}", error.info()),
                    "correct the indentation, quoting or brackets here",
                );
                break;
            }
        }
    }
    if builder.faults.is_empty() { Ok(builder.root) } else { Err(builder.faults) }
}

impl Builder<'_> {
    fn fault(&mut self, at: Mark, code: &'static str, message: impl Into<String>, remedy: &str) {
        self.faults.push(Fault {
            code,
            severity: Severity::Error,
            path: String::new(),
            at: Position { file: Arc::clone(self.name), line: at.line, column: at.column },
            message: message.into(),
            remedy: remedy.to_owned(),
        });
    }

    fn mark(&self, marker: granit_parser::Marker) -> Mark {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Mark { source: self.source, line: number(marker.line()).max(1), column: number(marker.col()).saturating_add(1) }
    }

    /// Takes one event; false where reading on is pointless.
    fn take(&mut self, event: Event<'_>, span: Span) -> bool {
        let at = self.mark(span.start);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.fault(
                        at,
                        "E_YAML_DOCUMENTS",
                        "a second YAML document begins here",
                        "keep one document in a file; give several files to combine them",
                    );
                    return false;
                }
                true
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some((node, size)) => self.count(size, at) && self.add(node, at),
                None => {
                    self.fault(at, "E_YAML_SYNTAX", "an alias stands for a value that contains it", "write the value out");
                    false
                }
            },
            Event::Scalar(text, style, anchor, tag) => {
                let text_tag = tag.as_deref().is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
                if !text_tag && !self.tag_is_known(tag.as_deref(), at) {
                    return true;
                }
                let plain = style == ScalarStyle::Plain && !text_tag;
                let node = Node { at, value: Value::Scalar(Scalar { text: text.into_owned(), plain, interpolated: false }) };
                if anchor != 0 {
                    self.anchors.insert(anchor, (node.clone(), 1));
                }
                self.count(1, at) && self.add(node, at)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.tag_is_known(tag.as_deref(), at);
                self.begin(at, anchor, Content::Seq(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.tag_is_known(tag.as_deref(), at);
                self.begin(at, anchor, Content::Map { entries: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => true,
        }
    }

    fn tag_is_known(&mut self, tag: Option<&granit_parser::Tag>, at: Mark) -> bool {
        let known = tag.is_none_or(|tag| tag.is_yaml_core_schema());
        if !known {
            self.fault(at, "E_YAML_TAG", "YAML tags of one's own have no meaning here", "remove the tag");
        }
        known
    }

    fn count(&mut self, nodes: usize, at: Mark) -> bool {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            self.fault(
                at,
                "E_YAML_SIZE",
                format!("the document holds more than {MAX_NODES} values"),
                "write fewer values, and repeat less by aliases",
            );
            return false;
        }
        true
    }

    fn begin(&mut self, at: Mark, anchor: usize, content: Content) -> bool {
        if self.open.len() >= MAX_DEPTH {
            self.fault(
                at,
                "E_YAML_DEPTH",
                format!("nested deeper than {MAX_DEPTH} levels"),
                "no setting lies this deep: check brackets and indentation",
            );
            return false;
        }
        let begun = self.nodes;
        self.open.push(Open { at, anchor, begun, content });
        self.count(1, at)
    }

    fn end(&mut self) -> bool {
        let Some(open) = self.open.pop() else {
            return true;
        };
        let value = match open.content {
            Content::Seq(nodes) => Value::Seq(nodes),
            Content::Map { entries, .. } => Value::Map(entries),
        };
        let node = Node { at: open.at, value };
        if open.anchor != 0 {
            self.anchors.insert(open.anchor, (node.clone(), self.nodes.saturating_sub(open.begun)));
        }
        self.add(node, open.at)
    }

    fn add(&mut self, node: Node, at: Mark) -> bool {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return true;
        };
        match &mut open.content {
            Content::Seq(nodes) => nodes.push(node),
            Content::Map { entries, key } => match key.take() {
                None => {
                    let text = node.text().map(str::to_owned);
                    let known = text.as_ref().and_then(|text| entries.iter().find(|entry| entry.key == *text)).map(|entry| entry.key_at);
                    let bad = match (&text, known) {
                        (None, _) => Some(("E_YAML_KEY", "a key must be a plain text".to_owned(), "write a field name")),
                        (Some(text), Some(first)) => Some((
                            "E_DUPLICATE_KEY",
                            format!("the key `{text}` is given twice, first on line {}", first.line),
                            "keep one of the two",
                        )),
                        (Some(_), None) => None,
                    };
                    // A refused key still swallows its value, so that reading goes on in step.
                    *key = Some((text.filter(|_| bad.is_none()), at));
                    if let Some((code, message, remedy)) = bad {
                        self.fault(at, code, message, remedy);
                    }
                }
                Some((Some(key), key_at)) => {
                    let empty = node.is_null() && node.text() == Some("");
                    let node = if empty { Node { at: key_at, ..node } } else { node };
                    entries.push(Entry { key, key_at, node });
                }
                Some((None, _)) => {}
            },
        }
        true
    }
}
