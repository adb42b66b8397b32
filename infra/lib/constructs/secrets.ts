import * as ecs from "aws-cdk-lib/aws-ecs";
import * as secretsmanager from "aws-cdk-lib/aws-secretsmanager";
import * as ssm from "aws-cdk-lib/aws-ssm";
import type { Construct } from "constructs";
import { type SynthFault, SynthRefused } from "../checks/fault.ts";
import { refuseProp } from "./faults.ts";

/**
 * Secrets by reference, as a container gets them: `ssm:/NAME` (a SecureString), `secretsmanager:NAME-OR-ARN`, or one field of a secret that holds JSON,
 * `secretsmanager:NAME-OR-ARN#FIELD`. Values never pass through the stack.
 */
export function containerSecrets(
  scope: Construct,
  references: Readonly<Record<string, string>>,
): Record<string, ecs.Secret> {
  const faults: SynthFault[] = [];
  const secrets: Record<string, ecs.Secret> = {};
  for (const [name, reference] of Object.entries(references)) {
    const secret = resolve(scope, name, reference);
    // What was written instead may be the secret itself: it is not repeated.
    if (secret === undefined)
      faults.push(refuseProp("CAUSEWAY_PRP_009", `secrets.${name}`, "this is not a reference to a secret"));
    else secrets[name] = secret;
  }
  SynthRefused.ifAny(faults);
  return secrets;
}

function resolve(scope: Construct, name: string, reference: string): ecs.Secret | undefined {
  const id = `Secret-${name}`;
  const parameter = /^ssm:(\/[A-Za-z0-9_.\-/]+)$/.exec(reference)?.[1];
  if (parameter !== undefined) {
    return ecs.Secret.fromSsmParameter(
      ssm.StringParameter.fromSecureStringParameterAttributes(scope, id, { parameterName: parameter }),
    );
  }
  const [, secret, field] = /^secretsmanager:([A-Za-z0-9/_+=.@:-]+)(?:#([A-Za-z0-9_.-]+))?$/.exec(reference) ?? [];
  if (secret === undefined) return undefined;
  const found = secret.startsWith("arn:")
    ? secretsmanager.Secret.fromSecretCompleteArn(scope, id, secret)
    : secretsmanager.Secret.fromSecretNameV2(scope, id, secret);
  return ecs.Secret.fromSecretsManager(found, field);
}
