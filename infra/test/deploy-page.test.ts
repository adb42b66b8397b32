import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const read = (path: string) => readFileSync(fileURLToPath(new URL(path, import.meta.url)), "utf8");

test("docs/deploy.md names every setting", () => {
  const body = /export interface Settings \{\n([\s\S]*?)\n\}/.exec(read("../lib/settings.ts"))?.[1] ?? "";
  const fields = [...body.matchAll(/^ {2}readonly ([a-zA-Z]+)\??:/gm)].map((match) => match[1] ?? "");
  assert.ok(fields.length > 15, fields.join(" "));
  const page = read("../../docs/deploy.md");
  assert.deepEqual(
    fields.filter((field) => !page.includes(`\`${field}\``)),
    [],
  );
});

test("five commands lead from a clone to a running bridge", () => {
  const block =
    /## From a clone to a running bridge[\s\S]*?```sh\n([\s\S]*?)```/.exec(read("../../docs/deploy.md"))?.[1] ?? "";
  const commands = block.trim().split("\n");
  assert.equal(commands.length, 5, block);
  assert.equal(commands[0], "cd infra");
  assert.match(commands[4] ?? "", /^npx cdk deploy/);
});

test("links of the pages lead somewhere", () => {
  for (const page of ["deploy.md", "localstack.md"]) {
    const text = read(`../../docs/${page}`);
    for (const [, target] of text.matchAll(/\]\(([A-Za-z][A-Za-z0-9_.-]*)\)/g))
      assert.ok(read(`../../docs/${target}`).length > 0, target);
  }
});
