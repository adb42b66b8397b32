/** Rules of `flow`. One file for each of its blocks. */
import type { Check } from "../check.ts";
import { checkInbound } from "./inbound.ts";
import { checkLimits } from "./limits.ts";
import { checkOutbound } from "./outbound.ts";

export function checkFlow(check: Check): void {
  checkInbound(check);
  checkLimits(check);
  checkOutbound(check);
}
