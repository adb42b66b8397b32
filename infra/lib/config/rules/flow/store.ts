/** Rules of `flow.store`. */
import { SECOND } from "../../../budget.ts";
import { nanos, optionalNanos } from "../../model.ts";
import type { Check } from "../check.ts";

export interface FlowStore {
  max_messages_per_key?: number;
  max_bytes_per_key?: number;
  on_full?: "hold" | "dead_letter_oldest" | "drop_oldest" | "reject_newest";
  allow_loss?: boolean;
  message_ttl?: string;
  max_message_ttl?: string;
}

const DAY = 86_400;
const LONGEST = 3650n * BigInt(DAY) * SECOND;

export function checkStore(check: Check): void {
  const store = check.config.flow?.store ?? {};
  check.range("flow.store.max_messages_per_key", store.max_messages_per_key, 1, 1_000_000);
  check.range("flow.store.max_bytes_per_key", store.max_bytes_per_key, 1024, 2 ** 40);
  if (store.on_full === "drop_oldest" && store.allow_loss !== true) {
    check.error(
      "E_ALLOW_LOSS",
      "flow.store.on_full",
      "`drop_oldest` loses messages that were acknowledged, which `allow_loss: true` must acknowledge",
      "write `allow_loss: true` beside it, or `on_full: dead_letter_oldest`",
      ["flow.store.allow_loss"],
    );
  }
  const letters = store.on_full === "dead_letter_oldest" || store.on_full === "reject_newest";
  if (letters && check.config.stores?.dlq === undefined) {
    check.error(
      "E_DLQ_REQUIRED",
      "flow.store.on_full",
      "there is no store for the dead letters that it makes",
      "add `stores: {dlq: …}`, or write `on_full: hold`",
      ["stores.dlq"],
    );
  }
  for (const name of ["message_ttl", "max_message_ttl"] as const) {
    const span = optionalNanos(store[name]);
    if (span !== undefined && span > LONGEST)
      check.error("E_TTL", `flow.store.${name}`, "is longer than ten years", "write 0s for no limit");
  }
  const most = nanos(store.max_message_ttl, 14 * DAY);
  const ttl = optionalNanos(store.message_ttl);
  if (most !== 0n && ttl !== undefined && ttl > most) {
    check.error("E_TTL", "flow.store.message_ttl", "is above max_message_ttl, which cuts it", "lower it", [
      "flow.store.max_message_ttl",
    ]);
  }
}
