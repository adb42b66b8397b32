/** Metrics of the program in CloudWatch, by the registry that the program prints (`lib/generated/metrics.json`). */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { Duration } from "aws-cdk-lib";
import { type IMetric, MathExpression, Metric } from "aws-cdk-lib/aws-cloudwatch";

/** One metric of the registry, as `causeway metrics --list --json` prints it. */
export interface RegisteredMetric {
  readonly name: string;
  readonly labels: readonly string[];
  readonly label_values: Readonly<Record<string, readonly string[]>>;
  readonly cloudwatch: string;
  readonly cloudwatch_dimensions: readonly string[];
}

export const NAMESPACE = "Causeway";

/** The most metrics that one alarm may combine. */
const MOST_IN_AN_ALARM = 10;

const registry = JSON.parse(
  readFileSync(new URL("./generated/metrics.json", import.meta.url), "utf8"),
) as readonly RegisteredMetric[];

/** Every metric that the program declares. */
export function registeredMetrics(): readonly RegisteredMetric[] {
  return registry;
}

/** How a metric is read. */
export interface Reading {
  readonly bridgeId: string;
  /** Only this session; left out: all sessions and routes of the bridge together. */
  readonly session?: string;
  /** `Sum`, `Maximum`, `p99` … */
  readonly statistic: string;
  /** @default 1 minute */
  readonly period?: Duration;
  readonly label?: string;
}

/**
 * A metric as CloudWatch has it. Every metric goes out under `BridgeId` alone and under `BridgeId` with all its labels, so that one session of a metric
 * with more labels than that is the largest of all their values.
 */
export function bridgeMetric(name: string, reading: Reading): IMetric {
  const { bridgeId, session, statistic, period = Duration.minutes(1) } = reading;
  const make = (dimensionsMap: Record<string, string>, label?: string) =>
    new Metric({ namespace: NAMESPACE, metricName: name, dimensionsMap, statistic, period, ...(label && { label }) });
  if (session === undefined) return make({ BridgeId: bridgeId }, reading.label);
  const found = registry.find((metric) => metric.cloudwatch === name);
  const others = (found?.labels ?? []).filter((label) => label !== "session");
  if (others.length === 0) return make({ BridgeId: bridgeId, Session: session }, reading.label ?? session);
  const cells = product(others.map((label) => found?.label_values[label] ?? []));
  if (cells.length === 0 || cells.length > MOST_IN_AN_ALARM) {
    throw new Error(
      `${name} of one session has ${cells.length} combinations of labels: an alarm takes 1 to ${MOST_IN_AN_ALARM}`,
    );
  }
  const usingMetrics = Object.fromEntries(
    cells.map((values, index) => {
      const labels = Object.fromEntries(others.map((label, at) => [dimension(found, label), values[at] ?? ""]));
      return [`m${index}_${mark(session)}`, make({ BridgeId: bridgeId, Session: session, ...labels })];
    }),
  );
  return new MathExpression({
    expression: `MAX([${Object.keys(usingMetrics).join(", ")}])`,
    usingMetrics,
    period,
    label: reading.label ?? session,
  });
}

/** Tells the metrics of one session from those of another in the same graph, in the characters that an id may have. */
function mark(session: string): string {
  return createHash("sha256").update(session).digest("hex").slice(0, 8);
}

/** The dimension of a label: they stand in the same order, after `BridgeId`. */
function dimension(metric: RegisteredMetric | undefined, label: string): string {
  const index = metric?.labels.indexOf(label) ?? -1;
  return metric?.cloudwatch_dimensions[index + 1] ?? label;
}

function product(lists: readonly (readonly string[])[]): string[][] {
  return lists.reduce<string[][]>((rows, list) => rows.flatMap((row) => list.map((value) => [...row, value])), [[]]);
}
