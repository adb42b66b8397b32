/** A session's lease timing and failover budget, out of the configuration. */
import {
  admit,
  type Budget,
  BudgetError,
  type BudgetTerms,
  type Cadence,
  mqttActivation,
  type Nanos,
  resolveCadence,
  sumBudget,
} from "../budget.ts";
import {
  type BridgeConfig,
  isClustered,
  mqtt,
  nanos,
  optionalNanos,
  type RouteSession,
  type Session,
} from "./model.ts";

/** A session's lease timing, and what its failover is made of. */
export interface SessionTiming extends BudgetTerms {
  /** What was decided about broker outages; `undefined` where nothing was. */
  readonly stepDown: "off" | Nanos | undefined;
  /** The declared objective. */
  readonly objective: Nanos | undefined;
}

/** The block of the first route that speaks about this session's lease. All of them say the same. */
export function sessionBlock(config: BridgeConfig, id: string | undefined): RouteSession | undefined {
  return config.routes?.map((route) => route.session).find((block) => block !== undefined && block.session_id === id);
}

/** Throws {@link BudgetError} where the configured intervals leave no room for one another. */
export function sessionTiming(config: BridgeConfig, session: Session): SessionTiming {
  const block = sessionBlock(config, session.id);
  const cadence: Cadence = resolveCadence({
    clustered: isClustered(config),
    leaseTtl: optionalNanos(block?.lease_ttl),
    renewInterval: optionalNanos(block?.renew_interval),
    leaseRenewJitter: optionalNanos(block?.lease_renew_jitter),
    renewCallTimeout: optionalNanos(block?.renew_call_timeout),
    acquirePollInterval: optionalNanos(block?.acquire_poll_interval),
    stepDownGrace: optionalNanos(block?.step_down_grace),
    maxRenewFails: block?.max_renew_fails,
  });
  const written = mqtt(session);
  const decided = block?.broker_health_step_down;
  const stepDown = decided === "off" ? "off" : optionalNanos(decided);
  return {
    cadence,
    activation: mqttActivation(
      nanos(written.connect_timeout, 30),
      nanos(written.reconcile_timeout, 30),
      nanos(written.unmatched_grace, 30),
    ),
    startupAllowance: nanos(block?.startup_allowance, 0),
    brokerHealthStepDown: stepDown === "off" ? undefined : stepDown,
    stepDown,
    objective: optionalNanos(block?.failover_slo),
  };
}

/** The failover budget, where one can be promised. */
export function sessionBudget(config: BridgeConfig, session: Session): Budget | undefined {
  try {
    return sumBudget(sessionTiming(config, session));
  } catch (error) {
    if (error instanceof BudgetError) return undefined;
    throw error;
  }
}

/** Whether the declared objective holds: `undefined` where none was declared, `true`, or why not. */
export function admitted(timing: SessionTiming): true | BudgetError | undefined {
  if (timing.objective === undefined) return undefined;
  if (timing.stepDown === undefined) return new BudgetError({ kind: "step_down_undecided" });
  try {
    admit(sumBudget(timing), timing.objective);
    return true;
  } catch (error) {
    if (error instanceof BudgetError) return error;
    throw error;
  }
}
