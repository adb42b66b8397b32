/** Rules of `flow.outbound`. */
import { SECOND } from "../../../budget.ts";
import { optionalNanos } from "../../model.ts";
import type { Check } from "../check.ts";
import { checkPairs } from "./pairs.ts";

export interface Outbound {
  pace?: string;
  max_in_flight?: number;
  max_unacked_bytes?: number;
  high_water_bytes?: number;
  low_water_bytes?: number;
  resume?: { base?: string; max?: string; max_retries?: number; jitter?: string; slow_start?: boolean };
  pause_receiver?: boolean;
  visibility_extend?: string;
}

const AT = "flow.outbound";
const HIGH_WATER = 1_310_720;
const QUARTER_MEBI = 262_144;

export function checkOutbound(check: Check): void {
  const outbound = check.config.flow?.outbound;
  if (outbound === undefined) return;
  const pace = outbound.pace;
  if (pace !== undefined && pace !== "") checkPairs(check, `${AT}.pace`, pace);
  check.range(`${AT}.max_in_flight`, outbound.max_in_flight, 1, 65_535);
  const payloads = (check.config.sessions ?? []).map(
    (session) => session.options?.session?.max_payload_bytes ?? QUARTER_MEBI,
  );
  const largest = Math.max(0, ...payloads);
  const room = `write at least the largest max_payload_bytes of a session, ${largest}`;
  const { max_unacked_bytes: unacked, high_water_bytes: high, low_water_bytes: low } = outbound;
  const [highAt, lowAt] = [`${AT}.high_water_bytes`, `${AT}.low_water_bytes`];
  if (unacked !== undefined && unacked < Math.max(largest, 1)) {
    check.error("E_RANGE", `${AT}.max_unacked_bytes`, "a single message may be larger", room, ["sessions"]);
  }
  if (high !== undefined && high < Math.max(largest, 2)) {
    check.error("E_WATERMARK", highAt, "a single message may be larger", room, ["sessions"]);
  }
  const effective = Math.max(high ?? HIGH_WATER, largest);
  if (low !== undefined && (low === 0 || low >= effective)) {
    check.error(
      "E_WATERMARK",
      lowAt,
      "low_water_bytes must be above 0 and below high_water_bytes",
      "leave it out for half of high_water_bytes",
      [highAt, lowAt],
    );
  }
  const resume = outbound.resume ?? {};
  check.positive(`${AT}.resume.base`, resume.base);
  const [base, max] = [optionalNanos(resume.base ?? "1s"), optionalNanos(resume.max ?? "10s")];
  if (base !== undefined && max !== undefined && base > max) {
    check.error("E_BACKOFF", `${AT}.resume.max`, "max must be >= base", "raise it, or lower base", [
      `${AT}.resume.base`,
    ]);
  }
  check.range(`${AT}.resume.max_retries`, resume.max_retries, 0, 100);
  check.positive(`${AT}.visibility_extend`, outbound.visibility_extend);
  visibilityExtend(check, optionalNanos(outbound.visibility_extend) ?? 0n);
}

/** No message is hidden anew before it was received. */
function visibilityExtend(check: Check, extend: bigint): void {
  if (extend === 0n) return;
  const timeouts = (check.config.receivers ?? [])
    .filter(({ transport, options }) => transport === "sqs" && options?.auto_extend !== false)
    .map(({ options }) => (options?.visibility_timeout as number | undefined) ?? 30);
  const shortest = Math.min(...timeouts);
  if (timeouts.length > 0 && extend + SECOND > BigInt(shortest) * SECOND) {
    check.error(
      "E_VISIBILITY_EXTEND",
      `${AT}.visibility_extend`,
      `must be at least a second below the visibility_timeout of every queue that is received from, the shortest of which is ${shortest}s`,
      "lower it, raise visibility_timeout, or leave it out for two thirds of that",
      ["receivers"],
    );
  }
}
