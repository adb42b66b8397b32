import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { parse, stringify } from "yaml";
import { loadConfigDocument } from "../lib/config-document.ts";
import schema from "../lib/generated/config.schema.json" with { type: "json" };
import { findChecker } from "./checker.ts";

const VALID = fileURLToPath(new URL("../../tests/fixtures/valid", import.meta.url));
const checker = findChecker();
const folder = mkdtempSync(join(tmpdir(), "causeway-mutants-"));
after(() => rmSync(folder, { recursive: true }));

/** `CAUSEWAY_MUTANTS=5000 CAUSEWAY_SEED=7` looks at more, and at others. */
const COUNT = Number(process.env.CAUSEWAY_MUTANTS ?? 150);
const SEED = Number(process.env.CAUSEWAY_SEED ?? 20_261_130);

/** Values that mean something somewhere, and nothing elsewhere. */
const VALUES: readonly unknown[] = [
  ...[0, 1, 2, -1, 65_536, 5_000_000_000, 1.5, true, false, null, [], {}, "", "x", "é", "a b", "x".repeat(130)],
  ...[
    "off",
    "5s",
    "0s",
    "1h",
    "1ms",
    "30",
    "-5s",
    "sqs",
    "mqtt",
    "exclusive",
    "persistent",
    "ephemeral",
    "dynamodb",
    "memory",
    "sqlite",
  ],
  ...[
    "shared_outbox",
    "direct_hold",
    "spill_outbox",
    "fan_out",
    "clustered",
    "standalone",
    "drop",
    "dlq",
    "target_accept",
    "v3.1.1",
  ],
  ...[
    "tls://h:1",
    "tcp://h",
    "ws://h/x",
    "tls://h:99999",
    "tls://u@h",
    ":8081",
    "https://sqs.us-east-1.amazonaws.com/1/q.fifo",
  ],
  ...["a/#", "#/a", "$share/g/t", "broker", "in", "queue"],
];
const KEYS = [
  ...new Set(
    Object.values(schema.$defs).flatMap((definition) =>
      Object.keys("properties" in definition ? definition.properties : {}),
    ),
  ),
];

/** The same numbers for the same seed on every machine (mulberry32). */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

type Container = Record<string, unknown> | unknown[];
const isContainer = (value: unknown): value is Container => typeof value === "object" && value !== null;

/** Every place below a value: what holds it, and under which key. */
function places(container: Container): [Container, string][] {
  return Object.entries(container).flatMap(([key, value]) => [
    [container, key] as [Container, string],
    ...(isContainer(value) ? places(value) : []),
  ]);
}

/** Removes something, changes something, or adds something. */
function mutate(document: Container, next: () => number): void {
  const pick = <T>(all: readonly T[]): T => all[Math.floor(next() * all.length)] as T;
  const [container, key] = pick(places(document));
  const choice = next();
  const set = (target: Container, name: string, value: unknown) => Reflect.set(target, name, value);
  if (choice < 0.25) {
    if (Array.isArray(container)) container.splice(Number(key), 1);
    else delete container[key];
  } else if (choice < 0.75) {
    set(container, key, pick(VALUES));
  } else {
    const value: unknown = Reflect.get(container, key);
    const target = isContainer(value) && !Array.isArray(value) ? value : container;
    if (!Array.isArray(target)) set(target, pick(KEYS), pick(VALUES));
  }
}

test("schema and rules say of mutated configurations exactly what the program says", {
  skip: checker === undefined && "NO causeway PROGRAM OF THIS TREE WAS FOUND: build it, or set CAUSEWAY_BINARY",
}, () => {
  const next = random(SEED);
  const files = readdirSync(VALID).sort();
  const told = (faults: readonly { code: string; path: string }[]) =>
    [...new Set(faults.map(({ code, path }) => `${code} ${path}`))].sort();
  const codes = new Set<string>();
  for (let mutant = 0; mutant < COUNT; mutant += 1) {
    const document: Container = parse(
      readFileSync(join(VALID, files[Math.floor(next() * files.length)] ?? ""), "utf8"),
    );
    for (let changes = next() < 0.5 ? 1 : 2; changes > 0; changes -= 1) mutate(document, next);
    const file = join(folder, `${mutant}.yaml`);
    writeFileSync(file, stringify(document));
    const program = loadConfigDocument([file], {}, checker);
    assert.equal(program.checkedBy, "program");
    assert.deepEqual(
      told(loadConfigDocument([file], {}).faults),
      told(program.faults),
      `seed ${SEED}, mutant ${mutant}:\n${stringify(document)}`,
    );
    for (const { code } of program.faults) codes.add(code);
  }
  assert.ok(codes.size > 15, `only ${codes.size} kinds of faults were made: ${[...codes].join(" ")}`);
});
