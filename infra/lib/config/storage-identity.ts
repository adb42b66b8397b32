/** How a session is named in the table of managed subscriptions: the same as bridge/core/src/subscriptions.rs. */
import { createHash } from "node:crypto";
import { brokerUrls, isDurable, mqtt, type Session } from "./model.ts";

/** What tells a session from others at its broker, and decides what the broker keeps of it. */
export interface BrokerSession {
  /** The broker's address in its canonical form. */
  readonly brokerUrl: string;
  readonly clientId: string;
  readonly sessionMode: string;
  readonly cleanStart: boolean;
  /** Seconds, as they are sent. */
  readonly sessionExpiry: number;
}

/** Hex SHA-256 over every field with its length, so that no two sessions differ by where one field ends. */
export function storageIdentity(session: BrokerSession): string {
  const expiry = Buffer.alloc(4);
  expiry.writeUInt32BE(session.sessionExpiry);
  const hash = createHash("sha256");
  for (const part of [
    Buffer.from(session.brokerUrl),
    Buffer.from(session.clientId),
    Buffer.from(session.sessionMode),
    Buffer.from([session.cleanStart ? 1 : 0]),
    expiry,
  ]) {
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(part.length));
    hash.update(length).update(part);
  }
  return hash.digest("hex");
}

/** The fields of a configured session, defaults filled in as the program fills them in. */
export function brokerSession(session: Session): BrokerSession {
  const written = mqtt(session);
  const mode = session.session_mode ?? "ephemeral";
  const seconds = written.session_expiry_interval ?? 0;
  return {
    brokerUrl: brokerUrls(written)[0]?.text ?? "",
    clientId: written.client_id ?? "",
    sessionMode: mode,
    cleanStart: !isDurable(mode),
    sessionExpiry: isDurable(mode) ? (seconds === 0 ? 86_400 : seconds) : 0,
  };
}
