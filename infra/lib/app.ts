import { type App, Validations } from "aws-cdk-lib";
import { AwsSolutionsChecks } from "cdk-nag";
import { CausewayRules, SynthRefused } from "./checks/index.ts";
import { checkSettings } from "./checks/settings.ts";
import { checkBridgeId } from "./constructs/service.ts";
import { madeQueues, type Settings } from "./settings.ts";
import { CausewayStatefulStack } from "./stacks/stateful.ts";
import { CausewayStatelessStack } from "./stacks/stateless.ts";

/** Where built artifacts are, unless in `dist` of this tree. */
export interface Artifacts {
  /**
   * The folder of `scripts/build-lambdas`.
   *
   * @default - `dist/lambdas` of this tree
   */
  readonly lambdaFolder?: string;
  /**
   * The folder of `scripts/build-image`.
   *
   * @default - `dist/image` of this tree
   */
  readonly imageContext?: string;
}

/** The stacks of a deployment. */
export interface CausewayStacks {
  /** Tables and queue, where any are made. */
  readonly state?: CausewayStatefulStack;
  /** Everything else. */
  readonly bridge: CausewayStatelessStack;
}

/** Adds the stacks that the settings ask for, called `<bridge>-state` and `<bridge>`. */
export function addStacks(app: App, settings: Settings, artifacts: Artifacts = {}): CausewayStacks {
  SynthRefused.ifAny(checkSettings(settings));
  SynthRefused.ifAny(checkBridgeId(settings.bridgeId));
  // Names of stacks have no underscores.
  const name = settings.bridgeId.replaceAll("_", "-");
  const makesState = !settings.existingTables || madeQueues(settings).length > 0;
  const state = makesState ? new CausewayStatefulStack(app, `${name}-state`, { settings }) : undefined;
  return { state, bridge: new CausewayStatelessStack(app, name, { settings, state, ...artifacts }) };
}

/** Lets the templates be looked at before they are written: by the rules of AWS Solutions, and by this stack's own. */
export function addChecks(app: App): void {
  Validations.of(app).addPlugins(new AwsSolutionsChecks(app), new CausewayRules());
}
