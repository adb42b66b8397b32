// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of the configuration
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { addStacks } from "../lib/app.ts";
import { SynthRefused } from "../lib/checks/index.ts";
import { checkSettings } from "../lib/checks/settings.ts";
import type { Settings } from "../lib/settings.ts";
import { settings as local } from "../settings.local.ts";
import { settings as shipped } from "../settings.ts";
import { bareApp, FULL, IMPORTED, MINIMAL, noArtifacts } from "./support.ts";

const folder = mkdtempSync(join(tmpdir(), "causeway-settings-"));
after(() => rmSync(folder, { recursive: true }));

const found = (change: Record<string, unknown>) =>
  checkSettings({ ...MINIMAL, ...change }).map(({ code, path }) => `${code} ${path}`);

/** What synth says of settings as nobody compiled them. */
function told(change: Record<string, unknown>): string {
  try {
    addStacks(bareApp(), { ...MINIMAL, ...change } as Settings, noArtifacts());
  } catch (error) {
    assert.ok(error instanceof SynthRefused, String(error));
    return error.message;
  }
  assert.fail("it was accepted");
}

test("settings that work are not refused", () => {
  for (const settings of [shipped, local, MINIMAL, FULL, IMPORTED]) assert.deepEqual(checkSettings(settings), []);
  assert.deepEqual(found({ cpu: undefined, vpc: { natGateways: 0 } }), []);
});

describe("settings that nobody compiled", () => {
  test("with an unknown name are refused, with the name that was meant", () => {
    assert.match(
      told({ workerDesiredCout: 3 }),
      /CAUSEWAY_PRP_015 workerDesiredCout: there is no setting "workerDesiredCout"; did you mean "workerDesiredCount"\?/,
    );
    assert.match(told({ vpc: { natGateway: 1 } }), /"vpc.natGateway"; did you mean "natGateways"\?/);
    assert.match(told({ somethingElse: 1 }), /there is no setting "somethingElse" \(correct the name/);
    assert.deepEqual(found({ constructor: 1, toString: 2 }), [
      "CAUSEWAY_PRP_015 constructor",
      "CAUSEWAY_PRP_015 toString",
    ]);
  });

  test("of another shape are refused, and not shown: they may be secrets", () => {
    for (const [name, value] of Object.entries({
      bridgeId: 7,
      cpu: "512",
      alarms: "yes",
      configFiles: "config/bridge.yaml",
      secrets: { TOKEN: 5 },
      managedSubscriptionBaselines: { broker: "telemetry/#" },
      queue: "telemetry",
      vpc: [],
      architecture: "amd64",
    })) {
      assert.deepEqual(found({ [name]: value }), [`CAUSEWAY_PRP_016 ${name}`]);
    }
    assert.ok(!told({ secrets: "hunter2 hunter2" }).includes("hunter2"));
    assert.deepEqual(found({ queue: { name: "a", arn: "b" } }), ["CAUSEWAY_PRP_016 queue"]);
    assert.deepEqual(
      checkSettings(undefined).map(({ path }) => path),
      ["settings"],
    );
  });

  test("that are missing are named, all at once", () => {
    assert.deepEqual(
      checkSettings({}).map(({ message }) => message),
      ["bridgeId is missing", "brokerUrl is missing", "queue is missing"],
    );
    assert.match(
      told({ managedSubscriptionBaselines: undefined }),
      /CAUSEWAY_CFG_005 managedSubscriptionBaselines.broker/,
    );
  });

  test("with a prefix that no table can have are told of the prefix", () => {
    const message = told({ tablePrefix: "a/b" });
    assert.match(
      message,
      /^1 fault; .*\n {2}CAUSEWAY_TBL_002 tablePrefix: no name of a DynamoDB table begins with "a\/b"/,
    );
  });
});

test("a broker's address that is none is told with the variable that it came from", () => {
  const message = told({ brokerUrl: "kafka://broker.example.com:9092" });
  assert.match(
    message,
    /E_BROKER_URL sessions\[0\].*not a broker's address; it is filled from \$\{BROKER_URL\} \(write `tls:/,
  );
});

test("faults of the configuration and of the tasks are told together", () => {
  const message = told({ workerDesiredCount: 1, managedSubscriptionBaselines: {}, cpu: 600, image: "causeway:latest" });
  for (const code of ["CAUSEWAY_ECS_001", "CAUSEWAY_CFG_005", "CAUSEWAY_PRP_005", "CAUSEWAY_IMG_001"])
    assert.match(message, new RegExp(`^ {2}${code} `, "m"));
  assert.match(message, /^4 faults; /);
});

test("a file of settings that is not there, has none, or cannot be read is told without a stack trace", () => {
  writeFileSync(join(folder, "empty.ts"), "export const other = 1;\n");
  writeFileSync(join(folder, "broken.ts"), 'export const settings = {\n  bridgeId: "plant\n};\n');
  for (const [file, message] of [
    ["missing.ts", /^1 fault; .*\n {2}CAUSEWAY_PRP_016 settings: the file .*missing\.ts does not exist/],
    ["empty.ts", /^1 fault; .*\n {2}CAUSEWAY_PRP_016 settings: the file exports no `settings`/],
    ["broken.ts", /^1 fault; .*\n {2}CAUSEWAY_PRP_016 settings: .*broken\.ts:2:18: ERROR: Unterminated string literal/],
  ] as const) {
    const { status, stderr } = spawnSync(process.execPath, ["--import", "tsx", "bin/app.ts"], {
      cwd: fileURLToPath(new URL("..", import.meta.url)),
      encoding: "utf8",
      env: { ...process.env, CAUSEWAY_SETTINGS: join(folder, file) },
    });
    assert.equal(status, 1);
    assert.match(stderr, message);
    assert.ok(!/^\s+at /m.test(stderr), stderr);
  }
});
