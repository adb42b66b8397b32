import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const read = (name: string) => JSON.parse(readFileSync(new URL(`../${name}`, import.meta.url), "utf8"));

test("every dependency is pinned to one version", () => {
  const manifest = read("package.json");
  const wanted = { ...manifest.dependencies, ...manifest.devDependencies } as Record<string, string>;
  assert.ok(Object.keys(wanted).length >= 8);
  for (const [name, version] of Object.entries(wanted)) {
    assert.match(version, /^\d+\.\d+\.\d+$/, `${name} is not pinned: ${version}`);
  }
});

test("the lockfile names no registry", () => {
  const lock = readFileSync(new URL("../package-lock.json", import.meta.url), "utf8");
  assert.ok(lock.includes('"integrity"'));
  assert.ok(!lock.includes('"resolved"'), "install with omit-lockfile-registry-resolved");
});

test("the tool asks for no telemetry and sets every recommended flag", () => {
  const cdk = read("cdk.json");
  assert.equal(cdk["cli-telemetry"], false);
  const recommended = read("node_modules/aws-cdk-lib/recommended-feature-flags.json");
  assert.deepEqual(cdk.context, recommended);
});
