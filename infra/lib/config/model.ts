/** The configuration as it is written: every field may be missing, because what is broken is taken out before the rules look at the rest. */
import { type Nanos, SECOND } from "../budget.ts";
import type { Flow } from "./rules/flow/index.ts";
import { span } from "./span.ts";

export type SessionMode = "ephemeral" | "persistent" | "exclusive";
export type DeliveryMode = "direct_hold" | "shared_outbox" | "spill_outbox";
export type StoreKind = "memory" | "sqlite" | "dynamodb";
export type Role = "lease" | "outbox" | "dlq" | "managed_subscriptions" | "ledger" | "commands";

export interface BridgeConfig {
  bridge?: Bridge;
  stores?: Partial<Record<Role, Store>>;
  sessions?: Session[];
  receivers?: Receiver[];
  senders?: Sender[];
  bindings?: Binding[];
  processors?: Processor[];
  routes?: Route[];
  flow?: Flow;
  drops?: { ledger?: DropLedger };
  commands?: Commands;
  http?: Http;
}

export interface DropLedger {
  enabled?: boolean;
  retention?: string;
  max_rows?: number;
  flush_interval?: string;
}

export interface Commands {
  enabled?: boolean;
  session_id?: string;
  token?: string;
  prefix?: string;
  request_topic?: string;
  reply_topic?: string;
  legacy_reply_filter?: string;
  reply_share_group?: string;
  broadcast_topic?: string;
  timeout?: string;
  sync_wait_max?: string;
  load_balancer_idle_timeout?: string;
  late_result_window?: string;
  retention?: string;
  orphan_ttl?: string;
  max_request_bytes?: number;
  inline_response_bytes?: number;
  max_response_bytes?: number;
  qos?: number;
  allow_qos0?: boolean;
  correlation?: "property" | "payload";
  max_pending_per_target?: number;
}

export interface Bridge {
  id?: string;
  deployment_mode?: "standalone" | "clustered";
  shutdown_timeout?: string;
  drain_timeout?: string;
  per_record_drain_timeout?: string;
  max_drain_timeout?: string;
  log_format?: string;
  metrics_exporter?: string;
  max_mqtt_sessions?: number;
  cluster?: {
    endpoints?: Record<string, string>;
    takeover_evidence?: string[];
    evidence_poll?: string;
    member_interval?: string;
  };
}

export interface Store {
  type?: StoreKind;
  options?: Record<string, string | number | boolean>;
}

export interface Session {
  id?: string;
  transport?: string;
  session_mode?: SessionMode;
  baseline?: string;
  lanes?: number;
  options?: { session?: MqttSession };
}

export interface MqttSession {
  broker_url?: string;
  broker_urls?: string[];
  client_id?: string;
  keep_alive?: number;
  client_id_suffix?: "hostname" | "nonce";
  assert_stable_client_identity?: boolean;
  connect_timeout?: string;
  reconnect_timeout?: string;
  reconcile_timeout?: string;
  reconnect_delay?: string;
  reconnect_max_delay?: string;
  clean_start?: boolean;
  session_expiry_interval?: number;
  receive_maximum?: number;
  max_payload_bytes?: number;
  unmatched_grace?: string;
  no_local?: boolean;
  username?: string;
  password?: string;
  credentials_uri?: string;
  allow_plaintext_credentials?: boolean;
  will?: { topic?: string; qos?: number };
  tls?: Record<string, string | boolean>;
  protocol_version?: string;
  message_id?: string;
}

export interface Topic {
  topic?: string;
  qos?: number;
  options?: { subscription?: { qos_recheck_interval?: string } };
}

export interface Receiver {
  id?: string;
  transport?: string;
  session_id?: string;
  topics?: Topic[];
  options?: Record<string, string | number | boolean>;
}

export interface Sender {
  id?: string;
  transport?: string;
  session_id?: string;
  options?: Record<string, string | number | boolean>;
}

export interface Binding {
  id?: string;
  sender_id?: string;
  session_id?: string;
  address?: string;
}

export interface Route {
  id?: string;
  receiver_id?: string;
  delivery_mode?: DeliveryMode;
  dispatch_mode?: string;
  policy?: Policy;
  bindings?: string[];
  processors?: string[];
  resolver?: Resolver;
  session?: RouteSession;
}

export interface Condition {
  field?: string;
  operator?: string;
  value?: string | number | boolean;
  values?: unknown[];
}

export interface Processor {
  id?: string;
  type?: string;
  options?: {
    action?: string;
    invert?: boolean;
    conditions?: Condition[];
    binding?: string;
    mappings?: { from?: string; to?: string; type?: string }[];
    from?: string;
    default_tenant?: string;
    failure_threshold?: number;
    success_threshold?: number;
    reset_timeout?: string;
    half_open_probes?: number;
  };
}

export interface Policy {
  max_in_flight?: number;
  ack_after?: string;
  send_retry_budget?: string;
  max_outbox_depth?: number;
  on_expired?: string;
  on_permanent_failure?: string;
  on_filtered?: string;
  send_timeout?: string;
  depth_cache_ttl?: string;
  allow_retry_drop?: boolean;
  spill_after?: string;
  backoff?: { initial_interval?: string; max_interval?: string; multiplier?: number; jitter?: number };
}

export interface Resolver {
  type?: string;
  default_binding?: string;
  header_key?: string;
  header_map?: Record<string, string>;
  rules?: (Condition & { binding?: string })[];
}

export interface RouteSession {
  session_id?: string;
  sender_id?: string;
  lease_ttl?: string;
  renew_interval?: string;
  lease_renew_jitter?: string;
  max_renew_fails?: number;
  renew_call_timeout?: string;
  acquire_poll_interval?: string;
  step_down_grace?: string;
  connect_after_lease?: boolean;
  broker_health_step_down?: string;
  failover_slo?: string;
  startup_allowance?: string;
  drain_interval?: string;
  drain_strategy?: {
    type?: string;
    interval?: string;
    min_interval?: string;
    max_interval?: string;
    multiplier?: number;
  };
  drain_batch_size?: number;
  drain_max_batch_size?: number;
  drain_max_concurrency?: number;
}

export interface Http {
  admin_addr?: string;
  monitor_addr?: string;
  transport_addr?: string;
  admin_api_key?: string;
  admin_keys?: { name?: string; key?: string }[];
  monitor_api_key?: string;
  hint_token?: string;
  cors_origins?: string[];
  trusted_proxies?: string[];
  tls_cert_file?: string;
  tls_key_file?: string;
}

/** The thing of this name; `undefined` where the name, or what it names, is missing. */
export function named<T extends { id?: string }>(
  things: readonly T[] | undefined,
  id: string | undefined,
): T | undefined {
  return id === undefined ? undefined : things?.find((thing) => thing.id === id);
}

/** A duration of the configuration; the default where nothing, or nothing readable, is written. */
export function nanos(text: string | undefined, fallbackSeconds: number): Nanos {
  return optionalNanos(text) ?? (BigInt(Math.round(fallbackSeconds * 1000)) * SECOND) / 1000n;
}

/** The same for a field whose default depends on others. */
export function optionalNanos(text: string | undefined): Nanos | undefined {
  if (text === undefined) return undefined;
  const read = span(text);
  return typeof read === "bigint" ? read : undefined;
}

export function isClustered(config: BridgeConfig): boolean {
  const mode = config.bridge?.deployment_mode;
  if (mode !== undefined) return mode === "clustered";
  return Object.keys(config.bridge?.cluster?.endpoints ?? {}).length > 0;
}

export function isDurable(mode: SessionMode | undefined): boolean {
  return mode === "persistent" || mode === "exclusive";
}

const SECRET_PLACES = [
  /^file:\/\/\/./s,
  /^env:\/\/[A-Za-z_][A-Za-z0-9_]*$/,
  /^(ssm|pms):\/\/(?!\/$)[A-Za-z0-9/_.\-:]+$/,
  /^secretsmanager:\/\/[A-Za-z0-9/_+=.@\-:]+(#[A-Za-z0-9_.-]+)?$/,
];

/** Whether a text says where a secret is kept, rather than being one. */
export function isSecretPlace(text: string): boolean {
  return SECRET_PLACES.some((place) => place.test(text));
}

export function mqtt(session: Session): MqttSession {
  return session.options?.session ?? {};
}

/** The broker's addresses, whichever way they were written. */
export function brokerUrls(session: MqttSession): BrokerUrl[] {
  const written = [...(session.broker_url === undefined ? [] : [session.broker_url]), ...(session.broker_urls ?? [])];
  return written.map(parseBrokerUrl).filter((url) => url !== undefined);
}

/** The address of a broker, in its canonical form. */
export interface BrokerUrl {
  readonly scheme: "tcp" | "tls" | "ws" | "wss";
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly encrypted: boolean;
  readonly text: string;
}

const SCHEMES: Readonly<Record<string, readonly [BrokerUrl["scheme"], number]>> = {
  tcp: ["tcp", 1883],
  mqtt: ["tcp", 1883],
  tls: ["tls", 8883],
  ssl: ["tls", 8883],
  mqtts: ["tls", 8883],
  ws: ["ws", 80],
  wss: ["wss", 443],
};

/** Reads `scheme://host:port`; `undefined` for what is no broker's address. */
export function parseBrokerUrl(text: string): BrokerUrl | undefined {
  const parts = /^([a-z]+):\/\/([^/]*)(\/.*)?$/s.exec(text);
  const known = SCHEMES[parts?.[1] ?? ""];
  if (parts === null || known === undefined) return undefined;
  const [scheme, defaultPort] = known;
  const [authority, written] = [parts[2] ?? "", parts[3] ?? ""];
  const websocket = scheme === "ws" || scheme === "wss";
  if (authority.includes("@") || (written.length > 1 && !websocket)) return undefined;
  const split = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]*))(?::(.*))?$/s.exec(authority);
  const host = split?.[1] ?? split?.[2] ?? "";
  if (split === null || host === "" || /[\s?#\p{Cc}]/u.test(host)) return undefined;
  const port = split[3] === undefined ? defaultPort : /^\+?[0-9]+$/.test(split[3]) ? Number(split[3]) : 0;
  if (port < 1 || port > 65_535) return undefined;
  const path = websocket ? written : "";
  const shown = host.includes(":") ? `[${host}]` : host;
  return {
    scheme,
    host,
    port,
    path,
    encrypted: scheme === "tls" || scheme === "wss",
    text: `${scheme}://${shown}:${port}${path}`,
  };
}

/** Whether `filter` is an MQTT topic filter, `$share/` not considered. */
export function isTopicFilter(filter: string): boolean {
  const levels = filter.split("/");
  return (
    filter !== "" &&
    Buffer.byteLength(filter) <= 65_535 &&
    levels.every((level, index) => {
      if (level === "+") return true;
      if (level === "#") return index === levels.length - 1;
      return !/[+#\0]/.test(level);
    })
  );
}

/** The filter behind `$share/GROUP/`; `undefined` where that is malformed. */
export function sharedFilter(topic: string): string | undefined {
  const parts = /^\$share\/([^/+#]+)\/(.+)$/s.exec(topic);
  return parts?.[2];
}

export function isHttpUrl(text: string): boolean {
  return /^https?:\/\/[^/\s]\S*$/.test(text);
}
