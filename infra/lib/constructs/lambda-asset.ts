import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import * as lambda from "aws-cdk-lib/aws-lambda";
import type { Architecture } from "./image.ts";
import { SOURCE_TREE } from "./source-tree.ts";

/** The two functions. */
export type FunctionName = "housekeeping" | "redrive";

/** The code of a function, and whether it stands for one that is not built yet. */
export interface ResolvedCode {
  /** What the function is made of. */
  readonly code: lambda.Code;
  /** True: nothing is built yet, and the stack must not be deployed. */
  readonly placeholder: boolean;
}

/** A folder whose one file says that it stands for a function. */
const PLACEHOLDER_FOLDER = fileURLToPath(new URL("../../assets/causeway-placeholder", import.meta.url));

/**
 * The zip that `scripts/build-lambdas` wrote, or the placeholder while there is none. Nothing is compiled at synth.
 *
 * @param folder where the zips are, called `<function>-<architecture>.zip`
 */
export function resolveFunctionCode(
  name: FunctionName,
  architecture: Architecture,
  folder = join(SOURCE_TREE, "dist", "lambdas"),
): ResolvedCode {
  const zip = join(folder, `${name}-${architecture}.zip`);
  if (existsSync(zip)) return { code: lambda.Code.fromAsset(zip), placeholder: false };
  return { code: lambda.Code.fromAsset(PLACEHOLDER_FOLDER), placeholder: true };
}
