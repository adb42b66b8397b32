import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { Template } from "aws-cdk-lib/assertions";
import * as kms from "aws-cdk-lib/aws-kms";
import * as sqs from "aws-cdk-lib/aws-sqs";
import { NO_QUEUES, type Queues, statements } from "../lib/constructs/permissions.ts";
import { BridgeTables } from "../lib/constructs/tables.ts";
import { type Caller, iamActions, OPERATIONS, type Target } from "../lib/operations.ts";
import { bareStack, FULL, IMPORTED, MINIMAL, MIXED, resources, templates } from "./support.ts";

interface Statement {
  readonly Action: string | string[];
  readonly Effect: string;
  readonly Resource: unknown;
  readonly Condition?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

const list = (value: string | string[]): string[] => (Array.isArray(value) ? value : [value]);

/** The statements of the role whose logical id contains a text. */
function statementsOf(template: Template, part: string): Statement[] {
  const roles = Object.keys(resources(template, "AWS::IAM::Role")).filter((id) => id.toLowerCase().includes(part));
  assert.equal(roles.length, 1, `one role for ${part}: ${roles}`);
  return Object.values(resources(template, "AWS::IAM::Policy"))
    .filter(({ Properties }) => Properties.Roles.some((role: { Ref: string }) => role.Ref === roles[0]))
    .flatMap(({ Properties }) => Properties.PolicyDocument.Statement as Statement[]);
}

/** Sorted actions by what stands at the end of the resource's ARN. */
function actionsOf(template: Template, part: string): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const { Action, Resource } of statementsOf(template, part)) {
    for (const resource of Array.isArray(Resource) ? Resource : [Resource]) {
      const text = JSON.stringify(resource);
      const name =
        /table\/([^"]+)"/.exec(text)?.[1] ??
        /:(plant-telemetry(?:-dlq)?)"/.exec(text)?.[1] ??
        /parameter\/([^"]+)"/.exec(text)?.[1]?.replace(/[0-9a-f]{12}$/, "DIGEST") ??
        (/:task\/",\{"Ref":"[^"]*Cluster[^"]*"\},"\/\*"/.test(text) ? "the cluster's tasks" : undefined) ??
        (/:service\/",\{"Ref":"[^"]*Cluster[^"]*"\},"\/\*"/.test(text) ? "the cluster's services" : undefined) ??
        text.replace(/[0-9A-F]{8}/g, "");
      found[name] = list(Action).slice().sort();
    }
  }
  return found;
}

const BRIDGE_TASK = {
  "causeway-leases": ["DeleteItem", "DescribeTable", "DescribeTimeToLive", "GetItem", "PutItem", "Scan", "UpdateItem"],
  "causeway-outbox": [
    "BatchWriteItem",
    "DeleteItem",
    "DescribeTable",
    "DescribeTimeToLive",
    "GetItem",
    "PutItem",
    "Query",
  ],
  "causeway-dlq": ["DescribeTable", "GetItem", "PutItem"],
  "causeway-managed-subscriptions": ["DescribeTable", "GetItem", "PutItem", "UpdateItem"],
};
const TASKS = { "the cluster's tasks": ["ecs:DescribeTasks"] };
const dynamo = (tables: Record<string, string[]>) =>
  Object.fromEntries(
    Object.entries(tables).map(([name, operations]) => [name, operations.map((one) => `dynamodb:${one}`)]),
  );
const LOG = ["logs:CreateLogStream", "logs:PutLogEvents"];
const CONFIG = { "plant-bridge/config/DIGEST": ["ssm:GetParameter"] };
const logOf = (name: string) => ({ [`{"Fn::GetAtt":["${name}","Arn"]}`]: LOG });

test("each role may do exactly this", () => {
  const { bridge } = templates(MINIMAL);
  const task = { ...dynamo(BRIDGE_TASK), ...TASKS, "plant-telemetry": ["sqs:GetQueueAttributes", "sqs:SendMessage"] };
  const worker = {
    ...task,
    "the cluster's tasks": ["ecs:DescribeTasks", "ecs:UpdateTaskProtection"],
    "the cluster's services": ["ecs:DescribeServices"],
  };
  assert.deepEqual(actionsOf(bridge, "workertaskrole"), worker);
  assert.deepEqual(actionsOf(bridge, "controltaskrole"), { ...task, '"*"': ["ecs:ListTasks"] });
  assert.deepEqual(actionsOf(bridge, "bridgehousekeepingrole"), {
    ...dynamo({
      "causeway-leases": ["GetItem", "PutItem", "Scan"],
      "causeway-outbox": ["BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query"],
      "causeway-dlq": ["GetItem", "PutItem"],
      "causeway-dlq/index/by_category": ["Query"],
      "causeway-commands": ["DeleteItem", "GetItem", "UpdateItem"],
      "causeway-commands/index/by_due": ["Query"],
      "causeway-ledger": ["DeleteItem", "Scan"],
    }),
    ...CONFIG,
    ...logOf("BridgeHousekeepingLog"),
  });
  assert.deepEqual(actionsOf(bridge, "bridgeredriverole"), {
    ...dynamo({
      "causeway-dlq": ["BatchGetItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"],
      "causeway-dlq/index/by_category": ["Query"],
      "causeway-dlq/index/by_route": ["Query"],
      "causeway-outbox": ["PutItem"],
    }),
    "plant-telemetry": ["sqs:SendMessage"],
    ...CONFIG,
    ...logOf("BridgeRedriveLog"),
  });
  assert.deepEqual(actionsOf(bridge, "bridgebaselinesrole"), {
    ...dynamo({ "causeway-managed-subscriptions": ["UpdateItem"] }),
    ...logOf("BridgeBaselinesLog"),
  });
  assert.deepEqual(actionsOf(bridge, "schedulerrole"), {
    '{"Fn::GetAtt":["BridgeHousekeepingFunction","Arn"]}': ["lambda:InvokeFunction"],
    '{"Fn::GetAtt":["BridgeHousekeepingDeadLetterQueue","Arn"]}': ["sqs:SendMessage"],
  });
});

test("ECS may read exactly the secrets of a task, start its log, and pull its image", () => {
  const { bridge } = templates(FULL);
  for (const kind of ["control", "worker"]) {
    const statements = statementsOf(bridge, `${kind}executionrole`);
    const actions = statements.flatMap(({ Action }) => list(Action)).sort();
    assert.deepEqual(
      [...new Set(actions)],
      [
        "ecr:BatchCheckLayerAvailability",
        "ecr:BatchGetImage",
        "ecr:GetAuthorizationToken",
        "ecr:GetDownloadUrlForLayer",
        "kms:Decrypt",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "secretsmanager:GetSecretValue",
        "ssm:GetParameters",
      ],
    );
  }
});

test("ECS may read the hint token for the tasks of both kinds, and nobody else may", () => {
  const { bridge } = templates(MINIMAL);
  const [token] = Object.keys(resources(bridge, "AWS::SecretsManager::Secret"));
  assert.ok(token);
  const readers = Object.values(resources(bridge, "AWS::IAM::Policy")).filter(({ Properties }) =>
    JSON.stringify(Properties.PolicyDocument).includes("secretsmanager:"),
  );
  assert.equal(readers.length, 2, "two execution roles");
  for (const kind of ["control", "worker"]) {
    const read = statementsOf(bridge, `${kind}executionrole`).filter(({ Action }) =>
      list(Action).some((action) => action.startsWith("secretsmanager:")),
    );
    assert.deepEqual(
      read.map(({ Action, Resource }) => [list(Action), Resource]),
      [[["secretsmanager:GetSecretValue"], { "Fn::GetAtt": [token, "Id"] }]],
    );
  }
});

test("tasks write the ledger of drops where the configuration names it, and only then", () => {
  const stack = bareStack();
  const tables = BridgeTables.fromTableNames(stack, "Tables");
  const ofLedger = (caller: Caller, writesLedger?: boolean) =>
    statements(caller, { ...NO_QUEUES, tables, writesLedger })
      .filter((statement) => statement.sid === "Ledger")
      .flatMap((statement) => statement.actions);
  for (const caller of ["worker", "control"] as const) {
    assert.deepEqual(ofLedger(caller), []);
    assert.deepEqual(
      ofLedger(caller, true),
      ["DeleteItem", "DescribeTable", "Query", "UpdateItem"].map((one) => `dynamodb:${one}`),
    );
  }
});

test("tasks keep commands where the configuration names their store, and only then", () => {
  const stack = bareStack();
  const tables = BridgeTables.fromTableNames(stack, "Tables");
  const ofCommands = (caller: Caller, takesCommands?: boolean) =>
    statements(caller, { ...NO_QUEUES, tables, takesCommands }).filter((statement) => statement.sid === "Commands");
  for (const caller of ["worker", "control"] as const) {
    assert.deepEqual(ofCommands(caller), []);
    const [statement, ...others] = ofCommands(caller, true);
    assert.equal(others.length, 0);
    assert.deepEqual(
      statement?.actions,
      ["DeleteItem", "DescribeTable", "GetItem", "PutItem", "UpdateItem"].map((one) => `dynamodb:${one}`),
    );
    assert.deepEqual(statement?.resources, [tables.tables.commands.tableArn]);
  }
});

test("redrive may empty the queue's own dead-letter queue only where that is switched on", () => {
  const moved = [
    "DeleteMessage",
    "GetQueueAttributes",
    "ListMessageMoveTasks",
    "ReceiveMessage",
    "StartMessageMoveTask",
  ];
  const on = actionsOf(templates({ ...MINIMAL, redriveQueueDeadLetters: true }).bridge, "bridgeredriverole");
  assert.deepEqual(
    on["plant-telemetry-dlq"],
    moved.map((action) => `sqs:${action}`),
  );
  const off = actionsOf(templates(MINIMAL).bridge, "bridgeredriverole");
  assert.equal(off["plant-telemetry-dlq"], undefined);
});

test("a queue with a key of the customer's can be used by who uses the queue", () => {
  const stack = bareStack();
  const key = kms.Key.fromKeyArn(stack, "Key", "arn:aws:kms:eu-west-1:123456789012:key/1");
  const queue = sqs.Queue.fromQueueAttributes(stack, "Queue", {
    queueArn: "arn:aws:sqs:eu-west-1:123456789012:q",
    keyArn: key.keyArn,
  });
  const tables = BridgeTables.fromTableNames(stack, "Tables");
  const keyed = (caller: Caller, queues: Partial<Queues>) =>
    statements(caller, { ...NO_QUEUES, tables, ...queues })
      .filter((statement) => statement.sid?.endsWith("QueueKeys"))
      .map((statement) => [...statement.actions, ...statement.resources]);
  const [sends, receives] = [
    ["kms:Decrypt", "kms:GenerateDataKey", key.keyArn],
    ["kms:Decrypt", key.keyArn],
  ];
  for (const caller of ["worker", "control"] as const) {
    assert.deepEqual(keyed(caller, { destinations: [queue] }), [sends], caller);
    assert.deepEqual(keyed(caller, { sources: [queue] }), [receives], caller);
    assert.deepEqual(keyed(caller, { sources: [queue], destinations: [queue] }), [sends], caller);
    assert.deepEqual(keyed(caller, { deadLetterQueues: [queue] }), [], caller);
  }
  for (const queues of ["destinations", "sources", "deadLetterQueues"] as const)
    assert.deepEqual(keyed("redrive", { [queues]: [queue] }), [sends], queues);
  assert.deepEqual(keyed("housekeeping", { destinations: [queue], sources: [queue] }), []);
});

/** Sorted actions on queues and keys by the end of their ARN. */
function sqsOf(template: Template, part: string): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const { Action, Resource } of statementsOf(template, part)) {
    for (const resource of [Resource].flat()) {
      const name = /([A-Za-z0-9_.-]+)"[\]}]*$/.exec(JSON.stringify(resource))?.[1] ?? "";
      const actions = list(Action).filter((action) => /^(sqs|kms):/.test(action));
      if (actions.length > 0) found[name] = [...(found[name] ?? []), ...actions].sort();
    }
  }
  return found;
}

test("tasks receive from exactly the queues that the configuration receives from", () => {
  const { bridge } = templates(MIXED);
  const [receive, send] = [
    ["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"],
    ["sqs:GetQueueAttributes", "sqs:SendMessage"],
  ];
  for (const kind of ["workertaskrole", "controltaskrole"]) {
    assert.deepEqual(
      sqsOf(bridge, kind),
      {
        "plant-telemetry": send,
        processing: send,
        "plant-orders": receive,
        // It is found by its name.
        "plant-commands": [...receive, "sqs:GetQueueUrl"].sort(),
        "reports.fifo": receive,
        "22222222-2222-3333-4444-555555555555": ["kms:Decrypt", "kms:GenerateDataKey"],
        "33333333-2222-3333-4444-555555555555": ["kms:Decrypt"],
      },
      kind,
    );
  }
  assert.deepEqual(sqsOf(bridge, "bridgeredriverole"), {
    "plant-telemetry": ["sqs:SendMessage"],
    processing: ["sqs:SendMessage"],
    "22222222-2222-3333-4444-555555555555": ["kms:Decrypt", "kms:GenerateDataKey"],
  });
  const moving = sqsOf(templates({ ...MIXED, redriveQueueDeadLetters: true }).bridge, "bridgeredriverole");
  for (const queue of ["plant-orders", "plant-commands", "reports.fifo"])
    assert.deepEqual(moving[queue], ["sqs:SendMessage"], queue);
  for (const queue of ["plant-telemetry-dlq", "plant-orders-dlq"])
    assert.ok(moving[queue]?.includes("sqs:StartMessageMoveTask"), queue);
});

/** The only permissions that are not for one thing, and why. */
const WIDE: Readonly<Record<string, string>> = {
  "ecr:GetAuthorizationToken *": "the log-in of ECR knows no resources",
  "ecs:ListTasks *": "a list of tasks knows no resources; a condition names the cluster",
  "secretsmanager:GetSecretValue -??????": "the last six characters of a secret's ARN are known to AWS alone",
};

test("no permission is wider than one thing, but for those with a reason", () => {
  const met = new Set<string>();
  for (const settings of [MINIMAL, FULL, IMPORTED, MIXED]) {
    for (const { Properties } of Object.values(resources(templates(settings).bridge, "AWS::IAM::Policy"))) {
      for (const { Action, Effect, Resource } of Properties.PolicyDocument.Statement as Statement[]) {
        assert.equal(Effect, "Allow");
        for (const action of list(Action)) {
          assert.ok(!action.includes("*"), action);
          for (const resource of Array.isArray(Resource) ? Resource : [Resource]) {
            const text = JSON.stringify(resource);
            const wide = text === '"*"' ? "*" : (/-\?{6}/.exec(text)?.[0] ?? (text.includes("*") ? text : undefined));
            if (wide === undefined || isOwnLog(action, text) || isOwnTask(action, text)) continue;
            assert.ok(`${action} ${wide}` in WIDE, `${action} on ${text}`);
            met.add(`${action} ${wide}`);
          }
        }
      }
    }
  }
  assert.deepEqual([...met].sort(), Object.keys(WIDE).sort(), "every exception is still needed");
});

/** The streams of one log group: their ARN is the group's and `:*`. */
function isOwnLog(action: string, resource: string): boolean {
  return ["logs:CreateLogStream", "logs:PutLogEvents"].includes(action) && /log-group:[^*"]+:\*"/.test(resource);
}

/** The tasks of the bridge's cluster, whose names are made when they start, and its services, which are made after the roles. */
function isOwnTask(action: string, resource: string): boolean {
  return action.startsWith("ecs:") && /:(task|service)\/[^*]+\/\*"/.test(resource);
}

test("tasks are listed of the bridge's own cluster alone", () => {
  for (const settings of [MINIMAL, FULL]) {
    const policies = Object.values(resources(templates(settings).bridge, "AWS::IAM::Policy"));
    const statements = policies.flatMap(({ Properties }) => Properties.PolicyDocument.Statement as Statement[]);
    const listing = statements.filter(({ Action }) => list(Action).includes("ecs:ListTasks"));
    assert.equal(listing.length, 1);
    for (const { Action, Condition } of listing) {
      assert.deepEqual(list(Action), ["ecs:ListTasks"]);
      assert.deepEqual(Object.keys(Condition?.ArnEquals ?? {}), ["ecs:cluster"]);
      assert.match(JSON.stringify(Condition), /Cluster|:cluster\//);
    }
  }
});

test("no role has a policy of AWS", () => {
  for (const settings of [MINIMAL, FULL, IMPORTED]) {
    for (const [id, { Properties }] of Object.entries(resources(templates(settings).bridge, "AWS::IAM::Role"))) {
      assert.equal(Properties.ManagedPolicyArns, undefined, id);
      assert.equal(Properties.Policies, undefined, id);
    }
  }
});

test("tables are neither made nor changed by any role", () => {
  for (const [caller, targets] of Object.entries(OPERATIONS)) {
    for (const [target, operations] of Object.entries(targets)) {
      for (const operation of operations) {
        assert.ok(
          !/^(Create|Delete|Update)(Table|Queue)|UpdateTimeToLive|UpdateContinuousBackups|Purge/.test(operation),
          `${caller} ${target} ${operation}`,
        );
      }
      assert.deepEqual([...operations].sort(), [...operations], `${caller} ${target} is sorted`);
    }
  }
});

test("a transaction is allowed by what it is made of, a batch by its single form", () => {
  assert.deepEqual(iamActions("queue/destination", ["SendMessage", "SendMessageBatch"]), ["sqs:SendMessage"]);
  assert.deepEqual(iamActions("outbox", ["BatchWriteItem", "PutItem"]), [
    "dynamodb:BatchWriteItem",
    "dynamodb:PutItem",
  ]);
  assert.throws(() => iamActions("outbox", ["TransactWriteItems"]), /made of/);
});

const RECORDED = new URL("../lib/generated/operations.json", import.meta.url);
/** What was recorded of the same programs as tasks of what stands for ECS, which the emulator of the others does not run. */
const RECORDED_OF_TASKS = new URL("../lib/generated/task-operations.json", import.meta.url);

test("what is granted is what was recorded of the running programs", () => {
  const recorded = JSON.parse(readFileSync(RECORDED, "utf8")) as Record<string, Partial<Record<Target, string[]>>>;
  for (const [caller, tasks] of Object.entries(JSON.parse(readFileSync(RECORDED_OF_TASKS, "utf8"))))
    recorded[caller] = { ...recorded[caller], ...(tasks as object) };
  assert.deepEqual(Object.keys(recorded).sort(), Object.keys(OPERATIONS).sort());
  for (const [caller, targets] of Object.entries(recorded)) {
    const granted = OPERATIONS[caller as Caller];
    const names = new Set([...Object.keys(granted), ...Object.keys(targets)]) as Set<Target>;
    for (const target of names) {
      assert.deepEqual(
        iamActions(target, granted[target] ?? []),
        iamActions(target, targets[target] ?? []),
        `${caller} on ${target}: granted and called`,
      );
    }
  }
});
