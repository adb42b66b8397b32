/**
 * All tests but those that `unit` in package.json names, because they keep a processor busy on their own, in one process: loading CDK takes a second, and
 * templates that were made once are used again. `node --import tsx --test test/NAME.test.ts` runs one file alone.
 */
import { readdirSync } from "node:fs";
import manifest from "../package.json" with { type: "json" };

const apart = manifest.scripts.unit.split(" ");

for (const file of readdirSync(new URL(".", import.meta.url)).sort()) {
  if (file.endsWith(".test.ts") && !apart.includes(`test/${file}`)) await import(`./${file}`);
}
