/** The bridge's configuration at synth: layers read, filled, merged and checked, and the text that the containers read. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { Document, isScalar, YAMLMap, YAMLSeq, Scalar as YamlScalar } from "yaml";
import type { Budget } from "./budget.ts";
import { seconds } from "./budget.ts";
import type { SynthFault } from "./checks/fault.ts";
import { interpolate, standIn, strikeOut, type Variables } from "./config/interpolate.ts";
import { type BridgeConfig, brokerUrls, mqtt, named, nanos, optionalNanos } from "./config/model.ts";
import { checkRules } from "./config/rules/index.ts";
import { type SchemaFault, schemaFaults } from "./config/schema.ts";
import { brokerSession, storageIdentity } from "./config/storage-identity.ts";
import { sessionBlock, sessionBudget, sessionTiming } from "./config/timing.ts";
import { type Json, merge, type Node, parseLayer, toJson, typed } from "./config/tree.ts";

export { standIn } from "./config/interpolate.ts";
export type { BridgeConfig } from "./config/model.ts";

/** What the stack has to know about a session. */
export interface SessionFacts {
  readonly id: string;
  readonly clientId: string;
  /** In its canonical form, `tls://host:8883`; of several addresses the first. */
  readonly brokerUrl: string;
  /** The ports of all its addresses. */
  readonly brokerPorts: readonly number[];
  readonly exclusive: boolean;
  /** Whether a route takes messages from it; else nobody owns it, and senders at most publish with its settings. */
  readonly feeds: boolean;
  /** What its receivers subscribe to. */
  readonly filters: string[];
  /** The declared objective; `undefined` where none was declared. */
  readonly failoverSloSeconds?: number | undefined;
  /** How long an owner that steps down goes on settling. */
  readonly stepDownGraceSeconds: number;
  /** Its key in the table of managed subscriptions. */
  readonly storageIdentity: string;
  /** `undefined` where nothing can be promised. */
  readonly budget?: Budget | undefined;
}

/** A configuration, its faults, and what the stack has to know of it. */
export interface ConfigDocument {
  /** The layers merged, as the containers read them. Variables of the container still stand as `${NAME}`: no secret is in it. */
  readonly text: string;
  /** SHA-256 of {@link text}, hexadecimal. */
  readonly digest: string;
  /** Merged and filled; defaults are not applied, and what is broken is still there. */
  readonly value: BridgeConfig;
  /** Why the program would refuse it. Empty for a configuration that can be used. */
  readonly faults: SynthFault[];
  readonly sessions: SessionFacts[];
  /** Who found the faults: the program itself, or the schema and the rules of this package. */
  readonly checkedBy: "program" | "schema";
}

/** How long the last drain before a stop may take in this configuration, in seconds. */
export function drainSeconds(config: BridgeConfig): number {
  const drain = optionalNanos(config.bridge?.drain_timeout) ?? optionalNanos(config.bridge?.max_drain_timeout);
  return drain === undefined ? 10 : seconds(drain);
}

/** How long a stop may take in all in this configuration, in seconds. */
export function shutdownSeconds(config: BridgeConfig): number {
  return seconds(nanos(config.bridge?.shutdown_timeout, 30));
}

/**
 * Reads layers of YAML; later ones change what earlier ones said.
 *
 * @param files paths, in order
 * @param env values of `${NAME}`
 * @param checker path of the `causeway` program; without it the schema and the rules of this package check
 * @param containerVariables names that only the containers have (secrets, tokens): they stay `${NAME}` in the text
 */
export function loadConfigDocument(
  files: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  checker?: string,
  containerVariables: readonly string[] = [],
): ConfigDocument {
  const variables: Variables = { env, container: new Set(containerVariables) };
  const faults: SynthFault[] = [];
  const shipped = new Map<Node, string>();
  const origins = new Map<string, string>();
  let root: Node = { kind: "map", entries: new Map() };
  for (const file of files) {
    const layer = readLayer(file, faults);
    if (layer === undefined) continue;
    if (layer.kind === "map") {
      interpolate(layer, "", variables, faults, shipped, origins);
      root = merge(root, layer);
    } else if (!(layer.kind === "scalar" && typed(layer) === null)) {
      faults.push({
        code: "E_TYPE",
        path: "",
        message: `${basename(file)}: expected a mapping of sections at the top`,
        remedy: "begin with `bridge:`",
      });
    }
  }
  const json = toJson(root);
  const unreadable = faults.some((fault) => fault.path === "");
  const { found, config } = unreadable ? { found: [], config: {} } : check(json, toJson(root, true), faults);
  const text = render(root, shipped);
  const asked = checker === undefined ? undefined : ask(checker, files, env, variables);
  return {
    text,
    digest: createHash("sha256").update(text).digest("hex"),
    value: json as BridgeConfig,
    faults: (asked?.faults ?? [...faults, ...found].map((fault) => strikeOut(fault, mentioned(env, files)))).map(
      (fault) => withOrigin(fault, origins),
    ),
    sessions: facts(config),
    checkedBy: asked === undefined ? "schema" : "program",
  };
}

/** Only variables that the files name: an unrelated one may hold any word. */
function mentioned(
  env: Readonly<Record<string, string | undefined>>,
  files: readonly string[],
): Record<string, string | undefined> {
  const text = files
    .filter((file) => existsSync(file))
    .map((file) => readFileSync(file, "utf8"))
    .join("\n");
  return Object.fromEntries(Object.entries(env).filter(([name]) => text.includes(`\${${name}`)));
}

/** Says which variable a value is: whoever reads the fault wrote that, and not the path. */
function withOrigin(fault: SynthFault, origins: ReadonlyMap<string, string>): SynthFault {
  const origin = origins.get(fault.path);
  if (origin === undefined || fault.code === "E_ENV_MISSING") return fault;
  return { ...fault, message: `${fault.message}; it is filled from ${origin}` };
}

function readLayer(file: string, faults: SynthFault[]): Node | undefined {
  if (!existsSync(file)) {
    faults.push({
      code: "E_FILE",
      path: "",
      message: `${file} does not exist`,
      remedy: "correct the path of the configuration in settings.ts",
    });
    return undefined;
  }
  const layer = parseLayer(basename(file), readFileSync(file, "utf8"));
  faults.push(...layer.faults);
  return layer.root;
}

/** The schema's faults, then those of the rules on what is left. */
function check(
  json: Json,
  written: Json,
  interpolation: readonly SynthFault[],
): { found: SynthFault[]; config: BridgeConfig } {
  const unfilled = new Set(interpolation.map((fault) => fault.path));
  const found: SchemaFault[] = schemaFaults(json, written).filter((fault) => !unfilled.has(fault.path));
  const rest = structuredClone(json);
  for (const fault of [...found].sort((a, b) => b.at.length - a.at.length)) takeOut(rest, fault.at);
  const broken = new Set([...unfilled, ...found.map((fault) => fault.path)]);
  const config = rest as BridgeConfig;
  return { found: [...found.map(({ at: _, ...fault }) => fault), ...checkRules(config, broken)], config };
}

function valueAt(root: Json, at: readonly string[]): Json | undefined {
  return at.reduce<Json | undefined>((node, part) => {
    if (Array.isArray(node)) return node[Number(part)];
    return typeof node === "object" && node !== null ? node[part] : undefined;
  }, root);
}

/** Lists whose elements are texts. */
const TEXT_LISTS = ["bindings", "processors", "broker_urls", "cors_origins", "takeover_evidence", "values"];

/** Elements of lists are emptied, so that the others keep their places. */
function isTextList(at: readonly string[]): boolean {
  // `bindings` at the top are mappings, those of a route are names.
  return at.length > 2 && TEXT_LISTS.includes(at.at(-2) ?? "");
}

function takeOut(root: Json, at: readonly string[]): void {
  const node = valueAt(root, at.slice(0, -1));
  const last = at.at(-1);
  if (last === undefined) return;
  // Lists are of mappings or of texts.
  if (Array.isArray(node)) node[Number(last)] = isTextList(at) ? "" : {};
  else if (typeof node === "object" && node !== null) delete node[last];
}

function facts(config: BridgeConfig): SessionFacts[] {
  return (config.sessions ?? []).map((session) => {
    const written = mqtt(session);
    const urls = brokerUrls(written);
    const budget = sessionBudget(config, session);
    const objective = optionalNanos(sessionBlock(config, session.id)?.failover_slo);
    return {
      id: session.id ?? "",
      clientId: written.client_id ?? "",
      brokerUrl: urls[0]?.text ?? "",
      brokerPorts: urls.map(({ port }) => port),
      exclusive: session.session_mode === "exclusive",
      feeds: (config.routes ?? []).some(
        (route) => session.id !== undefined && named(config.receivers, route.receiver_id)?.session_id === session.id,
      ),
      filters: (config.receivers ?? [])
        .filter((receiver) => receiver.session_id === session.id)
        .flatMap((receiver) => (receiver.topics ?? []).map((topic) => topic.topic ?? "")),
      failoverSloSeconds: objective === undefined ? undefined : seconds(objective),
      stepDownGraceSeconds: grace(config, session),
      storageIdentity: storageIdentity(brokerSession(session)),
      budget,
    };
  });
}

function grace(config: BridgeConfig, session: NonNullable<BridgeConfig["sessions"]>[number]): number {
  try {
    return seconds(sessionTiming(config, session).cadence.stepDownGrace);
  } catch {
    return 15;
  }
}

/** What the program itself says; `undefined` where it cannot be run. */
function ask(
  checker: string,
  files: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  variables: Variables,
): { faults: SynthFault[] } | undefined {
  const stand = Object.fromEntries([...variables.container].map((name) => [name, env[name] ?? standIn(name)]));
  const run = spawnSync(checker, ["check", ...files, "--json"], {
    env: { ...definedOnly(env), ...stand },
    encoding: "utf8",
    timeout: 60_000,
    maxBuffer: 64 * 1024 * 1024,
  });
  if (run.error !== undefined || (run.status !== 0 && run.status !== 2)) return undefined;
  const answer = answerOf(run.stdout);
  if (answer === undefined) return undefined;
  const plain = (all: readonly SynthFault[]) =>
    all.map(({ code, path, message, remedy }) => ({ code, path, message, remedy }));
  const refused = answer.faults.filter((fault) => fault.severity === "error");
  return { faults: plain(refused) };
}

interface Answer {
  readonly faults: readonly (SynthFault & { readonly severity: string })[];
}

/** `undefined` for a program that printed something else, such as how it is used. */
function answerOf(text: string): Answer | undefined {
  try {
    const answer: Partial<Answer> = JSON.parse(text);
    return Array.isArray(answer.faults) ? (answer as Answer) : undefined;
  } catch {
    return undefined;
  }
}

function definedOnly(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined));
}

/** The merged tree as YAML. What was quoted stays quoted, so that the program gives every scalar the type that it had. */
function render(root: Node, shipped: ReadonlyMap<Node, string>): string {
  const document = new Document(node(root, shipped), { version: "1.2" });
  return document.toString({ lineWidth: 0 });
}

function node(from: Node, shipped: ReadonlyMap<Node, string>): unknown {
  if (from.kind === "map") {
    const map = new YAMLMap();
    for (const [key, value] of from.entries) map.set(new YamlScalar(key), node(value, shipped));
    return map;
  }
  if (from.kind === "seq") {
    const seq = new YAMLSeq();
    seq.items = from.items.map((item) => node(item, shipped));
    return seq;
  }
  const text = shipped.get(from) ?? from.text;
  const scalar = new YamlScalar(from.plain ? typed({ ...from, text }) : text);
  if (!isScalar(scalar)) return scalar;
  if (!from.plain) scalar.type = "QUOTE_DOUBLE";
  return scalar;
}
