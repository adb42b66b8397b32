/** Rules of `flow.inbound`. */
import { isClustered, optionalNanos } from "../../model.ts";
import type { Check } from "../check.ts";

const UNSHARE_AFTER = "flow.inbound.unshare_after";
const SECOND = 1_000_000_000n;

export interface Inbound {
  unshare_after?: string;
}

export function checkInbound(check: Check): void {
  const after = optionalNanos(check.config.flow?.inbound?.unshare_after);
  if (after === undefined) return;
  if (after < 2n * SECOND || after > 3_600n * SECOND) {
    check.error(
      "E_UNSHARE_AFTER",
      UNSHARE_AFTER,
      "unshare_after is below 2s or above 1h",
      "write a duration from 2s to 1h, such as `15s`",
    );
    return;
  }
  const { config } = check;
  const inGroups = (session: string | undefined) =>
    (config.receivers ?? []).some(
      (receiver) =>
        receiver.session_id === session && (receiver.topics ?? []).some((topic) => topic.topic?.startsWith("$share/")),
    );
  const shared = (config.sessions ?? []).some(
    (session) => session.session_mode !== "exclusive" && inGroups(session.id),
  );
  if (!isClustered(config) || !shared) {
    check.error(
      "E_UNSHARE_ALONE",
      UNSHARE_AFTER,
      "no other process could take over the share: that needs a clustered bridge with a `$share/` filter on a session that is not exclusive",
      "remove it, or write `deployment_mode: clustered` and `$share/GROUP/FILTER`",
      ["bridge.deployment_mode", "bridge.cluster", "sessions", "receivers"],
    );
  }
}
