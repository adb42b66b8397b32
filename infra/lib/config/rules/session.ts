/** Rules of `sessions`. */
import {
  brokerUrls,
  isClustered,
  isDurable,
  isSecretPlace,
  type MqttSession,
  mqtt,
  nanos,
  type Session,
} from "../model.ts";
import type { Check } from "./check.ts";

export function checkSessions(check: Check): void {
  const sessions = check.config.sessions ?? [];
  check.names("sessions", sessions);
  sessions.forEach((session, index) => {
    const at = `sessions[${index}]`;
    const options = `${at}.options.session`;
    if (session.transport !== undefined && session.transport !== "mqtt") {
      check.error("E_SESSION_TRANSPORT", `${at}.transport`, "only MQTT has sessions", "write `transport: mqtt`");
    }
    check.range(`${at}.lanes`, session.lanes, 1, 64);
    broker(check, options, session);
    identity(check, at, options, session);
    timeouts(check, options, mqtt(session));
    credentials(check, options, mqtt(session));
    tls(check, options, mqtt(session));
    protocol(check, options, mqtt(session));
    stores(check, at, session);
  });
  sharedClients(check, sessions);
}

function broker(check: Check, at: string, session: Session): void {
  const { broker_url: one, broker_urls: all = [] } = mqtt(session);
  // One that is no address was told of already, and emptied.
  const many = all.filter((url) => url !== "");
  if (one === undefined && many.length === 0) {
    check.error(
      "E_BROKER_REQUIRED",
      `${at}.broker_url`,
      `${at}.broker_url is required`,
      "add `broker_url: tls://HOST:8883`",
      [`${at}.broker_urls`],
    );
  } else if (one !== undefined && many.length > 0) {
    check.error(
      "E_BROKER_BOTH",
      `${at}.broker_urls`,
      "broker_url and broker_urls are mutually exclusive",
      "keep one of the two",
      [`${at}.broker_url`],
    );
  } else if (many.length > 1 && isDurable(session.session_mode)) {
    check.error(
      "E_BROKER_SINGLE",
      `${at}.broker_urls`,
      "a durable session must use exactly one broker address",
      "write one `broker_url`",
    );
  }
  const readable = brokerUrls(mqtt(session)).length;
  const written = many.length + (one === undefined ? 0 : 1);
  if (readable < written) {
    const path = one === undefined ? `${at}.broker_urls` : `${at}.broker_url`;
    check.error("E_BROKER_URL", path, "not a broker's address", "write `tls://host:8883` or `tcp://host:1883`");
  }
}

function identity(check: Check, sessionAt: string, at: string, session: Session): void {
  const written = mqtt(session);
  const mode = session.session_mode ?? "ephemeral";
  const [modeAt, suffixAt] = [`${sessionAt}.session_mode`, `${at}.client_id_suffix`];
  const { client_id: client, client_id_suffix: suffix } = written;
  if (client === "") {
    check.error(
      "E_REQUIRED",
      `${at}.client_id`,
      `${at}.client_id is required`,
      "give the connection a name that no other client of the broker has",
    );
  } else if (client !== undefined && (Buffer.byteLength(client) > 65_535 || client.includes("\0"))) {
    check.error(
      "E_CLIENT_ID",
      `${at}.client_id`,
      "not usable as a client identifier",
      "use at most 65535 bytes, without U+0000",
    );
  }
  if (mode === "exclusive" && suffix !== undefined) {
    check.error(
      "E_CLIENT_ID_SUFFIX",
      suffixAt,
      "client_id_suffix is refused on exclusive sessions: every replica must have the same client_id",
      "remove it",
      [modeAt],
    );
  } else if (mode === "persistent" && suffix === "nonce") {
    check.error("E_CLIENT_ID_NONCE", suffixAt, "client_id_suffix: nonce is for ephemeral sessions only", "remove it", [
      modeAt,
    ]);
  } else if (mode === "persistent" && suffix === "hostname" && written.assert_stable_client_identity !== true) {
    check.error(
      "E_CLIENT_ID_HOSTNAME",
      suffixAt,
      "client_id_suffix: hostname on a persistent session needs host names that outlive a restart",
      "remove the suffix",
      [modeAt],
    );
  }
  const vouched = written.assert_stable_client_identity === true || suffix !== undefined;
  if (mode === "persistent" && isClustered(check.config) && !vouched) {
    check.error(
      "E_CLIENT_ID_STABLE",
      modeAt,
      "replicas of a persistent session need a client_id of each one's own that outlives a restart",
      "give each its own and add `assert_stable_client_identity: true`, or write `session_mode: exclusive` or `ephemeral`",
      [`${at}.assert_stable_client_identity`, suffixAt, "bridge.deployment_mode", "bridge.cluster.endpoints"],
    );
  }
  if (written.clean_start === true && isDurable(mode)) {
    check.error(
      "E_CLEAN_START",
      `${at}.clean_start`,
      "clean_start would throw away what the broker keeps",
      "write `clean_start: false`",
      [modeAt],
    );
  }
  if ((written.session_expiry_interval ?? 0) > 0 && !isDurable(mode)) {
    check.error(
      "E_SESSION_EXPIRY",
      `${at}.session_expiry_interval`,
      "an ephemeral session ends with its connection",
      "remove it",
      [modeAt],
    );
  }
}

function timeouts(check: Check, at: string, session: MqttSession): void {
  for (const name of ["connect_timeout", "reconnect_timeout", "reconcile_timeout", "reconnect_delay"] as const) {
    check.positive(`${at}.${name}`, session[name]);
  }
  if (nanos(session.reconnect_max_delay, 120) < nanos(session.reconnect_delay, 10)) {
    check.error(
      "E_RECONNECT_DELAY",
      `${at}.reconnect_max_delay`,
      "reconnect_max_delay must be >= reconnect_delay",
      "raise it",
      [`${at}.reconnect_delay`],
    );
  }
  check.range(`${at}.max_payload_bytes`, session.max_payload_bytes, 1, 268_000_000);
  const topic = session.will?.topic;
  if (topic !== undefined && (topic === "" || /[+#\0]/.test(topic))) {
    check.error(
      "E_TOPIC",
      `${at}.will.topic`,
      "not a topic that can be published to",
      "write a topic without `+` and `#`",
    );
  }
}

function credentials(check: Check, at: string, session: MqttSession): void {
  const login = session.username !== undefined || session.password !== undefined;
  const uri = session.credentials_uri;
  if (uri !== undefined) {
    if (login)
      check.error(
        "E_CREDENTIALS_BOTH",
        `${at}.credentials_uri`,
        "credentials_uri and username or password are mutually exclusive",
        "keep one of the two",
      );
    credentialsUri(check, `${at}.credentials_uri`, uri);
  }
  const plaintext = brokerUrls(session).some((url) => !url.encrypted);
  if ((login || uri !== undefined) && plaintext && session.allow_plaintext_credentials !== true) {
    const name = (["username", "password", "credentials_uri"] as const).find((field) => session[field] !== undefined);
    check.error(
      "E_PLAINTEXT_CREDENTIALS",
      `${at}.${name}`,
      "credentials on an address without TLS",
      "write `tls://` in broker_url",
      [`${at}.allow_plaintext_credentials`],
    );
  }
}

/** Where credentials are read from: a local file, or a parameter of AWS. */
export function credentialsUri(check: Check, path: string, uri: string): void {
  if (!isSecretPlace(uri)) {
    check.error(
      "E_CREDENTIALS_URI",
      path,
      "not a place that credentials are read from",
      "write `file:///ABSOLUTE/PATH`, `env://VARIABLE`, `ssm:///PARAMETER`, or `secretsmanager://NAME`",
    );
  }
}

function tls(check: Check, at: string, session: MqttSession): void {
  const written = session.tls ?? {};
  const urls = brokerUrls(session);
  const encrypted = urls.some((url) => url.encrypted);
  const reads = [`${at}.broker_url`, `${at}.broker_urls`];
  const enable = written.enable;
  if ((enable === true && urls.some((url) => !url.encrypted)) || (enable === false && encrypted)) {
    check.error(
      "E_TLS_ENABLE",
      `${at}.tls.enable`,
      "tls.enable and the address do not agree: its scheme decides",
      "remove tls.enable",
      reads,
    );
  }
  for (const name of ["ca_cert_file", "ca_cert_pem", "cert_file", "key_file", "cert_pem", "key_pem"]) {
    if (!encrypted && urls.length > 0 && written[name] !== undefined) {
      check.error(
        "E_TLS_PLAINTEXT",
        `${at}.tls.${name}`,
        "has no effect: the address is not encrypted",
        "write `tls://` in broker_url, or remove it",
        reads,
      );
    }
  }
  for (const [one, other] of [
    ["ca_cert_file", "ca_cert_pem"],
    ["cert_file", "cert_pem"],
  ] as const) {
    if (written[one] !== undefined && written[other] !== undefined) {
      check.error(
        "E_TLS_BOTH",
        `${at}.tls.${other}`,
        `${one} and ${other} are mutually exclusive`,
        "keep one of the two",
        [`${at}.tls.${one}`],
      );
    }
  }
  for (const [one, other] of [
    ["cert_file", "key_file"],
    ["cert_pem", "key_pem"],
  ] as const) {
    if ((written[one] === undefined) !== (written[other] === undefined)) {
      const path = `${at}.tls.${written[one] === undefined ? other : one}`;
      check.error("E_TLS_PAIR", path, `${one} and ${other} go together`, "give both, or neither", [
        `${at}.tls.${one}`,
        `${at}.tls.${other}`,
      ]);
    }
  }
}

function protocol(check: Check, at: string, session: MqttSession): void {
  const version = `${at}.protocol_version`;
  if ((session.protocol_version ?? "v5") === "v5") {
    if (session.message_id === "content_hash") {
      check.error("E_CONTENT_HASH", `${at}.message_id`, "content_hash is for MQTT 3.1.1 only", "remove it", [version]);
    }
    return;
  }
  for (const [name, used] of [
    ["no_local", session.no_local === true],
    ["session_expiry_interval", (session.session_expiry_interval ?? 0) > 0],
    ["password", session.password !== undefined && session.username === undefined],
  ] as const) {
    if (used)
      check.error(
        "E_V311",
        `${at}.${name}`,
        `MQTT 3.1.1 knows no ${name} here`,
        "remove it, or write `protocol_version: v5`",
        [version, `${at}.username`],
      );
  }
}

/** What a session's mode asks of the stores. */
function stores(check: Check, at: string, session: Session): void {
  const { config } = check;
  const exclusive = session.session_mode === "exclusive";
  // Else each process has a log of its own, under a lease of its own.
  const ofProcesses = isClustered(config) && config.stores?.outbox !== undefined;
  if ((exclusive || ofProcesses) && config.stores?.lease === undefined) {
    check.error(
      "E_LEASE_REQUIRED",
      `${at}.session_mode`,
      `${exclusive ? "exclusive" : "clustered"} session "${session.id}" requires stores.lease to be configured`,
      "add `stores: {lease: {type: dynamodb}}`",
      ["stores.lease", "bridge.deployment_mode", "bridge.cluster.endpoints"],
    );
  }
  const subscribes = (config.receivers ?? []).some(
    (receiver) => session.id !== undefined && receiver.session_id === session.id && (receiver.topics ?? []).length > 0,
  );
  const durable = isDurable(session.session_mode) && (exclusive || isClustered(config));
  if (durable && subscribes && config.stores?.managed_subscriptions === undefined) {
    check.error(
      "E_SUBSCRIPTIONS_REQUIRED",
      `${at}.session_mode`,
      `session "${session.id}" requires stores.managed_subscriptions to be configured`,
      "add `stores: {managed_subscriptions: {type: dynamodb}}`",
      ["stores.managed_subscriptions", "bridge.deployment_mode", "bridge.cluster.endpoints"],
    );
  }
}

/** Two sessions of one client at one broker would throw each other out for ever. */
function sharedClients(check: Check, sessions: readonly Session[]): void {
  const keys = (session: Session) => brokerUrls(mqtt(session)).map((url) => `${url.host}:${url.port}`);
  sessions.forEach((session, index) => {
    const client = mqtt(session).client_id;
    if (client === undefined || client === "") return;
    const other = sessions
      .slice(0, index)
      .find((known) => mqtt(known).client_id === client && keys(known).some((key) => keys(session).includes(key)));
    if (other !== undefined) {
      check.error(
        "E_CLIENT_ID_SHARED",
        `sessions[${index}].options.session.client_id`,
        `session "${other.id}" has the same client_id at the same broker`,
        "give each session its own client_id",
      );
    }
  });
}
