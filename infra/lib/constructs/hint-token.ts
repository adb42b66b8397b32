import { RemovalPolicy } from "aws-cdk-lib";
import type * as ecs from "aws-cdk-lib/aws-ecs";
import * as secretsmanager from "aws-cdk-lib/aws-secretsmanager";
import { Construct } from "constructs";
import { acknowledge } from "./acknowledge.ts";
import { ReferencedSecret } from "./secrets.ts";

/** The variable of the configuration that stands for the token: `http: {hint_token: ${HINT_TOKEN}}`. */
export const HINT_TOKEN = "HINT_TOKEN";

/** The program asks for 16. */
const LENGTH = 48;

/** Whether a document, as the containers read it, leaves the token to its reader. `$${` stands for the characters themselves. */
export function namesHintToken(document: string): boolean {
  return new RegExp(`(?<!\\$)\\$\\{${HINT_TOKEN}(:-[^}]*)?\\}`).test(document);
}

/** Props of {@link HintToken}. */
export interface HintTokenProps {
  /** The bridge's name. */
  readonly bridgeId: string;
}

/**
 * By what the tasks of a bridge recognise each other's hints that a lease is free. Made by Secrets Manager and seen by nobody; ECS alone reads it, for
 * the tasks. It goes with its stack: the next one makes another.
 */
export class HintToken extends Construct {
  /** Where it is kept. */
  public readonly secret: secretsmanager.Secret;
  /** It, as a container gets it. */
  public readonly containerSecret: ecs.Secret;

  public constructor(scope: Construct, id: string, props: HintTokenProps) {
    super(scope, id);
    this.secret = new secretsmanager.Secret(this, "Secret", {
      description: `What the tasks of the bridge ${props.bridgeId} recognise each other's hints by`,
      generateSecretString: { passwordLength: LENGTH, excludePunctuation: true },
      removalPolicy: RemovalPolicy.DESTROY,
    });
    acknowledge(
      this.secret,
      "AwsSolutions-SMG4",
      "It must be the same in all tasks, which read it when they start: rotated, those of before and after would refuse each other's hints.",
    );
    // CDK's own reference would also allow its description. `Id` is the ARN, as `Ref` is; emulators take the latter for the name.
    const { attrId } = this.secret.node.defaultChild as secretsmanager.CfnSecret;
    this.containerSecret = new ReferencedSecret(attrId, "secretsmanager:GetSecretValue");
  }
}
