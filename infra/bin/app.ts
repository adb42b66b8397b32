import { App } from "aws-cdk-lib";
import { addChecks, addStacks } from "../lib/app.ts";
import { SynthRefused } from "../lib/checks/index.ts";
import { settings } from "../settings.ts";

const app = new App();
try {
  addChecks(app);
  addStacks(app, settings);
  app.synth();
} catch (error) {
  // The message is for people; where in this program it was found helps nobody.
  if (!(error instanceof SynthRefused)) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
