//! Where a message goes: from a receiver through a route's resolver to bindings.
//!
//! Compiled once from the configuration. [`Dispatch::entries`] is a pure function of the message and the ids; whether its entries enter a log, or are
//! held until their destination took them, is not decided here. Nothing is dropped here either: what finds no binding, or lacks a header that an
//! address needs, is an entry too, with a [`Refusal`] that says why. Only what a filter takes out, where the route says so, is none, and what
//! a broker had kept, where the receiver says so.

mod address;
mod fields;
pub mod headers;
mod processors;
mod rules;

pub use address::{Address, is_topic};
pub use fields::{Field, FieldError, JsonPath, View, header};
pub use headers::{FORWARDED_FROM, HOPS, MAX_HOPS, RESERVED, TENANT};
pub use processors::{ProcessorError, Step, Target};
pub use rules::{Condition, ConditionError, MAX_REGEX_CHARS, regex};

use processors::{Processed, process};

use crate::config::Config;
use crate::config::model::{DispatchMode, OnFailure, Resolver, ResolverKind, Retained, Route};
use crate::flow::Expiry;
use crate::identity::{EntryId, IdSequence};
use crate::message::{Entry, Message, Refusal};
use crate::outcome::FaultCode;
use crate::units::UnixMillis;
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// Stands for the receiver of a message that none asked for: the broker still keeps a subscription of an earlier configuration.
pub const NO_RECEIVER: &str = "";

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'m> {
    /// The receiver that it came by; [`NO_RECEIVER`] where none asked for it.
    pub receiver: &'m Arc<str>,
    /// When, by this host's wall clock.
    pub received_at: UnixMillis,
    /// The message.
    pub message: &'m Message,
}

/// The routes of a session, as far as they decide where messages go.
#[derive(Clone, Debug, Default)]
pub struct Dispatch {
    bridge: String,
    routes: Vec<RouteDispatch>,
    /// The receiver of the session's own, which has to do with what none asked for.
    subscriber: Option<Arc<str>>,
    /// Whether that is kept as a dead letter. Else it goes on like a message of that receiver.
    keeps_unasked: bool,
    /// How long messages are kept.
    expiry: Expiry,
}

/// What became of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dispatched {
    /// Its entries, those of one route together: one for each binding that it goes to, and one with a refusal where it goes to none.
    pub entries: Vec<Entry>,
    /// The routes that filtered it out and keep nothing of it.
    pub filtered: Vec<Arc<str>>,
    /// The routes whose receiver skips it, because the broker had kept it.
    pub retained: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
struct RouteDispatch {
    id: Arc<str>,
    receiver: Arc<str>,
    bindings: Vec<Bound>,
    choice: Choice,
    fan_out: bool,
    steps: Vec<Step>,
    keeps_filtered: bool,
    skips_retained: bool,
    trusts: bool,
}

#[derive(Clone, Debug)]
struct Bound {
    id: Arc<str>,
    address: Address,
    /// The topic of messages that `address` does not fit.
    otherwise: Option<Arc<str>>,
    /// Whether what goes there for the first time is marked as forwarded. Not where it goes from a broker or a caller to a queue: whatever goes in circles has to be
    /// published again, or to come from a queue, and a plain message keeps its attributes.
    marks: bool,
}

/// How bindings are chosen, by their place in the route.
#[derive(Clone, Debug)]
enum Choice {
    One(usize),
    All,
    HeaderMap { header: String, map: BTreeMap<String, usize>, otherwise: Option<usize> },
    Rules { rules: Vec<(Condition, usize)>, otherwise: Option<usize> },
}

/// Why a route cannot be compiled. `check` tells all of it before, with its place in the files.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DispatchError {
    /// It names a binding that is not its own, or none.
    #[error("route `{route}`: `{binding}` is not a binding of it")]
    Binding {
        /// The route.
        route: String,
        /// The binding.
        binding: String,
    },
    /// A binding's address has a placeholder that is not one.
    #[error("binding `{binding}`: a placeholder of its address is not closed, nested, or empty")]
    Address {
        /// The binding.
        binding: String,
    },
    /// A rule cannot be had.
    #[error("route `{route}`: rule {rule} of its resolver: {error}")]
    Rule {
        /// The route.
        route: String,
        /// The rule, from 0.
        rule: usize,
        /// What is wrong.
        error: ConditionError,
    },
    /// A processor cannot be had.
    #[error("route `{route}`: processor `{processor}`: {error}")]
    Processor {
        /// The route.
        route: String,
        /// The processor.
        processor: String,
        /// What is wrong.
        error: ProcessorError,
    },
}

impl Dispatch {
    /// Compiles `routes` of a configuration.
    ///
    /// # Errors
    /// The first of them that cannot be compiled.
    pub fn compile<'c>(config: &'c Config, routes: impl IntoIterator<Item = &'c Route>) -> Result<Self, DispatchError> {
        let routes = routes.into_iter().map(|route| RouteDispatch::compile(config, route)).collect::<Result<Vec<_>, _>>()?;
        let subscribes = |route: &&RouteDispatch| config.receiver(&route.receiver).is_some_and(|receiver| receiver.session_id.is_some());
        let subscriber = routes.iter().find(subscribes).map(|route| Arc::clone(&route.receiver));
        Ok(Self {
            bridge: config.bridge.id.to_string(),
            routes,
            subscriber,
            keeps_unasked: config.stores.dlq.is_some(),
            expiry: Expiry::from(&config.flow.store),
        })
    }

    /// Without a configuration: what comes by a receiver goes, by each of its routes, to the first binding that is told of that route. Each of `legs` is
    /// a route, its receiver and a binding.
    pub fn to_first<'l>(legs: impl IntoIterator<Item = (&'l str, &'l str, &'l str)>) -> Self {
        let mut routes: Vec<RouteDispatch> = Vec::new();
        for (route, receiver, binding) in legs {
            if routes.iter().all(|known| *known.id != *route) {
                routes.push(RouteDispatch {
                    id: route.into(),
                    receiver: receiver.into(),
                    bindings: vec![Bound { id: binding.into(), address: Address::default(), otherwise: None, marks: false }],
                    choice: Choice::One(0),
                    fan_out: false,
                    steps: Vec::new(),
                    keeps_filtered: false,
                    skips_retained: false,
                    trusts: false,
                });
            }
        }
        let subscriber = routes.first().map(|route: &RouteDispatch| Arc::clone(&route.receiver));
        Self { bridge: String::new(), routes, subscriber, keeps_unasked: false, expiry: Expiry::default() }
    }

    /// The entries of a message. What no receiver asked for is that of the session's own; where there is a store for dead letters each entry is refused for that,
    /// and keeps the binding that it would have gone to.
    #[must_use]
    pub fn entries(&self, arrival: &Arrival<'_>, ids: &mut IdSequence) -> Dispatched {
        let mut dispatched = Dispatched::default();
        let unasked = &**arrival.receiver == NO_RECEIVER;
        let receiver = self.subscriber.as_ref().filter(|_| unasked).unwrap_or(arrival.receiver);
        let arrival = &Arrival { receiver, ..*arrival };
        for route in self.routes.iter().filter(|route| route.receiver == *arrival.receiver) {
            if arrival.message.retain && route.skips_retained {
                dispatched.retained.push(Arc::clone(&route.id));
                continue;
            }
            let mut message = arrival.message.clone();
            let hops = headers::strip(&mut message, route.trusts);
            match route.handle(&mut message, hops) {
                Some(ways) => {
                    let last = ways.len().saturating_sub(1);
                    for (nth, mut way) in ways.into_iter().enumerate() {
                        if unasked && self.keeps_unasked {
                            way.refusal.get_or_insert_with(subscription_removed);
                        }
                        // Most messages go one way: that one gets the message itself.
                        let mut copy = if nth == last { core::mem::take(&mut message) } else { message.clone() };
                        if way.marks || hops > 0 {
                            headers::set(&mut copy, HOPS, hops.saturating_add(1).to_string());
                            headers::set(&mut copy, FORWARDED_FROM, self.bridge.clone());
                        }
                        dispatched.entries.push(way.entry(route, arrival, copy, ids.take(), self.expiry));
                    }
                }
                None => dispatched.filtered.push(Arc::clone(&route.id)),
            }
        }
        dispatched
    }

    /// An entry that comes back: one that was bound for a binding keeps it, one that was bound for none is dispatched anew. It keeps its id, so it goes
    /// to one binding only.
    #[must_use]
    pub fn again(&self, mut entry: Entry) -> Entry {
        let Some(route) = self.routes.iter().find(|route| route.id == entry.route) else { return entry };
        let way = {
            let view = View::new(&entry.message);
            if entry.binding.is_empty() {
                let mut ways = route.ways(&view);
                match (ways.pop(), ways.is_empty()) {
                    (Some(way), true) => way,
                    _ => Way::refused(
                        "".into(),
                        FaultCode::NoBinding,
                        "several bindings are meant for it now, and it can go to one only".to_owned(),
                    ),
                }
            } else {
                match route.bindings.iter().find(|bound| bound.id == entry.binding) {
                    Some(bound) => bound.way(&entry.message),
                    None => return entry,
                }
            }
        };
        (entry.binding, entry.address, entry.refusal) = (way.binding, way.address, way.refusal);
        entry
    }
}

fn subscription_removed() -> Refusal {
    let detail = "no filter of the configuration asks for its topic: the broker kept a subscription of an earlier one; it is put back once such a filter is added again";
    Refusal { code: FaultCode::SubscriptionRemoved, detail: detail.to_owned() }
}

/// Where a message goes, or why it goes nowhere.
struct Way {
    marks: bool,
    binding: Arc<str>,
    address: Option<Arc<str>>,
    refusal: Option<Refusal>,
}

impl Way {
    const fn refused(binding: Arc<str>, code: FaultCode, detail: String) -> Self {
        Self { marks: false, binding, address: None, refusal: Some(Refusal { code, detail }) }
    }

    fn entry(self, route: &RouteDispatch, arrival: &Arrival<'_>, message: Message, id: EntryId, expiry: Expiry) -> Entry {
        let remaining = expiry.of(message.properties.expiry_seconds);
        Entry {
            id,
            route: Arc::clone(&route.id),
            binding: self.binding,
            address: self.address,
            refusal: self.refusal,
            source: Arc::clone(arrival.receiver),
            received_at: arrival.received_at,
            expires_at: remaining.map(|remaining| arrival.received_at.plus(remaining)),
            redrive: None,
            message,
        }
    }
}

impl Bound {
    fn way(&self, message: &Message) -> Way {
        let binding = Arc::clone(&self.id);
        let unfit = |address: &Option<Arc<str>>| address.as_deref().is_some_and(|topic| !is_topic(topic));
        match (self.address.of(message), &self.otherwise) {
            (Ok(address), Some(otherwise)) if unfit(&address) => self.to(Some(Arc::clone(otherwise))),
            (Ok(address), _) => self.to(address),
            (Err(_), Some(otherwise)) => self.to(Some(Arc::clone(otherwise))),
            (Err(header), None) => {
                let detail = format!("the address of binding `{binding}` needs header `{header}`, which the message does not have");
                Way::refused(binding, FaultCode::AddressTemplate, detail)
            }
        }
    }

    fn to(&self, address: Option<Arc<str>>) -> Way {
        Way { marks: self.marks, binding: Arc::clone(&self.id), address, refusal: None }
    }
}

impl RouteDispatch {
    fn compile(config: &Config, route: &Route) -> Result<Self, DispatchError> {
        let unknown = |binding: &str| DispatchError::Binding { route: route.id.to_string(), binding: binding.to_owned() };
        let bind = |id: &crate::config::Id| {
            let binding = config.binding(id).ok_or_else(|| unknown(id))?;
            let address = Address::parse(&binding.address).ok_or_else(|| DispatchError::Address { binding: id.to_string() })?;
            let sender = config.sender(&binding.sender_id);
            let to_queue = sender.is_some_and(|sender| sender.session_id.is_none());
            let otherwise = sender.and_then(|sender| sender.options.default_topic.as_deref()).map(Into::into);
            let from_queue =
                config.receiver(&route.receiver_id).is_some_and(|receiver| receiver.session_id.is_none() && !receiver.is_http());
            Ok(Bound { id: id.as_str().into(), address, otherwise, marks: from_queue || !to_queue })
        };
        let bindings = route.bindings.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        if bindings.is_empty() {
            return Err(unknown(""));
        }
        let fan_out = route.dispatch_mode == DispatchMode::FanOut;
        let choice = match &route.resolver {
            None if fan_out => Choice::All,
            None => Choice::One(0),
            Some(resolver) => {
                Choice::compile(route, resolver, &|id: &str| bindings.iter().position(|bound| *bound.id == *id).ok_or_else(|| unknown(id)))?
            }
        };
        let step = |id: &crate::config::Id| {
            let failed = |error| DispatchError::Processor { route: route.id.to_string(), processor: id.to_string(), error };
            let processor = config.processors.iter().find(|processor| processor.id == *id);
            Step::new(processor.ok_or_else(|| failed(ProcessorError::Missing("processors")))?).map_err(failed)
        };
        Ok(Self {
            id: route.id.as_str().into(),
            receiver: route.receiver_id.as_str().into(),
            bindings,
            choice,
            fan_out,
            steps: route.processors.iter().map(step).collect::<Result<_, _>>()?,
            keeps_filtered: route.policy.on_filtered == OnFailure::Dlq,
            skips_retained: config.receiver(&route.receiver_id).is_some_and(|receiver| receiver.options.retained == Retained::Skip),
            trusts: route.trust_bridge_headers,
        })
    }

    /// Lets the processors handle it, and says where it goes; `None` where it is filtered out and nothing of it is kept.
    fn handle(&self, message: &mut Message, hops: u32) -> Option<Vec<Way>> {
        let nowhere = |refusal: Refusal| Some(vec![Way::refused("".into(), refusal.code, refusal.detail)]);
        if hops >= MAX_HOPS {
            let detail = format!("it came over {hops} bridges, and {MAX_HOPS} are allowed: it seems to go in circles");
            return nowhere(Refusal { code: FaultCode::HopLimit, detail });
        }
        match process(&self.steps, message) {
            Processed::Filtered(_) if !self.keeps_filtered => None,
            Processed::Filtered(refusal) | Processed::Refused(refusal) => nowhere(refusal),
            Processed::On(Some(binding)) => match self.bindings.iter().find(|bound| bound.id == binding) {
                Some(bound) => Some(vec![bound.way(message)]),
                None => nowhere(Refusal {
                    code: FaultCode::NoBinding,
                    detail: format!("a filter sends it to `{binding}`, which the route does not have"),
                }),
            },
            Processed::On(None) => Some(self.ways(&View::new(message))),
        }
    }

    /// Where it goes by this route; never nowhere without a refusal.
    fn ways(&self, view: &View<'_>) -> Vec<Way> {
        let chosen = self.choice.of(view, self.bindings.len(), self.fan_out);
        let ways: Vec<Way> =
            chosen.into_iter().filter_map(|index| self.bindings.get(index)).map(|bound| bound.way(view.message())).collect();
        if ways.is_empty() {
            let detail = format!("nothing that the resolver of route `{}` asks for holds, and it has no default_binding", self.id);
            return vec![Way::refused("".into(), FaultCode::NoBinding, detail)];
        }
        ways
    }
}

impl Choice {
    fn compile(route: &Route, resolver: &Resolver, place: &dyn Fn(&str) -> Result<usize, DispatchError>) -> Result<Self, DispatchError> {
        let otherwise = resolver.default_binding.as_deref().map(place).transpose()?;
        Ok(match resolver.kind {
            ResolverKind::Static => Self::One(otherwise.unwrap_or(0)),
            ResolverKind::All => Self::All,
            ResolverKind::HeaderMap => Self::HeaderMap {
                header: resolver.header_key.clone().unwrap_or_default(),
                map: resolver.header_map.iter().map(|(value, id)| Ok((value.clone(), place(id)?))).collect::<Result<_, _>>()?,
                otherwise,
            },
            ResolverKind::Rules => {
                let rule = |(index, rule): (usize, &crate::config::model::Rule)| {
                    let condition = Condition::new(&rule.field, rule.operator, rule.value.as_ref(), &rule.values)
                        .map_err(|error| DispatchError::Rule { route: route.id.to_string(), rule: index, error })?;
                    Ok((condition, place(&rule.binding)?))
                };
                Self::Rules { rules: resolver.rules.iter().enumerate().map(rule).collect::<Result<_, _>>()?, otherwise }
            }
        })
    }

    /// The chosen bindings: in the order of the route's, each once.
    fn of(&self, view: &View<'_>, bindings: usize, fan_out: bool) -> Vec<usize> {
        let (mut chosen, otherwise): (Vec<usize>, _) = match self {
            Self::One(index) => return vec![*index],
            Self::All => return (0..bindings).collect(),
            Self::HeaderMap { header: name, map, otherwise } => {
                let value = header(view.message(), name);
                (value.and_then(|value| map.get(value.as_ref()).copied()).into_iter().collect(), *otherwise)
            }
            Self::Rules { rules, otherwise } => {
                let hits = rules.iter().filter(|(condition, _)| condition.holds(view)).map(|(_, index)| *index);
                (hits.take(if fan_out { usize::MAX } else { 1 }).collect(), *otherwise)
            }
        };
        if chosen.is_empty() {
            chosen.extend(otherwise);
        }
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }
}
