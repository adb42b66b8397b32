/** Rules of `drops`. */
import { SECOND } from "../../budget.ts";
import { optionalNanos } from "../model.ts";
import type { Check } from "./check.ts";

export function checkDrops(check: Check): void {
  const ledger = check.config.drops?.ledger ?? {};
  check.positive("drops.ledger.retention", ledger.retention);
  check.range("drops.ledger.max_rows", ledger.max_rows, 1, 1_000_000);
  check.positive("drops.ledger.flush_interval", ledger.flush_interval);
  const flush = optionalNanos(ledger.flush_interval);
  if (flush !== undefined && flush > 3600n * SECOND) {
    check.error(
      "E_LEDGER_FLUSH",
      "drops.ledger.flush_interval",
      "is too long: a worker that is killed forgets what was dropped since",
      "write 1h or less",
    );
  }
  if (ledger.enabled === false && check.config.stores?.ledger !== undefined) {
    check.error(
      "E_LEDGER_OFF",
      "stores.ledger",
      "there is no ledger, and nothing would be written there",
      "remove one of the two",
      ["drops.ledger.enabled"],
    );
  }
}
