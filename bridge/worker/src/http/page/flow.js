// What each session takes in and what it holds back.

import { at, cell, count, rows } from "./dom.js";

function intake(s) {
  if (s.role !== "owner") return ["–"];
  if (s.unshared) return ["left its groups to others", "fair"];
  return s.paused ? ["paused", "fair"] : ["open"];
}

const worth = (n) => cell(count(n), n ? "n fair" : "n");

export function show(sessions) {
  rows(at("flow"), sessions.map((s) => [
    cell(s.id), cell(...intake(s)), cell(count(s.source.unacknowledged), "n"), worth(s.held_up), worth(s.parked), cell(count(s.outbox.entries), "n"),
  ]), "no session has started");
}
