import { CfnParameter, CfnRule, Fn, Stack } from "aws-cdk-lib";
import type { Construct } from "constructs";

/** The metadata key of a resource that would run an artifact which is not built yet. Its value is the script that builds it. */
export const PLACEHOLDER = "causeway-placeholder";

/** What builds the artifacts. */
export type BuildScript = "scripts/build-image" | "scripts/build-lambdas";

/** Names of the parameters: the command line repeats them when it refuses to deploy. */
const PARAMETERS: Readonly<Record<BuildScript, string>> = {
  "scripts/build-image": "RunScriptsBuildImageFirst",
  "scripts/build-lambdas": "RunScriptsBuildLambdasFirst",
};

/**
 * Lets the stack be synthesized, looked at and tested, but not deployed, until an artifact is built: the template gets a parameter without a
 * default, which the command line refuses to go without, and a rule by which CloudFormation refuses every value of it.
 */
export function blockDeploy(scope: Construct, what: string, script: BuildScript): void {
  const stack = Stack.of(scope);
  const id = PARAMETERS[script];
  const found = stack.node.tryFindChild(id);
  if (found instanceof CfnParameter) {
    found.description = `${what}; ${found.description}`;
    return;
  }
  const description = `${what}: not built yet. Run ${script}, then deploy again.`;
  const parameter = new CfnParameter(stack, id, { type: "String", description });
  new CfnRule(stack, `${id}Rule`, {
    assertions: [
      {
        // No value is both.
        assert: Fn.conditionAnd(
          Fn.conditionEquals(parameter.valueAsString, "built"),
          Fn.conditionEquals(parameter.valueAsString, "not built"),
        ),
        assertDescription: `An artifact is not built yet: run ${script}, then deploy again.`,
      },
    ],
  });
}
