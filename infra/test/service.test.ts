import assert from "node:assert/strict";
import { test } from "node:test";
import { Template } from "aws-cdk-lib/assertions";
import { addStacks } from "../lib/app.ts";
import { bareApp, builtArtifacts, FULL, IMPORTED, MINIMAL, one, resources, templates } from "./support.ts";

const KINDS = ["control", "worker"] as const;
const service = (template: Template, kind: string) => one(template, "AWS::ECS::Service", `${kind}service`).Properties;
const task = (template: Template, kind: string) => one(template, "AWS::ECS::TaskDefinition", `${kind}task`).Properties;
const container = (template: Template, kind: string) => {
  const containers = task(template, kind).ContainerDefinitions;
  assert.equal(containers.length, 1);
  return containers[0];
};

test("there is one control task, stopped before it is started, and never rebalanced", () => {
  const { Properties } = { Properties: service(templates(MINIMAL).bridge, "control") };
  assert.equal(Properties.DesiredCount, 1);
  assert.equal(Properties.DeploymentConfiguration.MinimumHealthyPercent, 0);
  assert.equal(Properties.DeploymentConfiguration.MaximumPercent, 100);
  assert.equal(Properties.AvailabilityZoneRebalancing, "DISABLED");
});

test("workers are two or as many as were asked for, started before they are stopped", () => {
  assert.equal(service(templates(MINIMAL).bridge, "worker").DesiredCount, 2);
  const found = service(templates(FULL).bridge, "worker");
  assert.equal(found.DesiredCount, 3);
  assert.equal(found.DeploymentConfiguration.MinimumHealthyPercent, 100);
  assert.equal(found.DeploymentConfiguration.MaximumPercent, 200);
  assert.equal(found.AvailabilityZoneRebalancing, "ENABLED");
});

test("both services roll back by themselves, and when an alarm goes off", () => {
  for (const kind of KINDS) {
    const { DeploymentConfiguration } = service(templates(MINIMAL).bridge, kind);
    assert.deepEqual(DeploymentConfiguration.DeploymentCircuitBreaker, { Enable: true, Rollback: true });
    assert.equal(DeploymentConfiguration.Alarms.Enable, true);
    assert.equal(DeploymentConfiguration.Alarms.Rollback, true);
    assert.ok(DeploymentConfiguration.Alarms.AlarmNames.length >= 1);
    assert.equal(service(templates(IMPORTED).bridge, kind).DeploymentConfiguration.Alarms, undefined);
  }
});

test("alarms that are named later are watched beside the first ones", () => {
  const { bridge } = addStacks(bareApp(), { ...MINIMAL, alarms: false }, builtArtifacts());
  bridge.bridge.service.watchDeployments(["first"]);
  bridge.bridge.service.watchDeployments(["second", "first"]);
  for (const kind of KINDS) {
    const { Alarms } = service(Template.fromStack(bridge), kind).DeploymentConfiguration;
    assert.deepEqual(Alarms, { AlarmNames: ["first", "second"], Enable: true, Rollback: true });
  }
});

test("the alarms that end a deployment exist under those names", () => {
  const { bridge } = templates(MINIMAL);
  const names = new Set(
    Object.values(resources(bridge, "AWS::CloudWatch::Alarm")).map(({ Properties }) => Properties.AlarmName),
  );
  for (const name of service(bridge, "worker").DeploymentConfiguration.Alarms.AlarmNames)
    assert.ok(names.has(name), name);
});

test("tasks run in private subnets of both zones without public addresses", () => {
  for (const kind of KINDS) {
    const { AwsvpcConfiguration } = service(templates(MINIMAL).bridge, kind).NetworkConfiguration;
    assert.equal(AwsvpcConfiguration.AssignPublicIp, "DISABLED");
    assert.equal(AwsvpcConfiguration.Subnets.length, 2);
    for (const subnet of AwsvpcConfiguration.Subnets) assert.match(subnet.Ref, /tasksSubnet/);
  }
});

test("no command can be run in a task from outside", () => {
  for (const kind of KINDS) assert.equal(service(templates(MINIMAL).bridge, kind).EnableExecuteCommand, false);
});

test("the program is not root, writes nowhere, and is asked whether it lives", () => {
  for (const settings of [MINIMAL, FULL, IMPORTED]) {
    for (const kind of KINDS) {
      const found = container(templates(settings).bridge, kind);
      assert.equal(found.User, "65532:65532");
      assert.equal(found.ReadonlyRootFilesystem, true);
      assert.deepEqual(found.EntryPoint, ["causeway"]);
      assert.deepEqual(found.Command, ["run", "--role", kind]);
      assert.deepEqual(found.HealthCheck.Command, ["CMD", "causeway", "healthcheck"]);
      assert.equal(found.StopTimeout, 120);
      assert.equal(found.Privileged, undefined);
      assert.deepEqual(
        found.PortMappings.map((port: { ContainerPort: number }) => port.ContainerPort),
        [8080, 8081, 8082],
      );
      assert.equal(found.LogConfiguration.Options.mode, "non-blocking");
    }
  }
});

test("tasks are ARM64 unless told otherwise, and as large as told", () => {
  const found = task(templates(MINIMAL).bridge, "worker");
  assert.deepEqual(found.RuntimePlatform, { CpuArchitecture: "ARM64", OperatingSystemFamily: "LINUX" });
  assert.deepEqual([found.Cpu, found.Memory], ["512", "1024"]);
  const other = task(templates(FULL).bridge, "worker");
  assert.equal(other.RuntimePlatform.CpuArchitecture, "X86_64");
  assert.deepEqual([other.Cpu, other.Memory], ["1024", "2048"]);
});

test("the configuration comes as a secret and its digest as a variable", () => {
  for (const kind of KINDS) {
    const found = container(templates(MINIMAL).bridge, kind);
    const digest = found.Environment.find(
      (variable: { Name: string }) => variable.Name === "CAUSEWAY_CONFIG_DIGEST",
    ).Value;
    assert.match(digest, /^[0-9a-f]{64}$/);
    const secret = found.Secrets.find((variable: { Name: string }) => variable.Name === "CAUSEWAY_CONFIG_INLINE");
    assert.match(JSON.stringify(secret.ValueFrom), /:ssm:.*BridgeConfig/);
    const parameter = one(templates(MINIMAL).bridge, "AWS::SSM::Parameter").Properties;
    assert.equal(parameter.Name, `/plant-bridge/config/${digest.slice(0, 12)}`);
  }
});

test("another configuration is another revision of both task definitions, under another name", () => {
  const before = templates(MINIMAL).bridge;
  const after = templates({ ...MINIMAL, topicFilter: "other/#" }).bridge;
  for (const kind of KINDS) assert.notDeepEqual(task(before, kind), task(after, kind));
  const [ids, changed] = [before, after].map((template) => Object.keys(resources(template, "AWS::SSM::Parameter")));
  assert.notDeepEqual(ids, changed, "another resource, so that the old one exists until the roll-out is over");
  const same = templates({ ...MINIMAL }).bridge;
  assert.deepEqual(before.toJSON().Resources, same.toJSON().Resources);
});

test("no secret stands in a template", () => {
  const { bridge } = templates(FULL);
  const parameter = one(bridge, "AWS::SSM::Parameter").Properties.Value as string;
  assert.match(parameter, /ca_cert_pem: \$\{BROKER_CA\}/);
  assert.match(parameter, /password: \$\{MQTT_PASSWORD\}/);
  assert.match(parameter, /username: bridge-north/, "what is known at synth is filled in");
  const secrets = Object.fromEntries(
    container(bridge, "worker").Secrets.map((secret: { Name: string; ValueFrom: unknown }) => [
      secret.Name,
      JSON.stringify(secret.ValueFrom),
    ]),
  );
  assert.match(secrets.BROKER_CA ?? "", /:ssm:.*:parameter\/plant\/broker-ca/);
  assert.match(secrets.MQTT_PASSWORD ?? "", /:secretsmanager:.*:secret:plant\/broker:password::/);
  assert.equal(secrets.CLIENT_KEY, '"arn:aws:secretsmanager:eu-west-1:123456789012:secret:plant/key-AbCdEf"');
  const names = container(bridge, "worker").Environment.map((variable: { Name: string }) => variable.Name);
  assert.deepEqual(names.sort(), ["CAUSEWAY_CONFIG_DIGEST", "QUEUE_URL"]);
});

test("services wait for their baselines and permissions", () => {
  for (const kind of KINDS) {
    const { DependsOn = [] } = one(templates(MINIMAL).bridge, "AWS::ECS::Service", `${kind}service`);
    for (const part of ["BaselinesSeedbroker", `${kind}executionroleDefaultPolicy`, `${kind}taskroleDefaultPolicy`]) {
      assert.ok(
        DependsOn.some((id) => id.includes(part)),
        part,
      );
    }
  }
});

test("tasks reach the broker's port and 443, each other's transport, and nothing else", () => {
  const group = one(templates(MINIMAL).bridge, "AWS::EC2::SecurityGroup", "ServiceSecurityGroup").Properties;
  assert.deepEqual(
    group.SecurityGroupEgress.map((rule: { CidrIp: string; FromPort: number; ToPort: number }) => [
      rule.CidrIp,
      rule.FromPort,
      rule.ToPort,
    ]),
    [
      ["0.0.0.0/0", 443, 443],
      ["0.0.0.0/0", 8883, 8883],
    ],
  );
  assert.equal(group.SecurityGroupIngress, undefined);
  for (const type of ["AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"]) {
    const rule = one(templates(MINIMAL).bridge, type).Properties;
    assert.deepEqual([rule.FromPort, rule.ToPort], [8082, 8082]);
    assert.deepEqual(
      rule.SourceSecurityGroupId ?? rule.DestinationSecurityGroupId,
      rule.GroupId,
      "from the group itself",
    );
  }
  const narrow = one(templates(FULL).bridge, "AWS::EC2::SecurityGroup", "ServiceSecurityGroup").Properties;
  assert.equal(narrow.SecurityGroupEgress[1].CidrIp, "192.0.2.0/24");
});

test("the broker's port comes from the configuration", () => {
  const { bridge } = templates({ ...MINIMAL, brokerUrl: "tls://broker.example.com:18883" });
  const group = one(bridge, "AWS::EC2::SecurityGroup", "ServiceSecurityGroup").Properties;
  assert.deepEqual(
    group.SecurityGroupEgress.map((rule: { FromPort: number }) => rule.FromPort),
    [443, 18883],
  );
});

test("a load balancer's admin requests reach the control task alone", () => {
  const { bridge } = templates(IMPORTED);
  const targets = (kind: string) =>
    service(bridge, kind).LoadBalancers.map((target: { ContainerPort: number }) => target.ContainerPort);
  assert.deepEqual(targets("control"), [8080, 8082]);
  assert.deepEqual(targets("worker"), [8082]);
  const ingress = (part: string) =>
    one(bridge, "AWS::EC2::SecurityGroup", part).Properties.SecurityGroupIngress.map(
      (rule: { FromPort: number; SourceSecurityGroupId: string }) => {
        assert.equal(rule.SourceSecurityGroupId, "sg-0123456789abcdef0");
        return rule.FromPort;
      },
    );
  assert.deepEqual(ingress("ControlSecurityGroup"), [8080, 8081]);
  assert.deepEqual(ingress("ServiceSecurityGroup"), [8082, 8081], "no worker takes admin requests");
  assert.equal(service(bridge, "worker").NetworkConfiguration.AwsvpcConfiguration.SecurityGroups.length, 1);
  assert.equal(service(bridge, "control").NetworkConfiguration.AwsvpcConfiguration.SecurityGroups.length, 2);
  const rules = Object.values(resources(bridge, "AWS::ElasticLoadBalancingV2::ListenerRule"));
  assert.deepEqual(rules.map(({ Properties }) => Properties.Priority).sort(), [100, 101]);
  for (const kind of KINDS) assert.equal(service(bridge, kind).HealthCheckGracePeriodSeconds, 60);
});

test("the image is the one that was named, by digest", () => {
  const named = container(templates(IMPORTED).bridge, "worker").Image;
  assert.match(JSON.stringify(named), new RegExp(`/causeway@sha256:${"a".repeat(64)}`));
  const built = container(templates(MINIMAL).bridge, "worker").Image;
  assert.match(JSON.stringify(built), /container-assets.*:[0-9a-f]{64}/);
});

test("an image of this tree is built on its base by digest, for the tasks' processor", () => {
  for (const [settings, platform] of [
    [MINIMAL, "linux/arm64"],
    [FULL, "linux/amd64"],
  ] as const) {
    const app = bareApp();
    addStacks(app, settings, builtArtifacts());
    const manifests = app.synth().artifacts.filter((artifact) => "contents" in artifact && "file" in artifact);
    const text = JSON.stringify(manifests.map((artifact) => (artifact as unknown as { contents: unknown }).contents));
    assert.match(text, new RegExp(`"platform":"${platform}"`));
    assert.match(text, new RegExp(`"BASE_IMAGE":"registry.example.com/base@sha256:${"b".repeat(64)}"`));
  }
});

test("both functions know the bridge, its tables and its configuration", () => {
  for (const name of ["Housekeeping", "Redrive"]) {
    const { Properties } = one(templates(MINIMAL).bridge, "AWS::Lambda::Function", `${name}Function`);
    assert.equal(Properties.Runtime, "provided.al2023");
    assert.deepEqual(Properties.Architectures, ["arm64"]);
    assert.equal(Properties.Handler, "bootstrap");
    const { Variables } = Properties.Environment;
    assert.equal(Variables.CAUSEWAY_BRIDGE_ID, "plant-bridge");
    assert.equal(Variables.CAUSEWAY_LOG_FORMAT, "json");
    assert.match(Variables.CAUSEWAY_CONFIG_SSM, /^\/plant-bridge\/config\/[0-9a-f]{12}$/);
    for (const table of ["leases", "outbox", "dlq", "managed_subscriptions", "commands", "ledger"]) {
      assert.equal(Variables[`CAUSEWAY_${table.toUpperCase()}_TABLE`], `causeway-${table.replace("_", "-")}`);
    }
  }
});

test("housekeeping runs on its schedule with few retries and a dead-letter queue of its own", () => {
  const { Properties } = one(templates(MINIMAL).bridge, "AWS::Scheduler::Schedule");
  assert.equal(Properties.ScheduleExpression, "rate(5 minutes)");
  assert.equal(Properties.State, "ENABLED");
  assert.equal(Properties.Target.RetryPolicy.MaximumRetryAttempts, 2);
  assert.match(JSON.stringify(Properties.Target.DeadLetterConfig), /HousekeepingDeadLetterQueue/);
  assert.deepEqual(JSON.parse(Properties.Target.Input), {
    op: "sweep",
    dry_run: false,
    max_items: 5000,
    continuation: null,
  });
  assert.equal(one(templates(FULL).bridge, "AWS::Scheduler::Schedule").Properties.ScheduleExpression, "rate(1 minute)");
});

test("every log has a retention", () => {
  for (const [settings, days] of [
    [MINIMAL, 30],
    [FULL, 90],
  ] as const) {
    const groups = Object.entries(resources(templates(settings).bridge, "AWS::Logs::LogGroup"));
    assert.equal(groups.length, 5);
    for (const [id, { Properties }] of groups) {
      assert.equal(Properties.RetentionInDays, id.includes("FlowLog") ? 30 : days, id);
    }
  }
});
