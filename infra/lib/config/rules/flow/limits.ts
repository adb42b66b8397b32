/** Rules of `flow.limits`. */
import type { Check } from "../check.ts";
import { repeats } from "./loss.ts";
import { checkPairs } from "./pairs.ts";

export interface FlowLimit {
  enabled?: boolean;
  scope?: "key" | "route" | "connection";
  key?: string;
  pairs?: string;
  on_exceed?: "park" | "hold" | "drop";
  max_keys?: number;
  overflow_key?: string;
  allow_loss?: boolean;
}

const KEY = /^(topic|topic_level:0*[1-9]\d*|user_property:.+)$/s;

export function checkLimits(check: Check): void {
  for (const [index, limit] of (check.config.flow?.limits ?? []).entries()) {
    const at = `flow.limits[${index}]`;
    key(check, at, limit);
    check.range(`${at}.max_keys`, limit.max_keys, 1, 10_000_000);
    if (limit.overflow_key === "") {
      check.error("E_REQUIRED", `${at}.overflow_key`, "an empty key is none", "write a name that no key has");
    }
    checkPairs(check, `${at}.pairs`, limit.pairs ?? "");
    action(check, at, limit);
  }
}

function key(check: Check, at: string, limit: FlowLimit): void {
  const path = `${at}.key`;
  const report = (message: string, remedy: string): void =>
    check.error("E_LIMIT_KEY", path, message, remedy, [`${at}.scope`]);
  if ((limit.scope ?? "key") !== "key") {
    if (limit.key !== undefined) report("a limit of a route or a connection has no key", "remove it");
  } else if (limit.key === undefined || !KEY.test(limit.key)) {
    report("a limit by key needs a key", "write `topic`, `topic_level:N` or `user_property:NAME`");
  }
}

function action(check: Check, at: string, limit: FlowLimit): void {
  const chosen = limit.on_exceed ?? ((limit.scope ?? "key") === "key" ? "park" : "hold");
  const path = `${at}.on_exceed`;
  if (chosen === "park" && check.config.stores?.outbox === undefined) {
    const remedy = "configure `stores.outbox`, or write `on_exceed: hold`";
    check.error("E_NO_OUTBOX", path, "what is parked is kept in the outbox, and there is none", remedy, [
      "stores.outbox",
      `${at}.scope`,
    ]);
  }
  if (chosen === "drop" && limit.allow_loss !== true && repeats(check)) {
    check.error(
      "E_LIMIT_LOSS",
      path,
      "messages come that their source would repeat, and they would be acknowledged and dropped",
      "write `on_exceed: park` or `hold`, or permit it with `allow_loss: true`",
      [`${at}.allow_loss`, "receivers"],
    );
  }
}
