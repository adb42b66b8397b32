/** Rules of `routes`, without their leases. */
import { SECOND } from "../../budget.ts";
import {
  type Condition,
  type DeliveryMode,
  isClustered,
  isDurable,
  named,
  nanos,
  type Policy,
  type Receiver,
  type Resolver,
  type Route,
  type Session,
} from "../model.ts";
import type { Check } from "./check.ts";

/** The longest regular expression of a rule, in characters. */
const MAX_REGEX_CHARS = 4096;
/** A path to one value: names and indices (RFC 9535 calls it singular). */
const JSON_PATH = /^\$(?:\.[\p{Alphabetic}\p{N}_@-]+|\[(?:-?\d{1,18}|'[^']*'|"[^"]*")\])*$/u;

export function checkRoutes(check: Check): void {
  const routes = check.config.routes ?? [];
  check.names("routes", routes);
  routes.forEach((route, index) => {
    const at = `routes[${index}]`;
    check.reference(`${at}.receiver_id`, route.receiver_id, "receivers");
    bindings(check, at, route);
    if (route.resolver !== undefined) resolver(check, `${at}.resolver`, route, route.resolver);
    policy(check, `${at}.policy`, route.policy ?? {});
    delivery(check, at, route);
    failures(check, at, route.policy ?? {});
    source(check, at, route);
    outboxes(check, route);
  });
}

const modeOf = (route: Route): DeliveryMode => route.delivery_mode ?? "direct_hold";

function bindings(check: Check, at: string, route: Route): void {
  const ids = route.bindings ?? [];
  if (ids.length === 0)
    check.error("E_BINDING_REQUIRED", `${at}.bindings`, "at least one binding is required", "add `bindings: [NAME]`");
  ids.forEach((id, index) => {
    const path = `${at}.bindings[${index}]`;
    check.reference(path, id, "bindings");
    if (ids.indexOf(id) < index)
      check.error("E_DUPLICATE_ID", path, `bindings: duplicate id "${id}"`, "name each binding once");
  });
  if (route.dispatch_mode === "fan_out" && modeOf(route) === "direct_hold") {
    check.error("E_FAN_OUT", `${at}.dispatch_mode`, "fan_out needs an outbox", "write `delivery_mode: shared_outbox`", [
      `${at}.delivery_mode`,
    ]);
  }
  if (route.resolver?.type === "all" && (route.dispatch_mode ?? "single") === "single" && ids.length > 1) {
    check.error(
      "E_FAN_OUT",
      `${at}.resolver.type`,
      "resolver `all` picks several bindings, and dispatch_mode single sends to one",
      "write `dispatch_mode: fan_out`",
      [`${at}.dispatch_mode`],
    );
  }
}

function resolver(check: Check, at: string, route: Route, resolver: Resolver): void {
  const known = (path: string, id: string | undefined) => {
    if (id !== undefined && !(route.bindings ?? []).includes(id)) {
      check.error(
        "E_RESOLVER_BINDING",
        path,
        `binding "${id}" is not among the route's bindings`,
        "name one of the route's bindings, or add it there",
      );
    }
  };
  const { header_key: key, header_map: map = {}, rules = [], type } = resolver;
  known(`${at}.default_binding`, resolver.default_binding);
  for (const [value, id] of Object.entries(map)) known(`${at}.header_map.${value}`, id);
  rules.forEach((rule, index) => {
    known(`${at}.rules[${index}].binding`, rule.binding);
  });
  const reads = [`${at}.type`];
  if (type === "header_map" && (key ?? "") === "")
    check.error(
      "E_RESOLVER_HEADER",
      `${at}.header_key`,
      "header_key is required for header_map",
      "add `header_key: NAME`",
      reads,
    );
  if (type === "header_map" && Object.keys(map).length === 0)
    check.error(
      "E_RESOLVER_MAP",
      `${at}.header_map`,
      "header_map is empty",
      "add a binding for each value of the header",
      reads,
    );
  if (type === "rules" && rules.length === 0 && resolver.default_binding === undefined)
    check.error(
      "E_RESOLVER_RULES",
      at,
      "needs at least one rule or a default_binding",
      "add `rules`, or `default_binding`",
      reads,
    );
  for (const [name, used, kind] of [
    ["header_key", key !== undefined, "header_map"],
    ["header_map", Object.keys(map).length > 0, "header_map"],
    ["rules", rules.length > 0, "rules"],
  ] as const) {
    if (used && type !== kind)
      check.error(
        "E_RESOLVER_OPTION",
        `${at}.${name}`,
        `\`${name}\` has no meaning for this type of resolver`,
        "remove it, or change `type`",
        reads,
      );
  }
  rules.forEach((rule, index) => {
    const path = `${at}.rules[${index}]`;
    checkCondition(check, path, rule);
  });
}

/** What is looked at, how, and with what it is compared. */
export function checkCondition(check: Check, at: string, rule: Condition): void {
  const [value, values] = [rule.value !== undefined, (rule.values ?? []).length > 0];
  const fits =
    rule.operator === "exists" ? !value && !values : rule.operator === "in" ? !value && values : value && !values;
  if (!fits)
    check.error(
      "E_RESOLVER_OPERAND",
      at,
      "the operator and what it compares with do not fit",
      "`exists` takes nothing, `in` takes `values`, every other takes `value`",
      [`${at}.operator`, `${at}.value`, `${at}.values`],
    );
  checkField(check, `${at}.field`, rule.field);
  if (rule.operator !== "regex" || rule.value === undefined) return;
  const expression = String(rule.value);
  const [tooLong, broken] = [[...expression].length > MAX_REGEX_CHARS, isBroken(expression)];
  if (tooLong || broken)
    check.error(
      "E_RESOLVER_REGEX",
      `${at}.value`,
      tooLong ? `longer than ${MAX_REGEX_CHARS} characters` : "not a regular expression",
      tooLong ? "write a shorter expression" : "mend it; the syntax is that of Rust's `regex`",
    );
}

/** What is looked at. */
export function checkField(check: Check, at: string, field: string | undefined): void {
  if (field === "" || field === "header." || (field?.startsWith("$") === true && !JSON_PATH.test(field)))
    check.error(
      "E_FIELD",
      at,
      `"${field}" is neither \`subject\`, nor \`header.NAME\`, nor a path to one value of a JSON payload`,
      "write a path such as `$.a.b[0]['c d']`: names and indices, without wildcards",
    );
}

/** Whether no engine can read the expression. What only the program's own engine knows is left to its `check`. */
function isBroken(expression: string): boolean {
  if (/\(\?|\\[pPzAxu]|\[\[|&&|--|~~|[*+?}][*+]/.test(expression)) return false;
  try {
    new RegExp(expression);
    return false;
  } catch {
    return true;
  }
}

function policy(check: Check, at: string, policy: Policy): void {
  check.range(`${at}.max_in_flight`, policy.max_in_flight, 1, 65_535);
  check.range(`${at}.max_outbox_depth`, policy.max_outbox_depth, 1, Number.MAX_VALUE);
  for (const name of ["send_timeout", "depth_cache_ttl", "spill_after"] as const)
    check.positive(`${at}.${name}`, policy[name]);
  const backoff = policy.backoff ?? {};
  check.positive(`${at}.backoff.initial_interval`, backoff.initial_interval);
  if (nanos(backoff.max_interval, 30) < nanos(backoff.initial_interval, 1)) {
    check.error(
      "E_BACKOFF",
      `${at}.backoff.max_interval`,
      "max_interval must be >= initial_interval",
      "raise it, or lower initial_interval",
      [`${at}.backoff.initial_interval`],
    );
  }
}

function delivery(check: Check, at: string, route: Route): void {
  const [modeAt, mode, ack] = [`${at}.delivery_mode`, modeOf(route), route.policy?.ack_after];
  const contradiction =
    (mode === "shared_outbox" && ack === "target_accept") ||
    (mode === "direct_hold" && ack === "outbox_persist") ||
    (mode === "spill_outbox" && ack !== undefined);
  if (contradiction)
    check.error(
      "E_ACK_AFTER",
      `${at}.policy.ack_after`,
      `ack_after: ${ack} contradicts ${mode}`,
      "remove ack_after, or change delivery_mode",
      [modeAt],
    );
  if (mode !== "direct_hold" && check.config.stores?.outbox === undefined) {
    check.error(
      "E_OUTBOX_REQUIRED",
      modeAt,
      `${mode} requires stores.outbox to be configured`,
      "add `stores: {outbox: {type: dynamodb}}`",
      ["stores.outbox"],
    );
  }
  posted(check, at, route, mode);
  logsOfProcesses(check, modeAt, route, mode);
  for (const [name, belongs] of [
    ["spill_after", "spill_outbox"],
    ["send_retry_budget", "direct_hold"],
  ] as const) {
    if (mode !== belongs && route.policy?.[name] !== undefined) {
      check.error(
        "E_POLICY_MODE",
        `${at}.policy.${name}`,
        `\`${name}\` has no meaning for ${mode}`,
        `remove it, or write \`delivery_mode: ${belongs}\``,
        [modeAt],
      );
    }
  }
  if (mode !== "direct_hold") return;
  for (const name of ["max_outbox_depth", "depth_cache_ttl"] as const) {
    if (route.policy?.[name] !== undefined) {
      check.error(
        "E_POLICY_MODE",
        `${at}.policy.${name}`,
        `\`${name}\` has no meaning for ${mode}, which has no outbox`,
        "remove it: the source keeps what is not delivered",
        [modeAt],
      );
    }
  }
  for (const id of route.bindings ?? []) {
    const binding = named(check.config.bindings, id);
    const sender = named(check.config.senders, binding?.sender_id);
    const session = named(check.config.sessions, sender?.session_id);
    if (session?.session_mode === "exclusive") {
      check.error(
        "E_DIRECT_HOLD_LEASE",
        modeAt,
        `direct_hold cannot send through exclusive session "${session.id}"`,
        "write `delivery_mode: shared_outbox`",
        ["sessions", "bindings", "senders"],
      );
    }
  }
}

/** The messages of a route wait in the outbox of what feeds it, under that one's lease: nobody else writes into a log. */
function outboxes(check: Check, route: Route): void {
  const { config } = check;
  const receiver = named(config.receivers, route.receiver_id);
  if (receiver === undefined) return;
  (config.bindings ?? []).forEach((binding, index) => {
    const session = named(config.sessions, binding.session_id);
    if (session === undefined || binding.id === undefined || !(route.bindings ?? []).includes(binding.id)) return;
    const held = modeOf(route) === "direct_hold";
    // What is posted waits with the session that the route names.
    const posted = receiver.transport === "http" && receiver.session_id === undefined;
    const feeds = posted ? route.session?.session_id : receiver.session_id;
    if (!held && feeds === session.id) return;
    check.error(
      "E_BINDING_SESSION",
      `bindings[${index}].session_id`,
      held
        ? `route "${route.id}" has no outbox`
        : `messages of route "${route.id}" wait in the outbox of ${feeds === undefined ? "its receiver, which belongs to no session" : `session "${feeds}", which carries them, under its lease`}`,
      held || feeds === undefined ? "remove it" : `remove it, or write \`session_id: ${feeds}\``,
      ["routes", "receivers", "sessions"],
    );
  });
}

/** A post is answered with "accepted" once the outbox keeps it, and only the owner of an exclusive session sends it. */
function posted(check: Check, at: string, route: Route, mode: DeliveryMode): void {
  const { config } = check;
  const receiver = named(config.receivers, route.receiver_id);
  if (receiver?.transport !== "http" || receiver.session_id !== undefined) return;
  if (mode !== "shared_outbox")
    check.error(
      "E_HTTP_DELIVERY",
      `${at}.delivery_mode`,
      "what is posted is answered once the outbox keeps it",
      "write `delivery_mode: shared_outbox`",
      [`${at}.receiver_id`, "receivers"],
    );
  const session = named(config.sessions, route.session?.session_id);
  if (session === undefined) return;
  const feeds = (config.routes ?? []).some(
    (other) => session.id !== undefined && named(config.receivers, other.receiver_id)?.session_id === session.id,
  );
  if (session.session_mode !== "exclusive" || !feeds)
    check.error(
      "E_HTTP_SESSION",
      `${at}.session.session_id`,
      `session "${session.id}" is not exclusive, or feeds no route`,
      "name an exclusive session that feeds another route, or remove the `session` block",
      ["sessions", "receivers", "routes"],
    );
}

/** Each process keeps what it received from a queue in a log of its own, under a lease of its own. */
function logsOfProcesses(check: Check, modeAt: string, route: Route, mode: DeliveryMode): void {
  const { config } = check;
  const receiver = named(config.receivers, route.receiver_id);
  const carried = receiver?.transport === "http" && named(config.sessions, route.session?.session_id) !== undefined;
  const alone = receiver !== undefined && receiver.session_id === undefined && !carried;
  const logged = mode !== "direct_hold" && config.stores?.outbox !== undefined;
  if (alone && logged && isClustered(config) && config.stores?.lease === undefined) {
    check.error(
      "E_LEASE_REQUIRED",
      modeAt,
      `${mode} without a session requires stores.lease in a clustered bridge`,
      "add `stores: {lease: {type: dynamodb}}`, or write `delivery_mode: direct_hold`",
      ["stores.lease", "bridge.deployment_mode", "bridge.cluster.endpoints", "receivers"],
    );
  }
}

function failures(check: Check, at: string, policy: Policy): void {
  if (check.config.stores?.dlq !== undefined) return;
  const defaults = { on_expired: "dlq", on_permanent_failure: "dlq", on_filtered: "drop" } as const;
  for (const name of ["on_expired", "on_permanent_failure", "on_filtered"] as const) {
    if ((policy[name] ?? defaults[name]) === "dlq") {
      check.error(
        "E_DLQ_REQUIRED",
        `${at}.policy.${name}`,
        `${name}: dlq requires stores.dlq to be configured`,
        "add `stores: {dlq: {type: dynamodb}}`",
        ["stores.dlq"],
      );
    }
  }
}

/** What the source must be able to do. */
function source(check: Check, at: string, route: Route): void {
  const index = (check.config.receivers ?? []).findIndex(({ id }) => id !== undefined && id === route.receiver_id);
  const receiver = check.config.receivers?.[index];
  if (receiver === undefined) return;
  if (receiver.transport === "sqs" && receiver.session_id === undefined) {
    visibility(check, at, route, receiver);
    return;
  }
  const session = named(check.config.sessions, receiver.session_id);
  if (session !== undefined) redelivery(check, at, route, receiver, `receivers[${index}]`, session);
}

function redelivery(
  check: Check,
  at: string,
  route: Route,
  receiver: Receiver,
  receiverAt: string,
  session: Session,
): void {
  const modeAt = `${at}.delivery_mode`;
  if (route.policy?.allow_retry_drop !== true) {
    (receiver.topics ?? []).forEach((topic, index) => {
      if ((topic.qos ?? 0) === 0) {
        check.error(
          "E_QOS_ZERO",
          `${receiverAt}.topics[${index}].qos`,
          "reliable MQTT route invalid: qos=0: the broker never sends such a message again",
          "write `qos: 1`",
        );
      }
    });
    if (modeOf(route) !== "shared_outbox" && !isDurable(session.session_mode)) {
      check.error(
        "E_SOURCE_REDELIVERS",
        modeAt,
        `${modeOf(route)} needs a source that redelivers`,
        "write `session_mode: persistent`",
        ["sessions"],
      );
    }
  }
  const held = nanos(route.policy?.send_retry_budget, 60) + nanos(route.policy?.send_timeout, 30);
  if (modeOf(route) === "direct_hold" && held > 240n * SECOND) {
    check.error(
      "E_SEND_RETRY_BUDGET",
      `${at}.policy.send_retry_budget`,
      "send_retry_budget + send_timeout exceeds the source's settlement-recovery wait of 240s",
      "lower one of the two",
      [`${at}.policy.send_timeout`, modeAt],
    );
  }
}

/** How long a message stays hidden must cover what may be done with it. */
function visibility(check: Check, at: string, route: Route, receiver: Receiver): void {
  const send = nanos(route.policy?.send_timeout, 30);
  if (receiver.options?.auto_extend !== false || send < SECOND) return;
  const visible = BigInt((receiver.options?.visibility_timeout as number | undefined) ?? 30) * SECOND;
  const worst =
    30n * SECOND * BigInt((route.processors ?? []).length) +
    nanos(route.policy?.send_retry_budget, 60) +
    send +
    (21n * SECOND) / 2n;
  if ((modeOf(route) === "direct_hold" && worst > visible) || send * 2n >= visible) {
    check.error(
      "E_VISIBILITY",
      `${at}.policy.send_timeout`,
      "the worst-case pipeline time exceeds the source's visibility timeout",
      "raise visibility_timeout, write `auto_extend: true`, or lower send_timeout and send_retry_budget",
      ["receivers"],
    );
  }
}
