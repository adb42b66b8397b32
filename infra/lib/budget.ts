/**
 * The lease's cadence and what a failover may cost: checked 64-bit integer nanoseconds, the same as in the program (bridge/core/src/timing).
 * Both are held to tests/vectors/failover-budget.json.
 */

/** Whole nanoseconds. */
export type Nanos = bigint;

export const MILLI: Nanos = 1_000_000n;
export const SECOND: Nanos = 1_000_000_000n;
/** The shortest lease. */
export const MIN_LEASE_TTL: Nanos = 5n * SECOND;
/** The shortest interval between renewals, or between looks at a lease. */
export const MIN_INTERVAL: Nanos = 250n * MILLI;
/** The largest start-up allowance. */
export const MAX_STARTUP_ALLOWANCE: Nanos = 600n * SECOND;

const MAX_I64 = 2n ** 63n - 1n;
const MIN_I64 = -(2n ** 63n);

/** Why nothing can be promised, or not what was asked for. */
export type BudgetFault =
  | { readonly kind: "term"; readonly term: string }
  | { readonly kind: "unknown_activation" }
  | { readonly kind: "overflow" }
  | { readonly kind: "step_down_undecided" }
  | { readonly kind: "allowance_too_long" }
  | {
      readonly kind: "exceeded";
      readonly path: "owner_death" | "broker_path";
      readonly budget: Nanos;
      readonly objective: Nanos;
    }
  | { readonly kind: "ttl_too_short" }
  | { readonly kind: "not_positive"; readonly field: string }
  | { readonly kind: "too_frequent"; readonly field: string }
  | { readonly kind: "no_room" };

/** Carries a {@link BudgetFault}. */
export class BudgetError extends Error {
  public readonly fault: BudgetFault;
  public constructor(fault: BudgetFault) {
    super(fault.kind);
    this.name = "BudgetError";
    this.fault = fault;
  }
}

/** What is configured about a lease; left out is what is to be derived. */
export interface CadenceInput {
  readonly clustered: boolean;
  readonly leaseTtl?: Nanos | undefined;
  readonly renewInterval?: Nanos | undefined;
  readonly leaseRenewJitter?: Nanos | undefined;
  readonly renewCallTimeout?: Nanos | undefined;
  readonly acquirePollInterval?: Nanos | undefined;
  readonly stepDownGrace?: Nanos | undefined;
  readonly maxRenewFails?: number | undefined;
}

/** A lease's resolved timing. */
export interface Cadence {
  readonly profile: "standalone" | "clustered_ha";
  readonly leaseTtl: Nanos;
  readonly renewInterval: Nanos;
  readonly leaseRenewJitter: Nanos;
  readonly renewCallTimeout: Nanos;
  readonly acquirePollInterval: Nanos;
  readonly stepDownGrace: Nanos;
  readonly maxRenewFails: number;
}

/** Everything that the sums are made of. */
export interface BudgetTerms {
  readonly cadence: Cadence;
  /** The successor's way to full service; `undefined` where nobody knows. */
  readonly activation: Nanos | undefined;
  readonly startupAllowance: Nanos;
  /** After how long without a broker the owner lets go; `undefined` where it never does. */
  readonly brokerHealthStepDown: Nanos | undefined;
}

/** The sums, with their parts. */
export interface Budget {
  readonly minPoll: Nanos;
  readonly maxPoll: Nanos;
  readonly calls: bigint;
  readonly activation: Nanos;
  readonly startupAllowance: Nanos;
  /** The owner's process, machine, or way to the lease store is gone. */
  readonly ownerDeath: Nanos;
  /** The owner alone lost its way to the broker; `undefined` where it then keeps the lease. */
  readonly brokerPath: Nanos | undefined;
}

/** `2·connect + 4·reconcile + 2·unmatched_grace`; `undefined` where a part is not positive (a grace may be zero) or the sum overflows. */
export function mqttActivation(
  connectTimeout: Nanos,
  reconcileTimeout: Nanos,
  unmatchedGrace: Nanos,
): Nanos | undefined {
  if (connectTimeout <= 0n || reconcileTimeout <= 0n || unmatchedGrace < 0n) return undefined;
  const sum = 2n * connectTimeout + 4n * reconcileTimeout + 2n * unmatchedGrace;
  return sum > MAX_I64 ? undefined : sum;
}

/** Resolves what is not configured and refuses what is unsafe. */
export function resolveCadence(input: CadenceInput): Cadence {
  const clustered = input.clustered && input.leaseTtl === undefined && input.renewInterval === undefined;
  const fails = Math.max(input.maxRenewFails ?? 3, 1);
  const wanted: CadenceInput = clustered
    ? {
        ...input,
        leaseTtl: 45n * SECOND,
        renewInterval: 10n * SECOND,
        leaseRenewJitter: input.leaseRenewJitter ?? SECOND,
        renewCallTimeout: input.renewCallTimeout ?? 3n * SECOND,
        acquirePollInterval: input.acquirePollInterval ?? 5n * SECOND,
        stepDownGrace: input.stepDownGrace ?? 5n * SECOND,
      }
    : input;
  const leaseTtl = wanted.leaseTtl ?? 360n * SECOND;
  if (leaseTtl < MIN_LEASE_TTL) throw new BudgetError({ kind: "ttl_too_short" });
  const renewInterval = wanted.renewInterval ?? derivedRenewal(leaseTtl, BigInt(fails));
  const derivedJitter = wanted.renewInterval === undefined && wanted.leaseRenewJitter === undefined;
  const jitter = wanted.leaseRenewJitter ?? (derivedJitter ? renewInterval / 4n : 0n);
  const call = wanted.renewCallTimeout ?? max(SECOND, min(renewInterval / 2n, 5n * SECOND));
  const poll = wanted.acquirePollInterval ?? min(renewInterval, min(leaseTtl / 4n, 5n * SECOND));
  const grace = wanted.stepDownGrace ?? 15n * SECOND;
  for (const [field, value, least] of [
    ["lease_renew_jitter", jitter, 0n],
    ["renew_call_timeout", call, 1n],
    ["step_down_grace", grace, 0n],
  ] as const) {
    if (value < least) throw new BudgetError({ kind: "not_positive", field });
  }
  for (const [field, value] of [
    ["renew_interval", renewInterval],
    ["acquire_poll_interval", poll],
  ] as const) {
    if (value < MIN_INTERVAL) throw new BudgetError({ kind: "too_frequent", field });
  }
  return {
    profile: clustered ? "clustered_ha" : "standalone",
    leaseTtl,
    renewInterval,
    leaseRenewJitter: fit(leaseTtl, renewInterval, jitter, call, BigInt(fails), derivedJitter),
    renewCallTimeout: call,
    acquirePollInterval: poll,
    stepDownGrace: grace >= leaseTtl ? leaseTtl / 2n : grace,
    maxRenewFails: fails,
  };
}

function derivedRenewal(ttl: Nanos, fails: bigint): Nanos {
  const per = checked(ttl * 3n) / (fails * 4n);
  const reserve = min(per / 2n, 5n * SECOND);
  return checked((per - reserve) * 8n) / 9n;
}

/** The jitter with which all renewals that may fail in a row end before the lease does. Only a derived one is ever shortened. */
function fit(ttl: Nanos, renew: Nanos, jitter: Nanos, call: Nanos, fails: bigint, derived: boolean): Nanos {
  const once = checked(renew + call);
  if (checked(checked(once + jitter / 2n) * fails) < ttl) return jitter;
  const room = ((ttl / 10n) * 9n) / fails - once;
  if (derived && room >= 0n) return room * 2n;
  throw new BudgetError({ kind: "no_room" });
}

/** Adds everything up; throws {@link BudgetError} where nothing can be promised. */
export function sumBudget(terms: BudgetTerms): Budget {
  const { cadence, activation, startupAllowance } = terms;
  if (activation === undefined) throw new BudgetError({ kind: "unknown_activation" });
  for (const [term, value] of [
    ["lease_ttl", cadence.leaseTtl],
    ["acquire_poll_interval", cadence.acquirePollInterval],
    ["renew_call_timeout", cadence.renewCallTimeout],
    ["activation", activation],
  ] as const) {
    if (value <= 0n) throw new BudgetError({ kind: "term", term });
  }
  if (startupAllowance < 0n) throw new BudgetError({ kind: "term", term: "startup_allowance" });
  if (startupAllowance > MAX_STARTUP_ALLOWANCE) throw new BudgetError({ kind: "allowance_too_long" });
  const poll = cadence.acquirePollInterval;
  const minPoll = max(MILLI, poll - poll / 2n / 2n);
  const maxPoll = max(MILLI, checked(poll + ceilDiv(poll, 4n)));
  const calls = checked(1n + ceilDiv(cadence.leaseTtl, minPoll));
  const tail = checked(checked(2n * maxPoll) + activation + startupAllowance);
  const ownerDeath = checked(checked(cadence.leaseTtl + tail) + checked(cadence.renewCallTimeout * calls));
  const after = terms.brokerHealthStepDown;
  const brokerPath = after === undefined ? undefined : sumBrokerPath(cadence, after, tail);
  return { minPoll, maxPoll, calls, activation, startupAllowance, ownerDeath, brokerPath };
}

function sumBrokerPath(cadence: Cadence, after: Nanos, tail: Nanos): Nanos {
  for (const [term, value, least] of [
    ["broker_health_step_down", after, 1n],
    ["renew_interval", cadence.renewInterval, 1n],
    ["lease_renew_jitter", cadence.leaseRenewJitter, 0n],
    ["step_down_grace", cadence.stepDownGrace, 0n],
  ] as const) {
    if (value < least) throw new BudgetError({ kind: "term", term });
  }
  return checked(
    after +
      cadence.renewInterval +
      cadence.leaseRenewJitter / 2n +
      2n * min(5n * SECOND, cadence.stepDownGrace) +
      cadence.stepDownGrace +
      4n * cadence.renewCallTimeout +
      tail,
  );
}

/** Throws for the first sum above the objective; the exact boundary is admitted. */
export function admit(budget: Budget, objective: Nanos): void {
  if (objective <= 0n) throw new BudgetError({ kind: "term", term: "failover_slo" });
  for (const [path, sum] of [
    ["owner_death", budget.ownerDeath],
    ["broker_path", budget.brokerPath],
  ] as const) {
    if (sum !== undefined && sum > objective) throw new BudgetError({ kind: "exceeded", path, budget: sum, objective });
  }
}

/** Seconds, for people and alarms; exact to a nanosecond as far as a double is. */
export function seconds(nanos: Nanos): number {
  return Number(nanos / SECOND) + Number(nanos % SECOND) / 1e9;
}

function checked(value: bigint): bigint {
  if (value > MAX_I64 || value < MIN_I64) throw new BudgetError({ kind: "overflow" });
  return value;
}

function ceilDiv(dividend: bigint, divisor: bigint): bigint {
  return dividend / divisor + (dividend % divisor === 0n ? 0n : 1n);
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

function max(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}
