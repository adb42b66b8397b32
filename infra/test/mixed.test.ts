// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of the configuration
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Template } from "aws-cdk-lib/assertions";
import { SynthRefused } from "../lib/checks/index.ts";
import { checkSettings } from "../lib/checks/settings.ts";
import { CausewayDynamoDBHA } from "../lib/constructs/ha.ts";
import { facade } from "./fixtures/props.ts";
import { bareStack, builtArtifacts, counts, MINIMAL, MIXED, one, resources, templates } from "./support.ts";

const { state, bridge } = templates(MIXED);
const folder = mkdtempSync(join(tmpdir(), "causeway-mixed-"));
after(() => rmSync(folder, { recursive: true }));

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const alarmNames = () =>
  Object.values(resources(bridge, "AWS::CloudWatch::Alarm")).map(({ Properties }) => Properties.AlarmName as string);

test("an exclusive session beside stateless queues, as the program's own fixture has it, becomes a stack", () => {
  const stack = bareStack();
  const { document, sources, destinations } = new CausewayDynamoDBHA(stack, "Bridge", {
    bridgeConfig: {
      files: [at("../../tests/fixtures/valid/mixed_session_modes.yaml"), at("fixtures/deployable.yaml")],
    },
    managedSubscriptionBaselines: { broker: [] },
    ...builtArtifacts(),
  });
  assert.deepEqual(document.faults, []);
  const receivers = sources.map(({ receiver, queue, byName }) => [receiver, queue.queueName, byName]);
  assert.deepEqual(receivers, [["sqs-in", "source", false]]);
  assert.deepEqual(
    destinations.map((queue) => queue.queueName),
    ["telemetry"],
  );
  assert.equal(counts(Template.fromStack(stack))["AWS::ECS::Service"], 2);
});

test("queues of the settings are made with their dead-letter queues, or taken as they are", () => {
  assert.ok(state);
  const queues = Object.values(resources(state, "AWS::SQS::Queue"));
  const names = queues.map(({ Properties }) => Properties.QueueName as string).sort();
  assert.deepEqual(names, ["plant-orders", "plant-orders-dlq", "plant-telemetry", "plant-telemetry-dlq"]);
  const receives = Object.fromEntries(
    queues.map(({ Properties }) => [Properties.QueueName, Properties.RedrivePolicy?.maxReceiveCount]),
  );
  assert.deepEqual([receives["plant-orders"], receives["plant-telemetry"]], [50, 10]);
  for (const { DeletionPolicy } of queues) assert.equal(DeletionPolicy, "Retain");
  const before = Object.keys(resources(templates(MINIMAL).state ?? state, "AWS::SQS::Queue"));
  for (const id of before) assert.ok(id in resources(state, "AWS::SQS::Queue"), `${id} keeps its identity`);
});

test("tasks know the addresses of the queues, and the secrets of every session", () => {
  for (const kind of ["control", "worker"]) {
    const { ContainerDefinitions } = one(bridge, "AWS::ECS::TaskDefinition", `${kind}task`).Properties;
    const [{ Environment, Secrets }] = ContainerDefinitions;
    const names = (all: { Name: string }[]) => all.map(({ Name }) => Name).sort();
    assert.deepEqual(names(Environment), [
      "CAUSEWAY_CONFIG_DIGEST",
      "COMMANDS_URL",
      "ORDERS_URL",
      "PROCESSING_URL",
      "QUEUE_URL",
    ]);
    assert.deepEqual(names(Secrets), ["CAUSEWAY_CONFIG_INLINE", "HINT_TOKEN", "SITE_CA", "SITE_PASSWORD"]);
    const orders = Environment.find(({ Name }: { Name: string }) => Name === "ORDERS_URL");
    assert.match(JSON.stringify(orders), /plant-orders/);
  }
});

test("the network lets out to every address of every broker, and to nothing else", () => {
  const [rules] = Object.entries(resources(bridge, "AWS::EC2::SecurityGroup"))
    .filter(([id]) => !id.includes("Control"))
    .map(([, { Properties }]) => Properties.SecurityGroupEgress);
  const ports = rules.map(({ FromPort, ToPort }: { FromPort: number; ToPort: number }) => [FromPort, ToPort]);
  assert.deepEqual(ports.sort(), [
    [443, 443],
    [8883, 8883],
    [8884, 8884],
    [8885, 8885],
  ]);
});

test("alarms watch each queue that is received from, and what waits in its logs", () => {
  const names = alarmNames();
  const of = (entry: string) => names.filter((name) => name.startsWith(`plant-bridge-${entry}-`)).sort();
  assert.deepEqual(of("SourceQueueOld"), [
    "plant-bridge-SourceQueueOld-commands",
    "plant-bridge-SourceQueueOld-orders",
    "plant-bridge-SourceQueueOld-reports",
  ]);
  // `orders` is held by its queue, and nobody owns the session that only publishes.
  assert.deepEqual(of("OutboxOld"), [
    "plant-bridge-OutboxOld-broker",
    "plant-bridge-OutboxOld-sqs:commands",
    "plant-bridge-OutboxOld-sqs:reports",
  ]);
  assert.deepEqual(of("NoLeaseHolder"), ["plant-bridge-NoLeaseHolder-broker"]);
  const looked = Object.values(resources(bridge, "AWS::CloudWatch::Alarm"))
    .filter(({ Properties }) => Properties.MetricName === "ApproximateAgeOfOldestMessage")
    .map(({ Properties }) => Properties.Dimensions[0].Value);
  assert.deepEqual(looked.sort(), ["plant-commands", "plant-orders", "reports.fifo"]);
});

/** The shipped configuration with further layers. */
function layered(files: string[]) {
  const environment = {
    BRIDGE_ID: "plant-bridge",
    BROKER_URL: "tls://b:8883",
    TOPIC_FILTER: "t/#",
    TABLE_PREFIX: "causeway",
  };
  return { bridgeConfig: { files: [at("../config/bridge.yaml"), ...files], environment } };
}

test("one more output sends a message to the first of the queues", () => {
  const { Send } = bridge.toJSON().Outputs;
  assert.match(JSON.stringify(Send.Value), /aws sqs send-message --queue-url .*plant-orders.* --message-body/);
});

describe("a receiver's queue that nobody can be allowed to use is refused:", () => {
  const refusal = (options: string) => {
    const file = join(folder, "receiver.yaml");
    const binding = "bindings: [to-queue]";
    writeFileSync(
      file,
      `receivers:\n  - {id: in, transport: sqs, options: {${options}}}\nroutes:\n  - {id: r, receiver_id: in, ${binding}}\n`,
    );
    try {
      facade(() => layered([file]));
    } catch (error) {
      assert.ok(error instanceof SynthRefused, String(error));
      return error.faults.map(({ code, path }) => `${code} ${path}`);
    }
    assert.fail("it was accepted");
  };

  test("by an address that is none of SQS", () => {
    assert.deepEqual(refusal('queue_url: "https://queues.example.com/orders"'), [
      "CAUSEWAY_PRP_003 receivers[1].options.queue_url",
    ]);
  });

  test("by a name that is an address, as a variable of `queues` would be", () => {
    assert.deepEqual(refusal('queue_name: "${QUEUE_URL}"'), ["CAUSEWAY_PRP_003 receivers[1].options.queue_name"]);
  });
});

describe("settings of queues", () => {
  const found = (change: Record<string, unknown>) =>
    checkSettings({ ...MINIMAL, ...change }).map(({ code, path }) => `${code} ${path}`);

  test("that fill a variable that another one fills are refused", () => {
    assert.deepEqual(found({ queues: { QUEUE_URL: { name: "a" }, BROKER_URL: { name: "b" } } }), [
      "CAUSEWAY_PRP_004 queues.QUEUE_URL",
      "CAUSEWAY_PRP_004 queues.BROKER_URL",
    ]);
    assert.deepEqual(found({ variables: { A: "1" }, queues: { A: { name: "a" } } }), ["CAUSEWAY_PRP_004 queues.A"]);
  });

  test("that would make one queue twice are refused", () => {
    assert.deepEqual(found({ queues: { A: { name: "plant-telemetry" } } }), [
      "CAUSEWAY_PRP_016 queues.A",
      "CAUSEWAY_PRP_016 queues.A",
    ]);
    assert.deepEqual(found({ queues: { A: { name: "plant-telemetry-dlq" } } }), ["CAUSEWAY_PRP_016 queues.A"]);
  });

  test("of another shape are refused", () => {
    const arn = "arn:aws:sqs:eu-west-1:123456789012:q";
    const keyArn = "arn:aws:kms:eu-west-1:123456789012:key/1";
    for (const [queue, path] of [
      [{}, ""],
      [{ name: "q", arn }, ""],
      [{ name: "q", keyArn }, ".keyArn"],
      [{ arn, keyArn: "alias/mine" }, ".keyArn"],
      [{ arn, keyArn: keyArn.replace("eu-west-1", "us-east-1") }, ".keyArn"],
      [{ arn: "orders" }, ".arn"],
      [{ arn: "" }, ".arn"],
      [{ arn: "https://sqs.eu-west-1.amazonaws.com/123456789012/q" }, ".arn"],
      [{ arn: arn.replace(":sqs:", ":sns:") }, ".arn"],
      [{ arn: arn.replace("eu-west-1", "mars-1") }, ".arn"],
      [{ arn: arn.replace("123456789012", "") }, ".arn"],
      [{ arn, maxReceiveCount: 3 }, ".maxReceiveCount"],
      [{ name: "q", maxReceiveCount: 0 }, ".maxReceiveCount"],
      [{ name: "q", maxReceiveCount: 1.5 }, ".maxReceiveCount"],
      [{ name: 7 }, ".name"],
      ["q", ""],
    ] as const) {
      assert.deepEqual(found({ queues: { A: queue } }), [`CAUSEWAY_PRP_016 queues.A${path}`], JSON.stringify(queue));
    }
    assert.deepEqual(found({ queues: { A: { nmae: "q" } } }), ["CAUSEWAY_PRP_015 queues.A.nmae"]);
    assert.deepEqual(found({ queue: { arn, keyArn }, queues: { A: { name: "q", maxReceiveCount: 3 } } }), []);
    assert.deepEqual(found({ queues: [] }), ["CAUSEWAY_PRP_016 queues"]);
  });
});
