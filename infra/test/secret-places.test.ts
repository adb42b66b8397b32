import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { App, Stack } from "aws-cdk-lib";
import { isSecretPlace } from "../lib/config/model.ts";
import { secretPlaces, secretStatements } from "../lib/constructs/secret-places.ts";

const stack = new Stack(new App(), "Test", { env: { account: "123456789012", region: "eu-west-1" } });

describe("secrets that the tasks read themselves", () => {
  test("are those that the configuration names, and no others", () => {
    const places = secretPlaces({
      bridge: { id: "b" },
      sessions: [{ options: { session: { credentials_uri: "secretsmanager://plant/broker" } } }],
      receivers: [
        { transport: "http", options: { token: "ssm:///plant/posts" } },
        { transport: "http", options: { token: "written-in-full-0123" } },
      ],
      commands: { token: "ssm:///plant/commands" },
      http: {
        hint_token: "secretsmanager://plant/broker#hints",
        monitor_api_key: "file:///run/key",
        admin_keys: [{ name: "ann", key: "ssm:///plant/ann" }],
      },
    });
    assert.deepEqual(places, [
      "secretsmanager://plant/broker",
      "secretsmanager://plant/broker#hints",
      "ssm:///plant/ann",
      "ssm:///plant/commands",
      "ssm:///plant/posts",
    ]);
    const statements = secretStatements(stack, places).map((statement) => statement.toStatementJson());
    const arn = (rest: string) => stack.resolve(statementArn(rest));
    assert.deepEqual(stack.resolve(statements), [
      {
        Sid: "NamedParameters",
        Effect: "Allow",
        Action: "ssm:GetParameter",
        Resource: [
          arn("ssm:eu-west-1:123456789012:parameter/plant/ann"),
          arn("ssm:eu-west-1:123456789012:parameter/plant/commands"),
          arn("ssm:eu-west-1:123456789012:parameter/plant/posts"),
        ],
      },
      {
        Sid: "NamedSecrets",
        Effect: "Allow",
        Action: "secretsmanager:GetSecretValue",
        Resource: arn("secretsmanager:eu-west-1:123456789012:secret:plant/broker-??????"),
      },
    ]);
  });

  test("give no statement where there are none, and an ARN is taken as it is", () => {
    assert.deepEqual(secretStatements(stack, []), []);
    const arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:plant/broker-a1B2c3";
    const [statement] = secretStatements(stack, [`secretsmanager://${arn}#password`]);
    assert.deepEqual(statement?.resources, [arn]);
  });

  test("are told from secrets by their form alone", () => {
    for (const place of ["file:///a", "env://A_1", "ssm:///a/b", "ssm://a", "pms://a", "secretsmanager://a#b"])
      assert.ok(isSecretPlace(place), place);
    for (const text of [
      "",
      "file://a",
      "file:///",
      "env://1",
      "env://",
      "ssm:///",
      "ssm://",
      "secretsmanager://a#",
      "x",
    ])
      assert.ok(!isSecretPlace(text), text);
  });
});

function statementArn(rest: string): string {
  return stack.formatArn({ service: "x", resource: "x" }).replace(/^(.*?):x:.*$/s, `$1:${rest}`);
}
