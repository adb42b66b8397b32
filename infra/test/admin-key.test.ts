// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of the configuration
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { Stack } from "aws-cdk-lib";
import { Template } from "aws-cdk-lib/assertions";
import * as ecs from "aws-cdk-lib/aws-ecs";
import * as secretsmanager from "aws-cdk-lib/aws-secretsmanager";
import { configFiles, variables } from "../lib/settings.ts";
import { facade } from "./fixtures/props.ts";
import { MINIMAL, one, resources, templates } from "./support.ts";

const folder = mkdtempSync(join(tmpdir(), "causeway-admin-"));
after(() => rmSync(folder, { recursive: true }));

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

function keyOf(template: Template, kind: string): unknown {
  const [container] = one(template, "AWS::ECS::TaskDefinition", `${kind}task`).Properties.ContainerDefinitions;
  return container.Secrets.find(({ Name }: { Name: string }) => Name === "ADMIN_API_KEY")?.ValueFrom;
}

const adminSecrets = (template: Template) =>
  Object.entries(resources(template, "AWS::SecretsManager::Secret")).filter(([id]) => id.includes("AdminKey"));

const ADMIN = "http: {admin_api_key: '${ADMIN_API_KEY}'}";

describe("the key of the admin interface", () => {
  test("is made by the stack, is in no document, and goes to tasks of both kinds", () => {
    const template = layered(ADMIN);
    const [[id, secret] = assert.fail()] = adminSecrets(template);
    assert.deepEqual(secret.Properties.GenerateSecretString, { ExcludePunctuation: true, PasswordLength: 48 });
    for (const kind of ["control", "worker"]) assert.deepEqual(keyOf(template, kind), { "Fn::GetAtt": [id, "Id"] });
    assert.match(one(template, "AWS::SSM::Parameter").Properties.Value, /admin_api_key: "?\$\{ADMIN_API_KEY\}"?/);
  });

  test("is not made for a configuration that names none", () => {
    const { bridge } = templates(MINIMAL);
    assert.deepEqual(adminSecrets(bridge), []);
    assert.equal(keyOf(bridge, "control"), undefined);
  });

  test("is not made where the props give one", () => {
    const template = layered(ADMIN, (stack) => {
      const arn = "arn:aws:secretsmanager:r:a:secret:m-AbCdEf";
      return {
        secrets: {
          ADMIN_API_KEY: ecs.Secret.fromSecretsManager(secretsmanager.Secret.fromSecretCompleteArn(stack, "Mine", arn)),
        },
      };
    });
    assert.deepEqual(adminSecrets(template), []);
    assert.equal(keyOf(template, "control"), "arn:aws:secretsmanager:r:a:secret:m-AbCdEf");
  });

  test("opens no port by itself", () => {
    const text = JSON.stringify([
      resources(layered(ADMIN), "AWS::EC2::SecurityGroup"),
      resources(layered(ADMIN), "AWS::EC2::SecurityGroupIngress"),
    ]);
    assert.doesNotMatch(text, /"FromPort":8080/);
  });
});
