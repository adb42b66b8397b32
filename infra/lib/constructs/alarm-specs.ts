/** What each alarm looks at, when it goes off, and what missing data means. */
import { Duration } from "aws-cdk-lib";
import {
  ComparisonOperator,
  type IAlarmAction,
  type IMetric,
  MathExpression,
  Metric,
  TreatMissingData,
} from "aws-cdk-lib/aws-cloudwatch";
import type { BridgeConfig } from "../config/model.ts";
import { bridgeMetric } from "../metric-registry.ts";

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

/**
 * Whether messages are dropped because the configuration says how many may pass: by a limit, by the budget, by the pace, or by a key that is full. Or because
 * they come with quality of service 0: some of them go with every connection that ends, as each does in a deployment.
 */
export function dropsOnPurpose({ flow, receivers }: BridgeConfig): boolean {
  const byLimit = (flow?.limits ?? []).some(({ enabled, on_exceed }) => enabled === true && on_exceed === "drop");
  const byBudget = flow?.quota?.enabled === true && flow.quota.on_exhausted === "drop";
  const loose = (receivers ?? []).some(({ topics }) => (topics ?? []).some(({ qos }) => qos === 0));
  return byLimit || byBudget || loose || (flow?.outbound?.pace ?? "") !== "" || flow?.store?.on_full === "drop_oldest";
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

/** EMF goes out every 30 s: one holder of a lease tells 10 ones in 5 minutes, two tell 20. */
const LEASE_HELD_BY_TWO = 15;
/** Of the metric ServiceLevel: 0 none, 1 degraded, 2 full. */
const FULL = 2;
/** The tables that messages wait for; the others wait for nothing. */
const WATCHED_TABLES = ["leases", "outbox", "dlq", "managed_subscriptions"];
/** Operations whose server errors are told by DynamoDB; one alarm takes ten metrics. */
const OPERATIONS = ["GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "BatchWriteItem", "TransactWriteItems"];

/** The alarms of one bridge, before they are made. */
export class AlarmSpecs {
  readonly #props: BridgeAlarmsProps;

  public constructor(props: BridgeAlarmsProps) {
    this.#props = props;
  }

  /** Every alarm but the one that says that a deployment runs. */
  public all(): AlarmSpec[] {
    return [
      ...this.#tasks(),
      ...this.#leases(),
      ...this.#traffic(),
      ...this.#sources(),
      ...this.#outbox(),
      ...this.#functions(),
      ...this.#tables(),
    ];
  }

  #metric(name: string, statistic: string, period?: Duration, session?: string): IMetric {
    return bridgeMetric(name, {
      bridgeId: this.#props.bridgeId,
      statistic,
      ...(period && { period }),
      ...(session !== undefined && { session }),
    });
  }

  #insights(metricName: string, serviceName: string, statistic: string): Metric {
    const dimensionsMap = { ClusterName: this.#props.clusterName, ServiceName: serviceName };
    return new Metric({
      namespace: "ECS/ContainerInsights",
      metricName,
      dimensionsMap,
      statistic,
      period: Duration.minutes(1),
    });
  }

  #tasks(): AlarmSpec[] {
    const { controlServiceName, workerServiceName, clusterName } = this.#props;
    const low = ComparisonOperator.LESS_THAN_THRESHOLD;
    const use = (metricName: string, ServiceName: string) =>
      new Metric({
        namespace: "AWS/ECS",
        metricName,
        dimensionsMap: { ClusterName: clusterName, ServiceName },
        statistic: "Average",
        period: Duration.minutes(1),
      });
    const both = (metricName: string) =>
      new MathExpression({
        expression: "MAX([control, worker])",
        usingMetrics: { control: use(metricName, controlServiceName), worker: use(metricName, workerServiceName) },
        period: Duration.minutes(1),
        label: metricName,
      });
    return [
      {
        entry: "ControlMissing",
        row: "tasks",
        metric: this.#insights("RunningTaskCount", controlServiceName, "Maximum"),
        operator: low,
        threshold: 1,
        periods: 5,
        missing: TreatMissingData.BREACHING,
        description: "No control task has been running for 5 minutes.",
      },
      {
        entry: "WorkersBelowTwo",
        row: "tasks",
        metric: this.#insights("RunningTaskCount", workerServiceName, "Maximum"),
        operator: low,
        threshold: 2,
        periods: 5,
        missing: TreatMissingData.BREACHING,
        description: "Fewer than two workers have been running for 5 minutes: nobody may be left to take over.",
      },
      {
        entry: "NotLive",
        row: "tasks",
        metric: this.#metric("Live", "Minimum"),
        operator: low,
        threshold: 1,
        periods: 3,
        missing: TreatMissingData.NOT_BREACHING,
        description: "An owner loop, a source or a drain of some task stands still.",
      },
      {
        entry: "CpuHigh",
        row: "tasks",
        metric: both("CPUUtilization"),
        threshold: 80,
        periods: 5,
        missing: TreatMissingData.NOT_BREACHING,
        description: "The tasks used more than 80 % of their processors for 5 minutes.",
      },
      {
        entry: "MemoryHigh",
        row: "tasks",
        metric: both("MemoryUtilization"),
        threshold: 80,
        periods: 5,
        missing: TreatMissingData.NOT_BREACHING,
        description: "The tasks used more than 80 % of their memory for 5 minutes.",
      },
    ];
  }

  #leases(): AlarmSpec[] {
    const low = ComparisonOperator.LESS_THAN_THRESHOLD;
    const quiet = TreatMissingData.NOT_BREACHING;
    const ofSession = ({ id, failoverSloSeconds }: AlarmedSession): AlarmSpec[] => {
      const periods = Math.max(5, Math.ceil((failoverSloSeconds ?? 0) / 60));
      const specs: AlarmSpec[] = [
        {
          entry: "NoLeaseHolder",
          row: "tasks",
          of: id,
          metric: this.#metric("LeaseHeld", "Maximum", undefined, id),
          operator: low,
          threshold: 1,
          periods,
          missing: TreatMissingData.BREACHING,
          description: `Nobody has owned session ${id} for ${periods} minutes.`,
        },
        {
          entry: "TwoLeaseHolders",
          row: "tasks",
          of: id,
          metric: this.#metric("LeaseHeld", "Sum", Duration.minutes(5), id),
          threshold: LEASE_HELD_BY_TWO,
          missing: quiet,
          description: `Two tasks said at once that they own session ${id}.`,
        },
        {
          entry: "FleetNoHolder",
          row: "tasks",
          of: id,
          metric: this.#metric("LeaseHolders", "Maximum", undefined, id),
          operator: low,
          threshold: 1,
          periods,
          // Told by the control task, whose absence has an alarm of its own.
          missing: quiet,
          description: `The control task has seen nobody have session ${id} for ${periods} minutes.`,
        },
        {
          entry: "FleetTwoHolders",
          row: "tasks",
          of: id,
          metric: this.#metric("LeaseHolders", "Minimum", undefined, id),
          threshold: 1,
          periods: 3,
          missing: quiet,
          description: `The control task has seen more than one task have session ${id} for 3 minutes.`,
        },
        {
          entry: "NoWarmStandby",
          row: "tasks",
          of: id,
          metric: this.#metric("WarmStandbyAvailable", "Maximum", undefined, id),
          operator: low,
          threshold: 1,
          periods: 5,
          missing: quiet,
          description: `For 5 minutes no worker has been there that could take session ${id} over.`,
        },
        {
          entry: "SessionNotFull",
          row: "latency",
          of: id,
          metric: this.#metric("ServiceLevel", "Maximum", undefined, id),
          operator: low,
          threshold: FULL,
          periods,
          missing: TreatMissingData.BREACHING,
          description: `Session ${id} has not been at full service for ${periods} minutes.`,
        },
      ];
      if (failoverSloSeconds === undefined) return specs;
      return [
        ...specs,
        {
          entry: "FailoverSlow",
          row: "latency",
          of: id,
          metric: this.#metric("FailureToFullDuration", "Maximum", undefined, id),
          threshold: failoverSloSeconds,
          missing: quiet,
          description: `A failover of session ${id} took longer than its failover_slo of ${failoverSloSeconds} s.`,
        },
      ];
    };
    const quarter = Duration.minutes(15);
    return [
      ...this.#props.sessions.filter(({ exclusive }) => exclusive).flatMap(ofSession),
      {
        entry: "BrokerHealthStepDown",
        row: "latency",
        metric: this.#metric("BrokerHealthStepDown", "Sum"),
        threshold: 0,
        missing: quiet,
        description: "An owner let go of its lease because it could not reach the broker.",
      },
      {
        entry: "AzSpread",
        row: "tasks",
        metric: this.#metric("AzSpread", "Maximum"),
        operator: low,
        threshold: 2,
        periods: 15,
        missing: quiet,
        description: "All workers have run in one availability zone for 15 minutes: its loss would take them all.",
      },
      {
        entry: "UnseenTasks",
        row: "tasks",
        metric: this.#metric("FleetUnseenTasks", "Minimum"),
        threshold: 0,
        periods: 5,
        // Told by the control task, whose absence has an alarm of its own.
        missing: quiet,
        description:
          "A task has been there for 5 minutes without a word of itself: it cannot read the lease table, or cannot start.",
      },
      {
        entry: "LeaseExpiries",
        row: "tasks",
        metric: this.#metric("LeaseExpiries", "Sum"),
        threshold: 0,
        missing: quiet,
        description: "A lease ran out under its owner: it was not renewed in time.",
      },
      {
        entry: "LeaseFlapping",
        row: "tasks",
        metric: this.#metric("LeaseTransfers", "Sum", quarter),
        threshold: 3,
        missing: quiet,
        description: "Leases changed owners more than three times in 15 minutes.",
      },
      {
        entry: "LeaseRenewFailures",
        row: "tasks",
        metric: this.#metric("LeaseRenewFailures", "Sum", Duration.minutes(5)),
        threshold: 5,
        missing: quiet,
        description: "More than five renewals of leases failed in 5 minutes.",
      },
    ];
  }

  #traffic(): AlarmSpec[] {
    const counter = (entry: string, name: string, description: string): AlarmSpec => ({
      entry,
      row: "traffic",
      metric: this.#metric(name, "Sum"),
      threshold: 0,
      missing: TreatMissingData.NOT_BREACHING,
      description,
    });
    return [
      counter("MessagesDropped", "MessagesDropped", "Messages were dropped."),
      counter(
        "MessagesExpired",
        "MessagesExpired",
        "Messages expired before they were sent, on a route that drops those.",
      ),
      counter("DeadLetters", "DLQEntries", "Messages became dead letters."),
      counter("PoisonDropped", "MQTTIngressPoisonDropped", "The broker sent packets that are malformed or too large."),
      counter("QoS0Dropped", "MQTTQoS0Dropped", "Messages of quality of service 0 found no room."),
      counter(
        "SessionResumeLost",
        "SessionResumeLost",
        "The broker came back without the session that it should have kept: messages may be lost there.",
      ),
      {
        entry: "ConservationImbalance",
        row: "traffic",
        metric: new MathExpression({
          expression: "MAX([most, -1 * least])",
          usingMetrics: {
            most: this.#metric("ConservationImbalance", "Maximum"),
            least: this.#metric("ConservationImbalance", "Minimum"),
          },
          period: Duration.minutes(1),
          label: "ConservationImbalance",
        }),
        threshold: 0,
        periods: 3,
        missing: TreatMissingData.NOT_BREACHING,
        description: "Messages that came in are not accounted for.",
      },
    ];
  }

  #sources(): AlarmSpec[] {
    const { outboxAgeSeconds = 300, sources = [] } = this.#props;
    return sources.map(({ receiver, queueName }) => ({
      entry: "SourceQueueOld",
      row: "traffic",
      of: receiver,
      metric: new Metric({
        namespace: "AWS/SQS",
        metricName: "ApproximateAgeOfOldestMessage",
        dimensionsMap: { QueueName: queueName },
        statistic: "Maximum",
        period: Duration.minutes(1),
      }),
      threshold: outboxAgeSeconds,
      periods: 3,
      // SQS tells nothing of a queue that nobody has used for hours.
      missing: TreatMissingData.NOT_BREACHING,
      description: `The oldest message in the queue of receiver ${receiver} is older than ${outboxAgeSeconds} s.`,
    }));
  }

  #outbox(): AlarmSpec[] {
    const { outboxAgeSeconds = 300, outboxDepth = 100_000, sessions } = this.#props;
    const quiet = TreatMissingData.NOT_BREACHING;
    return [
      ...sessions.map(
        ({ id }): AlarmSpec => ({
          entry: "OutboxOld",
          row: "outbox",
          of: id,
          metric: this.#metric("OutboxOldestAge", "Maximum", undefined, id),
          threshold: outboxAgeSeconds,
          periods: 3,
          missing: quiet,
          description: `The oldest waiting message of session ${id} is older than ${outboxAgeSeconds} s.`,
        }),
      ),
      {
        entry: "OutboxDeep",
        row: "outbox",
        metric: this.#metric("OutboxDepth", "Maximum"),
        threshold: outboxDepth,
        periods: 3,
        missing: quiet,
        description: `More than ${outboxDepth} messages wait in one outbox.`,
      },
      {
        entry: "SubscriptionsQuarantined",
        row: "traffic",
        metric: this.#metric("MQTTSubscriptionsQuarantined", "Maximum"),
        threshold: 0,
        periods: 5,
        missing: quiet,
        description: "The broker has refused a filter for 5 minutes: what it would match does not arrive.",
      },
      {
        entry: "AdmissionPaused",
        row: "outbox",
        metric: this.#metric("AdmissionPaused", "Maximum"),
        operator: ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        threshold: 1,
        periods: 5,
        missing: quiet,
        description: "New messages have been held back at the source for 5 minutes.",
      },
      {
        entry: "QuotaDegraded",
        row: "outbox",
        metric: this.#metric("QuotaDegraded", "Maximum"),
        operator: ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        threshold: 1,
        periods: 5,
        missing: quiet,
        description:
          "A process has not reached the store of the bridge's budget for 5 minutes: outage_policy says what it admits.",
      },
      {
        entry: "QuotaReached",
        row: "outbox",
        metric: this.#metric("QuotaReached", "Maximum"),
        operator: ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        threshold: 1,
        periods: 1,
        missing: quiet,
        description: "The bridge's budget (flow.quota) is spent: messages wait with their broker or queue.",
      },
    ];
  }

  #functions(): AlarmSpec[] {
    const { housekeeping, redrive, outboxAgeSeconds = 300 } = this.#props;
    const quiet = TreatMissingData.NOT_BREACHING;
    const lambda = (metricName: string, FunctionName: string, period: Duration) =>
      new Metric({ namespace: "AWS/Lambda", metricName, dimensionsMap: { FunctionName }, statistic: "Sum", period });
    const specs: AlarmSpec[] = [];
    if (housekeeping !== undefined) {
      const { functionName, intervalMinutes, deadLetterQueueName } = housekeeping;
      const run = Duration.minutes(intervalMinutes);
      const gauge = (
        entry: string,
        name: string,
        threshold: number,
        periods: number,
        description: string,
      ): AlarmSpec => ({
        entry,
        row: "outbox",
        metric: this.#metric(name, "Maximum", run),
        threshold,
        periods,
        missing: quiet,
        description,
      });
      specs.push(
        {
          entry: "HousekeepingSilent",
          row: "tasks",
          metric: lambda("Invocations", functionName, run),
          operator: ComparisonOperator.LESS_THAN_THRESHOLD,
          threshold: 1,
          periods: 3,
          missing: TreatMissingData.BREACHING,
          description: "Housekeeping was not started three times in a row: depths and ages are not measured any more.",
        },
        {
          entry: "HousekeepingFailed",
          row: "tasks",
          metric: lambda("Errors", functionName, run),
          threshold: 0,
          missing: quiet,
          description: "A run of housekeeping ended with an error.",
        },
        {
          entry: "HousekeepingErrors",
          row: "tasks",
          metric: this.#metric("HousekeepingErrors", "Sum", run),
          threshold: 0,
          missing: quiet,
          description: "Housekeeping could not tidy some rows.",
        },
        {
          entry: "HousekeepingTruncated",
          row: "tasks",
          metric: this.#metric("HousekeepingTruncated", "Minimum", run),
          threshold: 0,
          periods: 6,
          missing: quiet,
          description: "Six runs of housekeeping in a row did not get through in their time.",
        },
        {
          entry: "SchedulerDeadLetters",
          row: "tasks",
          metric: new Metric({
            namespace: "AWS/SQS",
            metricName: "ApproximateNumberOfMessagesVisible",
            dimensionsMap: { QueueName: deadLetterQueueName },
            statistic: "Maximum",
            period: Duration.minutes(5),
          }),
          threshold: 0,
          missing: quiet,
          description: "The Scheduler could not start housekeeping and left a message in its dead-letter queue.",
        },
        gauge(
          "LogsWithoutOwner",
          "LogsWithoutOwner",
          0,
          3,
          "Logs with waiting messages have had no owner for three runs of housekeeping.",
        ),
        gauge(
          "OutboxPendingOld",
          "OutboxPendingOldestAge",
          Math.max(900, 3 * outboxAgeSeconds),
          2,
          "The oldest message in any log of the table, owned or not, is late.",
        ),
        gauge("DLQDepth", "DLQDepth", 0, 1, "Dead letters wait for a decision."),
      );
    }
    if (redrive !== undefined) {
      const five = Duration.minutes(5);
      specs.push(
        {
          entry: "RedriveFunctionFailed",
          row: "outbox",
          metric: lambda("Errors", redrive.functionName, five),
          threshold: 0,
          missing: quiet,
          description: "A call of the redrive function ended with an error.",
        },
        {
          entry: "RedriveFailed",
          row: "outbox",
          metric: this.#metric("RedriveFailed", "Sum", five),
          threshold: 0,
          missing: quiet,
          description: "Dead letters could not be redriven.",
        },
        {
          entry: "RedriveParked",
          row: "outbox",
          metric: this.#metric("RedriveParked", "Sum", five),
          threshold: 0,
          missing: quiet,
          description: "Dead letters were redriven as often as allowed and are parked.",
        },
      );
    }
    return specs;
  }

  #tables(): AlarmSpec[] {
    const of = (metricName: string, TableName: string, Operation?: string) =>
      new Metric({
        namespace: "AWS/DynamoDB",
        metricName,
        dimensionsMap: { TableName, ...(Operation && { Operation }) },
        statistic: "Sum",
        period: Duration.minutes(1),
      });
    return WATCHED_TABLES.flatMap((role): AlarmSpec[] => {
      const name = this.#props.tableNames[role];
      if (name === undefined) return [];
      const throttles = {
        [`${role}_reads`]: of("ReadThrottleEvents", name),
        [`${role}_writes`]: of("WriteThrottleEvents", name),
      };
      const errors = Object.fromEntries(
        OPERATIONS.map((operation, index) => [`${role}_${index}`, of("SystemErrors", name, operation)]),
      );
      const sum = (usingMetrics: Record<string, IMetric>, label: string) =>
        new MathExpression({
          // A sum over a list leaves out what has no data; `+` would have none then.
          expression: `SUM([${Object.keys(usingMetrics).join(", ")}])`,
          usingMetrics,
          period: Duration.minutes(1),
          label,
        });
      return [
        {
          entry: "TableThrottled",
          row: "outbox",
          of: role,
          metric: sum(throttles, `${role}: throttles`),
          threshold: 0,
          periods: 3,
          missing: TreatMissingData.NOT_BREACHING,
          description: `DynamoDB throttled the ${role} table in three minutes in a row.`,
        },
        {
          entry: "TableErrors",
          row: "outbox",
          of: role,
          metric: sum(errors, `${role}: errors`),
          threshold: 0,
          periods: 3,
          missing: TreatMissingData.NOT_BREACHING,
          description: `DynamoDB answered with server errors on the ${role} table in three minutes in a row.`,
        },
      ];
    });
  }

  /** Not a fault: what keeps the composite alarm quiet. */
  public deploymentRunning(): AlarmSpec {
    const { controlServiceName, workerServiceName } = this.#props;
    return {
      entry: "DeploymentRunning",
      row: "tasks",
      metric: new MathExpression({
        expression: "MAX([control, worker])",
        usingMetrics: {
          control: this.#insights("DeploymentCount", controlServiceName, "Maximum"),
          worker: this.#insights("DeploymentCount", workerServiceName, "Maximum"),
        },
        period: Duration.minutes(1),
        label: "Deployments",
      }),
      threshold: 1,
      missing: TreatMissingData.NOT_BREACHING,
      description: "A deployment is running: not a fault. It keeps BridgeUnavailable quiet.",
    };
  }
}
