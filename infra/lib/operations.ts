/**
 * Which operation each part of Causeway calls, on what. The one source of every data permission in the stack: the roles' statements are made from
 * it, and a test compares it with the calls that were recorded while the real programs ran (`lib/generated/operations.json`, the same shape).
 */

/** Who calls. One role each. */
export type Caller = "worker" | "control" | "housekeeping" | "redrive" | "baseline";

/** The role of a table, as in `lib/generated/tables.json`. */
export type TableRole = "leases" | "outbox" | "dlq" | "managed_subscriptions" | "commands" | "ledger";

/**
 * What is called upon.
 *
 * - `leases`, `outbox` …: a table; `dlq/by_route` …: one index of it.
 * - `queue/destination`: the queues that the configuration sends to.
 * - `queue/source`: the queues that it receives from; `queue/source_by_name`: those of them that it finds by their name.
 * - `queue/dead_letters`: the dead-letter queues of both; only where `redriveQueueDeadLetters` is switched on.
 * - `tasks`: the tasks of the bridge's cluster; `tasks/services`: the services that run them; `tasks/list`: their lists, which IAM allows by the
 *   cluster alone.
 */
export type Target =
  | TableRole
  | "dlq/by_route"
  | "dlq/by_category"
  | "commands/by_due"
  | "queue/destination"
  | "queue/source"
  | "queue/source_by_name"
  | "queue/dead_letters"
  | "tasks"
  | "tasks/services"
  | "tasks/list";

/** Operations by caller and target, each list sorted. */
export type Operations = Readonly<Record<Caller, Readonly<Partial<Record<Target, readonly string[]>>>>>;

/** What every running bridge calls, whichever of its tasks it is: each may become the owner. */
const BRIDGE_TASK = {
  // Conditional puts replace whole rows; members are listed by a scan of this small table. UpdateItem: draws from the budget of `flow.quota`.
  leases: ["DeleteItem", "DescribeTable", "DescribeTimeToLive", "GetItem", "PutItem", "Scan", "UpdateItem"],
  // DeleteItem: mailbox rows leave in the transaction that puts the segment they moved into.
  outbox: ["BatchWriteItem", "DeleteItem", "DescribeTable", "DescribeTimeToLive", "GetItem", "PutItem", "Query"],
  // GetItem: parts of a letter that stands are not written over.
  dlq: ["DescribeTable", "GetItem", "PutItem"],
  managed_subscriptions: ["DescribeTable", "GetItem", "PutItem", "UpdateItem"],
  "queue/destination": ["GetQueueAttributes", "SendMessage"],
  // DeleteMessage and ChangeMessageVisibility authorise their batches, which are what is called.
  "queue/source": ["ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "ReceiveMessage"],
  "queue/source_by_name": ["GetQueueUrl"],
  // What became of an owner that gives no sign of life.
  tasks: ["DescribeTasks"],
} as const satisfies Partial<Record<Target, readonly string[]>>;

/** The operations of this release. */
export const OPERATIONS: Operations = {
  // A worker protects its own task while it owns a session.
  // And asks which deployment its service goes on with.
  worker: { ...BRIDGE_TASK, tasks: ["DescribeTasks", "UpdateTaskProtection"], "tasks/services": ["DescribeServices"] },
  // Sees tasks that never told of themselves.
  control: { ...BRIDGE_TASK, "tasks/list": ["ListTasks"] },
  housekeeping: {
    // Scan: whether any member of the bridge is alive. PutItem: takes the lease of a log that nobody owns.
    leases: ["GetItem", "PutItem", "Scan"],
    outbox: ["BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query"],
    dlq: ["GetItem", "PutItem"],
    "dlq/by_category": ["Query"],
    // PutItem is not among them: it makes no command. A command and its caller's name are deleted in one transaction.
    commands: ["DeleteItem", "GetItem", "UpdateItem"],
    "commands/by_due": ["Query"],
    ledger: ["DeleteItem", "Scan"],
  },
  redrive: {
    // DeleteItem: the parts of a large letter go in the transaction that makes it a tombstone.
    dlq: ["BatchGetItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"],
    "dlq/by_category": ["Query"],
    "dlq/by_route": ["Query"],
    outbox: ["PutItem"],
    // Letters of routes without an outbox; and what SQS moves back, it sends in the caller's name.
    "queue/destination": ["SendMessage"],
    // Into what the bridge receives from SQS alone sends, where it moves messages back.
    "queue/source": ["SendMessage"],
    // ReceiveMessage and DeleteMessage: SQS does them in the caller's name.
    "queue/dead_letters": [
      "DeleteMessage",
      "GetQueueAttributes",
      "ListMessageMoveTasks",
      "ReceiveMessage",
      "StartMessageMoveTask",
    ],
  },
  baseline: {
    managed_subscriptions: ["UpdateItem"],
  },
};

/**
 * What workers and control tasks call besides where the configuration names `stores.ledger`: counts are added in transactions of updates. The
 * configuration that is deployed to record calls names none.
 */
export const LEDGER_OPERATIONS: readonly string[] = ["DeleteItem", "DescribeTable", "Query", "UpdateItem"];

/**
 * What workers and control tasks call besides where the configuration names `stores.commands`. A command and its caller's name are put in one transaction;
 * DeleteItem: parts of an answer that came too late.
 */
export const COMMAND_OPERATIONS: readonly string[] = [
  "DeleteItem",
  "DescribeTable",
  "GetItem",
  "PutItem",
  "UpdateItem",
];

/**
 * The IAM actions that authorise these operations on a target, sorted and each once. Batches of SQS are authorised as their single form; a
 * transaction of DynamoDB by what it is made of, and so it never appears here.
 */
export function iamActions(target: Target, operations: readonly string[]): string[] {
  const service = target.startsWith("tasks") ? "ecs" : target.startsWith("queue/") ? "sqs" : "dynamodb";
  const action = (operation: string) => {
    if (operation.startsWith("TransactWriteItems") || operation.startsWith("TransactGetItems")) {
      throw new Error(
        `${operation} on ${target}: list what the transaction is made of (PutItem, DeleteItem, ConditionCheckItem)`,
      );
    }
    return `${service}:${service === "sqs" ? operation.replace(/Batch$/, "") : operation}`;
  };
  return [...new Set(operations.map(action))].sort();
}
