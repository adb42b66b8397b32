import * as iam from "aws-cdk-lib/aws-iam";
import type * as sqs from "aws-cdk-lib/aws-sqs";
import { type Caller, iamActions, OPERATIONS, type TableRole, type Target } from "../operations.ts";
import type { IBridgeTables } from "./tables.ts";

/** What a caller's permissions are for. */
export interface Resources {
  /** The bridge's tables. */
  readonly tables: IBridgeTables;
  /** The queues that the configuration sends to. */
  readonly destinations: readonly sqs.IQueue[];
  /** The dead-letter queues that redrive may empty. */
  readonly deadLetterQueues: readonly sqs.IQueue[];
}

/**
 * One statement for each thing that the caller calls upon: exact actions on exact ARNs, made from {@link OPERATIONS}. An index is named, never
 * matched. Queues that the configuration does not use give no statement.
 */
export function statements(caller: Caller, resources: Resources): iam.PolicyStatement[] {
  const made: iam.PolicyStatement[] = [];
  for (const [name, operations] of Object.entries(OPERATIONS[caller])) {
    const target = name as Target;
    const arns = arnsOf(target, resources);
    if (arns.length === 0) continue;
    made.push(new iam.PolicyStatement({ sid: sid(target), actions: iamActions(target, operations), resources: arns }));
  }
  return [...made, ...queueKeys(caller, resources)];
}

/** What a queue that is encrypted by a key of the customer asks for besides: to send takes a data key, to receive its decryption, and SQS asks both. */
function queueKeys(caller: Caller, { destinations, deadLetterQueues }: Resources): iam.PolicyStatement[] {
  const used = {
    "queue/destination": destinations,
    "queue/dead_letters": deadLetterQueues,
  } as const;
  const keys = new Set<string>();
  for (const [target, queues] of Object.entries(used)) {
    if (OPERATIONS[caller][target as Target] === undefined) continue;
    for (const { encryptionMasterKey } of queues)
      if (encryptionMasterKey !== undefined) keys.add(encryptionMasterKey.keyArn);
  }
  if (keys.size === 0) return [];
  return [
    new iam.PolicyStatement({
      sid: "QueueKeys",
      actions: ["kms:Decrypt", "kms:GenerateDataKey"],
      resources: [...keys],
    }),
  ];
}

function arnsOf(target: Target, resources: Resources): string[] {
  switch (target) {
    case "queue/destination":
      return resources.destinations.map((queue) => queue.queueArn);
    case "queue/dead_letters":
      return resources.deadLetterQueues.map((queue) => queue.queueArn);
    default: {
      const [role, index] = target.split("/");
      const arn = resources.tables.tables[role as TableRole].tableArn;
      return [index === undefined ? arn : `${arn}/index/${index}`];
    }
  }
}

/** `dlq/by_route` as `DlqByRoute`: the text that a reader of the policy sees. */
function sid(target: Target): string {
  return target
    .split(/[/_]/)
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join("");
}
