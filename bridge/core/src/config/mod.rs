//! The configuration: from layers of YAML to settings that the program is wired from.
//!
//! [`load`] is pure: it takes texts and a way to look up environment variables, and gives either the whole configuration or every fault in it at once.
//! Reading files is the program's business.

mod check;
mod commands;
mod decode;
mod effective;
mod endpoint;
mod fault;
mod interpolate;
mod merge;
mod parse;
mod refused;
mod schema;
mod secret_place;
mod tree;
mod values;

pub mod model;

pub use effective::{
    Broker, ClientCertificate, Credentials, FifoSettings, LeaseBackend, MqttSenderSettings, MqttSettings, SessionBudget, SessionTiming,
    SqsSenderSettings, StoreBackend, TlsSettings, TrustAnchors,
};
pub use endpoint::{BrokerTransport, BrokerUrl, ListenAddr};
pub use fault::{Fault, Position, Severity};
pub use model::Config;
pub use parse::MAX_BYTES;
pub use schema::{json_schema, reference_markdown};
pub use secret_place::{Login, NoLogin, SecretPlace, field_of};
pub use values::{Id, MIN_KEY_CHARS, Secret, SignedSpan, Span, StepDown};

use decode::Finding;
use interpolate::{Filled, Interpolation};
use std::collections::BTreeMap;
use std::sync::Arc;
use tree::{Mark, Node, Value};

/// One layer: a file's name, for messages, and its text.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The name that messages give it.
    pub name: &'a str,
    /// What it holds.
    pub text: &'a str,
}

/// A configuration without faults, and where everything in it was written.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration, defaults filled in.
    pub config: Config,
    /// What deserves a second look.
    pub warnings: Vec<Fault>,
    positions: Positions,
}

impl Loaded {
    /// Whether the field at `path`, such as `routes[0].policy.max_outbox_depth`, was written, rather than filled in.
    #[must_use]
    pub fn is_set(&self, path: &str) -> bool {
        self.positions.is_set(path)
    }

    /// Where the field at `path` was written, or the nearest thing above it that was.
    #[must_use]
    pub fn position(&self, path: &str) -> Position {
        self.positions.of(path)
    }
}

/// What a look at a configuration found, usable or not.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The configuration, as far as it could be read. With faults it is for showing only.
    pub config: Option<Config>,
    /// Everything that was found, warnings included, in the order of the files.
    pub faults: Vec<Fault>,
    positions: Option<Positions>,
}

impl Examined {
    /// The configuration, if it is usable.
    ///
    /// # Errors
    /// Every fault, warnings included.
    pub fn into_loaded(self) -> Result<Loaded, Vec<Fault>> {
        match (self.config, self.positions) {
            (Some(config), Some(positions)) if !self.faults.iter().any(Fault::is_error) => {
                Ok(Loaded { config, warnings: self.faults, positions })
            }
            _ => Err(self.faults),
        }
    }
}

/// Reads layers of YAML; later ones change what earlier ones said.
///
/// # Errors
/// Every fault of the whole configuration, in the order of the files, warnings included.
pub fn load(sources: &[Source<'_>], env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Vec<Fault>> {
    examine(sources, env).into_loaded()
}

/// The same as [`load`], for those who want to show what can be shown of a faulty configuration.
#[must_use]
pub fn examine(sources: &[Source<'_>], env: &dyn Fn(&str) -> Option<String>) -> Examined {
    let names: Vec<Arc<str>> = sources.iter().map(|source| Arc::from(source.name)).collect();
    let mut interpolation = Interpolation { env, filled: Vec::new(), missing: Vec::new() };
    let root = match read_layers(sources, &names, &mut interpolation) {
        Ok(root) => root,
        Err(faults) => return Examined { config: None, faults, positions: None },
    };
    let positions = Positions::new(names, &root);
    let (config, mut findings) = decode::decode::<Config>("", &root, refused::judge);
    // What stands where a variable is missing is nobody's value: nothing else is wrong with it.
    findings.retain(|finding| interpolation.missing.iter().all(|(path, ..)| *path != finding.path));
    let missing = interpolation.missing.into_iter();
    findings.extend(missing.map(|(path, at, code, message, remedy)| Finding { path, at, code, message, remedy, suspect: None }));
    if findings.len() >= decode::MAX_FINDINGS {
        findings.push(Finding {
            path: String::new(),
            at: Mark::START,
            code: "E_TOO_MANY",
            message: format!("more than {} faults; the others are not shown", decode::MAX_FINDINGS),
            remedy: "correct these first, and check again".to_owned(),
            suspect: None,
        });
    }
    let mut faults: Vec<Fault> = findings.iter().map(|finding| positions.fault(finding)).collect();
    if let Some(config) = &config {
        let broken = findings.iter().flat_map(|finding| [Some(finding.path.clone()), finding.suspect.clone()]).flatten().collect();
        faults.extend(check::check(config, &positions, broken));
    }
    faults.sort_by(|a, b| positions.order(a).cmp(&positions.order(b)));
    faults.dedup();
    for fault in &mut faults {
        strike_out(fault, &interpolation.filled);
    }
    Examined { config, faults, positions: Some(positions) }
}

/// Parses, fills and merges the layers into one tree.
fn read_layers(sources: &[Source<'_>], names: &[Arc<str>], interpolation: &mut Interpolation<'_>) -> Result<Node, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut root = Node { at: Mark::START, value: Value::Map(Vec::new()) };
    for (index, (source, name)) in sources.iter().zip(names).enumerate() {
        match parse::parse(index, name, source.text) {
            Ok(Some(layer)) if layer.is_null() => {}
            Ok(Some(mut layer)) if matches!(layer.value, Value::Map(_)) => {
                interpolation.fill("", &mut layer);
                merge::merge(&mut root, layer);
            }
            Ok(Some(layer)) => faults.push(Fault {
                code: "E_TYPE",
                severity: Severity::Error,
                path: String::new(),
                at: Position { file: Arc::clone(name), line: layer.at.line, column: layer.at.column },
                message: "expected a mapping of sections at the top".to_owned(),
                remedy: "begin with `bridge:`".to_owned(),
            }),
            Ok(None) => {}
            Err(more) => faults.extend(more),
        }
    }
    if faults.is_empty() { Ok(root) } else { Err(faults) }
}

/// Puts a variable's name in the place of its value, should a message hold it.
fn strike_out(fault: &mut Fault, filled: &[Filled]) {
    for (name, value) in filled.iter().filter(|(_, value)| !value.is_empty()) {
        let shown = format!("${{{name}}}");
        for text in [&mut fault.message, &mut fault.remedy] {
            if !text.contains(value.as_str()) {
                continue;
            }
            // What messages quote is what somebody wrote. Elsewhere a short value would match words of the message itself.
            for quote in ['"', '`'] {
                let parts = text.split(quote).enumerate();
                let struck: Vec<String> =
                    parts.map(|(index, part)| if index % 2 == 1 { part.replace(value, &shown) } else { part.to_owned() }).collect();
                *text = struck.join(&quote.to_string());
            }
            if value.len() >= 6 {
                *text = text.replace(value, &shown);
            }
        }
    }
}

/// Where every field was written.
#[derive(Clone, Debug)]
struct Positions {
    names: Vec<Arc<str>>,
    places: BTreeMap<String, Mark>,
}

impl Positions {
    fn new(names: Vec<Arc<str>>, root: &Node) -> Self {
        let mut places = BTreeMap::new();
        collect(root, String::new(), &mut places);
        Self { names, places }
    }

    fn is_set(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    fn mark(&self, path: &str) -> Mark {
        let mut path = path;
        loop {
            if let Some(mark) = self.places.get(path) {
                return *mark;
            }
            let Some(cut) = path.rfind(['.', '[']) else {
                return self.places.get("").copied().unwrap_or(Mark::START);
            };
            path = &path[..cut];
        }
    }

    fn of(&self, path: &str) -> Position {
        self.at(self.mark(path))
    }

    fn at(&self, mark: Mark) -> Position {
        let file = self.names.get(mark.source).map_or_else(|| Arc::from("<no file>"), Arc::clone);
        Position { file, line: mark.line, column: mark.column }
    }

    fn fault(&self, finding: &Finding) -> Fault {
        Fault {
            code: finding.code,
            severity: Severity::Error,
            path: finding.path.clone(),
            at: self.at(finding.at),
            message: finding.message.clone(),
            remedy: finding.remedy.clone(),
        }
    }

    fn order<'f>(&self, fault: &'f Fault) -> (usize, u32, u32, &'f str, &'f str) {
        let file = self.names.iter().position(|name| *name == fault.at.file).unwrap_or(usize::MAX);
        (file, fault.at.line, fault.at.column, fault.path.as_str(), fault.code)
    }
}

fn collect(node: &Node, path: String, places: &mut BTreeMap<String, Mark>) {
    if node.is_null() {
        return;
    }
    match &node.value {
        Value::Scalar(_) => {}
        Value::Seq(nodes) => {
            for (index, node) in nodes.iter().enumerate() {
                collect(node, tree::element(&path, index), places);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                collect(&entry.node, tree::child(&path, &entry.key), places);
            }
        }
    }
    places.insert(path, node.at);
}
