/** What the alarms have to know, and what an alarm is before it is made. */
import type { ComparisonOperator, IAlarmAction, IMetric, TreatMissingData } from "aws-cdk-lib/aws-cloudwatch";

/** What the alarms have to know about a session. */
export interface AlarmedSession {
  readonly id: string;
  /** Only exclusive sessions have a lease, and a successor. */
  readonly exclusive: boolean;
  /** The declared objective, in seconds. */
  readonly failoverSloSeconds?: number | undefined;
}

/** What the alarms have to know about a queue that the bridge receives from. */
export interface AlarmedSource {
  /** The receiver's id. */
  readonly receiver: string;
  /** The queue's name. */
  readonly queueName: string;
}

/** Props of {@link BridgeAlarms}. */
export interface BridgeAlarmsProps {
  /** The bridge's name, which its metrics carry. A literal. */
  readonly bridgeId: string;
  /** The sessions of its configuration that feed routes, and `sqs:RECEIVER` for each receiver of a queue whose routes use the outbox. */
  readonly sessions: readonly AlarmedSession[];
  /**
   * The queues that it receives from.
   *
   * @default - none
   */
  readonly sources?: readonly AlarmedSource[];
  /** The ECS cluster. It needs Container Insights: without them the alarms on numbers of tasks stay red. */
  readonly clusterName: string;
  /** The service of the control task. */
  readonly controlServiceName: string;
  /** The service of the workers. */
  readonly workerServiceName: string;
  /** The tables by role. */
  readonly tableNames: Readonly<Record<string, string>>;
  /**
   * The housekeeping function.
   *
   * @default - no alarms on it
   */
  readonly housekeeping?: {
    /** Its name in Lambda. */
    readonly functionName: string;
    /** How often it is started. */
    readonly intervalMinutes: number;
    /** Where the Scheduler leaves starts that failed. */
    readonly deadLetterQueueName: string;
  };
  /**
   * The redrive function.
   *
   * @default - no alarms on it
   */
  readonly redrive?: {
    /** Its name in Lambda. */
    readonly functionName: string;
  };
  /**
   * What an alarm does when it goes off and when it is over, such as `new SnsAction(topic)`.
   *
   * @default - nothing; the alarms show on the dashboard and in CloudWatch
   */
  readonly actions?: readonly IAlarmAction[];
  /**
   * From which age of the oldest waiting message an outbox is late, or a queue that the bridge receives from, in seconds.
   *
   * @default 300
   */
  readonly outboxAgeSeconds?: number;
  /**
   * How many messages may wait in all outboxes together.
   *
   * @default 100000
   */
  readonly outboxDepth?: number;
  /**
   * Whether the configuration drops messages on purpose, as {@link dropsOnPurpose} tells: then `MessagesDropped` rolls no deployment back.
   *
   * @default false
   */
  readonly dropsOnPurpose?: boolean;
}

/** Which row of the dashboard an alarm belongs to. */
export type AlarmRow = "traffic" | "latency" | "outbox" | "tasks";

/** An alarm before it is made. */
export interface AlarmSpec {
  readonly entry: string;
  readonly row: AlarmRow;
  /** Which session or table; left out where there is one alarm of the kind. */
  readonly of?: string;
  readonly metric: IMetric;
  readonly operator?: ComparisonOperator;
  readonly threshold: number;
  readonly periods?: number;
  readonly missing: TreatMissingData;
  readonly description: string;
}
