import { Stack, type StackProps } from "aws-cdk-lib";
import type { Construct } from "constructs";
import { BridgeQueue } from "../constructs/queues.ts";
import { BridgeTables, defaultTableNames } from "../constructs/tables.ts";
import type { Settings } from "../settings.ts";

/** Props of {@link CausewayStatefulStack}. */
export interface CausewayStatefulStackProps extends StackProps {
  /** What is deployed. */
  readonly settings: Settings;
}

/** What must outlive every deployment of the bridge: tables and queues. Nothing in it is deleted with it. */
export class CausewayStatefulStack extends Stack {
  /** The tables that were made here. */
  public readonly tables?: BridgeTables;
  /** The queue that was made here, and its dead-letter queue. */
  public readonly bridgeQueue?: BridgeQueue;

  public constructor(scope: Construct, id: string, props: CausewayStatefulStackProps) {
    super(scope, id, {
      description: "Causeway: tables and queues",
      ...props,
      terminationProtection: props.terminationProtection ?? props.settings.terminationProtection ?? true,
    });
    const { settings } = props;
    if (!settings.existingTables) {
      this.tables = new BridgeTables(this, "Tables", { tableNames: defaultTableNames(settings.tablePrefix) });
    }
    if ("name" in settings.queue) this.bridgeQueue = new BridgeQueue(this, "Queue", { queueName: settings.queue.name });
  }
}
