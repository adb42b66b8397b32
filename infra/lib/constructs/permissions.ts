import * as iam from "aws-cdk-lib/aws-iam";
import type * as sqs from "aws-cdk-lib/aws-sqs";
import {
  type Caller,
  COMMAND_OPERATIONS,
  iamActions,
  LEDGER_OPERATIONS,
  OPERATIONS,
  type TableRole,
  type Target,
} from "../operations.ts";
import type { IBridgeTables } from "./tables.ts";

/** The queues that a caller's permissions are for. */
export interface Queues {
  /** Those that the configuration sends to. */
  readonly destinations: readonly sqs.IQueue[];
  /** Those that it receives from. */
  readonly sources: readonly sqs.IQueue[];
  /** Those of the latter that it finds by their name. */
  readonly sourcesByName: readonly sqs.IQueue[];
  /** The dead-letter queues that redrive may empty. */
  readonly deadLetterQueues: readonly sqs.IQueue[];
}

/** What a caller's permissions are for. */
export interface Resources extends Queues {
  /** The tasks of the cluster, as a pattern of their ARNs: each task's name is made when it starts. */
  readonly tasks?: string;
  /** The services of the cluster, as a pattern of their ARNs: a role is made before the services that use it. */
  readonly services?: string;
  /** The ARN of the cluster: all that IAM knows of a list of tasks. */
  readonly cluster?: string;
  /** The bridge's tables. */
  readonly tables: IBridgeTables;
  /** Whether the caller writes the ledger of drops. */
  readonly writesLedger?: boolean;
  /** Whether the caller takes commands. */
  readonly takesCommands?: boolean;
}

/** For a caller that has nothing to do with queues. */
export const NO_QUEUES: Queues = { destinations: [], sources: [], sourcesByName: [], deadLetterQueues: [] };

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
    const conditions = target === "tasks/list" ? { ArnEquals: { "ecs:cluster": resources.cluster } } : undefined;
    const actions = iamActions(target, operations);
    made.push(new iam.PolicyStatement({ sid: sid(target), actions, resources: arns, conditions }));
  }
  if (resources.writesLedger) {
    const actions = iamActions("ledger", LEDGER_OPERATIONS);
    made.push(new iam.PolicyStatement({ sid: sid("ledger"), actions, resources: arnsOf("ledger", resources) }));
  }
  if (resources.takesCommands) {
    const actions = iamActions("commands", COMMAND_OPERATIONS);
    made.push(new iam.PolicyStatement({ sid: sid("commands"), actions, resources: arnsOf("commands", resources) }));
  }
  return [...made, ...queueKeys(caller, resources)];
}

/** The targets whose queues may have keys of the customer's. */
const KEYED = ["queue/destination", "queue/source", "queue/dead_letters"] as const satisfies readonly Target[];

/**
 * What a queue that is encrypted by a key of the customer asks for besides. To receive takes the decryption of a data key; to send takes a new data key,
 * and its decryption, which SQS asks for as well.
 */
function queueKeys(caller: Caller, resources: Resources): iam.PolicyStatement[] {
  const [sending, receiving] = [new Set<string>(), new Set<string>()];
  for (const target of KEYED) {
    const operations = OPERATIONS[caller][target] ?? [];
    // What is in a dead-letter queue goes back in the caller's name.
    const sends = operations.includes("SendMessage") || target === "queue/dead_letters";
    if (operations.length === 0) continue;
    for (const { encryptionMasterKey: key } of queuesOf(target, resources))
      if (key !== undefined) (sends ? sending : receiving).add(key.keyArn);
  }
  const of = (sid: string, actions: string[], keys: string[]) =>
    keys.length === 0 ? [] : [new iam.PolicyStatement({ sid, actions, resources: keys })];
  return [
    ...of("QueueKeys", ["kms:Decrypt", "kms:GenerateDataKey"], [...sending]),
    ...of(
      "SourceQueueKeys",
      ["kms:Decrypt"],
      [...receiving].filter((key) => !sending.has(key)),
    ),
  ];
}

function queuesOf(target: Extract<Target, `queue/${string}`>, resources: Resources): readonly sqs.IQueue[] {
  switch (target) {
    case "queue/destination":
      return resources.destinations;
    case "queue/source":
      return resources.sources;
    case "queue/source_by_name":
      return resources.sourcesByName;
    case "queue/dead_letters":
      return resources.deadLetterQueues;
  }
}

function arnsOf(target: Target, resources: Resources): string[] {
  switch (target) {
    case "queue/destination":
    case "queue/source":
    case "queue/source_by_name":
    case "queue/dead_letters":
      return queuesOf(target, resources).map((queue) => queue.queueArn);
    case "tasks":
      return resources.tasks === undefined ? [] : [resources.tasks];
    case "tasks/services":
      return resources.services === undefined ? [] : [resources.services];
    case "tasks/list":
      return resources.cluster === undefined ? [] : ["*"];
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
