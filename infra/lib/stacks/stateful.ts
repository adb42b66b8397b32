import { Stack, type StackProps } from "aws-cdk-lib";
import type { Construct } from "constructs";
import { BridgeQueue } from "../constructs/queues.ts";
import { BridgeTables, defaultTableNames } from "../constructs/tables.ts";
import { madeQueues, QUEUE_VARIABLE, type Settings } from "../settings.ts";

/** Props of {@link CausewayStatefulStack}. */
export interface CausewayStatefulStackProps extends StackProps {
  /** What is deployed. */
  readonly settings: Settings;
}

/** What must outlive every deployment of the bridge: tables and queues. Nothing in it is deleted with it. */
export class CausewayStatefulStack extends Stack {
  /** The tables that were made here. */
  public readonly tables?: BridgeTables;
  /** The queues that were made here with their dead-letter queues, by the variables that stand for their addresses. */
  public readonly bridgeQueues: Readonly<Record<string, BridgeQueue>>;

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
    this.bridgeQueues = Object.fromEntries(
      madeQueues(settings).map(([variable, { name, maxReceiveCount }]) => {
        // The identity of a queue that stands must not change: a new one would take its name.
        const id = variable === QUEUE_VARIABLE ? "Queue" : `Queue-${variable}`;
        return [variable, new BridgeQueue(this, id, { queueName: name, maxReceiveCount })];
      }),
    );
  }
}
