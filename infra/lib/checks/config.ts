import { isStandIn } from "../config/interpolate.ts";
import { type BridgeConfig, isClustered, isTopicFilter, mqtt, type Role, sharedFilter } from "../config/model.ts";
import { sessionBlock } from "../config/timing.ts";
import type { ConfigDocument } from "../config-document.ts";
import { PORTS } from "../ports.ts";
import { refuse } from "./codes.ts";
import type { SynthFault } from "./fault.ts";

const ROLES: readonly Role[] = ["lease", "outbox", "dlq", "managed_subscriptions"];

/**
 * What a highly available deployment asks of the configuration, beyond what the program asks of any. Its own faults come first, with their codes; the
 * rules here follow where the configuration can be used at all.
 *
 * @param baselines what each exclusive session's broker already keeps, by session id; an empty list says that the client_id is new
 */
export function checkConfig(
  document: ConfigDocument,
  baselines: Readonly<Record<string, readonly string[]>>,
): SynthFault[] {
  if (document.faults.length > 0) return document.faults;
  const config = document.value;
  return [...cluster(config), ...sessions(config), ...routes(config), ...history(config, baselines)];
}

function cluster(config: BridgeConfig): SynthFault[] {
  const faults: SynthFault[] = [];
  if (!isClustered(config)) {
    faults.push(
      refuse(
        "CAUSEWAY_CFG_001",
        "bridge.deployment_mode",
        "two workers and one control task run this configuration, and it is for one process",
      ),
    );
  }
  if (Object.keys(config.bridge?.cluster?.endpoints ?? {}).length > 0) {
    faults.push(
      refuse(
        "CAUSEWAY_CFG_012",
        "bridge.cluster.endpoints",
        "one address in the configuration would be every task's address",
      ),
    );
  }
  const takesCommands = config.commands?.enabled === true;
  for (const role of takesCommands ? [...ROLES, "commands" as const] : ROLES) {
    if (config.stores?.[role]?.type !== "dynamodb") {
      faults.push(
        refuse(
          "CAUSEWAY_CFG_002",
          `stores.${role}.type`,
          `${role} is not kept in DynamoDB: a task that dies takes it along`,
        ),
      );
    }
  }
  if (config.bridge?.metrics_exporter !== "emf") {
    faults.push(
      refuse(
        "CAUSEWAY_CFG_014",
        "bridge.metrics_exporter",
        "no metric would reach CloudWatch, and no alarm could ever fire",
      ),
    );
  }
  const transport = config.http?.transport_addr;
  const posted = (config.receivers ?? []).some((receiver) => receiver.transport === "http");
  const listens = config.http?.hint_token !== undefined || posted || takesCommands;
  if (listens && transport !== undefined && !reachable(transport)) {
    faults.push(
      refuse(
        "CAUSEWAY_CFG_015",
        "http.transport_addr",
        `no hint, post or command would come in at ${transport}: the tasks are reached on port ${PORTS.transport} alone`,
      ),
    );
  }
  return faults;
}

/** Whether other tasks reach what listens there. */
function reachable(address: string): boolean {
  return address.endsWith(`:${PORTS.transport}`) && !/^(127\.|localhost:|\[::1\])/.test(address);
}

function sessions(config: BridgeConfig): SynthFault[] {
  const faults: SynthFault[] = [];
  const exclusive = (config.sessions ?? [])
    .map((session, index) => ({ session, at: `sessions[${index}]` }))
    .filter(({ session }) => session.session_mode === "exclusive");
  if (exclusive.length === 0) faults.push(refuse("CAUSEWAY_CFG_003", "sessions", "no session is exclusive"));
  for (const { session, at } of exclusive) {
    const written = mqtt(session);
    if (isStandIn(written.client_id)) {
      faults.push(
        refuse(
          "CAUSEWAY_CFG_004",
          `${at}.options.session.client_id`,
          "only the container would know the client_id: nobody can tell whether all tasks have the same, nor what the broker keeps for it",
        ),
      );
    }
    const block = sessionBlock(config, session.id);
    if (block === undefined) {
      faults.push(refuse("CAUSEWAY_CFG_011", at, `no route has a session block for exclusive session "${session.id}"`));
      continue;
    }
    if (block.failover_slo === undefined) {
      faults.push(refuse("CAUSEWAY_CFG_008", at, `session "${session.id}" promises nothing: failover_slo is left out`));
    }
    if (block.broker_health_step_down === undefined) {
      faults.push(
        refuse(
          "CAUSEWAY_CFG_009",
          at,
          `session "${session.id}" leaves open what a broker outage means: broker_health_step_down is left out`,
        ),
      );
    }
  }
  return faults;
}

function routes(config: BridgeConfig): SynthFault[] {
  const exclusive = new Set(
    (config.sessions ?? []).filter((session) => session.session_mode === "exclusive").map((session) => session.id),
  );
  const faults: SynthFault[] = [];
  (config.routes ?? []).forEach((route, index) => {
    const receiver = (config.receivers ?? []).find((candidate) => candidate.id === route.receiver_id);
    const source = receiver?.session_id;
    if (source === undefined || !exclusive.has(source)) return;
    const at = `routes[${index}]`;
    if (route.session?.session_id !== source) {
      faults.push(
        refuse(
          "CAUSEWAY_CFG_010",
          `${at}.session.session_id`,
          `route "${route.id}" is fed by exclusive session "${source}" and does not name it`,
        ),
      );
    }
    if (route.delivery_mode !== "shared_outbox" && route.delivery_mode !== "spill_outbox") {
      faults.push(
        refuse(
          "CAUSEWAY_CFG_013",
          `${at}.delivery_mode`,
          `route "${route.id}" keeps nothing in the outbox: nothing fences the sends of a former owner`,
        ),
      );
    }
  });
  return faults;
}

function history(config: BridgeConfig, baselines: Readonly<Record<string, readonly string[]>>): SynthFault[] {
  const ids = (config.sessions ?? [])
    .filter((session) => session.session_mode === "exclusive")
    .map((session) => session.id ?? "");
  const faults: SynthFault[] = [];
  for (const id of ids) {
    if (baselines[id] === undefined) {
      faults.push(
        refuse(
          "CAUSEWAY_CFG_005",
          `managedSubscriptionBaselines.${id}`,
          `nothing says what the broker already keeps for exclusive session "${id}", and without that no worker connects`,
        ),
      );
    }
  }
  for (const [id, filters] of Object.entries(baselines)) {
    const path = `managedSubscriptionBaselines.${id}`;
    if (!ids.includes(id)) {
      faults.push(refuse("CAUSEWAY_CFG_006", path, `the configuration has no exclusive session "${id}"`));
      continue;
    }
    filters.forEach((filter, index) => {
      const inner = filter.startsWith("$share/") ? sharedFilter(filter) : filter;
      if (inner === undefined || !isTopicFilter(inner)) {
        faults.push(refuse("CAUSEWAY_CFG_007", `${path}[${index}]`, `"${filter}" is not a topic filter`));
      }
    });
  }
  return faults;
}
