/** Alarms on leases and failovers. */
import { Duration } from "aws-cdk-lib";
import { ComparisonOperator, TreatMissingData } from "aws-cdk-lib/aws-cloudwatch";
import { metric } from "./metrics.ts";
import type { AlarmedSession, AlarmSpec, BridgeAlarmsProps } from "./spec.ts";

/** EMF goes out every 30 s: one holder of a lease tells 10 ones in 5 minutes, two tell 20. */
const LEASE_HELD_BY_TWO = 15;
/** Of the metric ServiceLevel: 0 none, 1 degraded, 2 full. */
const FULL = 2;

/** Who owns the sessions, and who could. */
export function leases(props: BridgeAlarmsProps): AlarmSpec[] {
  const low = ComparisonOperator.LESS_THAN_THRESHOLD;
  const quiet = TreatMissingData.NOT_BREACHING;
  const ofSession = ({ id, failoverSloSeconds }: AlarmedSession): AlarmSpec[] => {
    const periods = Math.max(5, Math.ceil((failoverSloSeconds ?? 0) / 60));
    const specs: AlarmSpec[] = [
      {
        entry: "NoLeaseHolder",
        row: "tasks",
        of: id,
        metric: metric(props, "LeaseHeld", "Maximum", undefined, id),
        operator: low,
        threshold: 1,
        periods,
        missing: TreatMissingData.BREACHING,
        description: `Nobody has owned session ${id} for ${periods} minutes.`,
      },
      {
        entry: "TwoLeaseHolders",
        row: "tasks",
        of: id,
        metric: metric(props, "LeaseHeld", "Sum", Duration.minutes(5), id),
        threshold: LEASE_HELD_BY_TWO,
        missing: quiet,
        description: `Two tasks said at once that they own session ${id}.`,
      },
      {
        entry: "FleetNoHolder",
        row: "tasks",
        of: id,
        metric: metric(props, "LeaseHolders", "Maximum", undefined, id),
        operator: low,
        threshold: 1,
        periods,
        // Told by the control task, whose absence has an alarm of its own.
        missing: quiet,
        description: `The control task has seen nobody have session ${id} for ${periods} minutes.`,
      },
      {
        entry: "FleetTwoHolders",
        row: "tasks",
        of: id,
        metric: metric(props, "LeaseHolders", "Minimum", undefined, id),
        threshold: 1,
        periods: 3,
        missing: quiet,
        description: `The control task has seen more than one task have session ${id} for 3 minutes.`,
      },
      {
        entry: "NoWarmStandby",
        row: "tasks",
        of: id,
        metric: metric(props, "WarmStandbyAvailable", "Maximum", undefined, id),
        operator: low,
        threshold: 1,
        periods: 5,
        missing: quiet,
        description: `For 5 minutes no worker has been there that could take session ${id} over.`,
      },
      {
        entry: "SessionNotFull",
        row: "latency",
        of: id,
        metric: metric(props, "ServiceLevel", "Maximum", undefined, id),
        operator: low,
        threshold: FULL,
        periods,
        missing: TreatMissingData.BREACHING,
        description: `Session ${id} has not been at full service for ${periods} minutes.`,
      },
    ];
    if (failoverSloSeconds === undefined) return specs;
    return [
      ...specs,
      {
        entry: "FailoverSlow",
        row: "latency",
        of: id,
        metric: metric(props, "FailureToFullDuration", "Maximum", undefined, id),
        threshold: failoverSloSeconds,
        missing: quiet,
        description: `A failover of session ${id} took longer than its failover_slo of ${failoverSloSeconds} s.`,
      },
    ];
  };
  const quarter = Duration.minutes(15);
  return [
    ...props.sessions.filter(({ exclusive }) => exclusive).flatMap(ofSession),
    {
      entry: "BrokerHealthStepDown",
      row: "latency",
      metric: metric(props, "BrokerHealthStepDown", "Sum"),
      threshold: 0,
      missing: quiet,
      description: "An owner let go of its lease because it could not reach the broker.",
    },
    {
      entry: "AzSpread",
      row: "tasks",
      metric: metric(props, "AzSpread", "Maximum"),
      operator: low,
      threshold: 2,
      periods: 15,
      missing: quiet,
      description: "All workers have run in one availability zone for 15 minutes: its loss would take them all.",
    },
    {
      entry: "UnseenTasks",
      row: "tasks",
      metric: metric(props, "FleetUnseenTasks", "Minimum"),
      threshold: 0,
      periods: 5,
      // Told by the control task, whose absence has an alarm of its own.
      missing: quiet,
      description:
        "A task has been there for 5 minutes without a word of itself: it cannot read the lease table, or cannot start.",
    },
    {
      entry: "LeaseExpiries",
      row: "tasks",
      metric: metric(props, "LeaseExpiries", "Sum"),
      threshold: 0,
      missing: quiet,
      description: "A lease ran out under its owner: it was not renewed in time.",
    },
    {
      entry: "LeaseFlapping",
      row: "tasks",
      metric: metric(props, "LeaseTransfers", "Sum", quarter),
      threshold: 3,
      missing: quiet,
      description: "Leases changed owners more than three times in 15 minutes.",
    },
    {
      entry: "LeaseRenewFailures",
      row: "tasks",
      metric: metric(props, "LeaseRenewFailures", "Sum", Duration.minutes(5)),
      threshold: 5,
      missing: quiet,
      description: "More than five renewals of leases failed in 5 minutes.",
    },
  ];
}
