import type { SynthFault } from "../checks/fault.ts";

/** What props of the constructs may be refused for: the code, and what to do. */
export const PROP_RULES = {
  CAUSEWAY_PRP_001:
    "write the same name in the configuration (stores.*.options.table_name) and in the props (tableNames)",
  CAUSEWAY_PRP_002: "shorten it, or move what changes between environments into variables",
  CAUSEWAY_PRP_003:
    "write `queue_url` with a variable that `queues` names, or with the whole address: https://sqs.REGION.amazonaws.com/ACCOUNT/NAME",
  CAUSEWAY_PRP_004:
    "name each variable once: in `environment`, in `queues` or in `secrets`; names are A to Z, digits and `_`",
  CAUSEWAY_PRP_005: "choose a pair that Fargate offers, for example 512 and 1024",
  CAUSEWAY_PRP_006: "write a whole number of minutes, 1 or more",
  CAUSEWAY_PRP_007: "write 0, 1 or 2: the next run follows soon enough, and it goes on where this one stopped",
  CAUSEWAY_PRP_008:
    "write a letter, then letters, digits, `-` and `_`, at most 64 in all, and not `aws` or `ssm` at the start; it is part of names of resources",
  CAUSEWAY_PRP_009: "write `ssm:/NAME`, or `secretsmanager:NAME-OR-ARN`, or `secretsmanager:NAME-OR-ARN#FIELD`",
  CAUSEWAY_PRP_010:
    "write a whole number from 1 to 49999 that no other rule of the listener has; the number after it is used too",
  CAUSEWAY_PRP_011:
    "say which requests are the bridge's: `transport`, `admin` or both, each with at least one condition (settings: transportPaths, adminHosts)",
  CAUSEWAY_PRP_012: "name the VPC too, with its zones and private subnets, or leave the cluster out",
  CAUSEWAY_PRP_013:
    "name a queue that is made here, or give the dead-letter queue to the façade's `redriveQueueDeadLetters` in a stack of your own",
  CAUSEWAY_PRP_014:
    "write letters, digits, `-` and `_`, at most 76; a FIFO queue is made by you and named in the configuration",
  CAUSEWAY_PRP_015: "correct the name, or take it out; lib/settings.ts has them all",
  CAUSEWAY_PRP_016: "write it as lib/settings.ts says",
} as const;

/** The code of a rule for props. */
export type PropRule = keyof typeof PROP_RULES;

/** A fault with the remedy of its rule. */
export function refuseProp(code: PropRule, path: string, message: string): SynthFault {
  return { code, path, message, remedy: PROP_RULES[code] };
}
