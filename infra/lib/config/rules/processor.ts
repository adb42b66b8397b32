/** Rules of `processors`. */
import type { Processor } from "../model.ts";
import type { Check } from "./check.ts";
import { checkCondition, checkField } from "./route.ts";

/** To which type of processor an option belongs. */
const OWNERS = {
  action: "filter",
  invert: "filter",
  conditions: "filter",
  binding: "filter",
  mappings: "transform",
  from: "tenant",
  default_tenant: "tenant",
  failure_threshold: "circuit_breaker",
  success_threshold: "circuit_breaker",
  reset_timeout: "circuit_breaker",
  half_open_probes: "circuit_breaker",
} as const;

/** Where a mapping may write: a header that is not reserved, or names in a JSON payload. */
const HEADER = /^header\.(?!x-bridge\.).+$/i;
const NAMES = /^\$(?:\.[\p{Alphabetic}\p{N}_@-]+|\['[^']*'\]|\["[^"]*"\])+$/u;

/** Checks `processors`, and what routes name of them. */
export function checkProcessors(check: Check): void {
  const { processors = [], routes = [] } = check.config;
  check.names("processors", processors);
  processors.forEach((processor, index) => {
    checkOptions(check, `processors[${index}]`, processor);
  });
  routes.forEach((route, index) => {
    const isBreaker = (id: string) => processors.some((known) => known.id === id && known.type === "circuit_breaker");
    const second = (route.processors ?? []).findIndex(
      (id, nth, all) => isBreaker(id) && all.slice(0, nth).some(isBreaker),
    );
    if (second >= 0)
      check.error(
        "E_PROCESSOR_TWICE",
        `routes[${index}].processors[${second}]`,
        "a route has one circuit breaker at most",
        "remove all but one",
        ["processors"],
      );
    (route.processors ?? []).slice(0, second < 0 ? undefined : second).forEach((id, nth) => {
      const path = `routes[${index}].processors[${nth}]`;
      const known = processors.find((processor) => processor.id === id);
      check.reference(path, id, "processors");
      const binding = known?.type === "filter" ? known.options?.binding : undefined;
      if (binding !== undefined && !(route.bindings ?? []).includes(binding))
        check.error(
          "E_PROCESSOR_BINDING",
          path,
          `processor "${id}" sends to binding "${binding}", which is not among the route's bindings`,
          "add it to the route's bindings",
          ["processors"],
        );
    });
  });
}

function checkOptions(check: Check, at: string, processor: Processor): void {
  const { type, options = {} } = processor;
  const option = (name: string) => `${at}.options.${name}`;
  for (const [name, owner] of Object.entries(OWNERS)) {
    if (owner !== type && options[name as keyof typeof OWNERS] !== undefined)
      check.error(
        "E_PROCESSOR_OPTION",
        option(name),
        `\`${name}\` has no meaning for a processor of type ${type}`,
        "remove it, or change `type`",
        [`${at}.type`],
      );
  }
  const need = (name: string, there: boolean) => {
    if (!there)
      check.error("E_PROCESSOR_REQUIRED", option(name), `a processor of type ${type} needs \`${name}\``, "add it", [
        `${at}.type`,
        `${at}.options`,
      ]);
  };
  if (type === "filter") {
    const { action, conditions = [], binding } = options;
    need("action", action !== undefined);
    need("conditions", conditions.length > 0);
    if (action === "route") need("binding", binding !== undefined);
    else if (action !== undefined && binding !== undefined)
      check.error(
        "E_PROCESSOR_OPTION",
        option("binding"),
        "`binding` has no meaning for this action",
        "remove it, or write `action: route`",
        [option("action")],
      );
    conditions.forEach((condition, index) => {
      checkCondition(check, `${option("conditions")}[${index}]`, condition);
    });
  }
  if (type === "transform") {
    const { mappings = [] } = options;
    need("mappings", mappings.length > 0);
    mappings.forEach(({ from, to = "" }, index) => {
      const path = `${option("mappings")}[${index}]`;
      checkField(check, `${path}.from`, from);
      const header = HEADER.test(to) && !to.startsWith("header.mqtt.");
      if (!header && !NAMES.test(to))
        check.error(
          "E_PROCESSOR_TARGET",
          `${path}.to`,
          `"${to}" is not a place to write to`,
          "write `header.NAME`, outside of `x-bridge.` and `mqtt.`, or `$.name.name`",
        );
    });
  }
  if (type === "circuit_breaker") {
    for (const name of ["failure_threshold", "success_threshold", "half_open_probes"] as const)
      check.range(option(name), options[name], 1, 10_000);
    check.positive(option("reset_timeout"), options.reset_timeout);
  }
  if (type === "tenant") {
    need("from", options.from !== undefined);
    checkField(check, option("from"), options.from);
  }
}
