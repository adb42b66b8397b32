/** Rules of `flow.quota`. */
import { isClustered, nanos, optionalNanos } from "../../model.ts";
import type { Check } from "../check.ts";
import { repeats } from "./loss.ts";
import { checkPairs } from "./pairs.ts";

export interface Quota {
  enabled?: boolean;
  name?: string;
  rate?: string;
  burst?: number;
  block_size?: number;
  lease_return?: string;
  draw_timeout?: string;
  dry_backoff?: string;
  probe_interval?: string;
  notice?: string;
  outage_policy?: "local_share" | "fail_open" | "fail_closed";
  outage_grace?: string;
  on_exhausted?: "hold" | "park" | "drop";
  allow_loss?: boolean;
}

const MOST = 1_000_000_000;
const MILLISECOND = 1_000_000n;

export function checkQuota(check: Check): void {
  const quota = check.config.flow?.quota ?? {};
  const rate = quota.rate ?? "1000:1";
  const before = check.faults.length;
  checkPairs(check, "flow.quota.rate", rate);
  if (check.faults.length === before) {
    if (rate.includes(",")) {
      const remedy = "write one, such as `1000:1`; further limits go to `flow.limits`";
      check.error("E_QUOTA_PAIRS", "flow.quota.rate", "a budget has one pair", remedy);
    } else if (
      // What nobody asked for is not held against the routes.
      quota.enabled === true ||
      [quota.rate, quota.burst, quota.block_size].some((written) => written !== undefined)
    ) {
      budget(check, quota, rate);
    }
  }
  times(check, quota);
  exhausted(check, quota);
  if (quota.name !== undefined && (quota.name.length === 0 || Buffer.byteLength(quota.name) > 200)) {
    check.error("E_RANGE", "flow.quota.name", "out of range", "write a name of 1 to 200 bytes, or leave it out");
  }
  if (quota.enabled === true && isClustered(check.config) && check.config.stores?.lease === undefined) {
    check.error(
      "E_QUOTA_STORE",
      "flow.quota",
      "the processes of a clustered bridge share the budget in the store of leases, and there is none",
      "configure `stores.lease`",
      ["stores.lease", "bridge.deployment_mode", "bridge.cluster"],
    );
  }
}

function budget(check: Check, quota: Quota, rate: string): void {
  const [count, seconds] = rate.split(":").map(Number) as [number, number];
  if (quota.burst !== undefined) check.range("flow.quota.burst", quota.burst, 1, MOST);
  const burst = quota.burst ?? count;
  const block = quota.block_size || Math.max(1, Math.floor(Math.max(1, Math.floor(count / seconds)) / 10));
  const widths = (check.config.receivers ?? []).map(({ id }) =>
    (check.config.routes ?? [])
      .filter((route) => route.receiver_id === id)
      .reduce((sum, route) => sum + (route.bindings ?? []).length, 0),
  );
  const cost = 1 + Math.max(0, ...widths);
  if (burst < cost) {
    check.error(
      "E_QUOTA_BURST",
      "flow.quota.burst",
      `a message may cost ${cost}, one and one for each destination, which is more than the burst: it could never be admitted`,
      `write ${cost} or more`,
      ["flow.quota.rate", "routes", "receivers"],
    );
  }
  if (block > burst) {
    check.error(
      "E_QUOTA_BLOCK",
      "flow.quota.block_size",
      "a block is larger than the burst: it could never be drawn",
      "lower block_size, or raise burst",
      ["flow.quota.burst", "flow.quota.rate"],
    );
  }
}

function exhausted(check: Check, quota: Quota): void {
  const path = "flow.quota.on_exhausted";
  if (quota.on_exhausted === "park" && check.config.stores?.outbox === undefined) {
    const remedy = "configure `stores.outbox`, or write `on_exhausted: hold`";
    check.error("E_NO_OUTBOX", path, "what is parked is kept in the outbox, and there is none", remedy, [
      "stores.outbox",
    ]);
  }
  if (quota.on_exhausted === "drop" && quota.allow_loss !== true && repeats(check)) {
    check.error(
      "E_QUOTA_LOSS",
      path,
      "messages come that their source would repeat, and they would be acknowledged and dropped",
      "write `on_exhausted: park` or `hold`, or permit it with `allow_loss: true`",
      ["flow.quota.allow_loss", "receivers"],
    );
  }
}

function times(check: Check, quota: Quota): void {
  for (const field of ["draw_timeout", "dry_backoff", "probe_interval", "notice"] as const) {
    check.positive(`flow.quota.${field}`, quota[field]);
  }
  const every = nanos(quota.lease_return, 1);
  const timeout = optionalNanos(quota.draw_timeout) ?? 500n * MILLISECOND;
  if (every > 0n && every < 100n * MILLISECOND) {
    check.error("E_QUOTA_RETURN", "flow.quota.lease_return", "below 100ms", "write 100ms or more, or 0s for never");
  } else if (every > 0n && timeout >= every) {
    check.error(
      "E_QUOTA_TIMEOUT",
      "flow.quota.draw_timeout",
      "draw_timeout must be below lease_return",
      "lower draw_timeout, or raise lease_return",
      ["flow.quota.lease_return"],
    );
  }
  if (quota.outage_grace !== undefined && (quota.outage_policy ?? "local_share") !== "fail_open") {
    check.error(
      "E_QUOTA_GRACE",
      "flow.quota.outage_grace",
      "a grace is what `outage_policy: fail_open` has",
      "remove it, or write `outage_policy: fail_open`",
      ["flow.quota.outage_policy"],
    );
  }
}
