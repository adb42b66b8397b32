/** Rules of `flow.inbound`. */
import { isClustered, isDurable, optionalNanos } from "../../model.ts";
import type { Check } from "../check.ts";

const UNSHARE_AFTER = "flow.inbound.unshare_after";
/** The keep-alive where a session names none, in seconds. */
const KEEP_ALIVE = 30;
/** Messages that a broker may send ahead of acknowledgements where a session names no number. */
const WINDOW = 500;
/** What each of them takes at least, in bytes. */
const WINDOW_MESSAGE = 1_024;
const MAX_BUFFERED_BYTES = 16_777_216;
const SECOND = 1_000_000_000n;

export interface Inbound {
  unshare_after?: string;
  max_buffered_bytes?: number;
  ack_hold_max?: string;
  ack_hold_action?: string;
  qos0_buffer_messages?: number;
  qos0_on_full?: string;
  socket_pause_max?: string;
  tcp_receive_buffer_kib?: number;
}

export function checkInbound(check: Check): void {
  buffered(check);
  ackHold(check);
  qos0(check);
  unshare(check);
}

/** A window of small messages has to fit. */
function buffered(check: Check): void {
  const windows = (check.config.sessions ?? []).map((session) => session.options?.session?.receive_maximum || WINDOW);
  const least = WINDOW_MESSAGE * Math.max(1, ...windows);
  if ((check.config.flow?.inbound?.max_buffered_bytes ?? MAX_BUFFERED_BYTES) < least) {
    check.error(
      "E_MAX_BUFFERED_BYTES",
      "flow.inbound.max_buffered_bytes",
      `max_buffered_bytes is below ${least}, 1 KiB for each message that a broker may send ahead of acknowledgements`,
      `write ${least} or more, or lower receive_maximum`,
      ["sessions"],
    );
  }
}

function ackHold(check: Check): void {
  const { config } = check;
  const inbound = config.flow?.inbound;
  if ((optionalNanos(inbound?.ack_hold_max) ?? 0n) > 1_800n * SECOND) {
    check.error(
      "E_ACK_HOLD_MAX",
      "flow.inbound.ack_hold_max",
      "ack_hold_max is above 30m: brokers give a message up that is not acknowledged for long",
      "write a duration up to `30m`",
    );
  }
  if (inbound?.ack_hold_action === "park" && config.stores?.outbox === undefined) {
    check.error(
      "E_NO_OUTBOX",
      "flow.inbound.ack_hold_action",
      "what is parked is kept in the outbox, and there is none",
      "configure `stores.outbox`, or write `ack_hold_action: disconnect`",
      ["stores.outbox"],
    );
  }
  if (inbound?.ack_hold_action === "disconnect") disconnect(check, inbound);
}

/** The broker has to keep what comes again by the next connection, and there has to be time for a limit to admit it. */
function disconnect(check: Check, inbound: Inbound): void {
  const at = "flow.inbound.ack_hold_action";
  if (optionalNanos(inbound.ack_hold_max) === 0n) {
    check.error(
      "E_ACK_HOLD_MAX",
      "flow.inbound.ack_hold_max",
      "every message that a limit holds would end the connection at once, and again by the next one",
      "write a duration such as `60s`, or `ack_hold_action: park`",
      [at],
    );
  }
  const { sessions = [], receivers = [], routes = [] } = check.config;
  const feeds = (session: string | undefined) =>
    receivers.some(({ id, session_id }) => session_id === session && routes.some((route) => route.receiver_id === id));
  if (sessions.some((session) => !isDurable(session.session_mode) && feeds(session.id))) {
    check.error(
      "E_ACK_HOLD_EPHEMERAL",
      at,
      "the broker forgets an ephemeral session with its connection, and what is held with it: nothing would come again",
      "write `session_mode: persistent`, or `ack_hold_action: park`",
      ["sessions", "receivers", "routes"],
    );
  }
}

function qos0(check: Check): void {
  const inbound = check.config.flow?.inbound;
  check.range("flow.inbound.qos0_buffer_messages", inbound?.qos0_buffer_messages, 0, 100_000);
  check.range("flow.inbound.tcp_receive_buffer_kib", inbound?.tcp_receive_buffer_kib, 0, 16_384);
  const pause = optionalNanos(inbound?.socket_pause_max);
  if (pause === undefined) return;
  const at = "flow.inbound.socket_pause_max";
  const keepAlives = (check.config.sessions ?? []).map(
    (session) => BigInt(session.options?.session?.keep_alive ?? KEEP_ALIVE) * SECOND,
  );
  if (inbound?.qos0_on_full !== "pause_socket") {
    check.error(
      "E_SOCKET_PAUSE",
      at,
      "socket_pause_max means nothing unless `qos0_on_full: pause_socket`",
      "remove it, or write `qos0_on_full: pause_socket`",
      ["flow.inbound.qos0_on_full"],
    );
  } else if (pause === 0n || keepAlives.some((keepAlive) => keepAlive > 0n && pause >= keepAlive)) {
    check.error(
      "E_SOCKET_PAUSE",
      at,
      "the broker takes a client for dead that says nothing for one and a half times keep_alive",
      "write a duration above zero and below the keep_alive of every session",
      ["sessions"],
    );
  }
}

function unshare(check: Check): void {
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
