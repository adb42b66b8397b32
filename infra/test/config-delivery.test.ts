import assert from "node:assert/strict";
import { test } from "node:test";
import { Template } from "aws-cdk-lib/assertions";
import { ConfigDelivery, MAX_DOCUMENT_BYTES } from "../lib/constructs/config-delivery.ts";
import { bareStack, counts, one } from "./support.ts";

function deliver(bytes: number) {
  const stack = bareStack();
  const made = new ConfigDelivery(stack, "Config", {
    bridgeId: "plant",
    digest: "0123456789abcdef".repeat(4),
    text: "x".repeat(bytes),
  });
  return { made, stack, template: Template.fromStack(stack) };
}

test("a document of up to 4 KiB is a parameter that costs nothing", () => {
  const { made, template } = deliver(4096);
  assert.deepEqual(counts(template), { "AWS::SSM::Parameter": 1 });
  const { Properties } = one(template, "AWS::SSM::Parameter");
  assert.equal(Properties.Tier, "Standard");
  assert.equal(Properties.Name, "/plant/config/0123456789ab");
  assert.equal(made.parameterName, "/plant/config/0123456789ab");
});

test("one of up to 8 KiB is an advanced parameter", () => {
  assert.equal(one(deliver(4097).template, "AWS::SSM::Parameter").Properties.Tier, "Advanced");
  assert.equal(one(deliver(8192).template, "AWS::SSM::Parameter").Properties.Tier, "Advanced");
});

test("a larger one is a secret, which is read by a parameter's name all the same", () => {
  for (const bytes of [8193, MAX_DOCUMENT_BYTES]) {
    const { made, stack, template } = deliver(bytes);
    assert.deepEqual(counts(template), { "AWS::SecretsManager::Secret": 1 });
    assert.equal(one(template, "AWS::SecretsManager::Secret").Properties.Name, "plant/config/0123456789ab");
    assert.equal(made.parameterName, "/aws/reference/secretsmanager/plant/config/0123456789ab");
    const actions = made.readStatements().flatMap((statement) => statement.actions);
    assert.deepEqual(actions, ["ssm:GetParameter", "secretsmanager:GetSecretValue"]);
    const [read] = made.readStatements();
    assert.match(
      JSON.stringify(stack.resolve(read?.resources)),
      /:parameter\/aws\/reference\/secretsmanager\/plant\/config\/0123456789ab/,
    );
  }
});
