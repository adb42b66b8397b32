// What each session takes in, what it holds back, and what its senders do.

import { at, cell, count, rows } from "./dom.js";

function intake(s) {
  if (s.role !== "owner") return ["–"];
  if (s.unshared) return ["left its groups to others", "fair"];
  return s.paused || s.source_paused ? ["paused", "fair"] : ["open"];
}

// Those that do not send, and why.
function senders(s) {
  const others = s.senders.filter((one) => one.phase !== "running").map((one) => `${one.route} to ${one.binding}: ${one.phase}`);
  if (others.length) return [others.join(", "), "fair wrap"];
  return [s.senders.length ? "running" : "–"];
}

// Its part in the budget of the whole bridge.
function quota(s) {
  if (!s.quota) return ["–"];
  const { name, rate, tokens_local, degraded, reached_since } = s.quota;
  const state = degraded ? ", store away" : reached_since !== null ? ", spent" : "";
  return [`${name} ${rate}: ${count(tokens_local)} at hand${state}`, state ? "fair wrap" : "wrap"];
}

const worth = (n) => cell(count(n), n ? "n fair" : "n");

export function show(sessions) {
  rows(at("flow"), sessions.map((s) => [
    cell(s.id), cell(...intake(s)), cell(count(s.source.unacknowledged), "n"), worth(s.held_up), worth(s.parked), cell(count(s.outbox.entries), "n"),
    cell(...senders(s)), cell(...quota(s)),
  ]), "no session has started");
}
