import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { App, Validations } from "aws-cdk-lib";
import { addChecks, addStacks } from "../lib/app.ts";
import type { Settings } from "../lib/settings.ts";
import { builtArtifacts, FULL, flags, IMPORTED, MINIMAL, MIXED, noArtifacts } from "./support.ts";

interface Violation {
  readonly ruleName: string;
  readonly severity?: string;
  readonly description: string;
}

/** Synthesizes as the command line does, and answers what was found and not acknowledged. */
function findings(
  settings: Settings,
  artifacts: Parameters<typeof addStacks>[2],
): { app: App; violations: Violation[]; refused: unknown } {
  const app = new App({ context: { ...flags(), "@aws-cdk/core:validationReportJson": true } });
  addChecks(app);
  addStacks(app, settings, artifacts);
  let refused: unknown;
  try {
    app.synth();
  } catch (error) {
    refused = error;
  }
  const report = JSON.parse(readFileSync(join(app.outdir, "validation-report.json"), "utf8"));
  const violations = report.pluginReports.flatMap((plugin: { violations: Violation[] }) => plugin.violations);
  return { app, violations, refused };
}

const VARIANTS: readonly [string, Settings][] = [
  ["minimal", MINIMAL],
  ["full", FULL],
  ["imported", IMPORTED],
  ["mixed", MIXED],
  ["without NAT and flow logs", { ...MINIMAL, vpc: { natGateways: 0, flowLogs: false } }],
];

for (const [name, settings] of VARIANTS) {
  test(`no rule of AWS Solutions, of CloudFormation or of our own finds anything: ${name}`, () => {
    const { violations, refused } = findings(settings, builtArtifacts());
    assert.deepEqual(violations, []);
    assert.equal(refused, undefined);
  });
}

test("what is not built is found, and may be synthesized", () => {
  const { violations, refused } = findings(MINIMAL, noArtifacts());
  assert.equal(refused, undefined);
  assert.deepEqual(
    violations.map((violation) => violation.ruleName),
    Array(4).fill("CAUSEWAY_AST_001"),
    "two task definitions and two functions",
  );
});

test("every finding that is acknowledged has a reason that says something", () => {
  const reasons: string[] = [];
  for (const [, settings] of VARIANTS) {
    const app = new App({ builtinCloudFormationValidation: false, context: flags() });
    addStacks(app, settings, noArtifacts());
    for (const node of app.node.findAll()) {
      for (const { type, data } of node.node.metadata) {
        if (type !== Validations.ACKNOWLEDGED_RULES_METADATA_KEY) continue;
        for (const [id, reason] of Object.entries(data as Record<string, string>)) {
          if (id.includes("AwsSolutions")) reasons.push(`${id}: ${reason}`);
        }
      }
    }
  }
  const known = [...new Set(reasons)].sort();
  assert.ok(known.length >= 4, known.join("\n"));
  for (const line of known) assert.match(line, /: .{25,}\.$/, line);
});
