import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { App, type CfnResource, Lazy, Stack, Token, Validations } from "aws-cdk-lib";
import * as ec2 from "aws-cdk-lib/aws-ec2";
import { addStacks } from "../lib/app.ts";
import {
  CausewayRules,
  checkConfig,
  checkImage,
  checkShutdown,
  checkStopTimeout,
  checkSubnetsSpanTwoAzs,
  checkTableNames,
  checkWorkerCount,
  RULES,
  type RuleCode,
  type SynthFault,
  SynthRefused,
} from "../lib/checks/index.ts";
import { examine } from "../lib/checks/template.ts";
import { shutdownSeconds } from "../lib/config-document.ts";
import { PROP_RULES } from "../lib/constructs/faults.ts";
import { configuration } from "./fixtures/configuration.ts";
import { ALSO, FIXTURES, TemplateStack } from "./fixtures/rules.ts";
import { bareApp, MINIMAL } from "./support.ts";

const codes = (faults: readonly SynthFault[]) => faults.map((fault) => fault.code);
const DIGEST = `sha256:${"0".repeat(64)}`;

/** What CausewayRules says of the fixture stack after a change. */
function report(change: (stack: TemplateStack) => void) {
  const app = new App({ builtinCloudFormationValidation: false });
  const stack = new TemplateStack(app);
  change(stack);
  const assembly = app.synth();
  const stackTemplates = assembly.stacks.map(({ templateFullPath }) => ({
    templatePath: templateFullPath,
    stackConstructPath: stack.node.path,
    account: undefined,
    accountId: undefined,
    region: undefined,
  }));
  return new CausewayRules().validate({ stackTemplates, templatePaths: [], appConstruct: app });
}

describe("every rule", () => {
  for (const code of Object.keys(RULES) as RuleCode[]) {
    test(`${code} has a fixture that breaks it alone, and says what to do`, () => {
      const fixture = FIXTURES[code];
      const expected = [...(ALSO[code] ?? []), code].sort();
      if ("faults" in fixture) {
        const faults = fixture.faults();
        assert.deepEqual(codes(faults).sort(), expected, JSON.stringify(faults));
        for (const fault of faults) {
          assert.ok(fault.message.length > 10 && fault.path !== "", JSON.stringify(fault));
          assert.equal(fault.remedy, RULES[fault.code as RuleCode]);
        }
      } else {
        const { success, violations } = report(fixture.change);
        assert.deepEqual(violations.map(({ ruleName }) => ruleName).sort(), expected, JSON.stringify(violations));
        assert.equal(
          success,
          code === "CAUSEWAY_AST_001",
          "a placeholder may be synthesized; nothing else that is wrong may",
        );
        for (const violation of violations) {
          assert.ok(violation.fix && violation.description.length > 10);
          assert.ok(violation.violatingResources[0]?.resourceLogicalId, "names the resource");
        }
      }
    });
  }

  test("stands with its remedy in docs/deploy.md, and no other does (UPDATE_DOCS=1 writes the remedies)", () => {
    const page = fileURLToPath(new URL("../../docs/deploy.md", import.meta.url));
    const row = /^\| `(CAUSEWAY_[A-Z]+_[0-9]+)` \| (.+) \| (.+) \|$/gm;
    const rowsOf = (text: string) =>
      [...text.matchAll(row)].map(([, code = "", refused = "", remedy = ""]) => ({ code, refused, remedy }));
    const rules: Record<string, string> = { ...RULES, ...PROP_RULES };
    const before = readFileSync(page, "utf8");
    if (process.env.UPDATE_DOCS === "1") {
      const refused = new Map(rowsOf(before).map((known) => [known.code, known.refused]));
      const table = Object.entries(rules)
        .sort(([a], [b]) => a.localeCompare(b))
        .map(
          ([code, remedy]) =>
            `| \`${code}\` | ${refused.get(code) ?? "see its message"} | ${remedy.replaceAll("|", "\\|")} |`,
        );
      writeFileSync(
        page,
        before.replace(/^(\| `CAUSEWAY_.*\n)+/m, () => `${table.join("\n")}\n`),
      );
    }
    const rows = rowsOf(readFileSync(page, "utf8"));
    assert.deepEqual(
      rows.map(({ code }) => code),
      Object.keys(rules).sort(),
    );
    for (const { code, remedy } of rows) assert.equal(remedy, rules[code]?.replaceAll("|", "\\|"), code);
  });
});

test("the fixture stack is right before it is changed", () => {
  assert.deepEqual(
    report(() => undefined),
    { success: true, violations: [] },
  );
});

/** What synth says, and whether it fails. */
function synthesize(app: App): { failed: boolean; told: string } {
  const written: string[] = [];
  const { error: original, log } = console;
  console.error = console.log = (...parts: unknown[]) => void written.push(parts.join(" "));
  // A test that failed before has set it already.
  const exit = process.exitCode;
  process.exitCode = undefined;
  try {
    let thrown = "";
    try {
      app.synth();
    } catch (error) {
      thrown = String(error);
    }
    return { failed: thrown !== "" || process.exitCode === 1, told: `${thrown}\n${written.join("\n")}` };
  } finally {
    console.error = original;
    console.log = log;
    process.exitCode = exit;
  }
}

describe("an escape hatch", () => {
  const built = () => {
    const app = bareApp();
    Validations.of(app).addPlugins(new CausewayRules());
    return { app, stacks: addStacks(app, MINIMAL) };
  };

  test("that changes nothing of the promise goes through", () => {
    const { app, stacks } = built();
    (stacks.bridge.bridge.service.workerService.node.findChild("Service") as CfnResource).addPropertyOverride(
      "DesiredCount",
      5,
    );
    const { failed, told } = synthesize(app);
    assert.equal(failed, false, told);
  });

  test("that takes the standby away fails synth, naming the resource", () => {
    const { app, stacks } = built();
    const service = stacks.bridge.bridge.service.workerService.node.findChild("Service") as CfnResource;
    service.addPropertyOverride("DesiredCount", 1);
    const { failed, told } = synthesize(app);
    assert.ok(failed, "synth went through");
    assert.match(told, /CAUSEWAY_ECS_007/);
    assert.ok(told.includes(stacks.bridge.getLogicalId(service)), told);
  });

  test("that lets rows of the lease table vanish fails synth", () => {
    const { app, stacks } = built();
    const table = stacks.state?.tables?.created.leases?.node.defaultChild as CfnResource;
    table.addPropertyOverride("TimeToLiveSpecification", { AttributeName: "ttl", Enabled: true });
    const { failed, told } = synthesize(app);
    assert.ok(failed, "synth went through");
    assert.match(told, /CAUSEWAY_TBL_004/);
  });
});

test("where workers run there is one control service, and only one", () => {
  const resource = (role: string) => ({
    [`${role}Definition`]: {
      Type: "AWS::ECS::TaskDefinition",
      Properties: { ContainerDefinitions: [{ Name: "causeway", Command: ["run", "--role", role], StopTimeout: 60 }] },
    },
    [`${role}Service`]: {
      Type: "AWS::ECS::Service",
      Properties: {
        TaskDefinition: { Ref: `${role}Definition` },
        DesiredCount: role === "worker" ? 2 : 1,
        DeploymentConfiguration:
          role === "worker"
            ? { MinimumHealthyPercent: 100, MaximumPercent: 200 }
            : { MinimumHealthyPercent: 0, MaximumPercent: 100 },
        AvailabilityZoneRebalancing: "DISABLED",
      },
    },
  });
  const found = (...templates: object[]) =>
    examine(Object.assign({}, ...templates), new Map()).map(({ code, logicalId }) => `${code} ${logicalId}`);
  assert.deepEqual(found(resource("worker"), resource("control")), []);
  assert.deepEqual(found(resource("worker")), ["CAUSEWAY_ECS_004 workerService"]);
  const second = { secondService: resource("control").controlService };
  assert.deepEqual(found(resource("worker"), resource("control"), second), ["CAUSEWAY_ECS_004 secondService"]);
});

describe("the number of workers", () => {
  for (const [name, value, fine] of [
    ["two", 2, true],
    ["eight", 8, true],
    ["one", 1, false],
    ["none", 0, false],
    ["a negative number", -2, false],
    ["a fraction", 2.5, false],
    ["not a number", Number.NaN, false],
    ["infinity", Number.POSITIVE_INFINITY, false],
    ["a text", "2", false],
    ["nothing", undefined, false],
    ["null", null, false],
    ["a token", Lazy.number({ produce: () => 2 }), false],
    ["a token of a parameter", Token.asNumber({ Ref: "Count" }), false],
  ] as const) {
    test(`${name}: ${fine ? "accepted" : "refused"}`, () => {
      assert.deepEqual(codes(checkWorkerCount(value)), fine ? [] : ["CAUSEWAY_ECS_001"]);
    });
  }
});

describe("subnets in two zones, in every shape that CDK gives them", () => {
  const PRIVATE: ec2.SubnetSelection = { subnetType: ec2.SubnetType.PRIVATE_WITH_EGRESS };
  const check = (
    vpcOf: (stack: Stack) => ec2.IVpc,
    selection: (stack: Stack) => ec2.SubnetSelection = () => PRIVATE,
    stack = new Stack(),
  ) => {
    const { faults, deferred } = checkSubnetsSpanTwoAzs(vpcOf(stack), selection(stack));
    return { codes: codes(faults), deferred };
  };
  const ids = { vpcId: "vpc-1", privateSubnetIds: ["subnet-1", "subnet-2"] };

  test("1. zones that are tokens prove two by their indexes", () => {
    assert.deepEqual(
      check((stack) => new ec2.Vpc(stack, "Vpc", { maxAzs: 2 })),
      { codes: [], deferred: false },
    );
    assert.deepEqual(
      check((stack) => new ec2.Vpc(stack, "Vpc", { maxAzs: 1 })),
      { codes: ["CAUSEWAY_NET_001"], deferred: false },
    );
  });

  test("2. a lookup that is under way is asked again", () => {
    const stack = new Stack(new App({ builtinCloudFormationValidation: false }), "Lookup", {
      env: { account: "123456789012", region: "us-east-1" },
    });
    const lookup = (scope: Stack) => ec2.Vpc.fromLookup(scope, "Vpc", { vpcId: "vpc-1" });
    assert.deepEqual(
      check(lookup, () => PRIVATE, stack),
      { codes: [], deferred: true },
    );
  });

  test("3. two subnets of one zone are refused, of two accepted", () => {
    const attributes = (zones: string[]) => (stack: Stack) =>
      ec2.Vpc.fromVpcAttributes(stack, "Vpc", { ...ids, availabilityZones: zones });
    assert.deepEqual(check(attributes(["a", "a"])).codes, ["CAUSEWAY_NET_001"]);
    assert.deepEqual(check(attributes(["a", "b"])).codes, []);
  });

  test("4. a list of zones that is a token proves nothing", () => {
    const zones = Token.asList({ "Fn::GetAZs": "" }) as string[];
    assert.deepEqual(
      check((stack) => ec2.Vpc.fromVpcAttributes(stack, "Vpc", { ...ids, availabilityZones: zones })).codes,
      ["CAUSEWAY_NET_002"],
    );
  });

  test("5. a subnet that was imported by its id alone has no zone", () => {
    const byId = (stack: Stack): ec2.SubnetSelection => ({
      subnets: [ec2.Subnet.fromSubnetId(stack, "One", "subnet-1"), ec2.Subnet.fromSubnetId(stack, "Two", "subnet-2")],
    });
    assert.deepEqual(check((stack) => new ec2.Vpc(stack, "Vpc"), byId).codes, ["CAUSEWAY_NET_002"]);
    const byAttributes = (stack: Stack): ec2.SubnetSelection => ({
      subnets: ["a", "b"].map((zone) =>
        ec2.Subnet.fromSubnetAttributes(stack, zone, { subnetId: `subnet-${zone}`, availabilityZone: zone }),
      ),
    });
    assert.deepEqual(check((stack) => new ec2.Vpc(stack, "Vpc"), byAttributes).codes, []);
  });

  test("a VPC without such subnets is refused, not thrown at", () => {
    const isolated = [{ name: "isolated", subnetType: ec2.SubnetType.PRIVATE_ISOLATED }];
    assert.deepEqual(
      check((stack) => new ec2.Vpc(stack, "Vpc", { natGateways: 0, subnetConfiguration: isolated })).codes,
      ["CAUSEWAY_NET_001"],
    );
  });
});

test("an image is pinned by digest or built from this tree", () => {
  const registry = (uri: string) => codes(checkImage({ kind: "registry", uri }));
  assert.deepEqual(registry(`example.com/causeway@${DIGEST}`), []);
  assert.deepEqual(registry(`example.com/causeway:1.2@${DIGEST}`), []);
  assert.deepEqual(registry("example.com/causeway:1.2"), ["CAUSEWAY_IMG_001"]);
  assert.deepEqual(registry(`@${DIGEST}`), ["CAUSEWAY_IMG_001"]);
  assert.deepEqual(registry("example.com/causeway@sha256:12"), ["CAUSEWAY_IMG_002"]);
  assert.deepEqual(registry(`example.com/causeway@${DIGEST.toUpperCase()}`), ["CAUSEWAY_IMG_002"]);
  assert.deepEqual(registry(Lazy.string({ produce: () => "x" })), ["CAUSEWAY_IMG_001"]);
  assert.deepEqual(checkImage({ kind: "tree" }), []);
});

test("a stop fits into what Fargate waits, and drain and step-down into the stop", () => {
  assert.deepEqual(checkStopTimeout(120, 30, 15), []);
  assert.deepEqual(checkStopTimeout(35, 10, 15), [], "the exact boundary");
  for (const seconds of [0, 121, 60.5, Number.NaN, Lazy.number({ produce: () => 60 })]) {
    assert.deepEqual(codes(checkStopTimeout(seconds, 1, 1)), ["CAUSEWAY_ECS_002"], String(seconds));
  }
  assert.deepEqual(codes(checkStopTimeout(120, Number.POSITIVE_INFINITY, 1)), ["CAUSEWAY_ECS_003"]);
});

test("a stop may take what the configuration gives it, and the last calls after that", () => {
  assert.deepEqual(checkShutdown(120, 110), [], "the exact boundary");
  assert.deepEqual(codes(checkShutdown(120, 110.001)), ["CAUSEWAY_ECS_011"]);
  assert.deepEqual(codes(checkShutdown(120, Number.NaN)), ["CAUSEWAY_ECS_011"]);
  assert.deepEqual(checkShutdown(Number.NaN, 30), [], "told by another rule");
  const written = (change: string) => shutdownSeconds(configuration({ "deployment_mode: clustered": change }).value);
  assert.equal(written("deployment_mode: clustered"), 30, "the program's default");
  assert.equal(written("deployment_mode: clustered, shutdown_timeout: 2m"), 120);
});

test("names of tables are literal, valid and distinct, and every fault is told at once", () => {
  assert.deepEqual(checkTableNames({ leases: "causeway-leases", outbox: "causeway-outbox" }), []);
  const faults = checkTableNames({
    leases: "same",
    outbox: "same",
    dlq: undefined,
    ledger: "a/b",
    commands: "x".repeat(256),
  });
  assert.deepEqual(codes(faults), ["CAUSEWAY_TBL_003", "CAUSEWAY_TBL_001", "CAUSEWAY_TBL_002", "CAUSEWAY_TBL_002"]);
});

describe("the configuration", () => {
  test("of the fixtures is right before it is changed", () => {
    assert.deepEqual(checkConfig(configuration(), { broker: ["telemetry/#", "$share/g/old/+"] }), []);
  });

  test("keeps the program's codes for the program's rules: one nanosecond over the objective is refused", () => {
    const budget = (slo: string) =>
      codes(checkConfig(configuration({ "failover_slo: 400s": `failover_slo: ${slo}` }), { broker: [] }));
    assert.deepEqual(budget("336.5s"), []);
    assert.deepEqual(budget("336499999999ns"), ["E_FAILOVER_SLO"]);
    const undecided = configuration({ ", broker_health_step_down: off": "" });
    assert.deepEqual(codes(checkConfig(undecided, { broker: [] })), ["E_STEP_DOWN_UNDECIDED"]);
    const diverging = configuration({
      "routes:\n":
        "routes:\n  - {id: second, receiver_id: in, delivery_mode: shared_outbox, bindings: [to-queue], session: {session_id: broker, sender_id: queue, failover_slo: 500s, broker_health_step_down: off}}\n",
    });
    assert.deepEqual(codes(checkConfig(diverging, { broker: [] })), ["E_LEASE_DIVERGENCE"]);
    const memory = configuration({ "lease: {type: dynamodb}": "lease: {type: memory}" });
    assert.deepEqual(codes(checkConfig(memory, { broker: [] })), ["E_STORE_DISTRIBUTED"]);
  });

  test("tells what its sessions are", () => {
    const [session] = configuration().sessions;
    assert.deepEqual(
      { ...session, budget: undefined },
      {
        id: "broker",
        clientId: "telemetry",
        brokerUrl: "tls://mqtt.example.com:8883",
        brokerPorts: [8883],
        exclusive: true,
        feeds: true,
        filters: ["telemetry/#"],
        failoverSloSeconds: 400,
        stepDownGraceSeconds: 5,
        storageIdentity: session?.storageIdentity,
        budget: undefined,
      },
    );
    assert.equal(session?.budget?.ownerDeath, 336_500_000_000n);
  });
});

test("what is refused is told with every fault, code and remedy", () => {
  const faults = [...checkWorkerCount(1), ...checkTableNames({ leases: "a b" })];
  const { message } = new SynthRefused(faults);
  for (const { code, remedy } of faults) assert.ok(message.includes(code) && message.includes(remedy), message);
});
