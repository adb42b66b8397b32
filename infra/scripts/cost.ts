/**
 * What a deployment costs a month at 10, 100 and 1,000 messages a second: list prices times what the stack consists of and what was measured.
 *
 *   npm run cost              the table that docs/deploy.md shows
 *   npm run --silent cost -- --json
 */
import { pathToFileURL } from "node:url";
import { registeredMetrics } from "../lib/metric-registry.ts";

/** List prices of us-east-1 in US dollars, without free tiers, discounts and taxes. Check them against the price pages before you rely on them. */
export const PRICES = {
  asOf: "2026-11-30",
  region: "us-east-1",
  /** Fargate, Linux on ARM64. */
  fargateVcpuHour: 0.03238,
  fargateGibHour: 0.00356,
  /** DynamoDB, on demand, standard table class. */
  writeUnitsMillion: 0.625,
  readUnitsMillion: 0.125,
  tableGibMonth: 0.25,
  recoveryGibMonth: 0.2,
  /** SQS, standard queue. */
  sqsMillion: 0.4,
  natHour: 0.045,
  natGib: 0.045,
  interfaceEndpointHour: 0.01,
  interfaceEndpointGib: 0.01,
  alarmMetricMonth: 0.1,
  compositeAlarmMonth: 0.5,
  metricMonth: 0.3,
  dashboardMonth: 3,
  logGib: 0.5,
  logGibMonth: 0.03,
  /** Lambda on ARM64. */
  lambdaGibSecond: 0.0000133334,
  lambdaMillion: 0.2,
  schedulerMillion: 1,
  secretMonth: 0.4,
} as const;

/** A month as AWS counts it. */
const HOURS = 730;
const SECONDS = HOURS * 3600;
const GIB = 1024 ** 3;

/** Measured with `scripts/demo --store dynamodb --no-kill --rate N --json`, 250-byte messages; of several runs the most expensive one. */
export const MEASURED: Readonly<Record<number, { readonly writeUnits: number; readonly sqsRequests: number }>> = {
  10: { writeUnits: 2.75, sqsRequests: 0.97 },
  100: { writeUnits: 1.01, sqsRequests: 0.44 },
  1000: { writeUnits: 0.24, sqsRequests: 0.11 },
};

/** What the stack consists of where `settings.ts` changes nothing, and what is estimated because nobody measured it on AWS. */
export const SHAPE = {
  /** One control task and two workers. */
  tasks: 3,
  vcpu: 0.5,
  gib: 1,
  zones: 2,
  natGateways: 2,
  /** SQS, two of ECR, CloudWatch Logs, SSM, Secrets Manager. */
  interfaceEndpoints: 6,
  /** The token of hints. */
  secrets: 1,
  housekeepingRuns: (HOURS * 60) / 5,
  /** Estimated: seconds of a run of housekeeping, at 512 MiB. */
  housekeepingSeconds: 2,
  /** Metrics behind the alarms, each billed; counted from the template by a test. */
  alarmMetrics: 88,
  /** Estimated: each metric under `BridgeId` alone, and one series more where it has labels; each is billed as a custom metric. */
  customMetrics: registeredMetrics().reduce((series, { labels }) => series + (labels.length > 0 ? 2 : 1), 0),
  /** Estimated: time series of Container Insights. */
  insightMetrics: 40,
  /** Estimated: bytes of metrics that a task logs every 30 s. An idle owner was seen to log 5,000. */
  emfBytes: 8000,
  /** Estimated: bytes of other log lines of a task in a month. */
  logBytes: 50 * 1024 ** 2,
  /** A message of 250 bytes: to and from the broker, and to SQS, with headers, TLS and acknowledgements. */
  bytesFromBroker: 450,
  bytesToSqs: 600,
  /** Renewals of one lease every 10 s, member rows of every task every 30 s. */
  leaseWritesPerSecond: 1 / 10 + 3 / 30,
  /** Two standbys look at the lease every 5 s, consistently. */
  leaseReadsPerSecond: 2 / 5,
  /** Looks into the mailbox every 2 s. */
  mailboxReadsPerSecond: 1 / 2,
};

/** One line of the bill. */
export interface Line {
  readonly item: string;
  readonly dollars: number;
}

/** What a month costs at one rate. */
export interface Month {
  readonly messagesPerSecond: number;
  readonly lines: readonly Line[];
  /** With NAT gateways, one in each zone. */
  readonly totalWithNat: number;
  /** With interface endpoints instead; the broker is then reached privately. */
  readonly totalWithoutNat: number;
  readonly nat: number;
  readonly endpoints: number;
}

/** The bill of a month at so many messages a second. */
export function month(messagesPerSecond: number): Month {
  const measured = MEASURED[messagesPerSecond];
  if (measured === undefined) throw new Error(`nothing was measured at ${messagesPerSecond} messages a second`);
  const messages = messagesPerSecond * SECONDS;
  const million = (count: number, price: number) => (count / 1e6) * price;
  const writes = messages * measured.writeUnits + SECONDS * SHAPE.leaseWritesPerSecond;
  const reads = SECONDS * (SHAPE.leaseReadsPerSecond + SHAPE.mailboxReadsPerSecond);
  const emf = SHAPE.tasks * (SECONDS / 30) * SHAPE.emfBytes;
  const logs = (emf + SHAPE.tasks * SHAPE.logBytes) / GIB;
  const invocation = SHAPE.housekeepingSeconds * 0.5 * PRICES.lambdaGibSecond;
  const lines: Line[] = [
    {
      item: "Fargate: 3 tasks of 0.5 vCPU and 1 GiB, ARM64",
      dollars: SHAPE.tasks * HOURS * (SHAPE.vcpu * PRICES.fargateVcpuHour + SHAPE.gib * PRICES.fargateGibHour),
    },
    { item: "DynamoDB: writes", dollars: million(writes, PRICES.writeUnitsMillion) },
    {
      item: "DynamoDB: reads, storage, recovery (1 GiB)",
      dollars: million(reads, PRICES.readUnitsMillion) + PRICES.tableGibMonth + PRICES.recoveryGibMonth,
    },
    { item: "SQS: requests of the bridge", dollars: million(messages * measured.sqsRequests, PRICES.sqsMillion) },
    {
      item: "CloudWatch: alarms and dashboard",
      dollars: SHAPE.alarmMetrics * PRICES.alarmMetricMonth + PRICES.compositeAlarmMonth + PRICES.dashboardMonth,
    },
    {
      item: "CloudWatch: metrics of the program and Container Insights",
      dollars: (SHAPE.customMetrics + SHAPE.insightMetrics) * PRICES.metricMonth,
    },
    { item: "CloudWatch: logs", dollars: logs * (PRICES.logGib + PRICES.logGibMonth) },
    {
      item: "Lambda and Scheduler: housekeeping every 5 minutes",
      dollars:
        SHAPE.housekeepingRuns * invocation +
        million(SHAPE.housekeepingRuns, PRICES.lambdaMillion + PRICES.schedulerMillion),
    },
    { item: "Secrets Manager: the token of hints", dollars: SHAPE.secrets * PRICES.secretMonth },
    { item: "Gateway endpoints for DynamoDB and S3", dollars: 0 },
  ];
  const traffic = (bytes: number) => (messages * bytes) / GIB + logs;
  const nat =
    SHAPE.natGateways * HOURS * PRICES.natHour + traffic(SHAPE.bytesFromBroker + SHAPE.bytesToSqs) * PRICES.natGib;
  const endpoints =
    SHAPE.interfaceEndpoints * SHAPE.zones * HOURS * PRICES.interfaceEndpointHour +
    traffic(SHAPE.bytesToSqs) * PRICES.interfaceEndpointGib;
  const sum = lines.reduce((total, line) => total + line.dollars, 0);
  return { messagesPerSecond, lines, nat, endpoints, totalWithNat: sum + nat, totalWithoutNat: sum + endpoints };
}

/** The rates that the documentation shows. */
export const RATES = Object.keys(MEASURED).map(Number);

/** The bill as a table of Markdown. */
export function table(months: readonly Month[]): string {
  const money = (dollars: number) =>
    dollars === 0 ? "free" : dollars < 1 ? `$${dollars.toFixed(2)}` : `$${Math.round(dollars).toLocaleString("en-US")}`;
  const row = (name: string, pick: (month: Month) => number) =>
    `| ${[name, ...months.map((each) => money(pick(each)))].join(" | ")} |`;
  const head = [
    "a month",
    ...months.map(({ messagesPerSecond }) => `${messagesPerSecond.toLocaleString("en-US")} msg/s`),
  ];
  const items = months[0]?.lines.map(({ item }, index) => row(item, (each) => each.lines[index]?.dollars ?? 0)) ?? [];
  return [
    `| ${head.join(" | ")} |`,
    `|${head.map(() => "---").join("|")}|`,
    ...items,
    row("NAT: 2 gateways and their traffic", ({ nat }) => nat),
    row("or instead: 6 interface endpoints in 2 zones and their traffic", ({ endpoints }) => endpoints),
    row("**total with NAT**", ({ totalWithNat }) => totalWithNat),
    row("**total without NAT**", ({ totalWithoutNat }) => totalWithoutNat),
  ].join("\n");
}

/** What was measured, as a table of Markdown. */
export function measurements(): string {
  const rows = Object.entries(MEASURED).map(
    ([rate, { writeUnits, sqsRequests }]) =>
      `| ${Number(rate).toLocaleString("en-US")} | ${writeUnits} | ${sqsRequests} |`,
  );
  return ["| messages a second | write units per message | SQS requests per message |", "|---|---|---|", ...rows].join(
    "\n",
  );
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const months = RATES.map(month);
  const text = process.argv.includes("--json")
    ? JSON.stringify({ prices: PRICES, measured: MEASURED, shape: SHAPE, months }, undefined, 2)
    : table(months);
  process.stdout.write(`${text}\n`);
}
