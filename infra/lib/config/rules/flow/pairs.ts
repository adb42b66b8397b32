/** Pairs of count and seconds, such as `10:1,300:60`. */
import type { Check } from "../check.ts";

const MOST = 1_000_000_000;
const LONGEST = 86_400;

/** Pairs that can be read. */
export function checkPairs(check: Check, path: string, text: unknown): void {
  if (typeof text !== "string") return;
  const seen = new Set<number>();
  for (const [index, part] of text.split(",").entries()) {
    const pair = /^(\d+):(\d+)$/.exec(part.trim());
    const [count, seconds] = [Number(pair?.[1] ?? 0), Number(pair?.[2] ?? 0)];
    const number = index + 1;
    if (count === 0 || seconds === 0) {
      const message = `pair ${number} is not COUNT:SECONDS, two whole numbers above zero`;
      check.error("E_LIMIT_SYNTAX", path, message, "write COUNT:SECONDS, and a comma between pairs");
      return;
    }
    if (count > MOST || seconds > LONGEST) {
      check.error("E_LIMIT_RANGE", path, `pair ${number} is out of range`, "write a smaller number");
      return;
    }
    if (seen.has(seconds)) {
      const message = `pair ${number} has the same time as an earlier one`;
      check.error("E_LIMIT_DUP", path, message, "write one pair for each time");
      return;
    }
    seen.add(seconds);
  }
}
