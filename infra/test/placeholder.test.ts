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

const NAMES = ["RunScriptsBuildImageFirst", "RunScriptsBuildLambdasFirst"];

/** The parameters that stand in the way of a deployment, by name. */
function parameters(template: Template | undefined): Record<string, { Default?: unknown; Description: string }> {
  const all = Object.entries(template?.toJSON().Parameters ?? {}).filter(([name]) => name.startsWith("Run"));
  return Object.fromEntries(all) as Record<string, { Default?: unknown; Description: string }>;
}

test("what is not built stops a deployment: its parameter has no default, and no value of it passes", () => {
  const { bridge, state } = synthesize(MINIMAL, noArtifacts());
  const found = parameters(bridge);
  assert.deepEqual(Object.keys(found).sort(), NAMES);
  for (const name of NAMES) {
    assert.ok(found[name] && !("Default" in found[name]), "the command line refuses to deploy without a value");
    const { Assertions } = bridge.toJSON().Rules[`${name}Rule`];
    assert.equal(Assertions.length, 1);
    for (const value of ["", "built", "not built", "yes", "true"]) {
      assert.equal(holds(Assertions[0].Assert, value), false, `CloudFormation refuses "${value}"`);
    }
  }
  assert.equal(
    found.RunScriptsBuildLambdasFirst?.Description,
    "Function redrive; Function housekeeping: not built yet. Run scripts/build-lambdas, then deploy again.",
  );
  assert.deepEqual(parameters(state), {}, "tables may be deployed at any time");
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
    assert.deepEqual(parameters(bridge), {});
    assert.deepEqual(
      Object.keys(bridge.toJSON().Rules ?? {}).filter((name) => name.startsWith("Run")),
      [],
    );
    assert.ok(!JSON.stringify(bridge.toJSON()).includes("causeway-placeholder"));
  }
});

test("a part that is missing is named alone", () => {
  const { imageContext } = builtArtifacts();
  const { bridge } = synthesize(MINIMAL, { ...noArtifacts(), imageContext });
  assert.deepEqual(Object.keys(parameters(bridge)), ["RunScriptsBuildLambdasFirst"]);
});
