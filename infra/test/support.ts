import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { App, Stack } from "aws-cdk-lib";
import { Template } from "aws-cdk-lib/assertions";
import cdkJson from "../cdk.json" with { type: "json" };
import { type Artifacts, addStacks } from "../lib/app.ts";
import { SOURCE_TREE } from "../lib/constructs/source-tree.ts";
import type { Settings } from "../lib/settings.ts";

/** A resource as it stands in a template. */
export interface Resource {
  readonly Type: string;
  // biome-ignore lint/suspicious/noExplicitAny: templates have no types
  readonly Properties: any;
  readonly DeletionPolicy?: string;
  readonly UpdateReplacePolicy?: string;
  readonly DependsOn?: string[];
}

/** Settings with nothing that could be left out. */
export const MINIMAL: Settings = {
  bridgeId: "plant-bridge",
  brokerUrl: "tls://broker.example.com:8883",
  queue: { name: "plant-telemetry" },
  managedSubscriptionBaselines: { broker: [] },
};

/** Settings with everything that can be chosen for new resources. */
export const FULL: Settings = {
  ...MINIMAL,
  topicFilter: "plants/+/telemetry/#",
  managedSubscriptionBaselines: { broker: ["plants/+/telemetry/#", "old/#"] },
  configFiles: ["config/bridge.yaml", "test/fixtures/full.yaml"],
  variables: { SITE: "north" },
  secrets: {
    BROKER_CA: "ssm:/plant/broker-ca",
    MQTT_PASSWORD: "secretsmanager:plant/broker#password",
    CLIENT_KEY: "secretsmanager:arn:aws:secretsmanager:eu-west-1:123456789012:secret:plant/key-AbCdEf",
  },
  secretKeyArns: ["arn:aws:kms:eu-west-1:123456789012:key/11111111-2222-3333-4444-555555555555"],
  workerDesiredCount: 3,
  architecture: "x86_64",
  cpu: 1024,
  memoryLimitMiB: 2048,
  tablePrefix: "plant",
  vpc: { natGateways: 1, cidr: "10.7.0.0/16", interfaceEndpoints: true },
  logRetentionDays: 90,
  brokerCidrs: ["192.0.2.0/24"],
  alarmTopicArn: "arn:aws:sns:eu-west-1:123456789012:alarms",
  housekeepingMinutes: 1,
  redriveQueueDeadLetters: true,
};

/** Settings that make as little as possible, because it exists. */
export const IMPORTED: Settings = {
  ...MINIMAL,
  queue: { arn: "arn:aws:sqs:eu-west-1:123456789012:telemetry" },
  existingTables: true,
  secrets: { HINT_TOKEN: "ssm:/plant/hint-token" },
  image: `123456789012.dkr.ecr.eu-west-1.amazonaws.com/causeway@sha256:${"a".repeat(64)}`,
  vpc: {
    id: "vpc-0123456789abcdef0",
    availabilityZones: ["eu-west-1a", "eu-west-1b"],
    privateSubnetIds: ["subnet-0000000000000000a", "subnet-0000000000000000b"],
  },
  clusterName: "shared",
  logGroupName: "/shared/causeway",
  alarms: false,
  loadBalancer: {
    listenerArn:
      "arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener/app/lb/0123456789abcdef/0123456789abcdef",
    securityGroupId: "sg-0123456789abcdef0",
    priority: 100,
    transportPaths: ["/in/*"],
    adminHosts: ["admin.example.com"],
  },
};

/** An exclusive session beside queues that every task receives from, and senders that publish to another broker. */
export const MIXED: Settings = {
  ...MINIMAL,
  configFiles: ["config/bridge.yaml", "test/fixtures/mixed.yaml"],
  queues: {
    ORDERS_URL: { name: "plant-orders", maxReceiveCount: 50 },
    PROCESSING_URL: {
      arn: "arn:aws:sqs:eu-west-1:123456789012:processing",
      keyArn: "arn:aws:kms:eu-west-1:123456789012:key/22222222-2222-3333-4444-555555555555",
    },
    COMMANDS_URL: {
      arn: "arn:aws:sqs:eu-west-1:123456789012:plant-commands",
      keyArn: "arn:aws:kms:eu-west-1:123456789012:key/33333333-2222-3333-4444-555555555555",
    },
  },
  secrets: { SITE_PASSWORD: "secretsmanager:plant/site#password", SITE_CA: "ssm:/plant/site-ca" },
};

/** An app whose templates are not checked by anybody, which is fast. */
export function bareApp(): App {
  return new App({ builtinCloudFormationValidation: false, context: flags() });
}

/** An empty stack to put a construct in. */
export function bareStack(): Stack {
  return new Stack(bareApp(), "Test");
}

/** The feature flags of cdk.json, which the command line would give. */
export function flags(): Record<string, unknown> {
  return structuredClone(cdkJson.context);
}

/** The templates of an app. */
export interface Templates {
  readonly state?: Template;
  readonly bridge: Template;
}

const known = new Map<Settings, Templates>();

/** The templates that settings lead to when everything is built; made once for each object of settings. */
export function templates(settings: Settings): Templates {
  const found = known.get(settings) ?? synthesize(settings, builtArtifacts());
  known.set(settings, found);
  return found;
}

/** The templates that settings lead to with these artifacts. */
export function synthesize(settings: Settings, artifacts: Artifacts): Templates {
  const { state, bridge } = addStacks(bareApp(), settings, artifacts);
  return { state: state && Template.fromStack(state), bridge: Template.fromStack(bridge) };
}

/** All resources of a template, or those of one type, by logical id. */
export function resources(template: Template, type?: string): Record<string, Resource> {
  const all = (template.toJSON().Resources ?? {}) as Record<string, Resource>;
  return Object.fromEntries(Object.entries(all).filter(([, resource]) => type === undefined || resource.Type === type));
}

/** How many resources there are of each type. */
export function counts(template: Template): Record<string, number> {
  const found: Record<string, number> = {};
  for (const { Type } of Object.values(resources(template))) found[Type] = (found[Type] ?? 0) + 1;
  return Object.fromEntries(Object.entries(found).sort(([a], [b]) => a.localeCompare(b)));
}

/** The one resource of a type whose logical id contains a text. */
export function one(template: Template, type: string, part = ""): Resource {
  const found = Object.entries(resources(template, type)).filter(([id]) =>
    id.toLowerCase().includes(part.toLowerCase()),
  );
  const [first] = found;
  if (first === undefined || found.length !== 1) {
    throw new Error(`${found.length} resources of type ${type} with "${part}" in their id`);
  }
  return first[1];
}

/** Folders of artifacts as if they were built. */
export function builtArtifacts(): Required<Artifacts> {
  const folder = mkdtempSync(join(tmpdir(), "causeway-artifacts-"));
  made.push(folder);
  const lambdaFolder = join(folder, "lambdas");
  mkdirSync(lambdaFolder);
  for (const name of ["housekeeping", "redrive"]) {
    for (const architecture of ["arm64", "x86_64"])
      writeFileSync(join(lambdaFolder, `${name}-${architecture}.zip`), name);
  }
  const imageContext = join(folder, "image");
  for (const architecture of ["arm64", "x86_64"]) {
    const context = join(imageContext, architecture);
    mkdirSync(context, { recursive: true });
    cpSync(join(SOURCE_TREE, "Dockerfile"), join(context, "Dockerfile"));
    writeFileSync(join(context, "causeway"), "program");
    writeFileSync(join(context, "base-image"), `registry.example.com/base@sha256:${"b".repeat(64)}\n`);
  }
  return { lambdaFolder, imageContext };
}

const made: string[] = [];
after(() => {
  for (const folder of made) rmSync(folder, { recursive: true, force: true });
});

/** Folders where nothing is built. */
export function noArtifacts(): Required<Artifacts> {
  return { lambdaFolder: "/nonexistent/lambdas", imageContext: "/nonexistent/image" };
}
