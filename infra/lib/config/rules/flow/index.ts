/** Rules of `flow`: a file for each of its blocks. */
import type { Check } from "../check.ts";
import { checkLimits, type FlowLimit } from "./limits.ts";
import { checkOutbound, type Outbound } from "./outbound.ts";

export interface Flow {
  limits?: FlowLimit[];
  outbound?: Outbound;
}

export function checkFlow(check: Check): void {
  checkLimits(check);
  checkOutbound(check);
}
