// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of the configuration
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkConfig } from "../lib/checks/index.ts";
import { loadConfigDocument, standIn } from "../lib/config-document.ts";
import { variables } from "../lib/settings.ts";
import { findChecker } from "./checker.ts";
import { MINIMAL } from "./support.ts";

const FIXTURES = fileURLToPath(new URL("../../tests/fixtures", import.meta.url));
const checker = findChecker();
const withProgram = {
  skip: checker === undefined && "NO causeway PROGRAM OF THIS TREE WAS FOUND: build it, or set CAUSEWAY_BINARY",
};
const VARIABLES = {};
const SCENARIO = {};
const folder = mkdtempSync(join(tmpdir(), "causeway-config-"));
after(() => rmSync(folder, { recursive: true }));

let written = 0;
function layer(text: string): string {
  written += 1;
  const file = join(folder, `${written}.yaml`);
  writeFileSync(file, text);
  return file;
}

/**
 * What only the program can refuse: files whose fault the schema and the rules of this package do not see. Whoever adds one here says why.
 */
const ONLY_THE_PROGRAM: readonly string[] = [];

const list = (folder: string) =>
  readdirSync(join(FIXTURES, folder))
    .filter((file) => file.endsWith(".yaml"))
    .sort();

function expected(file: string): { code: string; path: string | undefined } {
  const head = readFileSync(join(FIXTURES, "invalid", file), "utf8")
    .split("\n")
    .filter((line) => line.startsWith("# "));
  const code = head.map((line) => /^# expect: (\S+)/.exec(line)?.[1]).find((found) => found !== undefined);
  assert.ok(code, `${file} says which code it expects`);
  const path = head.map((line) => /^# path: (\S+)/.exec(line)?.[1]).find((found) => found !== undefined);
  return { code, path };
}

describe("configurations that the program refuses", () => {
  test("are refused with the same code at the same place by the schema and the rules", (context) => {
    const unseen: string[] = [];
    for (const file of list("invalid")) {
      const { code, path } = expected(file);
      const { faults } = loadConfigDocument([join(FIXTURES, "invalid", file)], {});
      const seen = faults.some((fault) => fault.code === code && (path === undefined || fault.path === path));
      if (!seen)
        unseen.push(
          `${file}: ${code} at ${path}, found ${faults.map((f) => `${f.code} ${f.path}`).join(", ") || "nothing"}`,
        );
    }
    context.diagnostic(`only the program refuses: ${unseen.length === 0 ? "nothing" : unseen.join("; ")}`);
    assert.deepEqual(
      unseen.map((line) => line.split(":")[0]),
      [...ONLY_THE_PROGRAM],
      unseen.join("\n"),
    );
  });

  test("are refused with the same code by the program", withProgram, () => {
    for (const file of list("invalid")) {
      const { code } = expected(file);
      const document = loadConfigDocument([join(FIXTURES, "invalid", file)], {}, checker);
      assert.equal(document.checkedBy, "program", file);
      assert.ok(
        document.faults.some((fault) => fault.code === code),
        `${file}: ${code} in ${JSON.stringify(document.faults)}`,
      );
    }
  });

  test("never show the value of a variable", () => {
    const file = layer(
      "bridge: {id: '${SECRET}', nope: '${SECRET}', shutdown_timeout: '${SECRET}'}\nsessions: '${SECRET}'\n",
    );
    const { faults } = loadConfigDocument([file], { SECRET: "hunter2 hunter2" });
    assert.ok(faults.length >= 3, JSON.stringify(faults));
    assert.ok(!JSON.stringify(faults).includes("hunter2"), JSON.stringify(faults));
  });
});

describe("configurations that the program accepts", () => {
  for (const [how, program] of [
    ["the schema and the rules", undefined],
    ["the program", checker],
  ] as const) {
    const options = how === "the program" ? withProgram : {};
    test(`are accepted by ${how}`, options, () => {
      for (const file of list("valid")) {
        const document = loadConfigDocument([join(FIXTURES, "valid", file)], VARIABLES, program);
        assert.deepEqual(document.faults, [], file);
      }
    });
  }

  test("say the same once they were merged and written anew", withProgram, () => {
    for (const file of list("valid")) {
      const before = loadConfigDocument([join(FIXTURES, "valid", file)], VARIABLES, checker);
      const after = loadConfigDocument([layer(before.text)], {}, checker);
      assert.deepEqual([after.faults, after.value, after.text], [before.faults, before.value, before.text], file);
    }
  });
});

test("the scenario of a clustered exclusive session is accepted as it stands", () => {
  const scenario = join(FIXTURES, "..", "vectors", "scenario.yaml");
  for (const program of [undefined, checker]) {
    const { faults, sessions } = loadConfigDocument([scenario], SCENARIO, program);
    assert.deepEqual(faults, []);
    assert.ok(sessions.some((session) => session.exclusive && session.budget !== undefined));
  }
});

test("the configuration that comes with the stack is accepted, and every part of it is built", () => {
  const shipped = fileURLToPath(new URL("../config/bridge.yaml", import.meta.url));
  const env = variables({ ...MINIMAL });
  for (const program of [undefined, checker]) {
    const document = loadConfigDocument([shipped], env, program, ["QUEUE_URL", "HINT_TOKEN"]);
    assert.deepEqual(checkConfig(document, { broker: [] }), []);
    assert.ok(document.text.includes("${QUEUE_URL}"), "the queue's address is left to the containers");
  }
});

describe("layers", () => {
  const base = `
bridge: {id: a, log_level: info}
receivers:
  - {id: in, session_id: s, topics: [{topic: a/#, qos: 1}]}
`;

  test("change fields of earlier ones, things by their id, and clear by null", () => {
    const over =
      "bridge:\n  log_level: ~\n  max_mqtt_sessions: ${N:-3}\nreceivers: [{id: in, session_id: t}, {id: more}]\n";
    const { value } = loadConfigDocument([layer(base), layer(over)], {});
    assert.deepEqual(value, {
      bridge: { id: "a", max_mqtt_sessions: 3 },
      receivers: [{ id: "in", session_id: "t", topics: [{ topic: "a/#", qos: 1 }] }, { id: "more" }],
    });
  });

  test("leave the variables of the container in the text, and types as they were written", () => {
    const text =
      "bridge:\n  id: '${ID}'\n  instance_id: \"5\"\n  max_mqtt_sessions: ${N}\n  log_level: '$${x}${PASSWORD:-y}'\n";
    const document = loadConfigDocument([layer(text)], { ID: "a${b}", N: "7" }, undefined, ["PASSWORD"]);
    const bridge = document.value.bridge as Record<string, unknown>;
    assert.equal(bridge.max_mqtt_sessions, 7);
    assert.equal(bridge.instance_id, "5");
    assert.equal(bridge.id, "a${b}");
    assert.equal(bridge.log_level, `\${x}${standIn("PASSWORD")}`);
    assert.ok(document.text.includes('"$${x}${PASSWORD:-y}"'), document.text);
    const again = loadConfigDocument([layer(document.text)], { PASSWORD: "p" }).value.bridge as Record<string, unknown>;
    assert.deepEqual(again, { ...bridge, log_level: "${x}p" });
  });

  test("make a digest that follows the text alone", () => {
    const one = loadConfigDocument([layer(base)], {});
    assert.equal(loadConfigDocument([layer(`# a comment\n${base}`)], {}).digest, one.digest);
    assert.notEqual(loadConfigDocument([layer(base), layer("bridge: {id: b}")], {}).digest, one.digest);
    assert.match(one.digest, /^[0-9a-f]{64}$/);
  });

  test("are bounded, and must be there", () => {
    const codes = (files: string[]) => loadConfigDocument(files, {}).faults.map((fault) => fault.code);
    assert.deepEqual(codes([layer(`bridge: {id: a}\n#${"x".repeat(4 * 1024 * 1024)}`)]), ["E_FILE_TOO_LARGE"]);
    assert.deepEqual(codes([join(folder, "nothing.yaml")]), ["E_FILE"]);
  });
});

test("a program that does not run leaves the check to the schema", () => {
  const document = loadConfigDocument([join(FIXTURES, "valid", "clustered_ha.yaml")], {}, join(folder, "nothing"));
  assert.equal(document.checkedBy, "schema");
});
