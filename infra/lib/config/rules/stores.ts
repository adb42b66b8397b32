/** Rules of `stores`. */
import { SECOND } from "../../budget.ts";
import { isClustered, nanos, optionalNanos, type Role, type StoreKind } from "../model.ts";
import type { Check } from "./check.ts";

const KINDS: Readonly<Record<Role, { kinds: readonly StoreKind[]; acknowledge?: string }>> = {
  lease: { kinds: ["dynamodb", "memory"], acknowledge: "acknowledge_single_replica" },
  outbox: { kinds: ["sqlite", "dynamodb", "memory"], acknowledge: "acknowledge_volatile" },
  dlq: { kinds: ["sqlite", "dynamodb", "memory"], acknowledge: "acknowledge_volatile" },
  managed_subscriptions: { kinds: ["sqlite", "dynamodb"] },
  ledger: { kinds: ["sqlite", "dynamodb"] },
  commands: { kinds: ["dynamodb", "memory"] },
};
const SQLITE_ONLY = ["path", "retention"];
const DYNAMODB_ONLY = ["table_name", "compaction_grace", "max_scan_pages"];

export function checkStores(check: Check): void {
  for (const name of Object.keys(KINDS) as Role[]) role(check, name);
  const outbox = check.config.stores?.outbox?.options;
  if (outbox !== undefined) outboxOptions(check, outbox);
  const dlq = check.config.stores?.dlq?.options ?? {};
  check.range("stores.dlq.options.max_scan_pages", dlq.max_scan_pages, 1, 100_000);
  check.positive("stores.dlq.options.retention", dlq.retention);
}

function role(check: Check, name: Role): void {
  const store = check.config.stores?.[name];
  const kind = store?.type;
  if (store === undefined || kind === undefined) return;
  const { kinds, acknowledge } = KINDS[name];
  const options = store.options ?? {};
  const at = `stores.${name}`;
  const allowed = kinds.includes(kind);
  if (!allowed) {
    check.error("E_STORE_ROLE", `${at}.type`, `${kind} cannot keep ${name}`, `write one of: ${kinds.join(", ")}`);
  } else if (isClustered(check.config) && kind !== "dynamodb") {
    check.error(
      "E_STORE_DISTRIBUTED",
      `${at}.type`,
      `clustered deployment requires a distributed store for ${name}`,
      "write `type: dynamodb`",
      ["bridge.deployment_mode", "bridge.cluster.endpoints"],
    );
  } else if (kind === "memory" && acknowledge !== undefined && options[acknowledge] !== true) {
    check.error(
      "E_STORE_ACKNOWLEDGE",
      `${at}.type`,
      `memory forgets everything with the process, which \`${acknowledge}: true\` must acknowledge`,
      "write `type: dynamodb`",
      [`${at}.options.${acknowledge}`],
    );
  }
  const path = options.path;
  if (kind === "sqlite" && allowed && (path === undefined || path === "")) {
    check.error(
      "E_STORE_PATH_REQUIRED",
      `${at}.options.path`,
      `${at}.options.path is required for sqlite`,
      "add `options: {path: …}`",
    );
  }
  const clean =
    typeof path === "string" &&
    path.startsWith("/") &&
    !path
      .split("/")
      .slice(1)
      .some((part) => ["", ".", ".."].includes(part));
  if (name === "managed_subscriptions" && kind === "sqlite" && path !== undefined && !clean) {
    check.error(
      "E_STORE_PATH",
      `${at}.options.path`,
      "the path must be absolute, without `.` and `..`",
      "write it out",
    );
  }
  foreign(check, name, kind, options, acknowledge);
  const table = options.table_name;
  if (typeof table === "string" && !/^[A-Za-z0-9_.-]{3,255}$/.test(table)) {
    check.error(
      "E_TABLE_NAME",
      `${at}.options.table_name`,
      "not the name of a DynamoDB table",
      "use 3 to 255 letters, digits, `_`, `-` and `.`",
    );
  }
}

function foreign(
  check: Check,
  name: Role,
  kind: StoreKind,
  options: Record<string, unknown>,
  acknowledge: string | undefined,
): void {
  const sqlite = kind === "sqlite" ? [] : SQLITE_ONLY.filter((option) => option !== "retention" || name === "outbox");
  const dynamodb = kind === "dynamodb" ? [] : DYNAMODB_ONLY;
  const memory = kind === "memory" || acknowledge === undefined ? [] : [acknowledge];
  for (const option of [...sqlite, ...dynamodb, ...memory]) {
    if (options[option] !== undefined) {
      check.error(
        "E_STORE_OPTION",
        `stores.${name}.options.${option}`,
        `\`${option}\` has no meaning for ${kind}`,
        "remove it, or change `type`",
        [`stores.${name}.type`],
      );
    }
  }
}

function outboxOptions(check: Check, options: Record<string, unknown>): void {
  const at = "stores.outbox.options";
  check.range(`${at}.segment_max_messages`, options.segment_max_messages, 1, 1000);
  check.range(`${at}.segment_max_bytes`, options.segment_max_bytes, 4096, 384 * 1024);
  check.range(`${at}.max_settled_ahead`, options.max_settled_ahead, 1, 1_000_000);
  check.positive(`${at}.mailbox_poll`, options.mailbox_poll);
  for (const name of ["segment_linger", "send_linger"]) {
    const linger = optionalNanos(options[name] as string | undefined);
    if (linger !== undefined && linger > SECOND)
      check.error("E_LINGER", `${at}.${name}`, "delays messages more than it saves", "write 1s or less");
  }
  const stale = optionalNanos(options.stale_claim_duration as string | undefined);
  const sends = (check.config.routes ?? []).map((route) => nanos(route.policy?.send_timeout, 30));
  if (stale !== undefined && sends.some((send) => stale <= send)) {
    check.error(
      "E_STALE_CLAIM",
      `${at}.stale_claim_duration`,
      "must be above the largest send_timeout",
      "raise it, or lower send_timeout",
      ["routes"],
    );
  }
}
