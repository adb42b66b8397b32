import { RemovalPolicy } from "aws-cdk-lib";
import type * as ecs from "aws-cdk-lib/aws-ecs";
import * as secretsmanager from "aws-cdk-lib/aws-secretsmanager";
import { Construct } from "constructs";
import { acknowledge } from "./acknowledge.ts";
import { ReferencedSecret } from "./secrets.ts";

/** The program asks for 16. */
const LENGTH = 48;

/** Whether a document, as the containers read it, leaves a variable to its reader. `$${` stands for the characters themselves. */
export function namesVariable(document: string, name: string): boolean {
  return new RegExp(`(?<!\\$)\\$\\{${name}(:-[^}]*)?\\}`).test(document);
}

/** Props of {@link GeneratedSecret}. */
export interface GeneratedSecretProps {
  /** What it is for. */
  readonly description: string;
  /** Why it is not rotated. */
  readonly notRotated: string;
}

/** Random characters, made by Secrets Manager and seen by nobody on the way; ECS reads them for the tasks. They go with their stack. */
export class GeneratedSecret extends Construct {
  /** Where it is kept. */
  public readonly secret: secretsmanager.Secret;
  /** It, as a container gets it. */
  public readonly containerSecret: ecs.Secret;

  public constructor(scope: Construct, id: string, props: GeneratedSecretProps) {
    super(scope, id);
    this.secret = new secretsmanager.Secret(this, "Secret", {
      description: props.description,
      generateSecretString: { passwordLength: LENGTH, excludePunctuation: true },
      removalPolicy: RemovalPolicy.DESTROY,
    });
    acknowledge(this.secret, "AwsSolutions-SMG4", props.notRotated);
    // CDK's own reference would also allow its description. `Id` is the ARN, as `Ref` is; emulators take the latter for the name.
    const { attrId } = this.secret.node.defaultChild as secretsmanager.CfnSecret;
    this.containerSecret = new ReferencedSecret(attrId, "secretsmanager:GetSecretValue");
  }
}
