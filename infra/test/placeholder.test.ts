import assert from "node:assert/strict";
import { test } from "node:test";
import type { Template } from "aws-cdk-lib/assertions";
import { PLACEHOLDER_IMAGE } from "../lib/constructs/image.ts";
import { builtArtifacts, FULL, IMPORTED, MINIMAL, noArtifacts, resources, synthesize, templates } from "./support.ts";

type Condition = { Ref: string } | string | { "Fn::And": Condition[] } | { "Fn::Equals": [Condition, Condition] };

/** Evaluates a rule as CloudFormation would, with one value for every parameter. */
function holds(condition: Condition, value: string): unknown {
  if (typeof condition === "string") return condition;
  if ("Ref" in condition) return value;
  if ("Fn::And" in condition) return condition["Fn::And"].every((part) => holds(part, value) === true);
  const [left, right] = condition["Fn::Equals"];
  return holds(left, value) === holds(right, value);
}

function parameter(template: Template): { Default?: unknown; Description: string } | undefined {
  return template.toJSON().Parameters?.ArtifactsAreNotBuilt;
}

test("what is not built stops a deployment: its parameter has no default, and no value of it passes", () => {
  const { bridge, state } = synthesize(MINIMAL, noArtifacts());
  const found = parameter(bridge);
  assert.ok(found);
  assert.equal(found.Default, undefined, "the command line refuses to deploy without a value");
  for (const part of [
    "container image",
    "housekeeping function",
    "redrive function",
    "scripts/build-image",
    "scripts/build-lambdas",
  ]) {
    assert.ok(found.Description.includes(part), part);
  }
  const { Assertions } = bridge.toJSON().Rules.ArtifactsAreNotBuiltRule;
  assert.equal(Assertions.length, 1);
  for (const value of ["", "built", "not built", "yes", "true"]) {
    assert.equal(holds(Assertions[0].Assert, value), false, `CloudFormation refuses "${value}"`);
  }
  assert.equal(state && parameter(state), undefined, "tables may be deployed at any time");
});

test("what is not built is marked where it would run", () => {
  const { bridge } = synthesize(MINIMAL, noArtifacts());
  const all = bridge.toJSON().Resources as Record<string, { Type: string; Metadata?: Record<string, unknown> }>;
  const marked = Object.values(all)
    .filter(({ Metadata }) => Metadata?.["causeway-placeholder"] !== undefined)
    .map(({ Type, Metadata }) => `${Type} ${Metadata?.["causeway-placeholder"]}`);
  assert.deepEqual(marked.sort(), [
    "AWS::ECS::TaskDefinition scripts/build-image",
    "AWS::ECS::TaskDefinition scripts/build-image",
    "AWS::Lambda::Function scripts/build-lambdas",
    "AWS::Lambda::Function scripts/build-lambdas",
  ]);
  for (const { Properties } of Object.values(resources(bridge, "AWS::ECS::TaskDefinition"))) {
    assert.equal(Properties.ContainerDefinitions[0].Image, PLACEHOLDER_IMAGE);
  }
});

test("what is built stops nothing", () => {
  for (const settings of [MINIMAL, FULL, IMPORTED]) {
    const { bridge } = templates(settings);
    assert.equal(parameter(bridge), undefined);
    assert.equal(bridge.toJSON().Rules?.ArtifactsAreNotBuiltRule, undefined);
    assert.ok(!JSON.stringify(bridge.toJSON()).includes("causeway-placeholder"));
  }
});

test("a part that is missing is named alone", () => {
  const { imageContext } = builtArtifacts();
  const { bridge } = synthesize(MINIMAL, { ...noArtifacts(), imageContext });
  const description = parameter(bridge)?.Description ?? "";
  assert.ok(!description.includes("container image") && description.includes("redrive function"));
});
