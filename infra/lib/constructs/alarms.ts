import { Duration } from "aws-cdk-lib";
import {
  Alarm,
  AlarmRule,
  AlarmState,
  ComparisonOperator,
  CompositeAlarm,
  type IAlarmAction,
  type IMetric,
} from "aws-cdk-lib/aws-cloudwatch";
import { Construct } from "constructs";
import {
  type AlarmRow,
  type AlarmSpec,
  alarmSpecs,
  type BridgeAlarmsProps,
  deploymentRunning,
} from "./alarm-specs/index.ts";

export type { AlarmedSession, AlarmRow, BridgeAlarmsProps } from "./alarm-specs/index.ts";

/** An alarm with its entry in docs/OPERATIONS.md. */
export interface NamedAlarm {
  /** The heading of its entry; the same for all sessions and tables that have one. */
  readonly entry: string;
  readonly row: AlarmRow;
  readonly alarm: Alarm;
  /** What it looks at, for a graph. */
  readonly metric: IMetric;
}

/**
 * Alarms on what the program, its functions and AWS really emit. Each says what missing data means; each has an entry in docs/OPERATIONS.md and a place
 * on the dashboard, and a test compares them with the metric registry in both directions.
 */
export class BridgeAlarms extends Construct {
  /** Every alarm but the composite one. */
  public readonly alarms: readonly NamedAlarm[];
  /** "The bridge is unavailable": no owner of a session, or fewer than two workers; quiet while a deployment runs. */
  public readonly unavailable: CompositeAlarm;
  /** What keeps {@link unavailable} quiet: a deployment is running. */
  public readonly deploymentRunning: Alarm;
  /** Literal names of the alarms that end a deployment and roll it back; `MessagesDropped` only where the configuration drops nothing on purpose. */
  public readonly deploymentAlarmNames: readonly string[];

  readonly #props: BridgeAlarmsProps;
  readonly #made: NamedAlarm[] = [];

  public constructor(scope: Construct, id: string, props: BridgeAlarmsProps) {
    super(scope, id);
    this.#props = props;
    for (const spec of alarmSpecs(props)) {
      this.#make(spec, props.actions ?? []);
    }
    this.deploymentRunning = this.#make(deploymentRunning(props), []);
    this.alarms = this.#made;
    this.unavailable = this.#composite();
    const ending = ["NoLeaseHolder", ...(props.dropsOnPurpose === true ? [] : ["MessagesDropped"])];
    this.deploymentAlarmNames = this.#made
      .filter(({ entry }) => ending.includes(entry))
      .map(({ entry, alarm }) => this.#names.get(alarm) ?? entry);
  }

  readonly #names = new Map<Alarm, string>();

  #make(spec: AlarmSpec, actions: readonly IAlarmAction[]): Alarm {
    const alarmName = [this.#props.bridgeId, spec.entry, ...(spec.of === undefined ? [] : [spec.of])].join("-");
    const alarm = new Alarm(this, spec.of === undefined ? spec.entry : `${spec.entry}-${spec.of}`, {
      alarmName,
      alarmDescription: `${spec.description} See "${spec.entry}" in docs/OPERATIONS.md.`,
      metric: spec.metric,
      comparisonOperator: spec.operator ?? ComparisonOperator.GREATER_THAN_THRESHOLD,
      threshold: spec.threshold,
      evaluationPeriods: spec.periods ?? 1,
      datapointsToAlarm: spec.periods ?? 1,
      treatMissingData: spec.missing,
    });
    for (const action of actions) {
      alarm.addAlarmAction(action);
      alarm.addOkAction(action);
    }
    this.#names.set(alarm, alarmName);
    this.#made.push({ entry: spec.entry, row: spec.row, alarm, metric: spec.metric });
    return alarm;
  }

  #composite(): CompositeAlarm {
    const children = this.#made.filter(({ entry }) => entry === "NoLeaseHolder" || entry === "WorkersBelowTwo");
    const composite = new CompositeAlarm(this, "BridgeUnavailable", {
      compositeAlarmName: `${this.#props.bridgeId}-BridgeUnavailable`,
      alarmDescription:
        'A session has no owner, or fewer than two workers run. See "BridgeUnavailable" in docs/OPERATIONS.md.',
      alarmRule: AlarmRule.anyOf(...children.map(({ alarm }) => AlarmRule.fromAlarm(alarm, AlarmState.ALARM))),
      actionsSuppressor: this.deploymentRunning,
      actionsSuppressorWaitPeriod: Duration.minutes(2),
      actionsSuppressorExtensionPeriod: Duration.minutes(5),
    });
    for (const action of this.#props.actions ?? []) {
      composite.addAlarmAction(action);
      composite.addOkAction(action);
    }
    return composite;
  }
}
