import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkConfig } from "../lib/checks/index.ts";
import type { BridgeConfig, Commands, Store } from "../lib/config/model.ts";
import { checkRules } from "../lib/config/rules/index.ts";
import type { ConfigDocument } from "../lib/config-document.ts";
import { configuration } from "./fixtures/configuration.ts";

const TABLE: Store = { type: "dynamodb", options: { table_name: "causeway-commands" } };
const TAKEN: Commands = { enabled: true, session_id: "broker", token: "0123456789abcdef" };

/** The good configuration with commands, and with whatever else is changed. */
function value(commands: Commands, store: Store | undefined = TABLE, change: BridgeConfig = {}): BridgeConfig {
  const good = configuration().value;
  const stores = store === undefined ? good.stores : { ...good.stores, commands: store };
  return { ...good, stores: stores ?? {}, commands, ...change };
}

function told(config: BridgeConfig, broken: readonly string[] = []): string[] {
  return checkRules(config, new Set(broken)).map(({ code, path }) => `${code} ${path}`);
}

/** What the rules say where commands are taken and some fields are others. */
const changed = (fields: Commands) => told(value({ ...TAKEN, ...fields }));

describe("commands", () => {
  test("are taken with a session, a token and a table, and nothing else needs to be said", () => {
    assert.deepEqual(told(value(TAKEN)), []);
    assert.deepEqual(told(value({})), []);
  });

  test("that are taken need a session, a token and a store", () => {
    const bare = value({ enabled: true });
    delete bare.stores?.commands;
    assert.deepEqual(told(bare), [
      "E_CMD_TOKEN commands.token",
      "E_CMD_TABLE stores.commands",
      "E_CMD_SESSION commands.session_id",
    ]);
    assert.deepEqual(told({ ...bare, commands: { enabled: false } }), []);
    assert.deepEqual(told(bare, ["stores.commands", "commands.token", "commands.session_id"]), []);
    assert.deepEqual(changed({ session_id: "" }), ["E_CMD_SESSION commands.session_id"]);
    assert.deepEqual(changed({ session_id: "nobody" }), ["E_DANGLING commands.session_id"]);
  });

  test("have ids in the payload where the session's MQTT has no correlation data", () => {
    const old = (fields: Commands) => {
      const config = value({ ...TAKEN, ...fields });
      const session = structuredClone(config.sessions?.[0] ?? assert.fail());
      const options = { session: { ...session.options?.session, protocol_version: "v3.1.1" } };
      return told({ ...config, sessions: [{ ...session, options }] }).filter((line) => line.includes("commands"));
    };
    assert.deepEqual(old({}), ["E_CMD_SESSION commands.session_id"]);
    assert.deepEqual(old({ correlation: "payload" }), []);
  });

  test("have a token as other callers have one", () => {
    assert.deepEqual(changed({ token: "0123456789abcde" }), ["E_API_KEY commands.token"]);
    assert.deepEqual(changed({ token: "vault://commands" }), ["E_CREDENTIALS_URI commands.token"]);
    assert.deepEqual(changed({ token: "ssm:///plant/commands" }), []);
  });

  test("are kept in a table with a name, or in the memory of a single process", () => {
    const kept = (store: Store, change: BridgeConfig = {}) => told(value(TAKEN, store, change));
    assert.deepEqual(kept({ type: "dynamodb" }), ["E_CMD_TABLE stores.commands.options.table_name"]);
    assert.deepEqual(kept({ type: "dynamodb", options: { table_name: "a b" } }), [
      "E_TABLE_NAME stores.commands.options.table_name",
    ]);
    assert.deepEqual(kept({ type: "sqlite" }), ["E_STORE_ROLE stores.commands.type"]);
    assert.deepEqual(kept({ type: "memory" }), ["E_STORE_DISTRIBUTED stores.commands.type"]);
    const alone: BridgeConfig = { bridge: { id: "telemetry" } };
    const ofStore = (lines: string[]) => lines.filter((line) => line.includes("stores.commands"));
    assert.deepEqual(ofStore(kept({ type: "memory" }, alone)), []);
    assert.deepEqual(ofStore(kept({ type: "memory", options: { table_name: "commands" } }, alone)), [
      "E_STORE_OPTION stores.commands.options.table_name",
    ]);
  });

  test("have times with bounds, each accepted at the bound and refused beyond it", () => {
    const bounds: [field: keyof Commands, accepted: string, refused: string][] = [
      ["timeout", "100ms", "99ms"],
      ["timeout", "12h", "43201s"],
      ["late_result_window", "0s", "604801s"],
      ["orphan_ttl", "1m", "59s"],
      ["orphan_ttl", "1d", "86401s"],
    ];
    for (const [field, accepted, refused] of bounds) {
      assert.deepEqual(changed({ retention: "30d", [field]: accepted }), [], `${field} ${accepted}`);
      assert.deepEqual(changed({ retention: "30d", [field]: refused }), [`E_RANGE commands.${field}`], refused);
    }
  });

  test("are kept for as long as a late result may come, and callers wait for less than the load balancer", () => {
    assert.deepEqual(changed({ retention: "1h" }), []);
    assert.deepEqual(changed({ retention: "3599s" }), ["E_CMD_RETENTION commands.retention"]);
    assert.deepEqual(changed({ retention: "0s", late_result_window: "0s" }), ["E_POSITIVE commands.retention"]);
    assert.deepEqual(changed({ sync_wait_max: "54999ms" }), []);
    assert.deepEqual(changed({ sync_wait_max: "55s" }), ["E_SYNC_WAIT commands.sync_wait_max"]);
    assert.deepEqual(changed({ load_balancer_idle_timeout: "30s" }), ["E_SYNC_WAIT commands.sync_wait_max"]);
    assert.deepEqual(changed({ load_balancer_idle_timeout: "4s", sync_wait_max: "0s" }), [
      "E_SYNC_WAIT commands.sync_wait_max",
    ]);
  });

  test("have sizes with bounds, and no result larger than a row", () => {
    assert.deepEqual(changed({ max_request_bytes: 0 }), ["E_RANGE commands.max_request_bytes"]);
    assert.deepEqual(changed({ inline_response_bytes: 358_400, max_response_bytes: 358_400 }), []);
    assert.deepEqual(changed({ inline_response_bytes: 358_401 }), ["E_RANGE commands.inline_response_bytes"]);
    assert.deepEqual(changed({ max_response_bytes: 262_145 }), ["E_NO_BLOB_STORE commands.max_response_bytes"]);
    assert.deepEqual(changed({ max_pending_per_target: 10_001 }), ["E_RANGE commands.max_pending_per_target"]);
  });

  test("are lost by quality of service 0 alone, which must be allowed", () => {
    assert.deepEqual(changed({ qos: 0 }), ["E_CMD_QOS commands.qos"]);
    assert.deepEqual(changed({ qos: 0, allow_qos0: true }), []);
    assert.deepEqual(changed({ qos: 2, allow_qos0: true }), ["E_CMD_QOS commands.qos"]);
  });

  test("have topics that can be published to, with each placeholder once as a whole level", () => {
    const wrong: [field: keyof Commands, code: string, templates: string[]][] = [
      ["request_topic", "E_TOPIC_WILDCARD", ["a/+/{target}", "{target}/#"]],
      ["request_topic", "E_CMD_TOPIC", ["", "$SYS/{target}", "a\u0085/{target}", `${"é".repeat(512)}/{target}`]],
      ["request_topic", "E_CMD_PLACEHOLDER", ["a", "a/{target}/{target}", "a/x{target}", "{target}/x{target}"]],
      ["reply_topic", "E_CMD_PLACEHOLDER", ["r/{target}", "r/{instance_id}", "r/{instance_id}{target}"]],
      ["legacy_reply_filter", "E_CMD_PLACEHOLDER", ["{prefix}/response"]],
      ["broadcast_topic", "E_TOPIC_WILDCARD", ["{prefix}/#"]],
      ["broadcast_topic", "E_CMD_TOPIC", ["", "$share/a"]],
    ];
    for (const [field, code, templates] of wrong) {
      for (const template of templates) {
        assert.deepEqual(changed({ [field]: template }), [`${code} commands.${field}`], template);
      }
    }
    assert.deepEqual(changed({ prefix: "$&/x", legacy_reply_filter: "a/{target}/response" }), [
      "E_CMD_TOPIC commands.request_topic",
      "E_CMD_TOPIC commands.reply_topic",
      "E_CMD_TOPIC commands.broadcast_topic",
    ]);
    assert.deepEqual(told(value({ ...TAKEN, prefix: "a/#" }), ["commands.prefix"]), []);
    for (const group of ["a/b", "+", "g#", "a\n"]) {
      assert.deepEqual(changed({ reply_share_group: group }), ["E_CMD_SHARE_GROUP commands.reply_share_group"], group);
    }
    assert.deepEqual(changed({ reply_share_group: "" }), [], "every replica hears its own replies alone");
  });

  test("have a topic for replicas that no device may publish to", () => {
    const open = ["E_CMD_BROADCAST commands.broadcast_topic"];
    assert.deepEqual(changed({ broadcast_topic: "{prefix}/notify/command" }), open);
    assert.deepEqual(changed({ broadcast_topic: "causeway/reply/all/all" }), open);
    assert.deepEqual(
      changed({ broadcast_topic: "{prefix}/all/response", legacy_reply_filter: "{prefix}/{target}/response" }),
      open,
    );
    assert.deepEqual(changed({ broadcast_topic: "{prefix}/all/response" }), []);
    assert.deepEqual(changed({ broadcast_topic: "{prefix}/all/command/more" }), []);
  });

  test("come in at a listener of their own", () => {
    const taken = { http: { transport_addr: ":8081" } };
    assert.deepEqual(told(value(TAKEN, TABLE, taken)), ["E_LISTEN_TWICE http.transport_addr"]);
    assert.deepEqual(told(value({}, TABLE, taken)), []);
  });
});

describe("commands of a stack", () => {
  const refused = (config: BridgeConfig) => {
    const document: ConfigDocument = { ...configuration(), value: config };
    return checkConfig(document, { broker: [] }).map(({ code, path }) => `${code} ${path}`);
  };

  test("are kept in DynamoDB, where another task finds them", () => {
    const none = value(TAKEN);
    delete none.stores?.commands;
    const lost = ["CAUSEWAY_CFG_002 stores.commands.type"];
    assert.deepEqual(refused(none), lost);
    assert.deepEqual(refused(value(TAKEN, { type: "memory" })), lost);
    assert.deepEqual(refused(value(TAKEN)), []);
    assert.deepEqual(refused({ ...none, commands: { enabled: false } }), []);
  });

  test("come in at the port that the security group opens", () => {
    const elsewhere = { http: { transport_addr: ":9082" } };
    assert.deepEqual(refused(value(TAKEN, TABLE, elsewhere)), ["CAUSEWAY_CFG_015 http.transport_addr"]);
    assert.deepEqual(refused(value({}, TABLE, elsewhere)), []);
    assert.deepEqual(refused(value(TAKEN, TABLE, { http: { transport_addr: ":8082" } })), []);
  });
});
