import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { HANDLER } from "../lib/constructs/baseline.ts";
import { FULL, MINIMAL, one, resources, templates } from "./support.ts";

const python = spawnSync("python3", ["--version"]).status === 0;
const skip = python ? false : "SKIPPED: python3 is missing, which the handler of the baselines is written in";

/** Stands in for the SDK: keeps rows in a dictionary, and answers like DynamoDB where a row stands. */
const SDK = `
class ClientError(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.response = {"Error": {"Code": code}}
`;
const SESSION = `
import json, os
import botocore.exceptions

class Client:
    def update_item(self, **call):
        with open(os.environ["CALLS"], "a") as calls:
            calls.write(json.dumps(call) + "\\n")
        if os.environ.get("ANSWER"):
            raise botocore.exceptions.ClientError(os.environ["ANSWER"])

class Session:
    def create_client(self, name):
        assert name == "dynamodb"
        return Client()

def get_session():
    return Session()
`;

const folder = mkdtempSync(join(tmpdir(), "causeway-baseline-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const packages = join(folder, "botocore");
spawnSync("mkdir", ["-p", packages]);
writeFileSync(join(packages, "__init__.py"), "");
writeFileSync(join(packages, "exceptions.py"), SDK);
writeFileSync(join(packages, "session.py"), SESSION);
writeFileSync(join(folder, "index.py"), HANDLER);

interface Answer {
  readonly Status: string;
  readonly PhysicalResourceId: string;
  readonly Reason?: string;
  readonly NoEcho: boolean;
  readonly Data?: unknown;
}

/** Runs the handler as CloudFormation would, and answers what it told CloudFormation and what it asked of DynamoDB. */
async function handle(
  type: string,
  properties: object,
  answer = "",
): Promise<{ told: Answer; calls: Record<string, unknown>[] }> {
  const calls = join(folder, "calls");
  writeFileSync(calls, "");
  let told = "";
  const server = createServer((request, response) => {
    assert.equal(request.method, "PUT");
    request.on("data", (chunk) => {
      told += chunk;
    });
    request.on("end", () => response.end());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const event = {
    RequestType: type,
    ResponseURL: `http://127.0.0.1:${(server.address() as AddressInfo).port}/answer`,
    StackId: "stack",
    RequestId: "request",
    LogicalResourceId: "seed",
    PhysicalResourceId: "old",
    ResourceProperties: properties,
  };
  const program = "import json, sys, index; index.handler(json.loads(sys.argv[1]), None)";
  const run = spawn("python3", ["-c", program, JSON.stringify(event)], {
    cwd: folder,
    env: { PATH: process.env.PATH, CALLS: calls, ANSWER: answer, no_proxy: "*" },
    stdio: ["ignore", "inherit", "inherit"],
  });
  const status = await new Promise((resolve) => run.on("exit", resolve));
  server.close();
  assert.equal(status, 0);
  const { readFileSync } = await import("node:fs");
  const lines = readFileSync(calls, "utf8").split("\n").filter(Boolean);
  return { told: JSON.parse(told), calls: lines.map((line) => JSON.parse(line)) };
}

const ROW = { Table: "causeway-managed-subscriptions", StorageIdentity: "d1", Filters: ["b/#", "a/+"] };

test("a row is made with the program's attributes, and only where there is none", { skip }, async () => {
  const { told, calls } = await handle("Create", ROW);
  assert.deepEqual(calls, [
    {
      TableName: "causeway-managed-subscriptions",
      Key: { storage_identity: { S: "d1" } },
      UpdateExpression: "SET baseline = :true, filters = :filters",
      ConditionExpression: "attribute_not_exists(storage_identity)",
      ExpressionAttributeValues: { ":true": { BOOL: true }, ":filters": { SS: ["a/+", "b/#"] } },
    },
  ]);
  assert.equal(told.Status, "SUCCESS");
  assert.equal(told.PhysicalResourceId, "d1");
  assert.equal(told.NoEcho, true);
  assert.equal(told.Data, undefined);
});

test("a client id that is new gets a row without filters, because there are no empty sets", { skip }, async () => {
  const { calls } = await handle("Create", { ...ROW, Filters: [] });
  assert.equal(calls[0]?.UpdateExpression, "SET baseline = :true");
  assert.deepEqual(calls[0]?.ExpressionAttributeValues, { ":true": { BOOL: true } });
});

test("a row that stands is newer, and that is success", { skip }, async () => {
  const { told } = await handle("Create", ROW, "ConditionalCheckFailedException");
  assert.equal(told.Status, "SUCCESS");
});

test("another identity is another row, under another physical id", { skip }, async () => {
  const { told, calls } = await handle("Update", { ...ROW, StorageIdentity: "d2" });
  assert.equal(told.PhysicalResourceId, "d2");
  assert.deepEqual(calls[0]?.Key, { storage_identity: { S: "d2" } });
});

test("nothing is deleted", { skip }, async () => {
  const { told, calls } = await handle("Delete", ROW);
  assert.deepEqual(calls, []);
  assert.equal(told.Status, "SUCCESS");
  assert.equal(told.PhysicalResourceId, "old");
});

test("a failure is told, so that the deployment ends at once and not after an hour", { skip }, async () => {
  const { told } = await handle("Create", ROW, "AccessDeniedException");
  assert.equal(told.Status, "FAILED");
  assert.match(told.Reason ?? "", /AccessDeniedException/);
});

test("there is a seed for each exclusive session, keyed by its identity at the broker", () => {
  const { Properties } = one(templates(FULL).bridge, "Custom::CausewayBaseline");
  assert.equal(Properties.Table, "plant-managed-subscriptions");
  assert.match(Properties.StorageIdentity, /^[0-9a-f]{64}$/);
  assert.deepEqual(Properties.Filters, ["old/#", "plants/+/telemetry/#"]);
  const other = templates({ ...MINIMAL, brokerUrl: "tls://other.example.com:8883" }).bridge;
  const identities = [templates(MINIMAL).bridge, other].map(
    (template) => one(template, "Custom::CausewayBaseline").Properties.StorageIdentity,
  );
  assert.notEqual(identities[0], identities[1], "another broker knows nothing of the session");
});

test("the handler fits into the template, without a file to upload", () => {
  assert.ok(Buffer.byteLength(HANDLER) < 4096);
  const handler = Object.values(resources(templates(MINIMAL).bridge, "AWS::Lambda::Function")).find(
    ({ Properties }) => Properties.Handler === "index.handler",
  );
  assert.equal(handler?.Properties.Code.ZipFile, HANDLER);
});
