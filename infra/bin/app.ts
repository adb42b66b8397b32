import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { App } from "aws-cdk-lib";
import { addChecks, addStacks } from "../lib/app.ts";
import { SynthRefused } from "../lib/checks/index.ts";
import type { Settings } from "../lib/settings.ts";
import { settings as usual } from "../settings.ts";

const app = new App();

/**
 * The settings: those of settings.ts, or of another file like it, for a second environment: `cdk deploy -c settings=staging.ts`, or
 * `CAUSEWAY_SETTINGS=staging.ts` where the arguments are not at hand.
 */
async function settings(): Promise<Settings> {
  const other: unknown = app.node.tryGetContext("settings") ?? process.env.CAUSEWAY_SETTINGS;
  if (other === undefined) return usual;
  const file = pathToFileURL(resolve(String(other))).href;
  const { settings: found } = (await import(file)) as { settings?: Settings };
  if (found === undefined) throw new Error(`${String(other)} exports no \`settings\``);
  return found;
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
