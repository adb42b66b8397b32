/** Durations as the program reads them: `500ms`, `45s`, `1h30m`, in whole nanoseconds. */
const UNITS: Readonly<Record<string, bigint>> = {
  ns: 1n,
  us: 1_000n,
  µs: 1_000n,
  ms: 1_000_000n,
  s: 1_000_000_000n,
  m: 60_000_000_000n,
  h: 3_600_000_000_000n,
  d: 86_400_000_000_000n,
};
const MAX = 2n ** 63n - 1n;

/** Nanoseconds, or why the text is no duration. */
export function span(text: string): bigint | "no_unit" | "malformed" | "too_long" {
  const trimmed = text.trim();
  const sign = trimmed.startsWith("-") ? -1n : 1n;
  let rest = trimmed.replace(/^[-+]/, "");
  if (rest === "") return "malformed";
  let total = 0n;
  while (rest !== "") {
    const part = /^([0-9.]*)([^0-9.]*)(.*)$/s.exec(rest);
    const [number, unit, tail] = [part?.[1] ?? "", part?.[2] ?? "", part?.[3] ?? ""];
    const digits = /^([0-9]*)(?:\.([0-9]*))?$/.exec(number);
    const empty = digits === null || (digits[1] === "" && (digits[2] ?? "") === "");
    if (unit === "" && tail === "" && !empty) return "no_unit";
    const scale = UNITS[unit];
    if (scale === undefined || empty) return "malformed";
    const fraction = (digits[2] ?? "").slice(0, 18);
    let nanos = BigInt(digits[1] === "" ? "0" : (digits[1] ?? "0")) * scale;
    let place = scale;
    for (const digit of fraction) {
      place /= 10n;
      nanos += place * BigInt(digit);
    }
    total += nanos;
    if (total > MAX) return "too_long";
    rest = tail;
  }
  return sign * total;
}

/** As the program prints it: seconds with as many decimals as needed. */
export function showSpan(nanos: bigint): string {
  const sign = nanos < 0n ? "-" : "";
  const n = nanos < 0n ? -nanos : nanos;
  const [unit, name, digits] =
    n === 0n || n >= 1_000_000_000n
      ? [1_000_000_000n, "s", 9]
      : n >= 1_000_000n
        ? [1_000_000n, "ms", 6]
        : n >= 1_000n
          ? [1_000n, "us", 3]
          : [1n, "ns", 0];
  const fraction =
    digits === 0
      ? ""
      : String(n % unit)
          .padStart(digits, "0")
          .replace(/0+$/, "");
  return `${sign}${n / unit}${fraction === "" ? "" : `.${fraction}`}${name}`;
}
