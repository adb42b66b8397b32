import { ArnFormat, Stack } from "aws-cdk-lib";
import * as ecs from "aws-cdk-lib/aws-ecs";
import * as iam from "aws-cdk-lib/aws-iam";
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
    const secret = resolve(scope, reference);
    // What was written instead may be the secret itself: it is not repeated.
    if (secret === undefined)
      faults.push(refuseProp("CAUSEWAY_PRP_009", `secrets.${name}`, "this is not a reference to a secret"));
    else secrets[name] = secret;
  }
  SynthRefused.ifAny(faults);
  return secrets;
}

/** A secret that ECS reads with one action on one ARN. CDK's own reference would also allow its history and the names of all others. */
export class ReferencedSecret extends ecs.Secret {
  public readonly arn: string;
  public readonly hasField: boolean;
  private readonly action: string;
  private readonly resource: string;

  /** A parameter of SSM, by its name with the leading slash. */
  public static parameter(scope: Construct, name: string): ReferencedSecret {
    const arn = Stack.of(scope).formatArn({ service: "ssm", resource: "parameter", resourceName: name.slice(1) });
    return new ReferencedSecret(arn, "ssm:GetParameters");
  }

  /**
   * A secret of Secrets Manager, by its ARN, or by its name. The ARN of a name ends in six characters that only AWS knows, and so the permission ends
   * in six question marks.
   */
  public static secret(scope: Construct, nameOrArn: string, field?: string): ReferencedSecret {
    const named = () =>
      Stack.of(scope).formatArn({
        service: "secretsmanager",
        resource: "secret",
        resourceName: nameOrArn,
        arnFormat: ArnFormat.COLON_RESOURCE_NAME,
      });
    const arn = nameOrArn.startsWith("arn:") ? nameOrArn : named();
    const resource = nameOrArn.startsWith("arn:") ? arn : `${arn}-??????`;
    return new ReferencedSecret(
      field === undefined ? arn : `${arn}:${field}::`,
      "secretsmanager:GetSecretValue",
      resource,
      field !== undefined,
    );
  }

  /**
   * @param arn what the task definition names
   * @param action what ECS calls
   * @param resource what it is allowed on
   */
  public constructor(arn: string, action: string, resource = arn, hasField = false) {
    super();
    this.arn = arn;
    this.action = action;
    this.resource = resource;
    this.hasField = hasField;
  }

  public grantRead(grantee: iam.IGrantable): iam.Grant {
    return iam.Grant.addToPrincipal({ grantee, actions: [this.action], resourceArns: [this.resource] });
  }
}

function resolve(scope: Construct, reference: string): ecs.Secret | undefined {
  const parameter = /^ssm:(\/[A-Za-z0-9_.\-/]+)$/.exec(reference)?.[1];
  if (parameter !== undefined) return ReferencedSecret.parameter(scope, parameter);
  const [, secret, field] = /^secretsmanager:([A-Za-z0-9/_+=.@:-]+)(?:#([A-Za-z0-9_.-]+))?$/.exec(reference) ?? [];
  return secret === undefined ? undefined : ReferencedSecret.secret(scope, secret, field);
}
