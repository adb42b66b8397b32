/** Rules of `bridge` and `http`. */
import { isIP } from "node:net";
import { SECOND } from "../../budget.ts";
import { type Http, isHttpUrl, isSecretPlace, nanos, optionalNanos } from "../model.ts";
import type { Check } from "./check.ts";

/** The shortest key of the admin interface, in characters. */
const MIN_KEY_CHARS = 16;

export function checkBridge(check: Check): void {
  processRules(check);
  endpoints(check);
  http(check);
}

function processRules(check: Check): void {
  const bridge = check.config.bridge ?? {};
  if (bridge.id === "") {
    check.error(
      "E_REQUIRED",
      "bridge.id",
      "bridge.id is required",
      "add `bridge: {id: NAME}`, the name that all replicas share",
    );
  }
  check.positive("bridge.shutdown_timeout", bridge.shutdown_timeout);
  const drain = optionalNanos(bridge.drain_timeout);
  if (drain !== undefined && drain >= nanos(bridge.shutdown_timeout, 30)) {
    check.error(
      "E_DRAIN_TIMEOUT",
      "bridge.drain_timeout",
      "drain_timeout must be below shutdown_timeout",
      "write less than shutdown_timeout",
      ["bridge.shutdown_timeout"],
    );
  }
  if (nanos(bridge.max_drain_timeout, 10) < nanos(bridge.per_record_drain_timeout, 3)) {
    check.error(
      "E_MAX_DRAIN_TIMEOUT",
      "bridge.max_drain_timeout",
      "max_drain_timeout must be >= per_record_drain_timeout",
      "raise max_drain_timeout",
      ["bridge.per_record_drain_timeout"],
    );
  }
  const sessions = (check.config.sessions ?? []).filter((session) => session.transport === "mqtt").length;
  if (bridge.max_mqtt_sessions !== undefined && sessions > bridge.max_mqtt_sessions) {
    check.error(
      "E_MAX_MQTT_SESSIONS",
      "bridge.max_mqtt_sessions",
      `the configuration uses ${sessions} MQTT sessions, more than the limit`,
      "raise the limit, or remove sessions",
      ["sessions"],
    );
  }
  if (bridge.cluster?.takeover_evidence?.includes("ttl") === false) {
    check.error(
      "E_TAKEOVER_EVIDENCE",
      "bridge.cluster.takeover_evidence",
      "without `ttl` nobody would take over from an owner whose task is not known to have stopped",
      "write `[ttl]`, or `[ttl, ecs_stopped]`",
    );
  }
  check.positive("bridge.cluster.evidence_poll", bridge.cluster?.evidence_poll);
  if (nanos(bridge.cluster?.member_interval, 30) < SECOND) {
    check.error(
      "E_MEMBER_INTERVAL",
      "bridge.cluster.member_interval",
      "below a second",
      "write `30s`, or at least `1s`",
    );
  }
}

/** The map says where this replica is reached, by capability; a list of peers looks alike and is refused. */
function endpoints(check: Check): void {
  const path = "bridge.cluster.endpoints";
  const written = check.config.bridge?.cluster?.endpoints ?? {};
  const names = Object.keys(written);
  if (names.length === 0) return;
  if (check.config.bridge?.deployment_mode === "standalone") {
    check.error(
      "E_ENDPOINTS_STANDALONE",
      path,
      "endpoints imply clustered, but deployment_mode is standalone",
      "write `deployment_mode: clustered`",
      ["bridge.deployment_mode"],
    );
  }
  if (names.length !== 1 || names[0] !== "http") {
    check.error(
      "E_ENDPOINTS",
      path,
      "cluster.endpoints must carry `http`, and nothing but capabilities",
      "write this replica's own address",
    );
  }
  if (written.http !== undefined && !isHttpUrl(written.http)) {
    check.error("E_ENDPOINT_URL", `${path}.http`, "not a full URL", "write `http://HOST:8082`");
  }
}

/** A key that somebody shows to the program. */
export function key(check: Check, path: string, written: string): void {
  if (isSecretPlace(written)) return;
  // Taken for the key itself, it would let in whoever reads the configuration. The address of a page is nobody's idea of a place for secrets.
  if (written.includes("://") && !/^https?:/.test(written)) {
    check.error(
      "E_CREDENTIALS_URI",
      path,
      "it looks like a place, and is none that secrets are read from",
      "write `file:///PATH`, `env://NAME`, `ssm:///NAME` or `secretsmanager://NAME#FIELD`; a key of its own has no `://`",
    );
  } else if ([...written].length < MIN_KEY_CHARS) {
    check.error(
      "E_API_KEY",
      path,
      `the key has fewer than ${MIN_KEY_CHARS} characters`,
      "make one with `openssl rand -hex 24`",
    );
  }
}

/** What a browser sends as `Origin`: scheme, host and port, as it writes them. */
function isOrigin(text: string): boolean {
  return /^https?:\/\/[a-z0-9\-._:[\]]+$/.test(text);
}

/** Whether any key opens the admin interface. */
function hasAdmin(http: Http): boolean {
  return http.admin_api_key !== undefined || (http.admin_keys ?? []).length > 0;
}

/** The log tells by its name who did something: two keys of one name would hide one another. */
function adminKeyNames(check: Check): void {
  const { admin_api_key, admin_keys = [] } = check.config.http ?? {};
  const taken = new Set(admin_api_key === undefined ? [] : ["admin"]);
  admin_keys.forEach(({ name }, index) => {
    if (name === undefined) return;
    if (taken.has(name)) {
      check.error(
        "E_ADMIN_KEY_NAME",
        `http.admin_keys[${index}].name`,
        `another key is named "${name}"`,
        "give each key a name of its own",
      );
    }
    taken.add(name);
  });
}

function http(check: Check): void {
  const http = check.config.http ?? {};
  const keys: [path: string, written: string | undefined][] = [
    ["http.admin_api_key", http.admin_api_key],
    ["http.monitor_api_key", http.monitor_api_key],
    ["http.hint_token", http.hint_token],
    ...(http.admin_keys ?? []).map((named, index): [string, string | undefined] => [
      `http.admin_keys[${index}].key`,
      named.key,
    ]),
  ];
  for (const [path, written] of keys) {
    if (written !== undefined) key(check, path, written);
  }
  adminKeyNames(check);
  if (!hasAdmin(http) && http.admin_addr !== undefined) {
    check.error(
      "E_ADMIN_KEY_REQUIRED",
      "http.admin_addr",
      "admin_api_key or admin_keys is required for the admin interface",
      // biome-ignore lint/suspicious/noTemplateCurlyInString: the notation of the configuration
      "add `admin_api_key: ${ADMIN_API_KEY}`",
      ["http.admin_api_key", "http.admin_keys"],
    );
  }
  if (http.cors_origins?.some((origin) => origin.includes("*"))) {
    check.error(
      "E_CORS_ORIGIN",
      "http.cors_origins",
      "`*` would let every web page call these interfaces",
      "name the origins",
    );
  } else if (http.cors_origins?.some((origin) => !isOrigin(origin))) {
    check.error(
      "E_CORS_ORIGIN",
      "http.cors_origins",
      "this is not an origin, and no browser would ever send it",
      "write scheme, host and port alone",
    );
  }
  const wrong = http.trusted_proxies?.find((network) => !isNetwork(network));
  if (wrong !== undefined) {
    check.error(
      "E_TRUSTED_PROXY",
      "http.trusted_proxies",
      `\`${wrong}\` is no network of proxies: anybody in it may say where a request comes from`,
      "name the networks of the load balancer, such as `10.0.0.0/16`, or single addresses, those of IPv4 as such",
    );
  }
  if ((http.tls_cert_file === undefined) !== (http.tls_key_file === undefined)) {
    const path = http.tls_cert_file === undefined ? "http.tls_key_file" : "http.tls_cert_file";
    check.error("E_HTTP_TLS", path, "tls_cert_file and tls_key_file go together", "give both, or neither", [
      "http.tls_cert_file",
      "http.tls_key_file",
    ]);
  }
  const postedTo =
    check.config.commands?.enabled === true ||
    (check.config.receivers ?? []).some(
      (receiver) => receiver.transport === "http" && receiver.session_id === undefined,
    );
  const listeners = [
    ["http.admin_addr", http.admin_addr ?? ":8080", hasAdmin(http)],
    ["http.monitor_addr", http.monitor_addr ?? ":8081", true],
    ["http.transport_addr", http.transport_addr ?? ":8082", http.hint_token !== undefined || postedTo],
  ] as const;
  listeners.forEach(([path, address, used], index) => {
    const other = listeners
      .slice(0, index)
      .find(
        ([, taken, alsoUsed]) => used && alsoUsed && canonical(taken) === canonical(address) && !address.endsWith(":0"),
      );
    if (other !== undefined)
      check.error("E_LISTEN_TWICE", path, `${address} is taken by ${other[0]}`, "give each listener its own port", [
        other[0],
      ]);
  });
}

function canonical(address: string): string {
  if (address.startsWith(":")) return `0.0.0.0${address}`;
  return address.replace(/^localhost:/, "127.0.0.1:");
}

/** A network, or one address; not one that everybody is in, and none of IPv4 addresses written as IPv6, in which nobody would ever be found. */
function isNetwork(text: string): boolean {
  const [address = "", length, more] = text.split("/");
  const bits = { 0: 0, 4: 32, 6: 128 }[isIP(address)] ?? 0;
  if (bits === 0 || address.includes("%") || more !== undefined) return false;
  const mapped = bits === 128 && /^\[::ffff:[0-9a-f]+:[0-9a-f]+\]$/.test(new URL(`http://[${address}]`).hostname);
  if (mapped && (length === undefined || Number(length) >= 96)) return false;
  return length === undefined || (/^(0|[1-9]\d{0,2})$/.test(length) && Number(length) >= 1 && Number(length) <= bits);
}
