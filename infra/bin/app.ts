import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { App } from "aws-cdk-lib";
import { addChecks, addStacks } from "../lib/app.ts";
import { SynthRefused } from "../lib/checks/index.ts";
import { refuseProp } from "../lib/constructs/faults.ts";
import type { Settings } from "../lib/settings.ts";

const app = new App();
const SETTINGS = fileURLToPath(new URL("../settings.ts", import.meta.url));

/**
 * The settings: those of settings.ts, or of another file like it, for a second environment: `cdk deploy -c settings=staging.ts`, or
 * `CAUSEWAY_SETTINGS=staging.ts` where the arguments are not at hand.
 */
async function settings(): Promise<Settings> {
  const other: unknown = app.node.tryGetContext("settings") ?? process.env.CAUSEWAY_SETTINGS;
  const file = other === undefined ? SETTINGS : resolve(String(other));
  if (!existsSync(file)) {
    throw new SynthRefused([refuseProp("CAUSEWAY_PRP_016", "settings", `the file ${file} does not exist`)]);
  }
  try {
    // Whether it exports any is checked with the rest.
    return ((await import(pathToFileURL(file).href)) as { settings: Settings }).settings;
  } catch (error) {
    // What cannot be read is told by line and column; what fails while it runs is told as it is.
    if (!(error instanceof Error) || error.name !== "TransformError") throw error;
    const [, ...places] = error.message.split("\n");
    throw new SynthRefused([refuseProp("CAUSEWAY_PRP_016", "settings", places.join("; "))]);
  }
}

try {
  addChecks(app);
  const folder = (name: string): string | undefined => app.node.tryGetContext(name);
  addStacks(app, await settings(), { lambdaFolder: folder("lambdaFolder"), imageContext: folder("imageContext") });
  app.synth();
} catch (error) {
  // The message is for people; where in this program it was found helps nobody.
  if (!(error instanceof SynthRefused)) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
