/** What each alarm looks at, when it goes off, and what missing data means: one file for each subject. */
import { functions } from "./functions.ts";
import { leases } from "./leases.ts";
import { outbox } from "./outbox.ts";
import type { AlarmSpec, BridgeAlarmsProps } from "./spec.ts";
import { tables } from "./tables.ts";
import { tasks } from "./tasks.ts";
import { sources, traffic } from "./traffic.ts";

export type { AlarmedSession, AlarmRow, AlarmSpec, BridgeAlarmsProps } from "./spec.ts";
export { deploymentRunning } from "./tasks.ts";
export { dropsOnPurpose } from "./traffic.ts";

/** Every alarm but the one that says that a deployment runs. */
export function alarmSpecs(props: BridgeAlarmsProps): AlarmSpec[] {
  return [tasks, leases, traffic, sources, outbox, functions, tables].flatMap((of) => of(props));
}
