/** `${NAME}` and `${NAME:-default}` inside scalars, filled after the YAML was read, so that no value can break the document. */
import type { SynthFault } from "../checks/fault.ts";
import type { Node } from "./tree.ts";

/** Where values of variables come from. */
export interface Variables {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Variables that only the container has: `${NAME}` stays in the document, and what is checked is the value here, or a stand-in. */
  readonly container: ReadonlySet<string>;
}

/** What a variable of the container counts as while the document is checked. It passes as a URL of a queue, a password, a key, and a PEM text. */
export function standIn(name: string): string {
  return `https://stand-in.invalid/${name}`;
}

/** Whether a value holds what only the container knows. */
export function isStandIn(value: string | undefined): boolean {
  return value?.includes(standIn("")) ?? false;
}

/** Fills every scalar below `node`, and leaves in `shipped` what the container is to read, and in `origins` which path is one variable. */
export function interpolate(
  node: Node,
  path: string,
  variables: Variables,
  faults: SynthFault[],
  shipped: Map<Node, string>,
  origins: Map<string, string> = new Map(),
): void {
  if (node.kind === "seq") {
    node.items.forEach((item, index) => {
      interpolate(item, `${path}[${index}]`, variables, faults, shipped, origins);
    });
  } else if (node.kind === "map") {
    for (const [key, value] of node.entries) {
      interpolate(value, path === "" ? key : `${path}.${key}`, variables, faults, shipped, origins);
    }
  } else if (node.text.includes("${")) {
    if (/^\$\{\w+\}$/.test(node.text)) origins.set(path, node.text);
    const filled = fill(node.text, variables);
    if ("code" in filled) {
      faults.push({ ...filled, path });
    } else {
      node.text = filled.value;
      shipped.set(node, filled.shipped);
    }
  }
}

type Filled = { value: string; shipped: string } | { code: string; message: string; remedy: string };

function fill(text: string, variables: Variables): Filled {
  let value = "";
  let shipped = "";
  let rest = text;
  for (let start = rest.indexOf("${"); start >= 0; start = rest.indexOf("${")) {
    const before = rest.slice(0, start);
    value += before;
    shipped += before;
    if (before.endsWith("$")) {
      // `$${` stands for a literal `${`.
      value += "{";
      shipped += "${";
      rest = rest.slice(start + 2);
      continue;
    }
    const end = rest.indexOf("}", start);
    if (end < 0) {
      return {
        code: "E_INTERPOLATION",
        // biome-ignore lint/suspicious/noTemplateCurlyInString: the notation of the configuration
        message: "`${` without a closing `}`",
        // biome-ignore lint/suspicious/noTemplateCurlyInString: the notation of the configuration
        remedy: "write `${NAME}`, or `$${` for the characters themselves",
      };
    }
    const inner = rest.slice(start + 2, end);
    const cut = inner.indexOf(":-");
    const name = cut < 0 ? inner : inner.slice(0, cut);
    const fallback = cut < 0 ? undefined : inner.slice(cut + 2);
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      return {
        code: "E_INTERPOLATION",
        message: `\`${name}\` is not the name of an environment variable`,
        // biome-ignore lint/suspicious/noTemplateCurlyInString: the notation of the configuration
        remedy: "write `${NAME}` or `${NAME:-default}`; names have letters, digits and `_`",
      };
    }
    const here = variables.container.has(name) ? (variables.env[name] ?? standIn(name)) : variables.env[name];
    const found = here !== undefined && (fallback === undefined || here !== "") ? here : fallback;
    if (found === undefined) {
      return {
        code: "E_ENV_MISSING",
        message: `the environment variable \`${name}\` is not set`,
        remedy: `set ${name}, or give a default: \`\${${name}:-default}\``,
      };
    }
    value += found;
    shipped += variables.container.has(name) ? `\${${inner}}` : escaped(found);
    rest = rest.slice(end + 1);
  }
  return { value: value + rest, shipped: shipped + rest };
}

/** The container interpolates what it reads once more. */
function escaped(text: string): string {
  return text.replaceAll("${", () => "$${");
}

/** Puts a variable's name in the place of its value, should a message hold it: where it is quoted, and where it is too long to be a word. */
export function strikeOut(fault: SynthFault, env: Readonly<Record<string, string | undefined>>): SynthFault {
  const clean = (text: string) =>
    Object.entries(env).reduce((struck, [name, value]) => {
      if (value === undefined || value === "" || !struck.includes(value)) return struck;
      const shown = `\${${name}}`;
      if (value.length >= 6) return struck.replaceAll(value, () => shown);
      return struck.replace(/"[^"]*"|`[^`]*`/g, (quoted) => quoted.replaceAll(value, () => shown));
    }, text);
  return { ...fault, message: clean(fault.message), remedy: clean(fault.remedy) };
}
