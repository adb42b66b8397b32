import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { App, Stack } from "aws-cdk-lib";
import { Match, Template } from "aws-cdk-lib/assertions";
import type { IAlarmAction } from "aws-cdk-lib/aws-cloudwatch";
import { dropsOnPurpose } from "../lib/constructs/alarm-specs/index.ts";
import { BridgeAlarms } from "../lib/constructs/alarms.ts";
import { BridgeDashboard } from "../lib/constructs/dashboard.ts";
import { registeredMetrics } from "../lib/metric-registry.ts";

/** Metrics that the program is about to emit and the registry does not have yet. Empty it as they arrive: a test says so. */
const COMING: readonly string[] = [];

/** What AWS emits for resources of this stack, by namespace: names and dimensions as AWS documents them. */
const AWS: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  "ECS/ContainerInsights": {
    RunningTaskCount: ["ClusterName", "ServiceName"],
    DeploymentCount: ["ClusterName", "ServiceName"],
  },
  "AWS/ECS": { CPUUtilization: ["ClusterName", "ServiceName"], MemoryUtilization: ["ClusterName", "ServiceName"] },
  "AWS/DynamoDB": {
    ReadThrottleEvents: ["TableName"],
    WriteThrottleEvents: ["TableName"],
    SystemErrors: ["TableName", "Operation"],
  },
  "AWS/Lambda": { Invocations: ["FunctionName"], Errors: ["FunctionName"] },
  "AWS/SQS": { ApproximateNumberOfMessagesVisible: ["QueueName"], ApproximateAgeOfOldestMessage: ["QueueName"] },
};

/** Why a metric has no alarm of its own. */
const NO_ALARM: Readonly<Record<string, string>> = {
  MessagesReceived:
    "how much comes in is the publishers' affair; a source that stands still shows in ServiceLevel and Live",
  MessagesRecovered: "what a successor reads back is normal after a takeover",
  MessagesDelivered: "a destination that takes nothing shows in OutboxOldestAge",
  DroppedMessages: "MessagesDropped, MessagesExpired and DeadLetters watch what it splits by reason",
  MessagesFiltered: "what the configuration takes out of the stream is no loss",
  MessagesReturned: "the broker sends them again",
  MessagesHandedOver: "the next owner brings them again",
  RouteInOutbox: "OutboxDepth counts the same by session",
  RouteInFlight: "bounded by max_in_flight; what is stuck shows in OutboxOldestAge",
  OutboxPersistLatency: "a slow store shows in LeaseRenewFailures, TableThrottled and AdmissionPaused",
  OutboxAppends: "a fenced append belongs to every takeover; failing ones show in AdmissionPaused",
  OutboxSegmentEntries: "for sizing",
  OutboxSegmentBytes: "for sizing",
  SendLatency: "slow sends that matter show in OutboxOldestAge",
  SendBatchEntries: "for sizing",
  SendResults: "failed sends are repeated; those that stay show in OutboxOldestAge and DLQEntries",
  SendRetries: "repeating is normal while a destination is away",
  CircuitBreakerState: "a destination that takes nothing shows in OutboxOldestAge",
  CircuitBreakerOpened: "a destination that takes nothing shows in OutboxOldestAge",
  OutboxFull: "AdmissionPaused tells while it lasts",
  PausedSenders: "a sender comes back by itself; one that does not shows in OutboxOldestAge",
  PendingBytes:
    "bounded by high_water_bytes; a connection that writes nothing shows in PausedSenders and OutboxOldestAge",
  InFlight: "bounded by max_in_flight and receive_maximum",
  Resumes: "coming back is what is wanted",
  Throttled: "a destination that asks for less is left alone for a while; what it costs shows in OutboxOldestAge",
  PeerAcks: "refusals that stay show in DLQEntries and OutboxOldestAge",
  NoMatchingSubscribers: "who subscribes is not the bridge's affair",
  OutboxDispatchDelay: "shows in OutboxOldestAge once it matters",
  DeliveryE2ELatency: "compares clocks of two hosts",
  OutboxMemory: "bounded by configuration; at the bound AdmissionPaused tells",
  DuplicateExposure: "a bound, not a fault",
  DuplicateExposurePeak: "a bound, not a fault",
  LogsAdopted: "what a process that is gone left is being delivered; its absence is told by OutboxOldestAge",
  OutboxRecoveredEntries: "how much a takeover found; FailureToFullDuration tells whether it was too slow",
  OutboxRecoveryDuration: "part of FailureToFullDuration",
  QuotaTokensLocal: "for sizing",
  CommandsAccepted: "the rate of commands",
  CommandsEnded: "a device that fails or does not answer is its caller's to judge",
  CommandsPending: "for sizing",
  CommandsWaiting: "for sizing",
  CommandReplies: "the rate of replies",
  CommandRepliesLate: "the caller can read them, and chose the time",
  CommandRepliesIgnored: "what devices publish is not the operator's",
  CommandOrphans: "answers to commands that are forgotten",
  CommandNotices: "the rate of notices",
  CommandConflicts: "two replicas had the same answer: as meant",
  CommandStoreFaults: "the table's own alarms tell of throttling and errors, and callers are answered 503",
  CommandPublishFaults: "the sessions of the same broker tell that it is away",
  QuotaCharged: "how much comes in is the publishers' affair",
  QuotaUnmetered: "QuotaDegraded tells while it lasts",
  QuotaReturned: "for sizing",
  QuotaDraws: "for sizing; what fails shows in QuotaDegraded",
  QuotaFailures: "QuotaDegraded tells while it lasts",
  OwnerEpoch: "a number, not a state",
  StoreWriteUnits: "cost",
  StoreReadUnits: "cost",
  StoreWriteCalls: "cost",
  StoreReadCalls: "cost",
  SQSRequests: "cost",
  HTTPPosts: "callers are told what became of each post; what was accepted shows in OutboxOldestAge",
  RouteOwnerUnknown: "callers come again; an owner that stays away shows as NoLeaseHolder",
  MQTTPublished: "MessagesDelivered counts what arrived, by route",
  MQTTConnected: "0 on every standby; ServiceLevel tells of the owner",
  SubscriptionsWanted: "configuration",
  SubscriptionsActive: "0 on every standby; MQTTSubscriptionsQuarantined tells of refused ones",
  ReadinessLevel: "capped on standbys; ServiceLevel tells of the owner",
  MessagesMailed: "what operators put in or back; it is delivered like anything else",
  HeldMessages: "as the configuration asks for; AdmissionPaused tells while it lasts",
  Held: "as the configuration asks for; AdmissionPaused tells while it lasts",
  AckHold: "as the configuration asks for; AdmissionPaused tells while it lasts",
  ParkedMessages: "as the configuration asks for; OutboxOldestAge tells when it is too long",
  Parked: "as the configuration asks for; OutboxOldestAge tells when it is too long",
  LimitKeyMissing: "for whoever sets limits",
  MQTTReceived: "MessagesReceived counts the same by route",
  MQTTAcknowledged: "what is not acknowledged shows in OutboxOldestAge or AdmissionPaused",
  MQTTUnsettled: "bounded by receive_maximum",
  MQTTUnsettledPeak: "bounded by receive_maximum",
  MQTTReconnects: "a reconnection that fails shows in ServiceLevel",
  MQTTConnectFailures: "a broker that stays away shows in ServiceLevel",
  MQTTReceiveWindowOverruns: "some brokers overrun the window; the program copes and nothing is lost",
  MQTTReusedIds: "the publisher's fault, and nothing is lost here; consumers that go by the source id have to know",
  MQTTSubscriptionsRefused: "MQTTSubscriptionsQuarantined tells which are refused now",
  MQTTUnmatchedHeld: "ends by itself after unmatched_grace",
  FleetWorkers: "WorkersBelowTwo tells the same, as ECS counts them",
  FleetFailureToFullDuration: "FailoverSlow looks at what the successor tells; this is the same from outside",
  Uptime: "a number, not a state",
  ProcessResidentMemory: "MemoryUtilization of ECS tells when it is too much",
  ProcessResidentMemoryPeak: "MemoryUtilization of ECS tells when it is too much",
  BuildInfo: "a number, not a state",
  OutboxPending: "how old the oldest is matters: OutboxPendingOldestAge",
  DLQDeleted: "what the configuration asks for; what is kept shows in DLQDepth",
  DLQOldestAge: "any dead letter wants a decision: DLQDepth",
  HousekeepingExpiredToDlq: "they arrive as dead letters: DLQDepth",
  HousekeepingOrphansToDlq: "they arrive as dead letters: DLQDepth",
  HousekeepingAnchorsPruned: "tidying",
  HousekeepingConflicts: "a live owner was quicker, as it should be",
  HousekeepingRunDuration: "HousekeepingTruncated tells when it is too long",
  RedriveMatched: "an answer to whoever called",
  RedriveSucceeded: "an answer to whoever called",
  RedriveSkipped: "an answer to whoever called",
  RedriveRunDuration: "an answer to whoever called",
};

interface MetricSpec {
  Namespace: string;
  MetricName: string;
  Dimensions?: { Name: string; Value: unknown }[];
}
interface AlarmProperties {
  AlarmName: string;
  AlarmDescription: string;
  TreatMissingData?: string;
  Threshold: number;
  Namespace?: string;
  MetricName?: string;
  Dimensions?: MetricSpec["Dimensions"];
  Metrics?: { MetricStat?: { Metric: MetricSpec } }[];
  ComparisonOperator: string;
  EvaluationPeriods: number;
}

const notify: IAlarmAction = { bind: () => ({ alarmActionArn: "arn:aws:sns:us-east-1:123456789012:oncall" }) };

function build(more: { dropsOnPurpose?: boolean } = {}) {
  const stack = new Stack(new App({ builtinCloudFormationValidation: false }), "Test");
  const services = { clusterName: "cluster", controlServiceName: "control", workerServiceName: "workers" };
  const sessions = [
    { id: "broker", exclusive: true, failoverSloSeconds: 400 },
    { id: "second", exclusive: true, failoverSloSeconds: 90 },
    { id: "spare", exclusive: false },
  ];
  const alarms = new BridgeAlarms(stack, "Alarms", {
    bridgeId: "telemetry",
    sessions,
    sources: [{ receiver: "orders", queueName: "t-orders" }],
    ...services,
    tableNames: {
      leases: "t-leases",
      outbox: "t-outbox",
      dlq: "t-dlq",
      managed_subscriptions: "t-subs",
      ledger: "t-ledger",
    },
    housekeeping: { functionName: "housekeeping", intervalMinutes: 5, deadLetterQueueName: "scheduler-dlq" },
    redrive: { functionName: "redrive" },
    actions: [notify],
    ...more,
  });
  new BridgeDashboard(stack, "Dashboard", { bridgeId: "telemetry", alarms, sessions, ...services });
  const template = Template.fromStack(stack);
  const found = template.findResources("AWS::CloudWatch::Alarm") as Record<string, { Properties: AlarmProperties }>;
  return { alarms, template, found: Object.entries(found).map(([id, { Properties }]) => ({ id, ...Properties })) };
}

const built = build();

function metricsOf(alarm: AlarmProperties): MetricSpec[] {
  if (alarm.Metrics !== undefined)
    return alarm.Metrics.flatMap(({ MetricStat }) => (MetricStat === undefined ? [] : [MetricStat.Metric]));
  return [
    {
      Namespace: alarm.Namespace ?? "",
      MetricName: alarm.MetricName ?? "",
      ...(alarm.Dimensions && { Dimensions: alarm.Dimensions }),
    },
  ];
}

const used = built.found.flatMap((alarm) => metricsOf(alarm).map((metric) => ({ alarm: alarm.AlarmName, ...metric })));

describe("alarms", () => {
  test("look at nothing that nobody emits", () => {
    const registry = new Map(registeredMetrics().map((metric) => [metric.cloudwatch, metric]));
    for (const { alarm, Namespace, MetricName, Dimensions = [] } of used) {
      const names = Dimensions.map(({ Name }) => Name);
      if (Namespace === "Causeway") {
        const metric = registry.get(MetricName);
        assert.ok(
          metric !== undefined || COMING.includes(MetricName),
          `${alarm} looks at ${MetricName}, which nobody emits`,
        );
        const whole = metric?.cloudwatch_dimensions ?? ["BridgeId", "Session"];
        const fits = [["BridgeId"], whole].some(
          (known) => JSON.stringify([...known].sort()) === JSON.stringify([...names].sort()),
        );
        assert.ok(fits, `${alarm}: ${MetricName} is not emitted under ${names.join(", ")}`);
      } else {
        assert.deepEqual(
          [...names].sort(),
          [...(AWS[Namespace]?.[MetricName] ?? [])].sort(),
          `${alarm}: ${Namespace} ${MetricName}`,
        );
      }
    }
  });

  test("look at everything that is emitted, or there is a reason why not", () => {
    const watched = new Set(
      used.filter(({ Namespace }) => Namespace === "Causeway").map(({ MetricName }) => MetricName),
    );
    const emitted = [...registeredMetrics().map((metric) => metric.cloudwatch), ...COMING];
    assert.deepEqual(
      emitted.filter((name) => !watched.has(name) && NO_ALARM[name] === undefined),
      [],
      "neither an alarm nor a reason",
    );
    assert.deepEqual(
      Object.keys(NO_ALARM).filter((name) => watched.has(name)),
      [],
      "an alarm, and a reason why there is none",
    );
    assert.deepEqual(
      Object.keys(NO_ALARM).filter((name) => !emitted.includes(name)),
      [],
      "a reason for what nobody emits",
    );
  });

  test("wait for no metric that has arrived", () => {
    const registry = new Set(registeredMetrics().map((metric) => metric.cloudwatch));
    assert.deepEqual(
      COMING.filter((name) => registry.has(name)),
      [],
      "remove these from COMING",
    );
  });

  test("say what missing data means", () => {
    assert.ok(built.found.length > 30, `${built.found.length} alarms`);
    for (const alarm of built.found) assert.ok(alarm.TreatMissingData, alarm.AlarmName);
    const breaching = built.found
      .filter((alarm) => alarm.TreatMissingData === "breaching")
      .map((alarm) => alarm.AlarmName);
    assert.deepEqual(breaching.sort(), [
      "telemetry-ControlMissing",
      "telemetry-HousekeepingSilent",
      "telemetry-NoLeaseHolder-broker",
      "telemetry-NoLeaseHolder-second",
      "telemetry-SessionNotFull-broker",
      "telemetry-SessionNotFull-second",
      "telemetry-WorkersBelowTwo",
    ]);
  });

  test("hold each session to its own objective, by every cause and start", () => {
    for (const [session, slo] of [
      ["broker", 400],
      ["second", 90],
    ] as const) {
      const alarm = built.found.find(({ AlarmName }) => AlarmName === `telemetry-FailoverSlow-${session}`);
      assert.equal(alarm?.Threshold, slo);
      assert.equal(alarm.ComparisonOperator, "GreaterThanThreshold");
      const metrics = metricsOf(alarm);
      const registered = registeredMetrics().find((metric) => metric.cloudwatch === "FailureToFullDuration");
      const cells = Object.values(registered?.label_values ?? {}).reduce(
        (product, values) => product * Math.max(values.length, 1),
        1,
      );
      assert.equal(metrics.length, cells);
      assert.ok(
        metrics.every(({ Dimensions }) =>
          Dimensions?.some(({ Name, Value }) => Name === "Session" && Value === session),
        ),
      );
    }
    assert.ok(!built.found.some(({ AlarmName }) => AlarmName.endsWith("-spare") && !AlarmName.includes("OutboxOld")));
  });

  test("go off at the first owner that lets go for want of its broker", () => {
    const alarm = built.found.find(({ AlarmName }) => AlarmName === "telemetry-BrokerHealthStepDown");
    assert.deepEqual(
      [alarm?.Threshold, alarm?.ComparisonOperator, alarm?.EvaluationPeriods],
      [0, "GreaterThanThreshold", 1],
    );
  });

  test("are told, all but the one that only says that a deployment runs", () => {
    const silent = built.found
      .filter((alarm) => !("AlarmActions" in alarm) || !("OKActions" in alarm))
      .map((alarm) => alarm.AlarmName);
    assert.deepEqual(silent, ["telemetry-DeploymentRunning"]);
  });

  test("have literal names, each once, by which a deployment is rolled back", () => {
    const names = built.found.map(({ AlarmName }) => AlarmName);
    assert.equal(new Set(names).size, names.length);
    assert.deepEqual([...built.alarms.deploymentAlarmNames].sort(), [
      "telemetry-MessagesDropped",
      "telemetry-NoLeaseHolder-broker",
      "telemetry-NoLeaseHolder-second",
    ]);
    for (const name of built.alarms.deploymentAlarmNames) assert.ok(names.includes(name), name);
  });

  test("roll nothing back for what the configuration drops on purpose, and tell it all the same", () => {
    const { alarms, found } = build({ dropsOnPurpose: true });
    assert.ok(!alarms.deploymentAlarmNames.includes("telemetry-MessagesDropped"));
    assert.equal(alarms.deploymentAlarmNames.length, 2);
    assert.ok(found.some(({ AlarmName }) => AlarmName === "telemetry-MessagesDropped"));
    assert.ok(dropsOnPurpose({ flow: { limits: [{ enabled: true, on_exceed: "drop" }] } }));
    assert.ok(dropsOnPurpose({ flow: { outbound: { pace: "100:1" } } }));
    assert.ok(dropsOnPurpose({ flow: { store: { on_full: "drop_oldest" } } }));
    assert.ok(dropsOnPurpose({ flow: { quota: { enabled: true, on_exhausted: "drop" } } }));
    assert.ok(
      !dropsOnPurpose({ flow: { quota: { on_exhausted: "drop" } } }),
      "a budget that is not kept drops nothing",
    );
    assert.ok(
      dropsOnPurpose({
        receivers: [
          {
            topics: [
              { topic: "a", qos: 1 },
              { topic: "b", qos: 0 },
            ],
          },
        ],
      }),
    );
    assert.ok(
      dropsOnPurpose({ receivers: [{ topics: [{ topic: "a" }] }] }),
      "0 is what a topic has where nothing is said",
    );
    assert.ok(!dropsOnPurpose({}));
    const idle = { limits: [{ on_exceed: "drop" as const }, { enabled: true }], outbound: { pace: "" } };
    assert.ok(!dropsOnPurpose({ flow: { ...idle, store: { on_full: "hold" } } }));
  });

  test("are combined into one that keeps quiet while a deployment runs", () => {
    built.template.resourceCountIs("AWS::CloudWatch::CompositeAlarm", 1);
    built.template.hasResourceProperties("AWS::CloudWatch::CompositeAlarm", {
      AlarmName: "telemetry-BridgeUnavailable",
      ActionsSuppressor: Match.anyValue(),
      ActionsSuppressorWaitPeriod: 120,
      ActionsSuppressorExtensionPeriod: 300,
      AlarmActions: Match.anyValue(),
    });
    const [composite] = Object.values(built.template.findResources("AWS::CloudWatch::CompositeAlarm"));
    const rule = JSON.stringify(composite?.Properties.AlarmRule);
    for (const part of ["NoLeaseHolderbroker", "NoLeaseHoldersecond", "WorkersBelowTwo"])
      assert.ok(rule.includes(part), `${part} in ${rule}`);
    const suppressor = JSON.stringify(composite?.Properties.ActionsSuppressor);
    assert.ok(suppressor.includes("DeploymentRunning"), suppressor);
  });
});

describe("the dashboard", () => {
  const [dashboard] = Object.values(built.template.findResources("AWS::CloudWatch::Dashboard"));
  const body = JSON.stringify(dashboard?.Properties.DashboardBody).replaceAll('\\"', '"').replaceAll('\\"', '"');

  test("has four rows", () => {
    assert.equal(body.match(/"markdown":"## /g)?.length, 4);
  });

  test("shows the state of every alarm, and a graph of what it looks at", () => {
    for (const { id, AlarmName, ...alarm } of built.found) {
      assert.ok(body.includes(`"${id}"`), `the state of ${AlarmName}`);
      const entry = AlarmName.split("-")[1];
      assert.ok(body.includes(`"title":"${entry}"`), `a graph of ${AlarmName}`);
      for (const { MetricName } of metricsOf(alarm as AlarmProperties))
        assert.ok(body.includes(`"${MetricName}"`), `${MetricName} of ${AlarmName}`);
    }
    const [composite] = Object.keys(built.template.findResources("AWS::CloudWatch::CompositeAlarm"));
    assert.ok(body.includes(`"${composite}"`), "the state of the composite alarm");
  });

  test("graphs nothing of the program that it does not emit", () => {
    const emitted = new Set([...registeredMetrics().map((metric) => metric.cloudwatch), ...COMING]);
    const graphed = [...body.matchAll(/\["Causeway","([A-Za-z0-9]+)"/g)].map((match) => match[1] ?? "");
    assert.ok(graphed.length > 20, `${graphed.length}`);
    assert.deepEqual(
      graphed.filter((name) => !emitted.has(name)),
      [],
    );
  });
});

test("docs/OPERATIONS.md has an entry for every alarm, and for nothing else", () => {
  const text = readFileSync(fileURLToPath(new URL("../../docs/OPERATIONS.md", import.meta.url)), "utf8");
  const section = /^## Alarms\n([\s\S]*?)(?=^## |(?![\s\S]))/m.exec(text)?.[1] ?? "";
  const entries = section
    .split(/^### /m)
    .slice(1)
    .map((entry) => ({ name: entry.split("\n")[0]?.trim() ?? "", text: entry }));
  const expected = [...new Set(built.alarms.alarms.map(({ entry }) => entry)), "BridgeUnavailable"].sort();
  assert.deepEqual(entries.map(({ name }) => name).sort(), expected);
  for (const { name, text: entry } of entries) {
    for (const part of ["**Means**", "**Look**", "**Do**"])
      assert.ok(entry.includes(part), `${part} in the entry ${name}`);
  }
  for (const alarm of built.found) {
    const entry = /See "([A-Za-z0-9]+)" in docs\/OPERATIONS.md/.exec(alarm.AlarmDescription)?.[1];
    assert.ok(entry !== undefined && expected.includes(entry), alarm.AlarmDescription);
  }
});
