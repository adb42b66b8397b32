import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const TREE = fileURLToPath(new URL("../..", import.meta.url));
const SCHEMA = fileURLToPath(new URL("../lib/generated/config.schema.json", import.meta.url));

/**
 * The `causeway` program of this tree, if one was built; tests that compare with it say so where there is none. One that prints another schema than the
 * tree has was built before or after something changed, and would be compared in vain; `CAUSEWAY_BINARY` is taken as it is.
 */
export function findChecker(): string | undefined {
  const { CAUSEWAY_BINARY, CARGO_TARGET_DIR } = process.env;
  if (CAUSEWAY_BINARY !== undefined) return existsSync(CAUSEWAY_BINARY) ? CAUSEWAY_BINARY : undefined;
  const folders = [CARGO_TARGET_DIR, join(TREE, "target"), join(homedir(), ".cache", "causeway", "target")];
  return folders
    .filter((folder) => folder !== undefined)
    .flatMap((folder) => [join(folder, "debug", "causeway"), join(folder, "release", "causeway")])
    .find((path) => existsSync(path) && isOfThisTree(path));
}

function isOfThisTree(program: string): boolean {
  const { stdout } = spawnSync(program, ["schema"], { encoding: "utf8", env: {}, timeout: 60_000 });
  return stdout === readFileSync(SCHEMA, "utf8");
}
