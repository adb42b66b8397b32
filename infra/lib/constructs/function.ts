import { Duration } from "aws-cdk-lib";
import * as iam from "aws-cdk-lib/aws-iam";
import * as lambda from "aws-cdk-lib/aws-lambda";
import * as logs from "aws-cdk-lib/aws-logs";
import { Construct } from "constructs";
import { SynthRefused } from "../checks/fault.ts";
import { acknowledgeOwnStreams } from "./acknowledge.ts";
import type { ConfigDelivery } from "./config-delivery.ts";
import type { Architecture } from "./image.ts";
import { type FunctionName, resolveFunctionCode } from "./lambda-asset.ts";
import { type Queues, statements } from "./permissions.ts";
import { blockDeploy, PLACEHOLDER } from "./placeholder.ts";
import { checkBridgeId, checkVariables } from "./service.ts";
import type { IBridgeTables } from "./tables.ts";

/** What both functions need to be told. */
export interface BridgeFunctionProps {
  /** The bridge's name: `bridge.id` of the configuration. */
  readonly bridgeId: string;

  /** The bridge's tables. */
  readonly tables: IBridgeTables;

  /** The configuration as it is delivered. */
  readonly configuration: ConfigDelivery;

  /**
   * Variables of the configuration that only exist at deploy. No secrets: a function needs none.
   *
   * @default - none
   */
  readonly environment?: Readonly<Record<string, string>>;

  /**
   * The processor.
   *
   * @default "arm64"
   */
  readonly architecture?: Architecture;

  /**
   * The folder of `scripts/build-lambdas`.
   *
   * @default - `dist/lambdas` of this tree
   */
  readonly lambdaFolder?: string;

  /**
   * Memory in MiB, which is also what decides about the processor's share.
   *
   * @default 512
   */
  readonly memorySize?: number;

  /**
   * How long one run may take. The function stops by itself before that and says that there is more to do.
   *
   * @default Duration.minutes(5)
   */
  readonly timeout?: Duration;

  /**
   * The function's log group.
   *
   * @default - a new one that is kept when the stack goes
   */
  readonly logGroup?: logs.ILogGroup;

  /**
   * How long a new log group keeps its lines.
   *
   * @default logs.RetentionDays.ONE_MONTH
   */
  readonly logRetention?: logs.RetentionDays;
}

/** A function of the bridge with a role and a log group of its own. */
export abstract class BridgeFunction extends Construct {
  /** The function. */
  public readonly handler: lambda.Function;
  /** What it may do: exact actions on exact ARNs. */
  public readonly role: iam.Role;
  /** Its log. */
  public readonly logGroup: logs.ILogGroup;

  protected constructor(
    scope: Construct,
    id: string,
    name: FunctionName,
    description: string,
    props: BridgeFunctionProps,
    queues: Queues,
  ) {
    super(scope, id);
    const { environment = {}, architecture = "arm64", tables } = props;
    SynthRefused.ifAny([...checkBridgeId(props.bridgeId), ...checkVariables(environment, {})]);
    this.logGroup =
      props.logGroup ??
      new logs.LogGroup(this, "Log", { retention: props.logRetention ?? logs.RetentionDays.ONE_MONTH });
    this.role = new iam.Role(this, "Role", {
      assumedBy: new iam.ServicePrincipal("lambda.amazonaws.com"),
      description,
    });
    for (const statement of statements(name, { tables, ...queues })) this.role.addToPolicy(statement);
    for (const statement of props.configuration.readStatements()) this.role.addToPolicy(statement);
    this.logGroup.grantWrite(this.role);
    acknowledgeOwnStreams(this.role, this.logGroup);
    const { code, placeholder } = resolveFunctionCode(name, architecture, props.lambdaFolder);
    this.handler = new lambda.Function(this, "Function", {
      description,
      runtime: lambda.Runtime.PROVIDED_AL2023,
      architecture: architecture === "arm64" ? lambda.Architecture.ARM_64 : lambda.Architecture.X86_64,
      handler: "bootstrap",
      code,
      role: this.role,
      logGroup: this.logGroup,
      memorySize: props.memorySize ?? 512,
      timeout: props.timeout ?? Duration.minutes(5),
      environment: {
        ...environment,
        ...tableVariables(tables),
        CAUSEWAY_BRIDGE_ID: props.bridgeId,
        CAUSEWAY_CONFIG_SSM: props.configuration.parameterName,
        CAUSEWAY_CONFIG_DIGEST: props.configuration.digest,
        CAUSEWAY_LOG_FORMAT: "json",
      },
    });
    if (placeholder) {
      (this.handler.node.defaultChild as lambda.CfnFunction).addMetadata(PLACEHOLDER, "scripts/build-lambdas");
      blockDeploy(this, `Function ${name}`, "scripts/build-lambdas");
    }
  }
}

/** `CAUSEWAY_LEASES_TABLE` and so on. */
function tableVariables(tables: IBridgeTables): Record<string, string> {
  return Object.fromEntries(
    Object.entries(tables.tableNames).map(([role, name]) => [`CAUSEWAY_${role.toUpperCase()}_TABLE`, name]),
  );
}
