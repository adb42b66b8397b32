/** Alarms on the tasks. */
import { Duration } from "aws-cdk-lib";
import { ComparisonOperator, MathExpression, Metric, TreatMissingData } from "aws-cdk-lib/aws-cloudwatch";
import { insights, metric } from "./metrics.ts";
import type { AlarmSpec, BridgeAlarmsProps } from "./spec.ts";

/** The tasks of the cluster. */
export function tasks(props: BridgeAlarmsProps): AlarmSpec[] {
  const { controlServiceName, workerServiceName, clusterName } = props;
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
      metric: insights(props, "RunningTaskCount", controlServiceName, "Maximum"),
      operator: low,
      threshold: 1,
      periods: 5,
      missing: TreatMissingData.BREACHING,
      description: "No control task has been running for 5 minutes.",
    },
    {
      entry: "WorkersBelowTwo",
      row: "tasks",
      metric: insights(props, "RunningTaskCount", workerServiceName, "Maximum"),
      operator: low,
      threshold: 2,
      periods: 5,
      missing: TreatMissingData.BREACHING,
      description: "Fewer than two workers have been running for 5 minutes: nobody may be left to take over.",
    },
    {
      entry: "NotLive",
      row: "tasks",
      metric: metric(props, "Live", "Minimum"),
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

/** Not a fault: what keeps the composite alarm quiet. */
export function deploymentRunning(props: BridgeAlarmsProps): AlarmSpec {
  const { controlServiceName, workerServiceName } = props;
  return {
    entry: "DeploymentRunning",
    row: "tasks",
    metric: new MathExpression({
      expression: "MAX([control, worker])",
      usingMetrics: {
        control: insights(props, "DeploymentCount", controlServiceName, "Maximum"),
        worker: insights(props, "DeploymentCount", workerServiceName, "Maximum"),
      },
      period: Duration.minutes(1),
      label: "Deployments",
    }),
    threshold: 1,
    missing: TreatMissingData.NOT_BREACHING,
    description: "A deployment is running: not a fault. It keeps BridgeUnavailable quiet.",
  };
}
