// The bridge by availability zones: who runs, who owns what, and what each gives.

import { at, make, span } from "./dom.js";

const GRADES = { full: "good", degraded: "fair", none: "soft" };

// `name#nonce`, without the nonce.
export const nameOf = (owner) => (owner ? owner.split("#")[0] : "");

export function leaseOf(fleet, session) {
  return fleet && fleet.leases.find((lease) => lease.lease === `LEASE#${session}`);
}

function card(member, fleet, me) {
  const stale = member.state !== "fresh";
  const box = make("div", stale ? "card member stale" : "card member");
  const title = make("b", "", nameOf(member.owner));
  const mine = nameOf(member.owner) === me ? ", this process" : "";
  box.append(title, make("span", "soft", ` ${member.role}${mine}`));
  box.append(make("div", stale ? "bad" : "soft", `${stale ? "not heard of" : "seen"} ${span(fleet.read_at - member.written_at)} ${stale ? "" : "ago"}`));
  if (member.endpoints.http) box.append(make("div", "soft", member.endpoints.http));
  for (const [session, level] of Object.entries(member.sessions)) {
    const lease = leaseOf(fleet, session);
    const owns = lease && lease.state === "held" && lease.owner === member.owner;
    // Where the lease names another one, the row of this member is only older.
    const idle = level === "none" ? "standing by" : lease ? "no longer its owner" : level;
    const line = owns ? `${session}: owner, ${level}, epoch ${lease.version}` : `${session}: ${idle}`;
    box.append(make("div", owns ? GRADES[level] : "soft", line));
  }
  return box;
}

export function show(fleet, me) {
  if (!fleet) {
    at("fleet").replaceChildren(make("p", "soft", "This process shares its sessions with no other, or the others have not been looked at yet."));
    return;
  }
  const zones = new Map();
  for (const member of [...fleet.members].sort((a, b) => (a.owner < b.owner ? -1 : 1))) {
    const zone = member.az || "no zone known";
    zones.set(zone, [...(zones.get(zone) || []), member]);
  }
  const made = [...zones].sort().map(([zone, members]) => {
    const box = make("div", "zone");
    const cards = make("div", "members");
    cards.append(...members.map((member) => card(member, fleet, me)));
    box.append(make("h3", "soft", zone), cards);
    return box;
  });
  if (fleet.fault) made.push(make("p", "bad", `The lease table cannot be read: ${fleet.fault}`));
  if (made.length === 0) made.push(make("p", "soft", "no member has written its row yet"));
  at("fleet").replaceChildren(...made);
}
