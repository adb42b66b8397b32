//! Rules of `processors`.

use super::Check;
use super::route::condition;
use crate::config::model::{FilterAction, Processor, ProcessorKind};
use crate::dispatch::{Field, Target};

pub(super) fn check(check: &mut Check<'_>) {
    let config = check.config;
    check.names("processors", config.processors.iter().map(|processor| processor.id.as_str()));
    for (index, processor) in config.processors.iter().enumerate() {
        options(check, &format!("processors[{index}]"), processor);
    }
    for (index, route) in config.routes.iter().enumerate() {
        let mut breakers = 0;
        for (nth, id) in route.processors.iter().enumerate() {
            let path = format!("routes[{index}].processors[{nth}]");
            let known = config.processors.iter().find(|processor| processor.id == *id);
            check.reference(&path, "processor", id, "processors", known.is_some());
            breakers += usize::from(known.is_some_and(|known| known.kind == ProcessorKind::CircuitBreaker));
            if breakers > 1 {
                let message = "a route has one circuit breaker at most";
                check.error("E_PROCESSOR_TWICE", &path, &["processors"], message, "remove all but one");
                break;
            }
            let target = known.filter(|known| known.kind == ProcessorKind::Filter).and_then(|known| known.options.binding.as_ref());
            if let Some(binding) = target.filter(|binding| !route.bindings.contains(binding)) {
                check.error(
                    "E_PROCESSOR_BINDING",
                    &path,
                    &["processors"],
                    format!("processor \"{id}\" sends to binding \"{binding}\", which is not among the route's bindings"),
                    "add it to the route's bindings",
                );
            }
        }
    }
}

fn options(check: &mut Check<'_>, at: &str, processor: &Processor) {
    let (options, kind) = (&processor.options, processor.kind);
    let option = |name: &str| format!("{at}.options.{name}");
    for (name, owner) in [
        ("action", ProcessorKind::Filter),
        ("invert", ProcessorKind::Filter),
        ("conditions", ProcessorKind::Filter),
        ("binding", ProcessorKind::Filter),
        ("mappings", ProcessorKind::Transform),
        ("from", ProcessorKind::Tenant),
        ("default_tenant", ProcessorKind::Tenant),
        ("failure_threshold", ProcessorKind::CircuitBreaker),
        ("success_threshold", ProcessorKind::CircuitBreaker),
        ("reset_timeout", ProcessorKind::CircuitBreaker),
        ("half_open_probes", ProcessorKind::CircuitBreaker),
    ] {
        if owner != kind && check.is_set(&option(name)) {
            let message = format!("`{name}` has no meaning for a processor of type {}", kind.as_str());
            check.error("E_PROCESSOR_OPTION", &option(name), &[&format!("{at}.type")], message, "remove it, or change `type`");
        }
    }
    let missing = |check: &mut Check<'_>, name: &str| {
        let message = format!("a processor of type {} needs `{name}`", kind.as_str());
        check.error("E_PROCESSOR_REQUIRED", &option(name), &[&format!("{at}.type"), &format!("{at}.options")], message, "add it");
    };
    match kind {
        ProcessorKind::Filter => {
            if options.action.is_none() {
                missing(check, "action");
            }
            if options.conditions.is_empty() {
                missing(check, "conditions");
            }
            match (options.action, &options.binding) {
                (Some(FilterAction::Route), None) => missing(check, "binding"),
                (Some(FilterAction::Pass | FilterAction::Drop), Some(_)) => check.error(
                    "E_PROCESSOR_OPTION",
                    &option("binding"),
                    &[&option("action")],
                    "`binding` has no meaning for this action",
                    "remove it, or write `action: route`",
                ),
                _ => {}
            }
            for (index, it) in options.conditions.iter().enumerate() {
                condition(check, &format!("{}[{index}]", option("conditions")), &it.field, it.operator, it.value.as_ref(), &it.values);
            }
        }
        ProcessorKind::Transform => {
            if options.mappings.is_empty() {
                missing(check, "mappings");
            }
            for (index, mapping) in options.mappings.iter().enumerate() {
                let at = format!("{}[{index}]", option("mappings"));
                field(check, &format!("{at}.from"), &mapping.from);
                if Target::parse(&mapping.to).is_none() {
                    check.error(
                        "E_PROCESSOR_TARGET",
                        &format!("{at}.to"),
                        &[],
                        format!("\"{}\" is not a place to write to", mapping.to),
                        "write `header.NAME`, outside of `x-bridge.` and `mqtt.`, or `$.name.name`",
                    );
                }
            }
        }
        ProcessorKind::Tenant => match &options.from {
            Some(from) => field(check, &option("from"), from),
            None => missing(check, "from"),
        },
        ProcessorKind::CircuitBreaker => {
            for (name, value) in [
                ("failure_threshold", options.failure_threshold),
                ("success_threshold", options.success_threshold),
                ("half_open_probes", options.half_open_probes),
            ] {
                if let Some(value) = value {
                    check.range(&option(name), u64::from(value), 1, 10_000);
                }
            }
            if let Some(timeout) = options.reset_timeout {
                check.positive(&option("reset_timeout"), timeout);
            }
        }
    }
}

pub(super) fn field(check: &mut Check<'_>, path: &str, text: &str) {
    if Field::parse(text).is_err() {
        check.error(
            "E_FIELD",
            path,
            &[],
            format!("\"{text}\" is neither `subject`, nor `header.NAME`, nor a path to one value of a JSON payload"),
            "write a path such as `$.a.b[0]['c d']`: names and indices, without wildcards",
        );
    }
}
