import type { SynthFault } from "../../checks/fault.ts";
import { type BridgeConfig, optionalNanos } from "../model.ts";

/** The configuration under examination, and what was found. A rule that reads a field which already has a fault of its own is silent. */
export class Check {
  public readonly config: BridgeConfig;
  public readonly faults: SynthFault[] = [];
  readonly #broken: ReadonlySet<string>;

  public constructor(config: BridgeConfig, broken: ReadonlySet<string>) {
    this.config = config;
    this.#broken = broken;
  }

  /** Reports a broken rule at `path` that reads the fields at `reads` too. */
  public error(code: string, path: string, message: string, remedy: string, reads: readonly string[] = []): void {
    if (![path, ...reads].some((read) => this.#isBroken(read))) this.faults.push({ code, path, message, remedy });
  }

  #isBroken(path: string): boolean {
    for (let at = path; at !== ""; at = at.slice(0, Math.max(at.lastIndexOf("."), at.lastIndexOf("["), 0))) {
      if (this.#broken.has(at)) return true;
    }
    return this.#broken.has("");
  }

  /** Names of a section: none empty, none twice. */
  public names(section: string, things: readonly { id?: string }[]): void {
    const seen = new Set<string>();
    things.forEach(({ id }, index) => {
      const path = `${section}[${index}].id`;
      if (id === "") this.error("E_REQUIRED", path, `${path} is required`, "give it a name");
      else if (id !== undefined && seen.has(id)) {
        this.error("E_DUPLICATE_ID", path, `${section}: duplicate id "${id}"`, "give each its own name");
      }
      if (id !== undefined) seen.add(id);
    });
  }

  /** A reference to a thing that must exist. */
  public reference(
    path: string,
    id: string | undefined,
    section: "sessions" | "receivers" | "senders" | "bindings" | "processors",
  ): void {
    const things: readonly { id?: string }[] = this.config[section] ?? [];
    if (id === "") this.error("E_REQUIRED", path, `${path} is required`, `name one of ${section}`);
    else if (id !== undefined && !things.some((thing) => thing.id === id) && !this.#hasNameless(section)) {
      const remedy = `name one of ${section}, or add it there`;
      this.error("E_DANGLING", path, `"${id}" not found in ${section}`, remedy, [section]);
    }
  }

  /** Whether something in a section could not be read, so that its name is not known. */
  #hasNameless(section: string): boolean {
    const below = [...this.#broken]
      .filter((path) => path.startsWith(section))
      .map((path) => path.slice(section.length));
    return below.some((rest) => rest.endsWith("].id") || rest.endsWith("]"));
  }

  /** A whole number with bounds. */
  public range(path: string, value: unknown, least: number, most: number): void {
    if (typeof value === "number" && (value < least || value > most)) {
      this.error("E_RANGE", path, "out of range", `write a number from ${least} to ${most}`);
    }
  }

  /** A duration that must not be zero. */
  public positive(path: string, text: unknown): void {
    if (typeof text === "string" && optionalNanos(text) === 0n) {
      this.error("E_POSITIVE", path, "must be a positive duration", "write a duration above zero, such as `30s`");
    }
  }
}
