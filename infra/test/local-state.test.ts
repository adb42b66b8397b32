import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { settings } from "../settings.local.ts";
import { noArtifacts, synthesize } from "./support.ts";

const FILE = new URL("../lib/generated/local-state.template.json", import.meta.url);

/** `scripts/local up`, the demo and the tests make their tables and queues from this file, so that they need no Node and are those of a deployment. */
test("the template of the local stack is what its settings lead to (UPDATE_DOCS=1 writes it)", () => {
  const { state } = synthesize(settings, noArtifacts());
  assert.ok(state);
  const synthesized = `${JSON.stringify(state.toJSON(), null, 2)}\n`;
  if (process.env.UPDATE_DOCS === "1") writeFileSync(FILE, synthesized);
  assert.equal(readFileSync(FILE, "utf8"), synthesized, "run again with UPDATE_DOCS=1");
});
