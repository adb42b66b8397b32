/** Rules of `receivers`, `senders` and `bindings`. */
import { SECOND } from "../../budget.ts";
import {
  isClustered,
  isHttpUrl,
  isTopicFilter,
  mqtt,
  optionalNanos,
  type Receiver,
  type Sender,
  sharedFilter,
  type Topic,
} from "../model.ts";
import { key } from "./bridge.ts";
import type { Check } from "./check.ts";

export function checkEnds(check: Check): void {
  const { receivers = [], senders = [], bindings = [] } = check.config;
  check.names("receivers", receivers);
  check.names("senders", senders);
  check.names("bindings", bindings);
  const taken = new Map<string, string>();
  receivers.forEach((receiver, index) => {
    const at = `receivers[${index}]`;
    origin(check, at, receiver);
    const session = receiver.session_id;
    if (session === undefined) {
      if (receiver.transport === "sqs") sqsReceiver(check, at, receiver);
      if (receiver.transport === "http") httpReceiver(check, at, receiver);
      return;
    }
    mqttReceiver(check, at, receiver);
    const other = taken.get(session);
    if (other !== undefined) {
      check.error(
        "E_RECEIVER_PER_SESSION",
        `${at}.session_id`,
        `receiver "${other}" already receives from this session`,
        "list all topics under one receiver, or add a session",
      );
    }
    taken.set(session, receiver.id ?? "");
  });
  senders.forEach((sender, index) => {
    origin(check, `senders[${index}]`, sender);
    if (sender.transport === "http")
      check.error(
        "E_HTTP_SENDER",
        `senders[${index}].transport`,
        "there are no HTTP senders: `http` is for receivers",
        "write `transport: sqs`",
      );
    senderOptions(check, `senders[${index}]`, sender);
  });
  bindings.forEach((binding, index) => {
    const at = `bindings[${index}]`;
    check.reference(`${at}.sender_id`, binding.sender_id, "senders");
    check.reference(`${at}.session_id`, binding.session_id, "sessions");
    if (binding.address === "") {
      check.error("E_REQUIRED", `${at}.address`, `${at}.address is required`, "write the topic, or the queue's name");
    } else if (binding.address !== undefined && !/^([^{}]|\{[^{}]+\})*$/s.test(binding.address)) {
      check.error(
        "E_ADDRESS_TEMPLATE",
        `${at}.address`,
        "a placeholder is not closed, nested, or empty",
        "write `{header}`",
      );
    }
  });
}

/** Exactly one of transport and session. */
function origin(check: Check, at: string, end: { transport?: string; session_id?: string }): void {
  const [transportAt, sessionAt] = [`${at}.transport`, `${at}.session_id`];
  const { transport, session_id: session } = end;
  if (transport === undefined && session === undefined) {
    check.error(
      "E_TRANSPORT_OR_SESSION",
      at,
      "exactly one of transport and session_id is required",
      "write `transport: sqs`, or the `session_id` of an MQTT session",
      [transportAt, sessionAt],
    );
  } else if (transport !== undefined && session !== undefined) {
    check.error(
      "E_TRANSPORT_OR_SESSION",
      transportAt,
      "exactly one of transport and session_id is required, not both",
      "remove one of the two",
      [sessionAt],
    );
  } else if (transport === "mqtt") {
    check.error(
      "E_TRANSPORT_OR_SESSION",
      transportAt,
      "MQTT needs a session",
      "write the `session_id` of an MQTT session instead",
    );
  } else {
    check.reference(sessionAt, session, "sessions");
  }
}

function mqttReceiver(check: Check, at: string, receiver: Receiver): void {
  const topics = receiver.topics ?? [];
  if (topics.length === 0) {
    check.error(
      "E_TOPICS_REQUIRED",
      `${at}.topics`,
      "a receiver of a session must subscribe to something",
      "add `topics: [{topic: telemetry/#, qos: 1}]`",
    );
  }
  foreignOptions(check, at, receiver, [...QUEUED, ...POSTED], "MQTT receivers");
  topics.forEach((topic, index) => {
    const path = `${at}.topics[${index}]`;
    if (topic.topic !== undefined) subscription(check, path, receiver, topic, topic.topic);
    if (topics.slice(0, index).some((other) => other.topic === topic.topic)) {
      check.error("E_TOPIC_TWICE", `${path}.topic`, `"${topic.topic}" is subscribed twice`, "keep one of the two");
    }
  });
}

function subscription(check: Check, at: string, receiver: Receiver, topic: Topic, text: string): void {
  const recheck = optionalNanos(topic.options?.subscription?.qos_recheck_interval);
  if (recheck !== undefined && recheck !== 0n && recheck < 60n * SECOND) {
    check.error(
      "E_QOS_RECHECK",
      `${at}.options.subscription.qos_recheck_interval`,
      "qos_recheck_interval is below 1m",
      "write 1m or more, or 0s for never",
    );
  }
  const shared = text.startsWith("$share/");
  const filter = shared ? sharedFilter(text) : text;
  if (filter === undefined) {
    check.error("E_SHARE_TOPIC", `${at}.topic`, `malformed $share/ topic "${text}"`, "write `$share/GROUP/FILTER`");
    return;
  }
  if (!isTopicFilter(filter)) {
    check.error(
      "E_TOPIC_FILTER",
      `${at}.topic`,
      `"${text}" is not a topic filter`,
      "`+` stands for a whole level, `#` for the rest and comes last",
    );
  }
  const index = (check.config.sessions ?? []).findIndex(({ id }) => id !== undefined && id === receiver.session_id);
  const session = check.config.sessions?.[index];
  if (session === undefined) return;
  if (shared && mqtt(session).no_local === true) {
    check.error(
      "E_NO_LOCAL",
      `${at}.topic`,
      "no_local is a protocol error on $share/ filters",
      "remove no_local, or the `$share/` prefix",
      [`sessions[${index}].options.session.no_local`],
    );
  }
  if (isClustered(check.config) && !shared && session.session_mode !== "exclusive") {
    check.error(
      "E_SHARE_OR_EXCLUSIVE",
      `${at}.topic`,
      "clustered MQTT receiver requires $share/ topic prefix or exclusive session to prevent N-fold message duplication",
      "write `session_mode: exclusive`",
      ["bridge.deployment_mode", "bridge.cluster.endpoints", `sessions[${index}].session_mode`],
    );
  }
}

const SUBSCRIBED = ["retained"];
const POSTED = ["token", "max_body_bytes", "fail_open"];
const QUEUED = [
  "queue_url",
  "queue_name",
  "region",
  "endpoint",
  "profile",
  "max_messages",
  "wait_time_seconds",
  "visibility_timeout",
  "auto_extend",
  "sns_unwrap",
  "init_timeout",
  "poll_backoff",
  "credentials_uri",
  "poison_max_receives",
  "poison_drop_without_dlq",
];

/** Options that belong to other transports. */
function foreignOptions(check: Check, at: string, end: Receiver | Sender, foreign: string[], whose: string): void {
  for (const name of foreign) {
    if (end.options?.[name] !== undefined) {
      check.error(
        "E_OPTION_TRANSPORT",
        `${at}.options.${name}`,
        `\`${name}\` has no meaning for ${whose}`,
        "remove it",
        [`${at}.transport`, `${at}.session_id`],
      );
    }
  }
}

/** What belongs to receivers of an MQTT session. */
function withoutSession(check: Check, at: string, receiver: Receiver): void {
  if ((receiver.topics ?? []).length > 0)
    check.error("E_OPTION_TRANSPORT", `${at}.topics`, "topics are for receivers of an MQTT session", "remove them");
}

function httpReceiver(check: Check, at: string, receiver: Receiver): void {
  withoutSession(check, at, receiver);
  foreignOptions(check, at, receiver, [...SUBSCRIBED, ...QUEUED], "HTTP receivers");
  const { token, fail_open: failOpen } = receiver.options ?? {};
  if (token === undefined) {
    check.error(
      "E_HTTP_TOKEN",
      `${at}.options.token`,
      "token is required: without it everybody could post",
      // biome-ignore lint/suspicious/noTemplateCurlyInString: the notation of the configuration
      "add `token: ${CAUSEWAY_POST_TOKEN}`",
      [`${at}.options`],
    );
  } else if (typeof token === "string") {
    key(check, `${at}.options.token`, token);
  }
  const routes = (check.config.routes ?? []).filter(
    (route) => route.receiver_id !== undefined && route.receiver_id === receiver.id,
  );
  const sessions = new Set(routes.map((route) => route.session?.session_id));
  if (sessions.size > 1)
    check.error(
      "E_HTTP_SESSION",
      at,
      "its routes belong to several sessions: what is posted has one owner",
      "name the same session in the `session` block of each of its routes, or in none",
      ["routes"],
    );
  if (failOpen === true && ![...sessions].some((session) => session !== undefined))
    check.error(
      "E_OPTION_TRANSPORT",
      `${at}.options.fail_open`,
      "`fail_open` has no meaning without an owner: every replica takes what is posted to it",
      "remove it",
      ["routes"],
    );
}

function sqsReceiver(check: Check, at: string, receiver: Receiver): void {
  const options = receiver.options ?? {};
  const option = (name: string) => `${at}.options.${name}`;
  withoutSession(check, at, receiver);
  foreignOptions(check, at, receiver, [...SUBSCRIBED, ...POSTED], "SQS receivers");
  const { queue_url: url, queue_name: name } = options;
  if (url === undefined && name === undefined) {
    check.error("E_QUEUE_REQUIRED", option("queue_url"), "queue_url or queue_name is required", "add `queue_url`", [
      option("queue_name"),
    ]);
  } else if (url !== undefined && name !== undefined) {
    check.error(
      "E_QUEUE_BOTH",
      option("queue_name"),
      "queue_url and queue_name are mutually exclusive",
      "keep one of the two",
      [option("queue_url")],
    );
  } else if (typeof url === "string") {
    queueUrl(check, option("queue_url"), url);
  }
  for (const field of ["init_timeout", "poll_backoff"]) check.positive(option(field), options[field]);
  if (options.credentials_uri !== undefined)
    awsCredentials(check, option("credentials_uri"), "set `profile` where it needs others than the rest");
}

/** A queue is no broker: who may use it, AWS says, and its credentials are renewed where they come from. */
function awsCredentials(check: Check, path: string, remedy: string): void {
  check.error(
    "E_AWS_CREDENTIALS",
    path,
    "credentials for SQS come from the AWS chain (environment, profile, the role of the task or the host), and from no place of the configuration",
    `remove it; ${remedy}`,
    [],
  );
}

function queueUrl(check: Check, path: string, url: string): void {
  if (!isHttpUrl(url))
    check.error(
      "E_QUEUE_URL",
      path,
      "not the URL of a queue",
      "write `https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE`",
    );
}

const SQS = [
  "queue_url",
  "region",
  "delay_seconds",
  "batch_size",
  "message_group_id",
  "fifo",
  "max_message_bytes",
  "credentials_uri",
];
const MQTT = ["default_topic", "qos", "retain", "throttle_retry_after"];

function senderOptions(check: Check, at: string, sender: Sender): void {
  const sqs = sender.transport === "sqs" && sender.session_id === undefined;
  if (!sqs && (sender.transport !== undefined || sender.session_id === undefined)) return;
  const options = sender.options ?? {};
  foreignOptions(check, at, sender, sqs ? MQTT : SQS, sqs ? "SQS senders" : "MQTT senders");
  check.positive(`${at}.options.timeout`, options.timeout);
  const topic = options.default_topic;
  if (
    typeof topic === "string" &&
    (Buffer.byteLength(topic) > 65_535 ||
      topic === "" ||
      ["+", "#", "\0"].some((character) => topic.includes(character)))
  ) {
    check.error(
      "E_DEFAULT_TOPIC",
      `${at}.options.default_topic`,
      "nothing can be published to it",
      "write a topic without `+`, `#` and U+0000, of at most 65535 bytes",
      [],
    );
  }
  if (sqs) sqsSender(check, at, options);
}

function fifoGroup(check: Check, option: (name: string) => string, group: string, ofKey: boolean): void {
  const path = option("message_group_id");
  if (ofKey) {
    check.error(
      "E_FIFO_GROUP",
      path,
      "`fifo: true` takes the group from the ordering key, and `message_group_id` gives every message the same",
      "remove one of the two",
      [option("fifo")],
    );
  }
  if (!/^[!-~]{1,128}$/.test(group)) {
    check.error(
      "E_FIFO_GROUP",
      path,
      "SQS takes 1 to 128 letters, digits and marks of ASCII for a group, without spaces",
      "shorten it, or replace what SQS refuses",
      [],
    );
  }
}

function sqsSender(check: Check, at: string, options: NonNullable<Sender["options"]>): void {
  const option = (name: string) => `${at}.options.${name}`;
  const { queue_url: url } = options;
  if (options.credentials_uri !== undefined)
    awsCredentials(check, option("credentials_uri"), "set `AWS_PROFILE`, or give the process a role");
  if (typeof url !== "string") {
    check.error("E_QUEUE_REQUIRED", option("queue_url"), `${option("queue_url")} is required`, "add `queue_url`", [
      `${at}.options`,
    ]);
    return;
  }
  queueUrl(check, option("queue_url"), url);
  const fifo = url.endsWith(".fifo");
  const group = options.message_group_id !== undefined || options.fifo === true;
  if (fifo && !group) {
    check.error(
      "E_FIFO_GROUP",
      option("queue_url"),
      "a FIFO queue needs a group for every message",
      "add `message_group_id`, or `fifo: true`",
      [option("fifo"), option("message_group_id")],
    );
  }
  if (fifo && typeof options.message_group_id === "string") {
    fifoGroup(check, option, options.message_group_id, options.fifo === true);
  }
  if (!fifo && (group || options.strict_order !== undefined)) {
    const written = (["fifo", "message_group_id"] as const).find((name) => options[name] !== undefined);
    check.error(
      "E_FIFO_QUEUE",
      option(written ?? "strict_order"),
      "the queue is not FIFO: its name does not end in `.fifo`",
      "remove it, or name a FIFO queue",
      [option("queue_url")],
    );
  }
  if (fifo && options.delay_seconds !== undefined) {
    check.error(
      "E_FIFO_DELAY",
      option("delay_seconds"),
      "messages of a FIFO queue cannot be delayed one by one",
      "remove it; set the delay on the queue",
      [option("queue_url")],
    );
  }
}
