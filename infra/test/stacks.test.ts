import assert from "node:assert/strict";
import { test } from "node:test";
import { Template } from "aws-cdk-lib/assertions";
import * as sqs from "aws-cdk-lib/aws-sqs";
import { addStacks } from "../lib/app.ts";
import { CausewayDynamoDBHA } from "../lib/constructs/ha.ts";
import { configFiles, QUEUE_VARIABLE, variables } from "../lib/settings.ts";
import {
  bareApp,
  bareStack,
  builtArtifacts,
  counts,
  FULL,
  IMPORTED,
  MINIMAL,
  one,
  resources,
  templates,
} from "./support.ts";

/** Types whose number depends on the alarms, which have tests of their own. */
const WATCHING = ["AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm", "AWS::CloudWatch::Dashboard"];

function withoutWatching(found: Record<string, number>): Record<string, number> {
  return Object.fromEntries(Object.entries(found).filter(([type]) => !WATCHING.includes(type)));
}

test("the least that can be said makes everything that a bridge needs", () => {
  const { state, bridge } = templates(MINIMAL);
  assert.deepEqual(state && counts(state), {
    "AWS::DynamoDB::Table": 6,
    "AWS::SQS::Queue": 2,
    "AWS::SQS::QueuePolicy": 2,
  });
  assert.deepEqual(withoutWatching(counts(bridge)), {
    "AWS::EC2::EIP": 2,
    "AWS::EC2::FlowLog": 1,
    "AWS::EC2::InternetGateway": 1,
    "AWS::EC2::NatGateway": 2,
    "AWS::EC2::Route": 4,
    "AWS::EC2::RouteTable": 4,
    "AWS::EC2::SecurityGroup": 2,
    "AWS::EC2::SecurityGroupEgress": 1,
    "AWS::EC2::SecurityGroupIngress": 1,
    "AWS::EC2::Subnet": 4,
    "AWS::EC2::SubnetRouteTableAssociation": 4,
    "AWS::EC2::VPC": 1,
    "AWS::EC2::VPCEndpoint": 2,
    "AWS::EC2::VPCGatewayAttachment": 1,
    "AWS::ECS::Cluster": 1,
    "AWS::ECS::Service": 2,
    "AWS::ECS::TaskDefinition": 2,
    "AWS::IAM::Policy": 9,
    "AWS::IAM::Role": 9,
    "AWS::Lambda::Function": 3,
    "AWS::Logs::LogGroup": 5,
    "AWS::SQS::Queue": 1,
    "AWS::SQS::QueuePolicy": 1,
    "AWS::SSM::Parameter": 1,
    "AWS::Scheduler::Schedule": 1,
    "AWS::SecretsManager::Secret": 1,
    "Custom::CausewayBaseline": 1,
  });
  for (const type of WATCHING) assert.ok((counts(bridge)[type] ?? 0) >= 1, type);
});

test("everything that can be chosen is made", () => {
  const { state, bridge } = templates(FULL);
  assert.equal(state && Object.keys(resources(state)).length, 10);
  const found = counts(bridge);
  assert.equal(found["AWS::EC2::NatGateway"], 1);
  assert.equal(found["AWS::EC2::VPCEndpoint"], 8, "two gateways and six interfaces");
  assert.equal(found["AWS::IAM::Role"], 9, "no role more than the least needs");
  assert.equal(found["AWS::ECS::Service"], 2);
});

test("what exists is not made again", () => {
  const { state, bridge } = templates(IMPORTED);
  assert.equal(state, undefined, "there is nothing to keep");
  assert.deepEqual(counts(bridge), {
    "AWS::EC2::SecurityGroup": 2,
    "AWS::EC2::SecurityGroupEgress": 1,
    "AWS::EC2::SecurityGroupIngress": 1,
    "AWS::ECS::Service": 2,
    "AWS::ECS::TaskDefinition": 2,
    "AWS::ElasticLoadBalancingV2::ListenerRule": 2,
    "AWS::ElasticLoadBalancingV2::TargetGroup": 2,
    "AWS::IAM::Policy": 8,
    "AWS::IAM::Role": 8,
    "AWS::Lambda::Function": 3,
    "AWS::Logs::LogGroup": 3,
    "AWS::SQS::Queue": 1,
    "AWS::SQS::QueuePolicy": 1,
    "AWS::SSM::Parameter": 1,
    "AWS::Scheduler::Schedule": 1,
    "Custom::CausewayBaseline": 1,
  });
});

test("the façade alone makes a bridge in one stack, tables and all", () => {
  const stack = bareStack();
  const queue = new sqs.Queue(stack, "Queue");
  new CausewayDynamoDBHA(stack, "Bridge", {
    bridgeConfig: { files: configFiles(MINIMAL), environment: variables(MINIMAL) },
    managedSubscriptionBaselines: { broker: [] },
    queues: { [QUEUE_VARIABLE]: queue },
    ...builtArtifacts(),
  });
  const found = counts(Template.fromStack(stack));
  assert.equal(found["AWS::DynamoDB::Table"], 6);
  assert.equal(found["AWS::ECS::Service"], 2);
  assert.equal(found["AWS::EC2::VPC"], 1);
});

test("neither stack imports from the other, so that each can be changed and deleted alone", () => {
  const { state, bridge } = templates(MINIMAL);
  for (const template of [state, bridge]) {
    const text = JSON.stringify(template?.toJSON());
    assert.ok(!text.includes("Fn::ImportValue") && !text.includes("Fn::GetStackOutput"));
  }
  assert.equal(Object.keys(state?.toJSON().Outputs ?? {}).length, 0);
});

test("tables and queue are deployed before the tasks", () => {
  const app = bareApp();
  const { state, bridge } = addStacks(app, MINIMAL, builtArtifacts());
  assert.ok(state);
  assert.deepEqual(bridge.dependencies, [state]);
  assert.equal(state.terminationProtection, true);
});

test("the outputs are command lines under plain names", () => {
  const { bridge } = templates({ ...MINIMAL, topicFilter: "$share/plant/+/telemetry/#" });
  const outputs = bridge.toJSON().Outputs as Record<string, { Value: unknown }>;
  assert.deepEqual(Object.keys(outputs).sort(), [
    "InvokeHousekeeping",
    "InvokeRedrive",
    "Publish",
    "Receive",
    "TailLogs",
  ]);
  const text = (name: string) => JSON.stringify(outputs[name]?.Value);
  assert.match(
    text("InvokeRedrive"),
    /aws lambda invoke --function-name .*BridgeRedriveFunction.*\\"dry_run\\\\?":true|dry_run/,
  );
  assert.equal(
    outputs.Publish?.Value,
    `mosquitto_pub -h broker.example.com -p 8883 --tls-use-os-certs -q 1 -t 'demo/telemetry/demo' -m '{"hello":"causeway"}'`,
  );
  assert.match(text("Receive"), /aws sqs receive-message --queue-url /);
  assert.match(text("Receive"), /plant-telemetry/);
  assert.match(text("TailLogs"), /aws logs tail .*BridgeServiceLog.* --follow/);
});

test("a broker without TLS is published to without TLS", () => {
  const { bridge } = templates({ ...MINIMAL, brokerUrl: "tcp://[2001:db8::1]:1883" });
  const { Value } = bridge.toJSON().Outputs.Publish;
  assert.equal(Value, `mosquitto_pub -h 2001:db8::1 -p 1883 -q 1 -t 'telemetry/demo' -m '{"hello":"causeway"}'`);
});

test("a queue of redrive requests feeds the function one request at a time, and tells which failed", () => {
  const stack = bareStack();
  const requestQueue = new sqs.Queue(stack, "Requests");
  new CausewayDynamoDBHA(stack, "Bridge", {
    bridgeConfig: { files: configFiles(MINIMAL), environment: variables(MINIMAL) },
    managedSubscriptionBaselines: { broker: [] },
    queues: { [QUEUE_VARIABLE]: new sqs.Queue(stack, "Queue") },
    redrive: { requestQueue },
    alarms: false,
    ...builtArtifacts(),
  });
  const template = Template.fromStack(stack);
  const { Properties } = one(template, "AWS::Lambda::EventSourceMapping");
  assert.equal(Properties.BatchSize, 1);
  assert.deepEqual(Properties.FunctionResponseTypes, ["ReportBatchItemFailures"]);
  assert.equal(counts(template)["AWS::CloudWatch::Alarm"], undefined);
});

test("a bridge whose name has an underscore gets stacks with a hyphen", () => {
  const { bridge } = addStacks(bareApp(), { ...MINIMAL, bridgeId: "plant_bridge" }, builtArtifacts());
  assert.equal(bridge.stackName, "plant-bridge");
  assert.equal(bridge.bridge.bridgeId, "plant_bridge");
});
