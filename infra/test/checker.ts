import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const TREE = fileURLToPath(new URL("../..", import.meta.url));

/** The `causeway` program, if one was built; tests that compare with it say so where there is none. */
export function findChecker(): string | undefined {
  const folders = [process.env.CARGO_TARGET_DIR, join(TREE, "target"), join(homedir(), ".cache", "causeway", "target")];
  const built = folders.flatMap((folder) =>
    folder === undefined ? [] : [join(folder, "debug"), join(folder, "release")],
  );
  return [process.env.CAUSEWAY_BINARY, ...built.map((folder) => join(folder, "causeway"))].find(
    (path) => path !== undefined && existsSync(path),
  );
}
