/** Rules of `bridge` and `http`. */
import { SECOND } from "../../budget.ts";
import { isHttpUrl, nanos, optionalNanos } from "../model.ts";
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
  if (bridge.cluster?.takeover_evidence?.length === 0) {
    check.error(
      "E_TAKEOVER_EVIDENCE",
      "bridge.cluster.takeover_evidence",
      "no evidence at all would mean that nobody ever takes over",
      "write `[ttl]`",
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
  if (!isSecretPlace(written) && [...written].length < MIN_KEY_CHARS) {
    check.error(
      "E_API_KEY",
      path,
      `the key has fewer than ${MIN_KEY_CHARS} characters`,
      "make one with `openssl rand -hex 24`",
    );
  }
}

function http(check: Check): void {
  const http = check.config.http ?? {};
  for (const name of ["admin_api_key", "monitor_api_key", "hint_token"] as const) {
    const written = http[name];
    if (written !== undefined) key(check, `http.${name}`, written);
  }
  if (http.admin_api_key === undefined && http.admin_addr !== undefined) {
    check.error(
      "E_ADMIN_KEY_REQUIRED",
      "http.admin_addr",
      "admin_api_key is required for the admin interface",
      // biome-ignore lint/suspicious/noTemplateCurlyInString: the notation of the configuration
      "add `admin_api_key: ${ADMIN_API_KEY}`",
      ["http.admin_api_key"],
    );
  }
  if (http.cors_origins?.some((origin) => origin.includes("*"))) {
    check.error(
      "E_CORS_ORIGIN",
      "http.cors_origins",
      "`*` would let every web page call these interfaces",
      "name the origins",
    );
  }
  if ((http.tls_cert_file === undefined) !== (http.tls_key_file === undefined)) {
    const path = http.tls_cert_file === undefined ? "http.tls_key_file" : "http.tls_cert_file";
    check.error("E_HTTP_TLS", path, "tls_cert_file and tls_key_file go together", "give both, or neither", [
      "http.tls_cert_file",
      "http.tls_key_file",
    ]);
  }
  const postedTo = (check.config.receivers ?? []).some(
    (receiver) => receiver.transport === "http" && receiver.session_id === undefined,
  );
  const listeners = [
    ["http.admin_addr", http.admin_addr ?? ":8080", http.admin_api_key !== undefined],
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
