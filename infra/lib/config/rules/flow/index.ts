/** Rules of `flow`: a file for each of its blocks. */
import type { Check } from "../check.ts";
import { checkInbound, type Inbound } from "./inbound.ts";
import { checkLimits, type FlowLimit } from "./limits.ts";
import { checkOutbound, type Outbound } from "./outbound.ts";
import { checkQuota, type Quota } from "./quota.ts";
import { checkStore, type FlowStore } from "./store.ts";

export interface Flow {
  inbound?: Inbound;
  limits?: FlowLimit[];
  quota?: Quota;
  outbound?: Outbound;
  store?: FlowStore;
}

export function checkFlow(check: Check): void {
  checkInbound(check);
  checkLimits(check);
  checkQuota(check);
  checkOutbound(check);
  checkStore(check);
}
