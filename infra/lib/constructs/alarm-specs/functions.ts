/** Alarms on the two functions. */
import { Duration } from "aws-cdk-lib";
import { ComparisonOperator, Metric, TreatMissingData } from "aws-cdk-lib/aws-cloudwatch";
import { metric } from "./metrics.ts";
import type { AlarmSpec, BridgeAlarmsProps } from "./spec.ts";

/** Housekeeping and redrive. */
export function functions(props: BridgeAlarmsProps): AlarmSpec[] {
  const { housekeeping, redrive, outboxAgeSeconds = 300 } = props;
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
      metric: metric(props, name, "Maximum", run),
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
        metric: metric(props, "HousekeepingErrors", "Sum", run),
        threshold: 0,
        missing: quiet,
        description: "Housekeeping could not tidy some rows.",
      },
      {
        entry: "HousekeepingTruncated",
        row: "tasks",
        metric: metric(props, "HousekeepingTruncated", "Minimum", run),
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
        metric: metric(props, "RedriveFailed", "Sum", five),
        threshold: 0,
        missing: quiet,
        description: "Dead letters could not be redriven.",
      },
      {
        entry: "RedriveParked",
        row: "outbox",
        metric: metric(props, "RedriveParked", "Sum", five),
        threshold: 0,
        missing: quiet,
        description: "Dead letters were redriven as often as allowed and are parked.",
      },
    );
  }
  return specs;
}
