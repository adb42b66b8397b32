/** A YAML document as a tree whose scalars remember how they were written, so that `${QOS}` can become a number and `"5"` stays a text. */
import {
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  parseAllDocuments,
  type Node as YamlNode,
  type Scalar as YamlScalar,
} from "yaml";
import type { SynthFault } from "../checks/fault.ts";

/** The largest configuration file that is read, in bytes. */
export const MAX_BYTES = 4 * 1024 * 1024;
/** No configuration nests deeper. */
const MAX_DEPTH = 32;
/** The bound on what aliases may multiply. */
const MAX_NODES = 500_000;

export interface Scalar {
  readonly kind: "scalar";
  /** As it was written, before interpolation. */
  readonly source: string;
  /** Filled from the environment. */
  text: string;
  /** Written without quotes, so that `5` is a number and `true` a boolean. */
  readonly plain: boolean;
}
export interface Sequence {
  readonly kind: "seq";
  items: Node[];
}
export interface Mapping {
  readonly kind: "map";
  readonly entries: Map<string, Node>;
}
export type Node = Scalar | Sequence | Mapping;

/** What a JSON value may be. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Reads one file; `undefined` for an empty one. */
export function parseLayer(name: string, text: string): { root?: Node; faults: SynthFault[] } {
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_BYTES) {
    const message = `the file has ${bytes} bytes, more than the 4 MiB that are read`;
    return {
      faults: [yamlFault("E_FILE_TOO_LARGE", name, message, "split it, or move what is not configuration elsewhere")],
    };
  }
  const documents = parseAllDocuments(text, {
    version: "1.2",
    schema: "core",
    uniqueKeys: false,
    strict: true,
    logLevel: "silent",
  });
  if (!Array.isArray(documents)) return { faults: [] };
  const reader = new Reader(name);
  const document = documents[0];
  if (document === undefined) return { faults: [] };
  const root = reader.document(document as Document, documents.length);
  return root === undefined || reader.faults.length > 0 ? { faults: reader.faults } : { root, faults: [] };
}

function yamlFault(code: string, name: string, message: string, remedy: string): SynthFault {
  return { code, path: "", message: `${name}: ${message}`, remedy };
}

/** Stops a document that is not worth reading on. */
class Stop extends Error {}

class Reader {
  public readonly faults: SynthFault[] = [];
  readonly #name: string;
  #nodes = 0;
  readonly #open = new Set<YamlNode>();

  public constructor(name: string) {
    this.#name = name;
  }

  public document(document: Document, count: number): Node | undefined {
    const tag = document.errors.find((error) => error.code === "TAG_RESOLVE_FAILED");
    const broken = document.errors.find((error) => error !== tag);
    if (broken !== undefined) {
      this.#fault(
        "E_YAML_SYNTAX",
        `not valid YAML: ${firstLine(broken.message)}`,
        "correct the indentation, quoting or brackets here",
      );
      return undefined;
    }
    if (count > 1) {
      this.#fault(
        "E_YAML_DOCUMENTS",
        "a second YAML document begins here",
        "keep one document in a file; give several files to combine them",
      );
      return undefined;
    }
    if (document.contents === null) return undefined;
    try {
      return this.#read(document.contents as YamlNode, document, 0);
    } catch (error) {
      if (error instanceof Stop) return undefined;
      throw error;
    }
  }

  #fault(code: string, message: string, remedy: string): void {
    this.faults.push(yamlFault(code, this.#name, message, remedy));
  }

  #stop(code: string, message: string, remedy: string): never {
    this.#fault(code, message, remedy);
    throw new Stop();
  }

  #read(node: YamlNode, document: Document, depth: number): Node {
    this.#nodes += 1;
    if (this.#nodes > MAX_NODES) {
      this.#stop(
        "E_YAML_SIZE",
        `the document holds more than ${MAX_NODES} values`,
        "write fewer values, and repeat less by aliases",
      );
    }
    if (isAlias(node)) {
      const target = node.resolve(document);
      if (target === undefined || this.#open.has(target)) {
        this.#stop(
          "E_YAML_SYNTAX",
          "an alias stands for nothing, or for a value that contains it",
          "write the value out",
        );
      }
      return this.#read(target, document, depth);
    }
    this.#tag(node.tag);
    if (isScalar(node)) return scalar(node);
    if (depth >= MAX_DEPTH) {
      this.#stop(
        "E_YAML_DEPTH",
        `nested deeper than ${MAX_DEPTH} levels`,
        "no setting lies this deep: check brackets and indentation",
      );
    }
    this.#open.add(node);
    const read = isSeq(node)
      ? this.#sequence(node.items as unknown[], document, depth)
      : this.#mapping(node, document, depth);
    this.#open.delete(node);
    return read;
  }

  #tag(tag: string | undefined): void {
    if (tag !== undefined && tag !== "!" && !tag.startsWith("tag:yaml.org,2002:")) {
      this.#fault("E_YAML_TAG", "YAML tags of one's own have no meaning here", "remove the tag");
    }
  }

  #sequence(items: unknown[], document: Document, depth: number): Sequence {
    return { kind: "seq", items: items.map((item) => this.#value(item, document, depth)) };
  }

  #value(value: unknown, document: Document, depth: number): Node {
    return value === null || value === undefined ? empty() : this.#read(value as YamlNode, document, depth + 1);
  }

  #mapping(node: YamlNode, document: Document, depth: number): Mapping {
    const entries = new Map<string, Node>();
    if (!isMap(node)) return { kind: "map", entries };
    for (const pair of node.items) {
      const key: unknown = pair.key;
      const value = this.#value(pair.value, document, depth);
      if (!isScalar(key)) {
        this.#fault("E_YAML_KEY", "a key must be a plain text", "write a field name");
        continue;
      }
      const text = scalar(key).text;
      if (entries.has(text))
        this.#fault("E_DUPLICATE_KEY", `the key \`${text}\` is given twice`, "keep one of the two");
      else entries.set(text, value);
    }
    return { kind: "map", entries };
  }
}

function scalar(node: YamlScalar): Scalar {
  const plain = (node.type === "PLAIN" || node.type === undefined) && node.tag !== "tag:yaml.org,2002:str";
  const text = plain ? (node.source ?? "") : String(node.value ?? "");
  return { kind: "scalar", source: text, text, plain };
}

function empty(): Scalar {
  return { kind: "scalar", source: "", text: "", plain: true };
}

function firstLine(text: string): string {
  return text.split("\n")[0] ?? text;
}

/** The YAML 1.2 core schema's reading of a scalar. */
export function typed(scalar: Scalar): null | boolean | number | string {
  const { text } = scalar;
  if (!scalar.plain) return text;
  if (/^(|~|null|Null|NULL)$/.test(text)) return null;
  if (/^(true|True|TRUE)$/.test(text)) return true;
  if (/^(false|False|FALSE)$/.test(text)) return false;
  if (/^\.(nan|NaN|NAN)$/.test(text)) return Number.NaN;
  const infinite = /^([-+]?)\.(inf|Inf|INF)$/.exec(text);
  if (infinite !== null) return infinite[1] === "-" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  if (/^[-+]?[0-9]+$/.test(text) || /^0x[0-9a-fA-F]+$/.test(text) || /^0o[0-7]+$/.test(text)) return Number(text);
  if (/^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$/.test(text)) return Number(text);
  return text;
}

/** Whether a node is `null` or nothing at all; such a field counts as left out. */
export function isNull(node: Node): boolean {
  return node.kind === "scalar" && typed(node) === null;
}

/** The tree as plain values; fields that are `null` are left out, unless they are wanted. */
export function toJson(node: Node, withNulls = false): Json {
  if (node.kind === "scalar") return typed(node);
  if (node.kind === "seq") return node.items.map((item) => toJson(item, withNulls));
  const object: { [key: string]: Json } = {};
  for (const [key, value] of node.entries) if (withNulls || !isNull(value)) object[key] = toJson(value, withNulls);
  return object;
}

/** Puts `over` on top of `base`, field by field; lists of things with an `id` are matched by it, and a `null` clears the field below. */
export function merge(base: Node, over: Node): Node {
  if (base.kind === "map" && over.kind === "map") {
    for (const [key, node] of over.entries) {
      const below = base.entries.get(key);
      base.entries.set(key, below === undefined ? node : merge(below, node));
    }
    return base;
  }
  if (base.kind === "seq" && over.kind === "seq" && byId(base) && byId(over)) return mergeById(base, over);
  return over;
}

function idOf(node: Node): string | undefined {
  const id = node.kind === "map" ? node.entries.get("id") : undefined;
  return id?.kind === "scalar" ? id.text : undefined;
}

function byId(sequence: Sequence): boolean {
  return sequence.items.length > 0 && sequence.items.every((item) => idOf(item) !== undefined);
}

/** Elements of one layer never merge with one another: an id given twice there stays twice, and is reported. */
function mergeById(base: Sequence, over: Sequence): Sequence {
  const existing = base.items.length;
  const seen = new Set<string>();
  for (const node of over.items) {
    const id = idOf(node) ?? "";
    const index = base.items.findIndex((item, at) => at < existing && idOf(item) === id);
    const below = base.items[index];
    if (below !== undefined && !seen.has(id)) {
      seen.add(id);
      base.items[index] = merge(below, node);
    } else {
      base.items.push(node);
    }
  }
  return base;
}
