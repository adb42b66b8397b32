import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { addStacks } from "../lib/app.ts";
import { bareApp, builtArtifacts, FULL, IMPORTED, MINIMAL, MIXED, noArtifacts } from "./support.ts";

const VENV = process.env.CAUSEWAY_CFN_LINT_VENV ?? join(homedir(), ".cache", "causeway", "cfn-lint-venv");
const PROGRAM = join(VENV, "bin", "cfn-lint");
const skip = existsSync(PROGRAM)
  ? false
  : `SKIPPED: cfn-lint is not installed. python3 -m venv ${VENV} && ${VENV}/bin/pip install cfn-lint==1.58.0`;

test("cfn-lint finds nothing in any template", { skip }, () => {
  const files: string[] = [];
  for (const [settings, artifacts] of [
    [MINIMAL, noArtifacts()],
    [FULL, builtArtifacts()],
    [IMPORTED, builtArtifacts()],
    [MIXED, builtArtifacts()],
  ] as const) {
    const app = bareApp();
    addStacks(app, settings, artifacts);
    files.push(...app.synth().stacks.map((stack) => stack.templateFullPath));
  }
  assert.equal(files.length, 7);
  // W3005: CDK writes dependencies that a reference implies already.
  const run = spawnSync(PROGRAM, ["--ignore-checks", "W3005", "--", ...files], { encoding: "utf8" });
  assert.equal(`${run.stdout}${run.stderr}`, "");
  assert.equal(run.status, 0);
});
