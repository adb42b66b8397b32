import { Duration } from "aws-cdk-lib";
import {
  AlarmStatusWidget,
  Dashboard,
  GraphWidget,
  type IMetric,
  type IWidget,
  Metric,
  TextWidget,
} from "aws-cdk-lib/aws-cloudwatch";
import { Construct } from "constructs";
import { bridgeMetric } from "../metric-registry.ts";
import type { AlarmRow, BridgeAlarms } from "./alarms.ts";

/** Props of {@link BridgeDashboard}. */
export interface BridgeDashboardProps {
  /** The bridge's name, which its metrics carry. A literal. */
  readonly bridgeId: string;
  /** Its alarms: each has a place in the row that it belongs to. */
  readonly alarms: BridgeAlarms;
  /** The ids of its sessions. */
  readonly sessions: readonly { readonly id: string }[];
  readonly clusterName: string;
  readonly controlServiceName: string;
  readonly workerServiceName: string;
  /**
   * The dashboard's name.
   *
   * @default - `causeway-<bridge id>`
   */
  readonly dashboardName?: string;
}

const TITLES: Readonly<Record<AlarmRow, string>> = {
  traffic: "Traffic and losses",
  latency: "Latency and service level",
  outbox: "Outbox, dead letters and tables",
  tasks: "Tasks, leases and housekeeping",
};

/** One dashboard of four rows: what is moved, how fast, what waits, and who runs. Every alarm is in it, beside a graph of what it looks at. */
export class BridgeDashboard extends Construct {
  public readonly dashboard: Dashboard;

  readonly #props: BridgeDashboardProps;

  public constructor(scope: Construct, id: string, props: BridgeDashboardProps) {
    super(scope, id);
    this.#props = props;
    this.dashboard = new Dashboard(this, "Dashboard", {
      dashboardName: props.dashboardName ?? `causeway-${props.bridgeId}`,
      defaultInterval: Duration.hours(3),
    });
    for (const row of Object.keys(TITLES) as AlarmRow[]) {
      this.dashboard.addWidgets(new TextWidget({ markdown: `## ${TITLES[row]}`, width: 24, height: 1 }));
      this.dashboard.addWidgets(...this.#graphs(row));
      this.dashboard.addWidgets(...this.#alarms(row));
    }
  }

  #bridge(name: string, statistic: string): IMetric {
    return bridgeMetric(name, { bridgeId: this.#props.bridgeId, statistic, label: `${name} ${statistic}` });
  }

  #each(name: string, statistic: string): IMetric[] {
    return this.#props.sessions.map(({ id }) =>
      bridgeMetric(name, { bridgeId: this.#props.bridgeId, statistic, session: id, label: `${name} ${id}` }),
    );
  }

  #graphs(row: AlarmRow): IWidget[] {
    const graph = (title: string, left: IMetric[], right: IMetric[] = []) =>
      new GraphWidget({ title, left, right, width: 8, height: 6 });
    switch (row) {
      case "traffic":
        return [
          graph("Messages a minute", [
            this.#bridge("MessagesReceived", "Sum"),
            this.#bridge("MessagesDelivered", "Sum"),
            this.#bridge("MessagesRecovered", "Sum"),
          ]),
          graph("Returned, handed over, sent again", [
            this.#bridge("MessagesReturned", "Sum"),
            this.#bridge("MessagesHandedOver", "Sum"),
            this.#bridge("SendRetries", "Sum"),
          ]),
          graph(
            "Requests and write units",
            [this.#bridge("SQSRequests", "Sum")],
            [this.#bridge("StoreWriteUnits", "Sum")],
          ),
        ];
      case "latency":
        return [
          graph("Received to delivered (s)", [
            this.#bridge("DeliveryE2ELatency", "p50"),
            this.#bridge("DeliveryE2ELatency", "p99"),
          ]),
          graph("Append and send (s)", [
            this.#bridge("OutboxPersistLatency", "p99"),
            this.#bridge("SendLatency", "p99"),
            this.#bridge("OutboxDispatchDelay", "p99"),
          ]),
          graph(
            "In flight, unacknowledged",
            [this.#bridge("RouteInFlight", "Maximum"), this.#bridge("MQTTUnsettled", "Maximum")],
            [this.#bridge("MQTTReconnects", "Sum")],
          ),
        ];
      case "outbox":
        return [
          graph("Waiting", this.#each("OutboxDepth", "Maximum")),
          graph("Memory of the outbox", [this.#bridge("OutboxMemory", "Maximum")]),
          graph("Duplicates if the owner died now", this.#each("DuplicateExposure", "Maximum")),
        ];
      case "tasks":
        return [
          graph("Running tasks", [
            this.#running(this.#props.controlServiceName, "control"),
            this.#running(this.#props.workerServiceName, "workers"),
          ]),
          graph("Owner's epoch", this.#each("OwnerEpoch", "Maximum")),
          graph("Memory of the process", [this.#bridge("ProcessResidentMemory", "Maximum")]),
        ];
    }
  }

  #running(ServiceName: string, label: string): IMetric {
    return new Metric({
      namespace: "ECS/ContainerInsights",
      metricName: "RunningTaskCount",
      dimensionsMap: { ClusterName: this.#props.clusterName, ServiceName },
      statistic: "Maximum",
      period: Duration.minutes(1),
      label,
    });
  }

  /** The state of every alarm of the row, and a graph for each kind of alarm, with its threshold. */
  #alarms(row: AlarmRow): IWidget[] {
    const { alarms, unavailable } = this.#props.alarms;
    const mine = alarms.filter((alarm) => alarm.row === row);
    const states = [...(row === "tasks" ? [unavailable] : []), ...mine.map(({ alarm }) => alarm)];
    const entries = [...new Set(mine.map(({ entry }) => entry))];
    const graphs = entries.map((entry) => {
      const same = mine.filter((alarm) => alarm.entry === entry);
      const thresholds = new Map(
        same.map(({ alarm }) => alarm.toAnnotation()).map((annotation) => [annotation.value, annotation]),
      );
      return new GraphWidget({
        title: entry,
        left: same.map(({ metric }) => metric),
        leftAnnotations: [...thresholds.values()],
        width: 6,
        height: 5,
      });
    });
    return [
      new AlarmStatusWidget({ title: `Alarms: ${TITLES[row]}`, alarms: states, width: 24, height: 3 }),
      ...graphs,
    ];
  }
}
