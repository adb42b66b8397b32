/** Rules of `flow.outbound`. */
import type { Check } from "../check.ts";
import { checkPairs } from "./pairs.ts";

export interface Outbound {
  pace?: string;
}

export function checkOutbound(check: Check): void {
  const pace = check.config.flow?.outbound?.pace;
  if (pace !== undefined && pace !== "") checkPairs(check, "flow.outbound.pace", pace);
}
