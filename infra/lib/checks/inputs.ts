import { Token } from "aws-cdk-lib";
import { refuse } from "./codes.ts";
import type { SynthFault } from "./fault.ts";

/** The longest that Fargate waits between SIGTERM and SIGKILL, in seconds. CDK accepts more, and CloudFormation then refuses it. */
export const MAX_STOP_TIMEOUT_SECONDS = 120;

/** What releasing leases, closing connections and writing the last metrics may take beyond drain and step-down, in seconds. */
export const STOP_MARGIN_SECONDS = 10;

/** A literal whole number of 2 or more: a token cannot prove that there is a warm standby. */
export function checkWorkerCount(value: unknown): SynthFault[] {
  const path = "workerDesiredCount";
  if (Token.isUnresolved(value)) {
    return [
      refuse("CAUSEWAY_ECS_001", path, "the number is a token: nobody can see at synth whether there is a standby"),
    ];
  }
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 2) return [];
  const shown = typeof value === "number" ? String(value) : `a ${value === null ? "null" : typeof value}`;
  return [
    refuse("CAUSEWAY_ECS_001", path, `${shown} is not a whole number of 2 or more: one owner and one standby at least`),
  ];
}

/** Literal names that DynamoDB accepts, no two alike. Keys are the tables' roles. */
export function checkTableNames(names: Readonly<Record<string, unknown>>): SynthFault[] {
  const faults: SynthFault[] = [];
  const users = new Map<string, string>();
  for (const [role, name] of Object.entries(names)) {
    const path = `tables.${role}`;
    if (typeof name !== "string" || Token.isUnresolved(name)) {
      faults.push(refuse("CAUSEWAY_TBL_001", path, "the name is not a literal text"));
    } else if (!/^[A-Za-z0-9_.-]{3,255}$/.test(name)) {
      faults.push(refuse("CAUSEWAY_TBL_002", path, `"${name}" is not the name of a DynamoDB table`));
    } else {
      const other = users.get(name);
      if (other === undefined) users.set(name, role);
      else faults.push(refuse("CAUSEWAY_TBL_003", path, `"${name}" is the name of the ${other} table already`));
    }
  }
  return faults;
}

/** At most what Fargate allows, and long enough to drain, step down, release and close. All in seconds. */
export function checkStopTimeout(stopSeconds: number, drainSeconds: number, stepDownSeconds: number): SynthFault[] {
  const path = "stopTimeoutSeconds";
  const literal = !Token.isUnresolved(stopSeconds) && Number.isSafeInteger(stopSeconds);
  if (!literal || stopSeconds < 1 || stopSeconds > MAX_STOP_TIMEOUT_SECONDS) {
    const shown = Token.isUnresolved(stopSeconds) ? "a token" : String(stopSeconds);
    return [
      refuse(
        "CAUSEWAY_ECS_002",
        path,
        `${shown} is not a whole number from 1 to ${MAX_STOP_TIMEOUT_SECONDS}: Fargate waits no longer`,
      ),
    ];
  }
  const needed = drainSeconds + stepDownSeconds + STOP_MARGIN_SECONDS;
  if (Number.isFinite(needed) && stopSeconds >= needed) return [];
  return [
    refuse(
      "CAUSEWAY_ECS_003",
      path,
      `${stopSeconds} s end before the task has drained (${drainSeconds} s), stepped down (${stepDownSeconds} s) and closed (${STOP_MARGIN_SECONDS} s): ${needed} s are needed`,
    ),
  ];
}

/** Long enough for a stop that takes all the time that the configuration gives it. In seconds. */
export function checkShutdown(stopSeconds: number, shutdownSeconds: number): SynthFault[] {
  const needed = shutdownSeconds + STOP_MARGIN_SECONDS;
  // What is no number of seconds is told by `checkStopTimeout`.
  if (Token.isUnresolved(stopSeconds) || !Number.isSafeInteger(stopSeconds)) return [];
  if (Number.isFinite(needed) && stopSeconds >= needed) return [];
  return [
    refuse(
      "CAUSEWAY_ECS_011",
      "bridge.shutdown_timeout",
      `the task would be killed after ${stopSeconds} s, and its configuration lets a stop take ${shutdownSeconds} s: with ${STOP_MARGIN_SECONDS} s for the last calls, ${needed} s are needed`,
    ),
  ];
}
