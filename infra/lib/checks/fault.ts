/** One reason why a stack is refused at synth, told so that the reader can put it right at once. */
export interface SynthFault {
  /** A stable code: `CAUSEWAY_…` for rules of the stack, `E_…` for the program's own rules of the configuration. */
  readonly code: string;
  /** Where: a prop such as `workerDesiredCount`, a path in the configuration, or the logical id of a resource. */
  readonly path: string;
  /** What is wrong. Never holds the value of an environment variable. */
  readonly message: string;
  /** What to do. */
  readonly remedy: string;
}

/** Thrown at synth with every fault that was found, not only the first. */
export class SynthRefused extends Error {
  /** Everything that was found. */
  public readonly faults: readonly SynthFault[];

  public constructor(faults: readonly SynthFault[]) {
    const count = faults.length === 1 ? "1 fault" : `${faults.length} faults`;
    super([`${count}; nothing was synthesized:`, ...faults.map((fault) => `  ${describe(fault)}`)].join("\n"));
    this.name = "SynthRefused";
    this.faults = faults;
  }

  /** Throws where there is at least one fault. */
  public static ifAny(faults: readonly SynthFault[]): void {
    if (faults.length > 0) throw new SynthRefused(faults);
  }
}

/** One line: code, place, what is wrong, what to do. */
export function describe(fault: SynthFault): string {
  const place = fault.path === "" ? "" : ` ${fault.path}`;
  return `${fault.code}${place}: ${fault.message} (${fault.remedy})`;
}
