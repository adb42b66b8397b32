import assert from "node:assert/strict";
import { test } from "node:test";
import { Token } from "aws-cdk-lib";
import * as ec2 from "aws-cdk-lib/aws-ec2";
import { SynthRefused } from "../lib/checks/index.ts";
import { PROP_RULES } from "../lib/constructs/faults.ts";
import { configFiles, variables } from "../lib/settings.ts";
import { BROKEN_PROPS, facade } from "./fixtures/props.ts";
import { MINIMAL } from "./support.ts";

/** The codes that an attempt is refused with. */
function refusal(attempt: () => unknown): SynthRefused {
  try {
    attempt();
  } catch (error) {
    assert.ok(error instanceof SynthRefused, String(error));
    return error;
  }
  assert.fail("it was accepted");
}

test("props that work are not refused", () => {
  assert.equal(facade().bridgeId, "plant-bridge");
});

for (const [code, attempts] of Object.entries(BROKEN_PROPS)) {
  attempts.forEach((attempt, index) => {
    test(`${code} is refused, and told what to do (${index + 1})`, () => {
      const { faults, message } = refusal(attempt);
      const found = faults.find((fault) => fault.code === code);
      assert.ok(found, `refused with ${faults.map((fault) => fault.code)}`);
      assert.equal(found.remedy, PROP_RULES[code as keyof typeof PROP_RULES]);
      assert.ok(message.includes(code) && message.includes(found.remedy));
    });
  });
}

test("what may be a secret itself is not repeated", () => {
  const attempt = BROKEN_PROPS.CAUSEWAY_PRP_009[0];
  assert.ok(attempt);
  assert.ok(!refusal(attempt).message.includes("BEGIN CERTIFICATE"));
});

const BY_THE_GUARDS: readonly [code: string, what: string, attempt: () => unknown][] = [
  ["CAUSEWAY_ECS_001", "one worker", () => facade(() => ({ workerDesiredCount: 1 }))],
  ["CAUSEWAY_ECS_001", "two and a half workers", () => facade(() => ({ workerDesiredCount: 2.5 }))],
  [
    "CAUSEWAY_ECS_001",
    "a number of workers that is a token",
    () => facade(() => ({ workerDesiredCount: Token.asNumber({ Ref: "N" }) })),
  ],
  ["CAUSEWAY_ECS_002", "a stop of more than Fargate allows", () => facade(() => ({ stopTimeoutSeconds: 121 }))],
  ["CAUSEWAY_ECS_003", "a stop that ends before the drain", () => facade(() => ({ stopTimeoutSeconds: 40 }))],
  [
    "CAUSEWAY_IMG_001",
    "an image by a tag",
    () => facade(() => ({ image: { kind: "registry", uri: "causeway:latest" } })),
  ],
  ["CAUSEWAY_CFG_005", "a session without a baseline", () => facade(() => ({ managedSubscriptionBaselines: {} }))],
  [
    "CAUSEWAY_CFG_006",
    "a baseline of no session",
    () => facade(() => ({ managedSubscriptionBaselines: { broker: [], other: [] } })),
  ],
  [
    "CAUSEWAY_CFG_007",
    "a baseline that is no filter",
    () => facade(() => ({ managedSubscriptionBaselines: { broker: ["a/#/b"] } })),
  ],
  [
    "CAUSEWAY_NET_001",
    "subnets of one zone",
    () =>
      facade((stack) => {
        const vpc = ec2.Vpc.fromVpcAttributes(stack, "Vpc", {
          vpcId: "vpc-1",
          availabilityZones: ["a", "a"],
          privateSubnetIds: ["subnet-1", "subnet-2"],
        });
        return { network: { vpc } };
      }),
  ],
  [
    "E_FILE",
    "a configuration that is not there",
    () => facade(() => ({ bridgeConfig: { files: ["/nonexistent.yaml"], environment: variables(MINIMAL) } })),
  ],
  [
    "E_ENV_MISSING",
    "a variable that nobody fills",
    () => facade(() => ({ bridgeConfig: { files: configFiles(MINIMAL) } })),
  ],
];

for (const [code, what, attempt] of BY_THE_GUARDS) {
  test(`the façade refuses ${what} with ${code}`, () => {
    const { faults } = refusal(attempt);
    assert.ok(
      faults.some((fault) => fault.code === code),
      `refused with ${faults.map((fault) => fault.code)}`,
    );
  });
}

test("everything that is wrong with the configuration is told at once", () => {
  const { faults } = refusal(() =>
    facade((stack) => ({
      managedSubscriptionBaselines: { other: ["#/a"] },
      secrets: {},
      queues: {},
      network: { vpc: undefined },
      cluster: undefined,
      ...(stack && {}),
    })),
  );
  assert.ok(faults.length >= 1);
});
