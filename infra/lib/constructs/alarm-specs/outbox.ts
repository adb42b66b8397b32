/** Alarms on what waits. */
import { ComparisonOperator, TreatMissingData } from "aws-cdk-lib/aws-cloudwatch";
import { metric } from "./metrics.ts";
import type { AlarmSpec, BridgeAlarmsProps } from "./spec.ts";

/** What waits in the outboxes, and why. */
export function outbox(props: BridgeAlarmsProps): AlarmSpec[] {
  const { outboxAgeSeconds = 300, outboxDepth = 100_000, sessions } = props;
  const quiet = TreatMissingData.NOT_BREACHING;
  return [
    ...sessions.map(
      ({ id }): AlarmSpec => ({
        entry: "OutboxOld",
        row: "outbox",
        of: id,
        metric: metric(props, "OutboxOldestAge", "Maximum", undefined, id),
        threshold: outboxAgeSeconds,
        periods: 3,
        missing: quiet,
        description: `The oldest waiting message of session ${id} is older than ${outboxAgeSeconds} s.`,
      }),
    ),
    {
      entry: "OutboxDeep",
      row: "outbox",
      metric: metric(props, "OutboxDepth", "Maximum"),
      threshold: outboxDepth,
      periods: 3,
      missing: quiet,
      description: `More than ${outboxDepth} messages wait in one outbox.`,
    },
    {
      entry: "SubscriptionsQuarantined",
      row: "traffic",
      metric: metric(props, "MQTTSubscriptionsQuarantined", "Maximum"),
      threshold: 0,
      periods: 5,
      missing: quiet,
      description: "The broker has refused a filter for 5 minutes: what it would match does not arrive.",
    },
    {
      entry: "AdmissionPaused",
      row: "outbox",
      metric: metric(props, "AdmissionPaused", "Maximum"),
      operator: ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
      threshold: 1,
      periods: 5,
      missing: quiet,
      description: "New messages have been held back at the source for 5 minutes.",
    },
    {
      entry: "QuotaDegraded",
      row: "outbox",
      metric: metric(props, "QuotaDegraded", "Maximum"),
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
      metric: metric(props, "QuotaReached", "Maximum"),
      operator: ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
      threshold: 1,
      periods: 1,
      missing: quiet,
      description: "The bridge's budget (flow.quota) is spent: on_exhausted says what becomes of messages.",
    },
  ];
}
