/** The configuration's JSON Schema as faults with the program's codes. */
import { readFileSync } from "node:fs";
import type { SynthFault } from "../checks/fault.ts";
import { Ajv2020, type ErrorObject } from "./ajv.ts";
import { span } from "./span.ts";
import type { Json } from "./tree.ts";

/** A fault, and what to take out so that the rules between fields can look at the rest. */
export interface SchemaFault extends SynthFault {
  /** Keys and indices from the top. */
  readonly at: readonly string[];
}

const schema = simplify(JSON.parse(readFileSync(new URL("../generated/config.schema.json", import.meta.url), "utf8")));
const validate = new Ajv2020({ allErrors: true, verbose: true, strict: false, validateFormats: false }).compile(
  schema as object,
);

/**
 * The schema as it is after interpolation, and with fields that are `null` left out: no variable stands anywhere any more, a choice is an enum, and a
 * number of a fixed width has its bounds.
 */
function simplify(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(simplify);
  if (typeof node !== "object" || node === null) return node;
  const entries = Object.entries(node as Record<string, unknown>);
  const object: Record<string, unknown> = Object.fromEntries(entries.map(([key, value]) => [key, simplify(value)]));
  const { anyOf, oneOf } = object;
  if (Array.isArray(oneOf) && oneOf.every((choice) => isRecord(choice) && "const" in choice)) {
    const { oneOf: _, ...rest } = object;
    return { ...rest, enum: oneOf.map((choice: Record<string, unknown>) => choice.const) };
  }
  if (Array.isArray(anyOf)) {
    const kept = anyOf.filter(
      (choice) => isRecord(choice) && choice.$ref !== "#/$defs/Variable" && choice.type !== "null",
    );
    const { anyOf: _, ...rest } = object;
    if (kept.length === 1 && isRecord(kept[0])) return { ...kept[0], ...rest };
  }
  const bits = /^uint([0-9]+)$/.exec(String(object.format ?? ""))?.[1];
  if (bits !== undefined && object.maximum === undefined) object.maximum = 2 ** Number(bits) - 1;
  return object;
}

/**
 * Everything that a value by itself gets wrong.
 *
 * @param value without fields that are `null`, which count as left out
 * @param written with them: a key that nobody knows is told even so
 */
export function schemaFaults(value: Json, written: Json): SchemaFault[] {
  const unknown = errors(written).filter(holdsNull);
  return [
    ...errors(value).flatMap((error) => translate(error, value)),
    ...unknown.flatMap((error) => translate(error, written)),
  ].filter(first());
}

function errors(value: Json): ErrorObject[] {
  return validate(value) ? [] : (validate.errors ?? []);
}

/** A refused key, or one that nobody knows, with nothing behind it. */
function holdsNull(error: ErrorObject): boolean {
  if (error.keyword === "const") return error.data === null;
  const key = String(error.params.additionalProperty);
  return error.keyword === "additionalProperties" && isRecord(error.data) && error.data[key] === null;
}

/** Of two faults of one place only the first is told. */
function first(): (fault: SchemaFault) => boolean {
  const seen = new Set<string>();
  return (fault) => {
    const fresh = !seen.has(fault.path);
    seen.add(fault.path);
    return fresh;
  };
}

function translate(error: ErrorObject, root: Json): SchemaFault[] {
  const at = error.instancePath
    .split("/")
    .slice(1)
    .map((part: string) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
  const params = error.params as Record<string, unknown>;
  const fault = (code: string, message: string, remedy: string, below: readonly string[] = []): SchemaFault[] => {
    const place = [...at, ...below];
    return [{ code, path: pathOf(place, root), message, remedy, at: place }];
  };
  switch (error.keyword) {
    case "required": {
      const field = String(params.missingProperty);
      if (at.length === 0)
        return fault("E_REQUIRED", "bridge.id is required", "add `bridge: {id: NAME}`", ["bridge", "id"]);
      return fault("E_REQUIRED", `${pathOf([...at, field], root)} is required`, `add \`${field}: …\``, [field]);
    }
    case "additionalProperties": {
      const key = String(params.additionalProperty);
      const value = isRecord(error.data) ? error.data[key] : undefined;
      const judged = judge(pathOf([...at, key], root), key, value);
      if (judged === "harmless") return [];
      const known = Object.keys((error.parentSchema as { properties?: object } | undefined)?.properties ?? {});
      return fault(
        judged?.code ?? "E_UNKNOWN_KEY",
        judged?.message ?? `unknown key \`${key}\``,
        judged?.remedy ?? `remove it; known here: ${known.join(", ")}`,
        [key],
      );
    }
    case "const":
      if (at.at(-1) === "allow_unfenced") return refusedAs(fault, UNFENCED);
      if (at.includes("tls")) return refusedAs(fault, UNVERIFIED);
      return fault("E_CHOICE", "not possible here", "see the reference of this field");
    case "enum": {
      const choices = (params.allowedValues as unknown[]).join(", ");
      if (typeof error.data === "object") {
        return fault("E_TYPE", `expected a text, found ${kind(error.data)}`, `write one of: ${choices}`);
      }
      if (error.data === "warning" && at.at(-1) === "log_level") return [];
      return fault("E_CHOICE", `must be one of: ${choices}`, `write one of: ${choices}`);
    }
    case "pattern":
    case "type":
      return text(error, fault, params);
    case "minimum":
    case "maximum":
      return bound(error, fault, at);
    case "minItems":
      return []; // The rules say it with a code of its own.
    default:
      return fault("E_VALUE", error.message ?? "not possible here", "see the reference of this field");
  }
}

type Report = (code: string, message: string, remedy: string) => SchemaFault[];

/** A text of a certain form, or a value of another type. The form is known by the name that the schema gives it. */
function text(error: ErrorObject, fault: Report, params: Record<string, unknown>): SchemaFault[] {
  const title = String((error.parentSchema as { title?: unknown } | undefined)?.title ?? "");
  if (title === "`off` or duration") {
    return fault("E_STEP_DOWN", 'must be a positive duration or "off"', "write `off`, or a duration such as `90s`");
  }
  if (title === "duration" && (typeof error.data === "string" || typeof error.data === "number")) {
    const read = typeof error.data === "number" ? "no_unit" : span(error.data);
    if (read === "no_unit")
      return fault(
        "E_DURATION_UNIT",
        `invalid duration "${error.data}": the unit is missing`,
        `write a unit, such as \`${error.data}s\` or \`${error.data}ms\``,
      );
    if (typeof read !== "bigint")
      return fault(
        "E_DURATION",
        `invalid duration "${error.data}"`,
        "write a number and a unit, such as `500ms`, `45s`, `15m` or `1h`",
      );
    return read < 0n
      ? fault(
          "E_DURATION_NEGATIVE",
          `invalid duration "${error.data}": must not be negative`,
          "write a duration of zero or more",
        )
      : [];
  }
  if (typeof error.data === "string" && error.keyword === "pattern") {
    if (title === "URL")
      return fault(
        "E_BROKER_URL",
        "not a broker's address",
        "write `tls://host:8883` or `tcp://host:1883`; credentials go into `username` and `password`",
      );
    if (title === "address")
      return fault(
        "E_LISTEN_ADDR",
        "not an address to listen on",
        "write `:8081` for every interface, or `127.0.0.1:8081` for one",
      );
    // An empty name is one; whether it may be is a rule.
    if (title === "name" && error.data === "") return [];
    if (title === "name")
      return fault(
        "E_ID",
        "not usable as a name",
        "use at most 128 characters, without spaces, control characters and `#`",
      );
  }
  const wanted = PLAIN[String(params.type)] ?? "another form";
  return fault("E_TYPE", `expected ${wanted}, found ${kind(error.data)}`, `write ${wanted}`);
}

/** Types of the schema in words. */
const PLAIN: Readonly<Record<string, string>> = {
  string: "a text",
  integer: "a whole number",
  number: "a number",
  boolean: "true or false",
  array: "a list",
  object: "a mapping of fields",
};

/** Numbers that the type cannot hold are of another type; numbers that the rules refuse are out of range. */
function bound(error: ErrorObject, fault: Report, at: readonly string[]): SchemaFault[] {
  const limits = error.parentSchema as { minimum?: number; maximum?: number; format?: string } | undefined;
  const number = Number(error.data);
  const bits = Number(/^uint([0-9]+)$/.exec(limits?.format ?? "")?.[1] ?? "0");
  if (number < 0 && bits > 0)
    return fault("E_TYPE", "expected a whole number, found a negative number", "write a whole number");
  if (bits > 0 && number > 2 ** bits - 1)
    return fault("E_TYPE", "expected a whole number, found a number out of range", "write a smaller number");
  if (at.includes("backoff")) return fault("E_BACKOFF", `${error.message}`, "write a value within the bounds");
  return fault(
    "E_RANGE",
    "out of range",
    `write a number from ${limits?.minimum ?? 0}${limits?.maximum === undefined ? "" : ` to ${limits.maximum}`}`,
  );
}

interface Verdict {
  readonly code: string;
  readonly message: string;
  readonly remedy: string;
}

const UNFENCED: Verdict = {
  code: "E_UNFENCED",
  message: "allow_unfenced is refused: an outbox without a fence lets a former owner go on writing",
  remedy: "remove it; every outbox is fenced",
};

const UNVERIFIED: Verdict = {
  code: "E_TLS_VERIFICATION",
  message: "turning TLS verification off is refused: anybody on the way could read and change the messages",
  remedy: "remove it, and trust a private authority with `ca_cert_pem`",
};

function refusedAs(fault: Report, verdict: Verdict): SchemaFault[] {
  return fault(verdict.code, verdict.message, verdict.remedy);
}

/** Keys that are refused for good, with a reason of their own. */
function judge(path: string, key: string, value: unknown): Verdict | "harmless" | undefined {
  const refused = (code: string, message: string, remedy: string): Verdict => ({ code, message, remedy });
  if ((key === "insecure_skip_verify" || key === "allow_unfenced") && value === false) return "harmless";
  if (key === "allow_unfenced") return UNFENCED;
  if (path.includes(".tls.") && /insecure|verify|verification|skip/i.test(key)) return UNVERIFIED;
  if (path === "config_watch") {
    return refused(
      "E_CONFIG_WATCH",
      "a running bridge never changes its configuration",
      "remove it; publish a changed configuration as a new task revision",
    );
  }
  if (path.startsWith("bridge.cluster.") && ["rollout", "members", "confirm_window"].includes(key)) {
    return refused(
      "E_CLUSTER_ROLLOUT",
      "changing the configuration of a running cluster is refused",
      "remove it; publish a changed configuration as a new task revision",
    );
  }
  if (path.startsWith("stores.") && (key === "region" || key === "endpoint")) {
    return refused(
      "E_STORE_REGION",
      "stores take region and endpoint from the AWS SDK's chain only",
      "remove it; the stack sets the region",
    );
  }
  if (path.startsWith("stores.") && key === "auto_redrive_window") {
    return refused(
      "E_REDRIVE_WINDOW",
      "auto_redrive_window belongs to the dead-letter store alone",
      "move it to `stores.dlq.auto_redrive_window`",
    );
  }
  return undefined;
}

/** `sessions[0].options` for `["sessions", "0", "options"]`. */
function pathOf(parts: readonly string[], root: Json): string {
  let path = "";
  let node: Json | undefined = root;
  for (const part of parts) {
    if (Array.isArray(node)) {
      path += `[${part}]`;
      node = node[Number(part)];
    } else {
      path += path === "" ? part : `.${part}`;
      node = isRecord(node) ? (node[part] as Json | undefined) : undefined;
    }
  }
  return path;
}

function kind(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (value === null || value === undefined) return "nothing";
  return (
    { boolean: "true or false", number: "a number", string: "a text", object: "a mapping" }[typeof value as string] ??
    "something else"
  );
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
