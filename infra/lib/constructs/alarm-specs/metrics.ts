/** The metrics that alarms of several subjects look at. */
import { Duration } from "aws-cdk-lib";
import { type IMetric, Metric } from "aws-cdk-lib/aws-cloudwatch";
import { bridgeMetric } from "../../metric-registry.ts";
import type { BridgeAlarmsProps } from "./spec.ts";

/** The metric of the bridge's own namespace with that name. */
export function metric(
  { bridgeId }: BridgeAlarmsProps,
  name: string,
  statistic: string,
  period?: Duration,
  session?: string,
): IMetric {
  return bridgeMetric(name, {
    bridgeId,
    statistic,
    ...(period && { period }),
    ...(session !== undefined && { session }),
  });
}

/** The metric of Container Insights with that name, of one service of the cluster. */
export function insights(
  { clusterName }: BridgeAlarmsProps,
  metricName: string,
  serviceName: string,
  statistic: string,
): Metric {
  const dimensionsMap = { ClusterName: clusterName, ServiceName: serviceName };
  return new Metric({
    namespace: "ECS/ContainerInsights",
    metricName,
    dimensionsMap,
    statistic,
    period: Duration.minutes(1),
  });
}
