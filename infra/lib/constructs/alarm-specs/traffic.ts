/** Alarms on what comes in and goes out. */
import { Duration } from "aws-cdk-lib";
import { MathExpression, Metric, TreatMissingData } from "aws-cdk-lib/aws-cloudwatch";
import type { BridgeConfig } from "../../config/model.ts";
import { metric } from "./metrics.ts";
import type { AlarmSpec, BridgeAlarmsProps } from "./spec.ts";

/** Messages that came to no good end. */
export function traffic(props: BridgeAlarmsProps): AlarmSpec[] {
  const counter = (entry: string, name: string, description: string): AlarmSpec => ({
    entry,
    row: "traffic",
    metric: metric(props, name, "Sum"),
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
          most: metric(props, "ConservationImbalance", "Maximum"),
          least: metric(props, "ConservationImbalance", "Minimum"),
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

/** The queues that the bridge receives from. */
export function sources(props: BridgeAlarmsProps): AlarmSpec[] {
  const { outboxAgeSeconds = 300, sources = [] } = props;
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

/**
 * Whether messages are dropped because the configuration says how many may pass: by a limit, by the budget, by the pace, or by a key that is full. Or because
 * they come with quality of service 0: some of them go with every connection that ends, as each does in a deployment.
 */
export function dropsOnPurpose({ flow, receivers }: BridgeConfig): boolean {
  const byLimit = (flow?.limits ?? []).some(({ enabled, on_exceed }) => enabled === true && on_exceed === "drop");
  const byBudget = flow?.quota?.enabled === true && flow.quota.on_exhausted === "drop";
  const loose = (receivers ?? []).some(({ topics }) => (topics ?? []).some(({ qos }) => (qos ?? 0) === 0));
  return byLimit || byBudget || loose || (flow?.outbound?.pace ?? "") !== "" || flow?.store?.on_full === "drop_oldest";
}
