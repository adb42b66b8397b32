/** Rules of `commands`. */
import { type Nanos, SECOND } from "../../budget.ts";
import { type Commands, mqtt, named, nanos } from "../model.ts";
import { showSpan } from "../span.ts";
import { key } from "./bridge.ts";
import type { Check } from "./check.ts";

/** The parts of a configuration that a rule may name as read. */
const TEMPLATES = [
  "commands.prefix",
  "commands.request_topic",
  "commands.reply_topic",
  "commands.legacy_reply_filter",
] as const;
const TARGET = "{target}";
const INSTANCE = "{instance_id}";
/** Longest topic, in bytes, that commands and replies use. */
const MAX_TOPIC_BYTES = 1024;
/** How far below the load balancer's idle timeout an open request must end. */
const IDLE_RESERVE = 5n * SECOND;
/** The largest row of a result: a DynamoDB item holds 400 KB, keys and attributes included. */
const MAX_INLINE_BYTES = 358_400;
/** The largest payload that an MQTT packet can hold. */
const MAX_MQTT_BYTES = 268_435_455;
/** The program's own defaults of what rules compare, as in bridge/core/src/config/model/commands.rs. */
const STANDARD = {
  prefix: "causeway",
  request_topic: "{prefix}/{target}/command",
  reply_topic: "{prefix}/reply/{instance_id}/{target}",
  reply_share_group: "bridge-reply",
  broadcast_topic: "{prefix}/reply-notify",
  inline_response_bytes: 262_144,
  max_response_bytes: 262_144,
  qos: 1,
} as const;

export function checkCommands(check: Check): void {
  const commands = check.config.commands ?? {};
  times(check, commands);
  sizes(check, commands);
  topics(check, commands);
  if (commands.token !== undefined) key(check, "commands.token", commands.token);
  const { qos = STANDARD.qos } = commands;
  if (qos > 1 || (qos === 0 && commands.allow_qos0 !== true)) {
    check.error(
      "E_CMD_QOS",
      "commands.qos",
      "commands are published with quality of service 1; with 0 one may be lost without anybody being told",
      "write `qos: 1`, or `qos: 0` with `allow_qos0: true`",
      ["commands.allow_qos0"],
    );
  }
  check.range("commands.max_pending_per_target", commands.max_pending_per_target, 1, 10_000);
  if (commands.enabled === true) required(check, commands);
}

function between(check: Check, path: string, value: Nanos, least: Nanos, most: Nanos): void {
  if (value < least || value > most) {
    const remedy = `write a duration from ${showSpan(least)} to ${showSpan(most)}`;
    check.error("E_RANGE", path, "out of range", remedy);
  }
}

function times(check: Check, commands: Commands): void {
  const timeout = nanos(commands.timeout, 10);
  const late = nanos(commands.late_result_window, 3600);
  const retention = nanos(commands.retention, 7 * 86_400);
  between(check, "commands.timeout", timeout, SECOND / 10n, 43_200n * SECOND);
  between(check, "commands.late_result_window", late, 0n, 7n * 86_400n * SECOND);
  between(check, "commands.orphan_ttl", nanos(commands.orphan_ttl, 600), 60n * SECOND, 86_400n * SECOND);
  check.positive("commands.retention", commands.retention);
  if (retention < late) {
    check.error(
      "E_CMD_RETENTION",
      "commands.retention",
      `${showSpan(retention)} is below late_result_window (${showSpan(late)}): a late result would find no command`,
      "raise it, or lower late_result_window",
      ["commands.late_result_window"],
    );
  }
  const wait = nanos(commands.sync_wait_max, 25);
  if (wait >= nanos(commands.load_balancer_idle_timeout, 60) - IDLE_RESERVE) {
    check.error(
      "E_SYNC_WAIT",
      "commands.sync_wait_max",
      `${showSpan(wait)} is not below load_balancer_idle_timeout minus ${showSpan(IDLE_RESERVE)}: the load balancer would close the connection of a caller that waits`,
      "lower it, or raise load_balancer_idle_timeout with that of the load balancer",
      ["commands.load_balancer_idle_timeout"],
    );
  }
}

function sizes(check: Check, commands: Commands): void {
  const { inline_response_bytes: inline, max_response_bytes: largest } = { ...STANDARD, ...commands };
  check.range("commands.max_request_bytes", commands.max_request_bytes, 1, MAX_MQTT_BYTES);
  check.range("commands.inline_response_bytes", inline, 1, MAX_INLINE_BYTES);
  check.range("commands.max_response_bytes", largest, 1, MAX_MQTT_BYTES);
  if (largest > inline) {
    check.error(
      "E_NO_BLOB_STORE",
      "commands.max_response_bytes",
      `${largest} bytes do not fit inline_response_bytes (${inline}), and there is no store for larger results`,
      `lower it, or raise inline_response_bytes up to ${MAX_INLINE_BYTES}`,
      ["commands.inline_response_bytes"],
    );
  }
}

function topics(check: Check, commands: Commands): void {
  const written = { ...STANDARD, ...commands };
  if (/[/+#\p{Cc}]/u.test(written.reply_share_group)) {
    check.error(
      "E_CMD_SHARE_GROUP",
      "commands.reply_share_group",
      "not usable as the name of a share group",
      "use a name without `/`, `+`, `#` and control characters, or leave it empty",
    );
  }
  const filled = (template: string) => template.replaceAll("{prefix}", () => written.prefix);
  const templates = (
    [
      ["commands.request_topic", written.request_topic, [TARGET]],
      ["commands.reply_topic", written.reply_topic, [TARGET, INSTANCE]],
      ["commands.legacy_reply_filter", written.legacy_reply_filter, [TARGET]],
    ] as const
  ).flatMap(([path, template, placeholders]) =>
    template === undefined ? [] : [{ path, template: filled(template), placeholders }],
  );
  // Each by itself, so that its fault is told at its own place.
  const wrong = templates.flatMap(({ path, template, placeholders }) => {
    const fault = unpublishable(template) ?? misplaced(template, placeholders);
    return fault === undefined ? [] : [{ path, fault }];
  });
  for (const { path, fault } of wrong) topicError(check, path, fault);
  const broadcast = filled(written.broadcast_topic);
  const fault = unpublishable(broadcast);
  if (fault !== undefined) topicError(check, "commands.broadcast_topic", fault);
  else if (wrong.length === 0 && templates.some(({ template }) => covers(template, broadcast))) {
    check.error(
      "E_CMD_BROADCAST",
      "commands.broadcast_topic",
      `\`${broadcast}\` is one of the topics of commands and replies: a device could announce results to all replicas`,
      "write a topic that none of these templates covers, such as `{prefix}/reply-notify`",
      TEMPLATES,
    );
  }
}

interface TopicFault {
  readonly code: string;
  readonly message: string;
}

function topicError(check: Check, path: string, { code, message }: TopicFault): void {
  check.error(code, path, message, "see the default of this field", ["commands.prefix"]);
}

/** Why nothing can be published to a topic; `undefined` where something can. */
function unpublishable(topic: string): TopicFault | undefined {
  if (/[+#]/.test(topic)) {
    return { code: "E_TOPIC_WILDCARD", message: `\`${topic}\` has a wildcard: a topic that is published to has none` };
  }
  const tooLong = Buffer.byteLength(topic) > MAX_TOPIC_BYTES;
  if (topic !== "" && !tooLong && !topic.startsWith("$") && !/\p{Cc}/u.test(topic)) return undefined;
  return {
    code: "E_CMD_TOPIC",
    message: `\`${topic}\` is no topic to publish to: it is empty, longer than ${MAX_TOPIC_BYTES} bytes, begins with \`$\`, or has a control character`,
  };
}

/** The first placeholder that a template does not have once, as a level of its own. */
function misplaced(template: string, placeholders: readonly string[]): TopicFault | undefined {
  const levels = template.split("/");
  const found = placeholders.find(
    (placeholder) =>
      levels.filter((level) => level === placeholder).length !== 1 || template.split(placeholder).length !== 2,
  );
  if (found === undefined) return undefined;
  return { code: "E_CMD_PLACEHOLDER", message: `\`${template}\` needs \`${found}\` once, as a whole level` };
}

/** Whether a topic has the shape of one that commands or replies use. The broker lets devices write to some of these. */
function covers(template: string, topic: string): boolean {
  const [wanted, levels] = [template.split("/"), topic.split("/")];
  return (
    wanted.length === levels.length &&
    wanted.every((level, index) => level === levels[index] || level === TARGET || level === INSTANCE)
  );
}

function required(check: Check, commands: Commands): void {
  if (commands.token === undefined) {
    check.error(
      "E_CMD_TOKEN",
      "commands.token",
      "commands.token is required: without it everybody could give commands",
      // biome-ignore lint/suspicious/noTemplateCurlyInString: the notation of the configuration
      "add `token: ${CAUSEWAY_COMMAND_TOKEN}`, the same on every replica; make one with `openssl rand -hex 24`",
    );
  }
  if (check.config.stores?.commands === undefined) {
    check.error(
      "E_CMD_TABLE",
      "stores.commands",
      "stores.commands is required: a command is written down before it is published",
      "add `commands: {type: dynamodb, options: {table_name: causeway-commands}}` under `stores`",
    );
  }
  session(check, commands);
}

function session(check: Check, { session_id: id, correlation = "property" }: Commands): void {
  const path = "commands.session_id";
  if (id === undefined || id === "") {
    check.error(
      "E_CMD_SESSION",
      path,
      "commands.session_id is required: it names the broker of the devices",
      "name one of sessions",
    );
    return;
  }
  check.reference(path, id, "sessions");
  const found = named(check.config.sessions, id);
  if (found === undefined || correlation !== "property" || (mqtt(found).protocol_version ?? "v5") === "v5") return;
  check.error(
    "E_CMD_SESSION",
    path,
    `session "${id}" does not use MQTT 5, and has no correlation data`,
    "write `correlation: payload`, or use a session with MQTT 5",
    ["commands.correlation", "sessions"],
  );
}
