import { App, Validations } from "aws-cdk-lib";
import { AwsSolutionsChecks } from "cdk-nag";
import { CausewayRules, SynthRefused } from "../lib/checks/index.ts";
import { CausewayStatefulStack } from "../lib/stacks/stateful.ts";
import { CausewayStatelessStack } from "../lib/stacks/stateless.ts";
import { settings } from "../settings.ts";

const app = new App();
try {
  Validations.of(app).addPlugins(new AwsSolutionsChecks(app), new CausewayRules());
  const state = new CausewayStatefulStack(app, `${settings.bridgeId}-state`, { settings });
  new CausewayStatelessStack(app, settings.bridgeId, { settings, state });
  app.synth();
} catch (error) {
  // The message is for people; where in this program it was found helps nobody.
  if (!(error instanceof SynthRefused)) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
