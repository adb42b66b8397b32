import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  admit,
  BudgetError,
  type BudgetFault,
  type Cadence,
  mqttActivation,
  resolveCadence,
  SECOND,
  sumBudget,
} from "../lib/budget.ts";
import { brokerSession, storageIdentity } from "../lib/config/storage-identity.ts";
import { admitted, sessionTiming } from "../lib/config/timing.ts";
import { loadConfigDocument } from "../lib/config-document.ts";
import { findChecker } from "./checker.ts";

const TESTS = fileURLToPath(new URL("../../tests", import.meta.url));
const checker = findChecker();
const withProgram = {
  skip: checker === undefined && "NO causeway PROGRAM OF THIS TREE WAS FOUND: only the vectors were compared",
};

type Case = Readonly<Record<string, number | string | boolean | undefined>>;
const read = (path: string) => JSON.parse(readFileSync(path, "utf8"));
const budgets: { cases: Case[] } = read(join(TESTS, "vectors", "failover-budget.json"));
const derivation: { derived_mrf_3: Record<string, number>[] } = read(join(TESTS, "vectors", "lease-derivation.json"));

/** `NAME_s` in seconds, or `NAME_ns`. */
function nanos(values: Case, name: string): bigint | undefined {
  const [whole, exact] = [values[`${name}_s`], values[`${name}_ns`]];
  if (typeof exact === "number") return BigInt(exact);
  return typeof whole === "number" ? BigInt(Math.round(whole * 1e9)) : undefined;
}

function fault(run: () => unknown): BudgetFault | undefined {
  try {
    run();
    return undefined;
  } catch (error) {
    assert.ok(error instanceof BudgetError, String(error));
    return error.fault;
  }
}

describe("the failover budget is the program's", () => {
  for (const vector of budgets.cases) {
    test(String(vector.name), () => {
      const part = (name: string) => nanos(vector, name) ?? 0n;
      const cadence: Cadence = {
        profile: "standalone",
        leaseTtl: part("lease_ttl"),
        renewInterval: nanos(vector, "renew_interval") ?? SECOND,
        leaseRenewJitter: part("lease_renew_jitter"),
        renewCallTimeout: part("renew_call_timeout"),
        acquirePollInterval: part("acquire_poll_interval"),
        stepDownGrace: part("step_down_grace"),
        maxRenewFails: 3,
      };
      const activation =
        nanos(vector, "activation") ??
        mqttActivation(part("connect_timeout"), part("reconcile_timeout"), part("unmatched_grace"));
      const stepDown = nanos(vector, "broker_health_step_down");
      const terms = {
        cadence,
        activation,
        startupAllowance: part("startup_allowance"),
        brokerHealthStepDown: stepDown,
      };
      const budget = sumBudget(terms);
      let compared = 0;
      const compare = (actual: bigint | undefined, expected: bigint | undefined) => {
        if (expected === undefined) return;
        compared += 1;
        assert.equal(actual, expected);
      };
      compare(budget.calls, typeof vector.expect_calls === "number" ? BigInt(vector.expect_calls) : undefined);
      compare(budget.ownerDeath, nanos(vector, "expect_owner_death"));
      compare(budget.brokerPath, nanos(vector, "expect_broker_path"));
      const without = sumBudget({ ...terms, brokerHealthStepDown: 1n }).brokerPath;
      compare(without === undefined ? undefined : without - 1n, nanos(vector, "expect_broker_path_minus_step_down"));
      const objective = nanos(vector, "failover_slo");
      if (objective !== undefined) {
        compared += 1;
        assert.equal(fault(() => admit(budget, objective)) === undefined, vector.admitted);
      }
      assert.ok(compared > 0, "the vector expects something");
    });
  }

  test("closed where anything is doubtful", () => {
    const cadence = resolveCadence({ clustered: true });
    const good = { cadence, activation: SECOND, startupAllowance: 0n, brokerHealthStepDown: undefined };
    for (const [changed, kind] of [
      [{ activation: undefined }, "unknown_activation"],
      [{ activation: 0n }, "term"],
      [{ startupAllowance: -1n }, "term"],
      [{ startupAllowance: 600n * SECOND + 1n }, "allowance_too_long"],
      [{ brokerHealthStepDown: 0n }, "term"],
      [{ brokerHealthStepDown: 2n ** 63n - 1n }, "overflow"],
      [{ cadence: { ...cadence, leaseTtl: 2n ** 63n - 1n } }, "overflow"],
      [{ cadence: { ...cadence, renewCallTimeout: 0n } }, "term"],
    ] as const) {
      assert.equal(fault(() => sumBudget({ ...good, ...changed }))?.kind, kind);
    }
    assert.equal(mqttActivation(0n, 1n, 0n), undefined);
    assert.equal(mqttActivation(2n ** 62n, 1n, 0n), undefined);
    assert.equal(fault(() => admit(sumBudget(good), 0n))?.kind, "term");
  });
});

test("a lease's cadence is derived as the program derives it", () => {
  for (const row of derivation.derived_mrf_3) {
    const cadence = resolveCadence({ clustered: false, leaseTtl: BigInt(row.ttl_s ?? 0) * SECOND, maxRenewFails: 3 });
    assert.deepEqual(
      [cadence.renewInterval, cadence.leaseRenewJitter, cadence.renewCallTimeout, cadence.acquirePollInterval],
      [row.renew_ns, row.jitter_ns, row.call_ns, row.poll_ns].map((value) => BigInt(value ?? 0)),
      `${row.ttl_s} s`,
    );
  }
  const kinds = [
    { leaseTtl: 5n * SECOND - 1n },
    { leaseTtl: 30n * SECOND, renewInterval: 9n * SECOND, renewCallTimeout: SECOND },
    { renewInterval: 1n },
    { leaseRenewJitter: -1n },
  ].map((input) => fault(() => resolveCadence({ clustered: false, ...input }))?.kind);
  assert.deepEqual(kinds, ["ttl_too_short", "no_room", "too_frequent", "not_positive"]);
});

test("every session of every valid configuration has the budget that the program prints", withProgram, () => {
  const folder = join(TESTS, "fixtures", "valid");
  let compared = 0;
  for (const file of readdirSync(folder)) {
    const run = spawnSync(checker ?? "", ["budget", join(folder, file), "--json"], { encoding: "utf8" });
    const printed = JSON.parse(run.stdout) as {
      session_id: string;
      owner_death_ns: number;
      broker_path_ns: number | null;
      objective_ns: number | null;
      admitted: boolean | null;
      terms: { calls: number };
    }[];
    const { value, sessions } = loadConfigDocument([join(folder, file)], {});
    for (const expected of printed) {
      const budget = sessions.find(({ id }) => id === expected.session_id)?.budget;
      const session = value.sessions?.find(({ id }) => id === expected.session_id);
      assert.ok(budget && session, file);
      const big = (number: number | null) => (number === null ? undefined : BigInt(number));
      assert.deepEqual(
        [budget.ownerDeath, budget.brokerPath, budget.calls],
        [big(expected.owner_death_ns), big(expected.broker_path_ns), BigInt(expected.terms.calls)],
        file,
      );
      const timing = sessionTiming(value, session);
      assert.equal(timing.objective, big(expected.objective_ns), file);
      assert.equal(admitted(timing) ?? null, expected.admitted, file);
      compared += 1;
    }
  }
  assert.ok(compared >= 5, `${compared} sessions were compared`);
});

test("a session has the name in the table of managed subscriptions that the program gives it", () => {
  interface Vector {
    readonly name: string;
    readonly broker_url: string;
    readonly client_id: string;
    readonly session_mode: string;
    readonly clean_start: boolean;
    readonly session_expiry: number;
    readonly expect: string;
  }
  const { cases }: { cases: Vector[] } = read(fileURLToPath(new URL("vectors/storage-identity.json", import.meta.url)));
  assert.ok(cases.length >= 5);
  for (const vector of cases) {
    const identity = storageIdentity({
      brokerUrl: vector.broker_url,
      clientId: vector.client_id,
      sessionMode: vector.session_mode,
      cleanStart: vector.clean_start,
      sessionExpiry: vector.session_expiry,
    });
    assert.equal(identity, vector.expect, vector.name);
  }
});

test("defaults of a session are filled in before it is named", () => {
  const options = { session: { broker_url: "mqtts://[::1]", client_id: "c" } };
  const expected = {
    brokerUrl: "tls://[::1]:8883",
    clientId: "c",
    sessionMode: "exclusive",
    cleanStart: false,
    sessionExpiry: 86_400,
  };
  assert.deepEqual(brokerSession({ id: "s", session_mode: "exclusive", options }), expected);
  assert.deepEqual(
    brokerSession({ id: "s", options: { session: { broker_url: "tcp://h", session_expiry_interval: 7 } } }),
    {
      brokerUrl: "tcp://h:1883",
      clientId: "",
      sessionMode: "ephemeral",
      cleanStart: true,
      sessionExpiry: 0,
    },
  );
});
