import { RemovalPolicy, SecretValue, Stack } from "aws-cdk-lib";
import type * as ecs from "aws-cdk-lib/aws-ecs";
import * as iam from "aws-cdk-lib/aws-iam";
import * as secretsmanager from "aws-cdk-lib/aws-secretsmanager";
import * as ssm from "aws-cdk-lib/aws-ssm";
import { Construct } from "constructs";
import { SynthRefused } from "../checks/fault.ts";
import { acknowledge } from "./acknowledge.ts";
import { refuseProp } from "./faults.ts";
import { ReferencedSecret } from "./secrets.ts";

const STANDARD_BYTES = 4096;
const ADVANCED_BYTES = 8192;
/** The largest secret of Secrets Manager. */
export const MAX_DOCUMENT_BYTES = 65_536;

/** Props of {@link ConfigDelivery}. */
export interface ConfigDeliveryProps {
  /** The bridge's name. */
  readonly bridgeId: string;
  /** The merged document, without secrets. */
  readonly text: string;
  /** SHA-256 of the document, hexadecimal. */
  readonly digest: string;
}

/**
 * The configuration as tasks and functions read it. It is stored under its digest and never changed: another configuration is another parameter, which
 * makes another revision of the task definitions, so that it rolls out, and back, like a program.
 *
 * Up to 8 KiB it is a parameter of SSM; above, a secret of Secrets Manager for its size alone, which is read through the same calls.
 */
export class ConfigDelivery extends Construct {
  /** What `GetParameter` reads the document by. */
  public readonly parameterName: string;
  /** The digest that the document is stored under. */
  public readonly digest: string;
  /** The document as a container's `CAUSEWAY_CONFIG_INLINE`. */
  public readonly containerSecret: ecs.Secret;
  /** Where the document is small enough. */
  public readonly parameter?: ssm.StringParameter;
  /** Where it is not. */
  public readonly secret?: secretsmanager.Secret;

  public constructor(scope: Construct, id: string, props: ConfigDeliveryProps) {
    super(scope, id);
    this.digest = props.digest;
    const bytes = Buffer.byteLength(props.text, "utf8");
    // The digest in the id makes another configuration another resource, which exists before the old one goes.
    const key = props.digest.slice(0, 12);
    const name = `/${props.bridgeId}/config/${key}`;
    if (bytes > MAX_DOCUMENT_BYTES) {
      throw new SynthRefused([
        refuseProp(
          "CAUSEWAY_PRP_002",
          "bridgeConfig",
          `the document has ${bytes} bytes; ${MAX_DOCUMENT_BYTES} can be delivered`,
        ),
      ]);
    }
    if (bytes > ADVANCED_BYTES) {
      this.secret = this.store(name.slice(1), key, props.text);
      this.parameterName = `/aws/reference/secretsmanager${name}`;
      this.containerSecret = new ReferencedSecret(this.secret.secretArn, "secretsmanager:GetSecretValue");
    } else {
      this.parameter = new ssm.StringParameter(this, key, {
        parameterName: name,
        stringValue: props.text,
        description: `Configuration of the bridge ${props.bridgeId}`,
        tier: bytes > STANDARD_BYTES ? ssm.ParameterTier.ADVANCED : ssm.ParameterTier.STANDARD,
      });
      this.parameterName = name;
      this.containerSecret = new ReferencedSecret(this.parameter.parameterArn, "ssm:GetParameters");
    }
  }

  /** What a function needs to read the document with `GetParameter`. */
  public readStatements(): iam.PolicyStatement[] {
    const resource = this.parameterName.slice(1);
    const arn = Stack.of(this).formatArn({ service: "ssm", resource: "parameter", resourceName: resource });
    const read = new iam.PolicyStatement({ sid: "Config", actions: ["ssm:GetParameter"], resources: [arn] });
    if (this.secret === undefined) return [read];
    const actions = ["secretsmanager:GetSecretValue"];
    return [read, new iam.PolicyStatement({ sid: "ConfigSecret", actions, resources: [this.secret.secretArn] })];
  }

  private store(secretName: string, key: string, text: string): secretsmanager.Secret {
    const secret = new secretsmanager.Secret(this, key, {
      secretName,
      secretStringValue: SecretValue.unsafePlainText(text),
      description: "Configuration of the bridge; stored as a secret for its size",
      removalPolicy: RemovalPolicy.DESTROY,
    });
    acknowledge(
      secret,
      "AwsSolutions-SMG4",
      "A configuration without secrets, stored here for its size; it never changes.",
    );
    return secret;
  }
}
