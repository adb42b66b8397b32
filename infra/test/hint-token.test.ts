// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of the configuration
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { Stack } from "aws-cdk-lib";
import { Template } from "aws-cdk-lib/assertions";
import * as ecs from "aws-cdk-lib/aws-ecs";
import * as secretsmanager from "aws-cdk-lib/aws-secretsmanager";
import { namesHintToken } from "../lib/constructs/hint-token.ts";
import { configFiles, variables } from "../lib/settings.ts";
import { facade } from "./fixtures/props.ts";
import { FULL, IMPORTED, MINIMAL, one, resources, templates } from "./support.ts";

const KINDS = ["control", "worker"] as const;
const SECRET = "AWS::SecretsManager::Secret";
const folder = mkdtempSync(join(tmpdir(), "causeway-hints-"));
after(() => rmSync(folder, { recursive: true }));

interface Variable {
  readonly Name: string;
  readonly ValueFrom: unknown;
}

/** What a container gets as its token. */
function tokenOf(template: Template, kind: string): unknown {
  const [container] = one(template, "AWS::ECS::TaskDefinition", `${kind}task`).Properties.ContainerDefinitions;
  const found = container.Secrets.filter((variable: Variable) => variable.Name === "HINT_TOKEN");
  assert.ok(found.length <= 1);
  return found[0]?.ValueFrom;
}

/** The façade with the configuration that comes with the stack and a layer over it. */
function layered(text: string, change: Parameters<typeof facade>[0] = () => ({})): Template {
  const layer = join(folder, "layer.yaml");
  writeFileSync(layer, text);
  const files = [...configFiles(MINIMAL), layer];
  const { node } = facade((stack) => ({
    bridgeConfig: { files, environment: variables(MINIMAL) },
    alarms: false,
    ...change(stack),
  }));
  return Template.fromStack(Stack.of(node.scope ?? assert.fail()));
}

describe("the token of the hints", () => {
  test("is made by the stack and given to tasks of both kinds alike", () => {
    for (const settings of [MINIMAL, FULL]) {
      const { bridge } = templates(settings);
      const [[id, secret] = assert.fail()] = Object.entries(resources(bridge, SECRET));
      assert.deepEqual(secret.Properties.GenerateSecretString, { ExcludePunctuation: true, PasswordLength: 48 });
      assert.equal(secret.DeletionPolicy, "Delete");
      for (const kind of KINDS) assert.deepEqual(tokenOf(bridge, kind), { "Fn::GetAtt": [id, "Id"] });
    }
  });

  test("stands in the document as the variable alone", () => {
    const { bridge } = templates(MINIMAL);
    assert.match(one(bridge, "AWS::SSM::Parameter").Properties.Value, /^ {2}hint_token: \$\{HINT_TOKEN\}$/m);
  });

  test("is not given to functions", () => {
    for (const settings of [MINIMAL, FULL, IMPORTED]) {
      for (const { Properties } of Object.values(resources(templates(settings).bridge, "AWS::Lambda::Function")))
        assert.equal(Properties.Environment?.Variables?.HINT_TOKEN, undefined);
    }
  });

  test("is not made where the settings give one", () => {
    const { bridge } = templates(IMPORTED);
    assert.deepEqual(resources(bridge, SECRET), {});
    for (const kind of KINDS) assert.match(JSON.stringify(tokenOf(bridge, kind)), /:parameter\/plant\/hint-token/);
  });

  test("is not made where the props give one, and theirs is used", () => {
    const template = layered("", (stack) => {
      const mine = secretsmanager.Secret.fromSecretCompleteArn(
        stack,
        "Mine",
        "arn:aws:secretsmanager:r:a:secret:m-AbCdEf",
      );
      return { secrets: { HINT_TOKEN: ecs.Secret.fromSecretsManager(mine) } };
    });
    assert.deepEqual(resources(template, SECRET), {});
    for (const kind of KINDS) assert.equal(tokenOf(template, kind), "arn:aws:secretsmanager:r:a:secret:m-AbCdEf");
  });

  test("is not made for a configuration that names none", () => {
    const template = layered("http: {hint_token: null}");
    assert.deepEqual(resources(template, SECRET), {});
    for (const kind of KINDS) assert.equal(tokenOf(template, kind), undefined);
  });

  test("is not made for a configuration that calls it something else, which must then be given", () => {
    assert.throws(
      () => layered("http: {hint_token: '${OTHER_TOKEN}'}"),
      /E_ENV_MISSING http.hint_token: .*`OTHER_TOKEN`/,
    );
  });
});

test("a document names the token as a variable, with or without a default, and not as text", () => {
  assert.ok(namesHintToken('hint_token: "${HINT_TOKEN}"'));
  assert.ok(namesHintToken("hint_token: ${HINT_TOKEN:-none}"));
  assert.ok(!namesHintToken("hint_token: $${HINT_TOKEN}"));
  assert.ok(!namesHintToken("hint_token: ${HINT_TOKEN_2}"));
});

test("hints come in at the port that the security group opens to tasks", () => {
  for (const address of [":8082", "0.0.0.0:8082", "[::]:8082"])
    assert.ok(layered(`http: {transport_addr: "${address}"}`));
  for (const address of [":9082", "127.0.0.1:8082", "localhost:8082", "[::1]:8082"])
    assert.throws(() => layered(`http: {transport_addr: "${address}"}`), /CAUSEWAY_CFG_015/, address);
});

test("the configuration leaves a stop the time that the container gives it", () => {
  assert.throws(() => layered("bridge: {shutdown_timeout: 111s}"), /CAUSEWAY_ECS_011 bridge.shutdown_timeout/);
  assert.throws(() => layered("", () => ({ stopTimeoutSeconds: 99 })), /CAUSEWAY_ECS_011/);
  assert.ok(layered("bridge: {shutdown_timeout: 110s}"));
  assert.match(readFileSync(configFiles(MINIMAL)[0] ?? "", "utf8"), /shutdown_timeout: 90s/);
});
