/** Rules of `routes[].session`: the lease's cadence, the failover objective, the drain. */
import { BudgetError, MAX_STARTUP_ALLOWANCE } from "../../budget.ts";
import { named, nanos, optionalNanos, type Route, type RouteSession, type Session } from "../model.ts";
import { showSpan } from "../span.ts";
import { admitted, sessionTiming } from "../timing.ts";
import type { Check } from "./check.ts";

export function checkLeases(check: Check): void {
  const routes = check.config.routes ?? [];
  routes.forEach((route, index) => {
    const block = route.session;
    if (block === undefined) return;
    const at = `routes[${index}].session`;
    check.reference(`${at}.session_id`, block.session_id, "sessions");
    check.reference(`${at}.sender_id`, block.sender_id, "senders");
    const session = named(check.config.sessions, block.session_id);
    if (agrees(check, routes.slice(0, index), at, block) && session !== undefined) cadence(check, at, session);
    objective(check, at, block, session);
    drain(check, at, block);
    if (session !== undefined && block.connect_after_lease === false) {
      check.error(
        "E_CONNECT_AFTER_LEASE",
        `${at}.connect_after_lease`,
        session.session_mode === "exclusive"
          ? "an exclusive session connects after its lease is won"
          : "only an exclusive session has a lease that a connection could come before",
        "remove it, or write true",
        ["sessions"],
      );
    }
    sender(check, `routes[${index}]`, route, block);
  });
}

/** Each message leaves by the sender of the binding that it was resolved to, so what drains a session is one of those. */
function sender(check: Check, at: string, route: Route, block: RouteSession): void {
  const bound = (route.bindings ?? []).map((id) => named(check.config.bindings, id)?.sender_id);
  const id = block.sender_id;
  const unknown = [id, ...bound].some((id) => named(check.config.senders, id) === undefined);
  if (bound.length === 0 || unknown || bound.includes(id)) return;
  check.error(
    "E_SESSION_SENDER",
    `${at}.session.sender_id`,
    `no binding of route "${route.id}" has sender "${id}": each message leaves by the sender of its binding`,
    `write \`sender_id: ${bound[0]}\`, or add a binding with that sender to the route`,
    ["bindings", "senders", `${at}.bindings`],
  );
}

const SHARED = [
  "lease_ttl",
  "renew_interval",
  "lease_renew_jitter",
  "max_renew_fails",
  "renew_call_timeout",
  "acquire_poll_interval",
  "step_down_grace",
  "connect_after_lease",
  "broker_health_step_down",
  "failover_slo",
  "startup_allowance",
] as const;

/** Whether this block is the first of its session; a later one that says something else is reported. */
function agrees(check: Check, earlier: readonly Route[], at: string, block: RouteSession): boolean {
  const first = earlier.find((route) => route.session?.session_id === block.session_id);
  if (first?.session === undefined) return true;
  for (const name of SHARED) {
    if (comparable(name, block) !== comparable(name, first.session)) {
      check.error(
        "E_LEASE_DIVERGENCE",
        `${at}.${name}`,
        `route "${first.id}" says something else about the lease of session "${block.session_id}"`,
        `write the same ${name} on every route of a session`,
        ["routes"],
      );
    }
  }
  return false;
}

function comparable(name: (typeof SHARED)[number], block: RouteSession): unknown {
  if (name === "max_renew_fails") return block[name] ?? 3;
  if (name === "connect_after_lease") return block[name] ?? true;
  if (name === "startup_allowance") return nanos(block[name], 0);
  return block[name] === "off" ? "off" : optionalNanos(block[name]);
}

function cadence(check: Check, at: string, session: Session): void {
  const reads = [...SHARED.slice(0, 7).map((name) => `${at}.${name}`), "bridge.deployment_mode"];
  try {
    sessionTiming(check.config, session);
  } catch (error) {
    if (!(error instanceof BudgetError)) throw error;
    const { fault } = error;
    if (fault.kind === "ttl_too_short")
      check.error("E_LEASE_TTL", `${at}.lease_ttl`, "lease_ttl is below 5s", "write 5s or more", reads);
    else if (fault.kind === "not_positive")
      check.error(
        "E_POSITIVE",
        `${at}.${fault.field}`,
        "must be a positive duration",
        "write a duration above zero",
        reads,
      );
    else if (fault.kind === "too_frequent")
      check.error(
        "E_LEASE_CADENCE_MIN",
        `${at}.${fault.field}`,
        `${fault.field} is below the minimum lease cadence=250ms`,
        "raise it, raise lease_ttl, or lower max_renew_fails",
        reads,
      );
    else
      check.error(
        "E_LEASE_CADENCE",
        `${at}.lease_ttl`,
        "leaves no room for the renew cadence: (renew_interval + lease_renew_jitter/2 + renew_call_timeout) * max_renew_fails must be below lease_ttl",
        "raise lease_ttl, lower max_renew_fails, or shorten renew_interval and renew_call_timeout",
        reads,
      );
  }
}

/** An objective is admitted only if both sums meet it. */
function objective(check: Check, at: string, block: RouteSession, session: Session | undefined): void {
  const sloAt = `${at}.failover_slo`;
  if (nanos(block.startup_allowance, 0) > MAX_STARTUP_ALLOWANCE) {
    check.error(
      "E_STARTUP_ALLOWANCE",
      `${at}.startup_allowance`,
      "startup_allowance is above 10m",
      "write 10m or less",
    );
    return;
  }
  if (optionalNanos(block.broker_health_step_down) === 0n) {
    check.error(
      "E_STEP_DOWN",
      `${at}.broker_health_step_down`,
      'must be a positive duration or "off"',
      "write `off`, or a duration such as `90s`",
    );
    return;
  }
  const slo = optionalNanos(block.failover_slo);
  if (slo === undefined) return;
  if (slo === 0n) {
    check.positive(sloAt, block.failover_slo);
    return;
  }
  if (block.broker_health_step_down === undefined) {
    check.error(
      "E_STEP_DOWN_UNDECIDED",
      sloAt,
      "a declared failover_slo requires a decision about broker_health_step_down",
      "add `broker_health_step_down: off`, or a duration such as `90s`",
      [`${at}.broker_health_step_down`],
    );
    return;
  }
  const verdict = session === undefined ? undefined : verdictOf(check, session);
  if (!(verdict instanceof BudgetError)) return;
  const { fault } = verdict;
  const reads = [at, "sessions", "bridge.deployment_mode"];
  if (fault.kind === "exceeded") {
    check.error(
      "E_FAILOVER_SLO",
      sloAt,
      `failover budget=${showSpan(fault.budget)} exceeds declared failover_slo=${showSpan(fault.objective)} (${fault.path})`,
      "raise failover_slo, or shorten lease_ttl or the session's connect_timeout, reconcile_timeout and unmatched_grace",
      reads,
    );
  } else if (fault.kind === "unknown_activation") {
    check.error(
      "E_FAILOVER_TIMING",
      sloAt,
      "declared failover_slo requires known transport timing: connect_timeout and reconcile_timeout of the session",
      "write positive durations there",
      reads,
    );
  } else {
    check.error(
      "E_FAILOVER_BUDGET",
      sloAt,
      "the failover budget cannot be computed",
      "write shorter, positive durations",
      reads,
    );
  }
}

function verdictOf(check: Check, session: Session): true | BudgetError | undefined {
  try {
    return admitted(sessionTiming(check.config, session));
  } catch (error) {
    if (error instanceof BudgetError) return undefined; // The cadence has its own fault.
    throw error;
  }
}

function drain(check: Check, at: string, block: RouteSession): void {
  const strategy = block.drain_strategy;
  if (block.drain_interval !== undefined && strategy !== undefined) {
    check.error(
      "E_DRAIN_BOTH",
      `${at}.drain_interval`,
      "session.drain_strategy and session.drain_interval are mutually exclusive",
      "keep one of the two",
      [`${at}.drain_strategy`],
    );
  }
  check.positive(`${at}.drain_interval`, block.drain_interval);
  for (const name of ["drain_batch_size", "drain_max_batch_size", "drain_max_concurrency"] as const)
    check.range(`${at}.${name}`, block[name], 1, 10_000);
  if ((block.drain_max_batch_size ?? 500) < (block.drain_batch_size ?? 100)) {
    check.error(
      "E_DRAIN_BATCH",
      `${at}.drain_max_batch_size`,
      "drain_max_batch_size must be >= drain_batch_size",
      "raise it, or lower drain_batch_size",
      [`${at}.drain_batch_size`],
    );
  }
  if (strategy === undefined) return;
  const path = `${at}.drain_strategy`;
  const fixed = strategy.type === "fixed_poll";
  for (const name of ["interval", "min_interval", "max_interval", "multiplier"] as const) {
    if (strategy[name] !== undefined && (name === "interval") !== fixed) {
      check.error(
        "E_DRAIN_OPTION",
        `${path}.${name}`,
        `\`${name}\` has no meaning for this type of drain_strategy`,
        "remove it, or change `type`",
        [`${path}.type`],
      );
    }
  }
  for (const name of ["interval", "min_interval"] as const) check.positive(`${path}.${name}`, strategy[name]);
  if (strategy.multiplier !== undefined && strategy.multiplier <= 1)
    check.error("E_DRAIN_MULTIPLIER", `${path}.multiplier`, "multiplier must be > 1.0", "write 1.5 or 2.0");
  if (nanos(strategy.max_interval, 30) < nanos(strategy.min_interval, 0.1)) {
    check.error(
      "E_DRAIN_INTERVALS",
      `${path}.${strategy.max_interval === undefined ? "min_interval" : "max_interval"}`,
      "max_interval must be >= min_interval",
      "raise max_interval, or lower min_interval",
      [`${path}.min_interval`, `${path}.max_interval`],
    );
  }
}
