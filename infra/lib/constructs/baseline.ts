import { readFileSync } from "node:fs";
import { CustomResource, Duration } from "aws-cdk-lib";
import * as iam from "aws-cdk-lib/aws-iam";
import * as lambda from "aws-cdk-lib/aws-lambda";
import * as logs from "aws-cdk-lib/aws-logs";
import { Construct } from "constructs";
import { acknowledge } from "./acknowledge.ts";
import { NO_QUEUES, statements } from "./permissions.ts";
import type { IBridgeTables } from "./tables.ts";

/** What a durable session may have subscribed to at its broker before the bridge connects for the first time. */
export interface Baseline {
  /** The session's id in the configuration. */
  readonly sessionId: string;
  /** The session's key in the table of managed subscriptions. Another broker, client id or expiry is another key. */
  readonly storageIdentity: string;
  /** The filters that the broker keeps for this client id already; empty for a client id that is new. */
  readonly filters: readonly string[];
}

/** Props of {@link BaselineSeeds}. */
export interface BaselineSeedsProps {
  /** The bridge's tables. */
  readonly tables: IBridgeTables;
  /** One for each exclusive session. */
  readonly baselines: readonly Baseline[];
  /**
   * How long the function's log is kept.
   *
   * @default logs.RetentionDays.ONE_MONTH
   */
  readonly logRetention?: logs.RetentionDays;
}

/** The handler. It stands in a file of its own so that a test can run it. */
export const HANDLER = readFileSync(new URL("../../assets/baseline.py", import.meta.url), "utf8");

/**
 * Makes the row of each session in the table of managed subscriptions where there is none. A row that stands is never touched: what it says is newer.
 * Nothing is done when a baseline is removed from the stack, because the broker still keeps what the row names.
 *
 * The function has 40 lines and one permission, `UpdateItem` on that table. It answers CloudFormation with the digest that the row is keyed by, and
 * with no data.
 */
export class BaselineSeeds extends Construct {
  /** The function that writes the rows. */
  public readonly handler: lambda.Function;
  /** Its role. */
  public readonly role: iam.Role;
  /** Its log. */
  public readonly logGroup: logs.LogGroup;
  /** One for each session, by the session's id. Services depend on them. */
  public readonly seeds: Readonly<Record<string, CustomResource>>;

  public constructor(scope: Construct, id: string, props: BaselineSeedsProps) {
    super(scope, id);
    this.logGroup = new logs.LogGroup(this, "Log", { retention: props.logRetention ?? logs.RetentionDays.ONE_MONTH });
    this.role = new iam.Role(this, "Role", { assumedBy: new iam.ServicePrincipal("lambda.amazonaws.com") });
    const permissions = statements("baseline", { ...NO_QUEUES, tables: props.tables });
    for (const statement of permissions) this.role.addToPolicy(statement);
    this.logGroup.grantWrite(this.role);
    this.handler = new lambda.Function(this, "Handler", {
      description: "Makes rows of managed subscriptions where there are none",
      runtime: lambda.Runtime.PYTHON_3_14,
      architecture: lambda.Architecture.ARM_64,
      handler: "index.handler",
      code: lambda.Code.fromInline(HANDLER),
      timeout: Duration.seconds(60),
      memorySize: 256,
      role: this.role,
      logGroup: this.logGroup,
    });
    acknowledge(this.handler, "AwsSolutions-L1", "The newest Python of CDK is not offered in every region yet.");
    const made = props.baselines.map((baseline) => [baseline.sessionId, this.seed(props.tables, baseline)]);
    this.seeds = Object.fromEntries(made) as Record<string, CustomResource>;
  }

  private seed(tables: IBridgeTables, baseline: Baseline): CustomResource {
    const seed = new CustomResource(this, `Seed-${baseline.sessionId}`, {
      serviceToken: this.handler.functionArn,
      resourceType: "Custom::CausewayBaseline",
      properties: {
        Table: tables.tableNames.managed_subscriptions,
        StorageIdentity: baseline.storageIdentity,
        Filters: [...baseline.filters].sort(),
      },
    });
    // Without its permissions the first call would fail.
    seed.node.addDependency(this.role);
    return seed;
  }
}
