"use strict";
// Polls the status and shows it. Everything is written as text, never as markup: ids and faults may hold anything.

const POLL_MS = 1000;
const STALE_MS = 5000;
const KEY = "causeway-monitor-key";
const GRADES = { full: "good", degraded: "fair", none: "bad", subscribed: "fair", connected: "fair", running: "fair", live: "fair", down: "bad" };

// What a session tells of itself: its service where it is owned, else that it stands by.
const grade = (s) => (s.role === "standby" && s.readiness === "subscribed" ? ["standing by", "good"] : [s.service_level, GRADES[s.service_level]]);
const at = (id) => document.getElementById(id);
const number = new Intl.NumberFormat();
const count = (value) => (value === null || value === undefined ? "–" : number.format(value));
let before = null;
let seen = 0;

function cell(text, style) {
  const td = document.createElement("td");
  td.textContent = text;
  if (style) td.className = style;
  return td;
}

function rows(body, list, empty) {
  const width = body.parentElement.querySelectorAll("th").length || 2;
  const made = list.map((cells) => {
    const tr = document.createElement("tr");
    tr.append(...cells);
    return tr;
  });
  if (made.length === 0) {
    const td = cell(empty, "soft");
    td.colSpan = width;
    const tr = document.createElement("tr");
    tr.append(td);
    made.push(tr);
  }
  body.replaceChildren(...made);
}

function span(ms) {
  if (ms === null) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = ms / 1000;
  if (s < 120) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return `${(s / 3600).toFixed(1)} h`;
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  return value < 1048576 ? `${Math.round(value / 1024)} KiB` : `${(value / 1048576).toFixed(1)} MiB`;
}

const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);

function tiles(status, accounts, memory) {
  const sessions = status.sessions;
  const oldest = sessions.map((s) => s.outbox.oldest_received_at).filter((t) => t !== null);
  const now = {
    at: status.taken_at,
    received: sum(accounts, (r) => r.received),
    delivered: sum(accounts, (r) => r.delivered),
  };
  const seconds = before && now.at > before.at ? (now.at - before.at) / 1000 : null;
  const rate = (key) => (seconds && now[key] >= before[key] ? `${number.format(Math.round((now[key] - before[key]) / seconds))}/s` : "–");
  const shown = [
    ["Received", rate("received")],
    ["Delivered", rate("delivered")],
    ["In outbox", count(sum(sessions, (s) => s.outbox.entries))],
    ["Oldest waits", oldest.length ? span(status.taken_at - Math.min(...oldest)) : "–"],
    ["In flight", count(sum(accounts, (r) => r.in_flight))],
    ["Dead letters", count(sum(accounts, (r) => r.dead_lettered_total))],
    ["Could repeat", count(sum(sessions, (s) => s.duplicate_exposure))],
    ["Memory", bytes(memory)],
  ];
  before = now;
  at("tiles").replaceChildren(
    ...shown.map(([name, value]) => {
      const tile = document.createElement("div");
      const b = document.createElement("b");
      tile.className = "tile";
      b.textContent = value;
      const label = document.createElement("span");
      label.className = "soft";
      label.textContent = name;
      tile.append(b, label);
      return tile;
    }),
  );
}

function tally(accounts, key) {
  const total = {};
  for (const account of accounts) for (const [name, n] of Object.entries(account[key])) total[name] = (total[name] || 0) + n;
  return Object.entries(total).sort((a, b) => b[1] - a[1]);
}

function show(answer) {
  const status = answer.bridge;
  const accounts = answer.accounts;
  at("bridge").textContent = status.bridge_id;
  at("identity").textContent = `${status.instance_id} · up ${span(status.taken_at - status.started_at)} · health ${answer.health}`;
  at("version").textContent = `causeway ${answer.version}`;
  const level = at("level");
  const standby = status.role === "standby" && status.readiness === "subscribed";
  level.textContent = status.shutting_down ? "shutting down" : standby ? "standby" : status.readiness;
  level.className = `pill ${status.shutting_down ? "bad" : standby ? "good" : GRADES[status.readiness]}`;
  tiles(status, accounts, answer.memory_bytes);
  rows(at("sessions"), status.sessions.map((s) => [
    cell(s.id), cell(...grade(s)), cell(s.role), cell(count(s.epoch), "n"), cell(s.paused ? `${s.log}, paused` : s.log),
    cell(`${s.subscriptions_active} / ${s.subscriptions_wanted}`, s.subscriptions_active < s.subscriptions_wanted ? "n fair" : "n"),
    cell(count(s.outbox.entries), "n"),
    cell(s.outbox.oldest_received_at === null ? "–" : span(status.taken_at - s.outbox.oldest_received_at), "n"),
    cell(count(s.source.unacknowledged), "n"),
    cell(s.last_fault ? `${s.last_fault.doing}: ${s.last_fault.code}, ${s.last_fault.detail} (${span(status.taken_at - s.last_fault.at)} ago)` : "–", "wrap"),
  ]), "no session has started");
  rows(at("routes"), accounts.map((r) => [
    cell(r.id), ...["received", "recovered", "delivered"].map((k) => cell(count(r[k]), "n")),
    cell(count(r.dead_lettered_total), r.dead_lettered_total ? "n bad" : "n"), cell(count(r.dropped_total), r.dropped_total ? "n fair" : "n"),
    ...["expired", "returned", "handed_over", "in_outbox", "in_flight"].map((k) => cell(count(r[k]), "n")),
    cell(count(r.conservation_imbalance), r.conservation_imbalance ? "n bad" : "n"),
  ]), "no route has started");
  for (const [id, key] of [["dead", "dead_lettered"], ["drops", "dropped"]]) {
    rows(at(id), tally(accounts, key).map(([name, n]) => [cell(name), cell(count(n), "n")]), "none since the start");
  }
  const refused = status.sessions.flatMap((s) => s.refused.map((f) => `${s.id}: the broker refused ${f.filter}: ${f.reason}`));
  notice([...status.stalled, ...refused].join("\n"));
}

function notice(text) {
  at("notice").textContent = text;
  at("notice").hidden = text === "";
}

async function poll() {
  const key = sessionStorage.getItem(KEY);
  try {
    const answer = await fetch("api/v1/monitor/status", { headers: key ? { "X-API-Key": key } : {}, signal: AbortSignal.timeout(STALE_MS) });
    at("login").hidden = answer.status !== 401;
    if (answer.ok) {
      show(await answer.json());
      seen = Date.now();
    }
  } catch {
    if (Date.now() - seen > STALE_MS) {
      notice("No answer from the program: what is shown is old.");
      at("level").textContent = "no answer";
      at("level").className = "pill bad";
    }
  }
  setTimeout(poll, POLL_MS);
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("key").value);
});
poll();
