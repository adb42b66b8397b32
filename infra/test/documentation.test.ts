import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { PROP_RULES } from "../lib/constructs/faults.ts";

const FOLDERS = ["../lib/constructs/", "../lib/stacks/", "../lib/"];

/** Every member of every exported interface of props and settings: its name, whether it may be left out, and the comment before it. */
function members(): { where: string; name: string; optional: boolean; comment: string }[] {
  const found = [];
  for (const folder of FOLDERS) {
    for (const file of readdirSync(new URL(folder, import.meta.url)).filter((name) => name.endsWith(".ts"))) {
      const text = readFileSync(new URL(`${folder}${file}`, import.meta.url), "utf8");
      for (const [, type = "", body = ""] of text.matchAll(
        /export interface (\w*(?:Props|Settings?|Source|Artifacts))\b[^{]*\{\n([\s\S]*?)\n\}/g,
      )) {
        const pattern = /((?: {2}\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n)?) {2}readonly (\w+)(\??):/g;
        for (const [, comment = "", name = "", mark = ""] of body.matchAll(pattern)) {
          found.push({ where: `${file} ${type}.${name}`, name, optional: mark === "?", comment });
        }
      }
    }
  }
  return found;
}

test("every prop that may be left out says what happens then", () => {
  const all = members().filter(({ optional }) => optional);
  assert.ok(all.length >= 90, `only ${all.length} were found`);
  assert.deepEqual(
    all.filter(({ comment }) => !/@default /.test(comment)).map(({ where }) => where),
    [],
  );
});

test("every prop that must be given says what it is", () => {
  const required = members().filter(({ optional, where }) => !optional && !/^(alarm|dashboard)/.test(where));
  assert.ok(required.length >= 30);
  assert.deepEqual(
    required.filter(({ comment }) => comment.trim() === "").map(({ where }) => where),
    [],
  );
});

test("the README says for every refusal of props what to do", () => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const rows = [...readme.matchAll(/^\| `(CAUSEWAY_PRP_\d+)` \| (.*) \|$/gm)].map(([, code, remedy]) => [code, remedy]);
  assert.deepEqual(rows, Object.entries(PROP_RULES));
});
