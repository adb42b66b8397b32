import { CfnParameter, CfnRule, Fn, Stack } from "aws-cdk-lib";
import type { Construct } from "constructs";

/** The metadata key of a resource that would run an artifact which is not built yet. Its value is the script that builds it. */
export const PLACEHOLDER = "causeway-placeholder";

const PARAMETER = "ArtifactsAreNotBuilt";

/**
 * Lets the stack be synthesized, looked at and tested, but not deployed, until an artifact is built: the template gets a parameter without a
 * default, which the CLI and CloudFormation refuse to go without, and a rule that refuses every value of it.
 */
export function blockDeploy(scope: Construct, what: string, script: string): void {
  const stack = Stack.of(scope);
  const description = `${what} is a ${PLACEHOLDER}: run ${script} first, then deploy again.`;
  const found = stack.node.tryFindChild(PARAMETER);
  if (found instanceof CfnParameter) {
    if (!found.description?.includes(what)) found.description = `${found.description} ${description}`;
    return;
  }
  const parameter = new CfnParameter(stack, PARAMETER, { type: "String", description });
  new CfnRule(stack, `${PARAMETER}Rule`, {
    assertions: [
      {
        // No value is both.
        assert: Fn.conditionAnd(
          Fn.conditionEquals(parameter.valueAsString, "built"),
          Fn.conditionEquals(parameter.valueAsString, "not built"),
        ),
        assertDescription:
          "An artifact is not built. The parameter ArtifactsAreNotBuilt tells which, and how to build it.",
      },
    ],
  });
}
