/** Alarms on the tables. */
import { Duration } from "aws-cdk-lib";
import { type IMetric, MathExpression, Metric, TreatMissingData } from "aws-cdk-lib/aws-cloudwatch";
import type { AlarmSpec, BridgeAlarmsProps } from "./spec.ts";

/** The tables that messages wait for; the others wait for nothing. */
const WATCHED_TABLES = ["leases", "outbox", "dlq", "managed_subscriptions"];
/** Operations whose server errors are told by DynamoDB; one alarm takes ten metrics. */
const OPERATIONS = ["GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "BatchWriteItem", "TransactWriteItems"];

/** The tables that messages wait for. */
export function tables(props: BridgeAlarmsProps): AlarmSpec[] {
  const of = (metricName: string, TableName: string, Operation?: string) =>
    new Metric({
      namespace: "AWS/DynamoDB",
      metricName,
      dimensionsMap: { TableName, ...(Operation && { Operation }) },
      statistic: "Sum",
      period: Duration.minutes(1),
    });
  return WATCHED_TABLES.flatMap((role): AlarmSpec[] => {
    const name = props.tableNames[role];
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
