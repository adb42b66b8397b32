/** Whether a message that is dropped is lost for good although its source would repeat it. */
import type { Check } from "../check.ts";

/** Whether messages come by any receiver that their source would repeat. */
export function repeats(check: Check): boolean {
  return (check.config.receivers ?? []).some(
    (receiver) => receiver.session_id === undefined || (receiver.topics ?? []).some((topic) => (topic.qos ?? 0) > 0),
  );
}
