import assert from "node:assert/strict";
import { test } from "node:test";
import { Template } from "aws-cdk-lib/assertions";
import * as dynamodb from "aws-cdk-lib/aws-dynamodb";
import { BridgeTables, defaultTableNames, TABLE_ROLES } from "../lib/constructs/tables.ts";
import definitions from "../lib/generated/tables.json" with { type: "json" };
import { bareStack, MINIMAL, one, resources, templates } from "./support.ts";

const state = () => {
  const template = templates(MINIMAL).state;
  assert.ok(template);
  return template;
};

test("every table has the keys, indexes and time to live of its definition", () => {
  const template = state();
  assert.equal(definitions.tables.length, 6);
  for (const definition of definitions.tables) {
    const table = Object.values(resources(template, "AWS::DynamoDB::Table")).find(
      (resource) => resource.Properties.TableName === definition.default_name,
    );
    assert.ok(table, definition.role);
    const keys = [{ AttributeName: definition.partition_key.name, KeyType: "HASH" }];
    if (definition.sort_key) keys.push({ AttributeName: definition.sort_key.name, KeyType: "RANGE" });
    assert.deepEqual(table.Properties.KeySchema, keys);
    const indexes = (table.Properties.GlobalSecondaryIndexes ?? []).map(
      (index: { IndexName: string; Projection: { ProjectionType: string; NonKeyAttributes?: string[] } }) => [
        index.IndexName,
        index.Projection.ProjectionType,
        index.Projection.NonKeyAttributes ?? [],
      ],
    );
    assert.deepEqual(
      indexes,
      definition.indexes.map((index) => [index.name, index.projection, index.non_key_attributes]),
    );
    assert.deepEqual(
      table.Properties.TimeToLiveSpecification,
      definition.ttl_attribute === null ? undefined : { AttributeName: definition.ttl_attribute, Enabled: true },
    );
  }
});

test("no row of leases, outbox or managed subscriptions can vanish by itself", () => {
  const template = state();
  for (const name of ["causeway-leases", "causeway-outbox", "causeway-managed-subscriptions"]) {
    const tables = Object.values(resources(template, "AWS::DynamoDB::Table")).filter(
      (resource) => resource.Properties.TableName === name,
    );
    assert.equal(tables.length, 1, name);
    assert.ok(tables[0] && !("TimeToLiveSpecification" in tables[0].Properties), name);
  }
});

test("every table is on demand, recoverable, protected, encrypted and retained", () => {
  const tables = Object.values(resources(state(), "AWS::DynamoDB::Table"));
  assert.equal(tables.length, 6);
  for (const { Properties, DeletionPolicy, UpdateReplacePolicy } of tables) {
    assert.equal(Properties.BillingMode, "PAY_PER_REQUEST");
    assert.equal(Properties.PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled, true);
    assert.equal(Properties.DeletionProtectionEnabled, true);
    assert.equal(Properties.SSESpecification.SSEEnabled, true);
    assert.equal(DeletionPolicy, "Retain");
    assert.equal(UpdateReplacePolicy, "Retain");
  }
});

test("tables that exist are used beside new ones", () => {
  const stack = bareStack();
  const existing = { dlq: dynamodb.Table.fromTableName(stack, "Mine", "causeway-dlq") };
  const tables = new BridgeTables(stack, "Tables", { existing });
  assert.equal(Object.keys(resources(Template.fromStack(stack), "AWS::DynamoDB::Table")).length, 5);
  assert.equal(tables.tables.dlq, existing.dlq);
  assert.equal(tables.created.dlq, undefined);
  assert.deepEqual(Object.keys(tables.tables).sort(), [...TABLE_ROLES].sort());
});

test("names default to the program's, under a prefix where one is given", () => {
  assert.equal(defaultTableNames().managed_subscriptions, "causeway-managed-subscriptions");
  assert.equal(defaultTableNames("plant").leases, "plant-leases");
});

test("the queue and its dead-letter queue are encrypted, kept, and spoken to over TLS only", () => {
  const template = state();
  const queue = Object.values(resources(template, "AWS::SQS::Queue"));
  assert.equal(queue.length, 2);
  for (const { Properties, DeletionPolicy } of queue) {
    assert.equal(Properties.SqsManagedSseEnabled, true);
    assert.equal(DeletionPolicy, "Retain");
  }
  const main = queue.find(({ Properties }) => Properties.QueueName === "plant-telemetry");
  assert.equal(main?.Properties.RedrivePolicy.maxReceiveCount, 10);
  const policies = Object.values(resources(template, "AWS::SQS::QueuePolicy"));
  assert.equal(policies.length, 2);
  for (const { Properties } of policies) {
    const [statement] = Properties.PolicyDocument.Statement;
    assert.equal(statement.Effect, "Deny");
    assert.deepEqual(statement.Condition, { Bool: { "aws:SecureTransport": "false" } });
  }
  assert.ok(one(template, "AWS::SQS::Queue", "DeadLetter"));
});
