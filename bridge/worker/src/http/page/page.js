// Polls the status and shows it.

import * as charts from "./charts.js";
import { at, bytes, cell, count, make, number, rows, span, sum } from "./dom.js";
import * as fleet from "./fleet.js";
import * as flow from "./flow.js";
import * as letters from "./letters.js";

const POLL_MS = 1000;
const FLEET_MS = 3000;
const HISTORY_MS = 5000;
const HOUR_MS = 3600 * 1000;
const STALE_MS = 5000;
const KEY = "causeway-monitor-key";
const GRADES = { full: "good", degraded: "fair", none: "bad", subscribed: "fair", connected: "fair", running: "fair", live: "fair", down: "bad" };

let before = null;
let seen = 0;
let latest = null;
let began = false;
let others = null;
let samples = [];
let interval = HISTORY_MS;

// What a session tells of itself: its service where it is owned, else that it stands by.
const grade = (s) => (s.role === "standby" && s.readiness === "subscribed" ? ["standing by", "good"] : [s.service_level, GRADES[s.service_level]]);

// Totals of now and of the poll before, for rates.
function rates(status, accounts) {
  const now = { at: status.taken_at, of: Object.fromEntries(accounts.map((r) => [r.id, r])) };
  const seconds = before && now.at > before.at ? (now.at - before.at) / 1000 : null;
  const last = before;
  before = now;
  return (ids, key) => {
    if (!seconds) return "–";
    const more = ids.map((id) => (last.of[id] ? now.of[id][key] - last.of[id][key] : 0));
    return more.some((n) => n < 0) ? "–" : number.format(Math.round(more.reduce((a, b) => a + b, 0) / seconds));
  };
}

function tiles(status, accounts, memory, rate) {
  const sessions = status.sessions;
  const oldest = sessions.map((s) => s.outbox.oldest_received_at).filter((t) => t !== null);
  const ids = accounts.map((r) => r.id);
  const shown = [
    ["Received", `${rate(ids, "received")}/s`],
    ["Delivered", `${rate(ids, "delivered")}/s`],
    ["In outbox", count(sum(sessions, (s) => s.outbox.entries))],
    ["Oldest waits", oldest.length ? span(status.taken_at - Math.min(...oldest)) : "–"],
    ["In flight", count(sum(accounts, (r) => r.in_flight))],
    ["Dead letters", count(sum(accounts, (r) => r.dead_lettered_total))],
    ["Could repeat", count(sum(sessions, (s) => s.duplicate_exposure))],
    ["Memory", bytes(memory)],
  ];
  at("tiles").replaceChildren(...shown.map(([name, value]) => {
    const tile = make("div", "tile");
    tile.append(make("b", "", value), make("span", "soft", name));
    return tile;
  }));
}

function tally(accounts, key) {
  const total = {};
  for (const account of accounts) for (const [name, n] of Object.entries(account[key])) total[name] = (total[name] || 0) + n;
  return Object.entries(total).sort((a, b) => b[1] - a[1]);
}

function ownerOf(status, session) {
  if (session.role === "owner") return status.instance_id;
  const lease = fleet.leaseOf(others, session.id);
  return (lease && lease.state === "held" && fleet.nameOf(lease.owner)) || "–";
}

function margin(status, session) {
  if (session.lease && session.lease.margin_ms !== null) return span(session.lease.margin_ms);
  const lease = fleet.leaseOf(others, session.id);
  // Another host's clock: roughly.
  return lease && lease.state === "held" ? `≈ ${span(lease.expires_at - others.read_at)}` : "–";
}

const TERMS = [["dead letters", "dead_lettered_total"], ["dropped", "dropped_total"], ["expired", "expired"], ["filtered", "filtered_total"], ["returned", "returned"], ["handed over", "handed_over"], ["in outbox", "in_outbox"], ["in flight", "in_flight"]];

function conservation(accounts) {
  const all = (key) => sum(accounts, (r) => r[key]);
  const open = sum(accounts, (r) => Math.abs(r.conservation_imbalance));
  const went = TERMS.map(([name, key]) => `${name} ${count(all(key))}`).join(" + ");
  at("conservation").textContent = `received ${count(all("received"))} + put in ${count(all("mailed"))} + recovered ${count(all("recovered"))} = delivered ${count(all("delivered"))} + ${went}: ${open === 0 ? "even" : `${count(open)} unaccounted for`}`;
  at("conservation").className = open === 0 ? "soft" : "bad";
}

function show(answer) {
  const status = answer.bridge;
  const accounts = answer.accounts;
  latest = status;
  const rate = rates(status, accounts);
  at("bridge").textContent = status.bridge_id;
  at("identity").textContent = `${status.instance_id} · up ${span(status.taken_at - status.started_at)} · health ${answer.health}`;
  at("version").textContent = `causeway ${answer.version}`;
  const level = at("level");
  const standby = status.role === "standby" && status.readiness === "subscribed";
  level.textContent = status.shutting_down ? "shutting down" : standby ? "standby" : status.readiness;
  level.className = `pill ${status.shutting_down ? "bad" : standby ? "good" : GRADES[status.readiness]}`;
  letters.offer(answer.admin_port);
  tiles(status, accounts, answer.memory_bytes, rate);
  rows(at("sessions"), status.sessions.map((s) => [
    cell(s.id), cell(...grade(s)), cell(s.role), cell(ownerOf(status, s)), cell(count(s.epoch), "n"), cell(margin(status, s), "n"),
    cell(s.paused ? `${s.log}, paused` : s.log),
    cell(`${s.subscriptions_active} / ${s.subscriptions_wanted}`, s.role === "owner" && s.subscriptions_active < s.subscriptions_wanted ? "n fair" : "n"),
    cell(count(s.outbox.entries), "n"),
    cell(s.outbox.oldest_received_at === null ? "–" : span(status.taken_at - s.outbox.oldest_received_at), "n"),
    cell(count(s.source.unacknowledged), "n"),
    cell(s.last_fault ? `${s.last_fault.doing}: ${s.last_fault.code}, ${s.last_fault.detail} (${span(status.taken_at - s.last_fault.at)} ago)` : "–", "wrap"),
  ]), "no session has started");
  flow.show(status.sessions);
  rows(at("routes"), accounts.map((r) => [
    cell(r.id), cell(rate([r.id], "received"), "n"), cell(rate([r.id], "delivered"), "n"),
    ...["received", "mailed", "recovered", "delivered"].map((k) => cell(count(r[k]), "n")),
    cell(count(r.dead_lettered_total), r.dead_lettered_total ? "n bad" : "n"), cell(count(r.dropped_total), r.dropped_total ? "n fair" : "n"),
    ...["expired", "returned", "handed_over", "in_outbox", "in_flight"].map((k) => cell(count(r[k]), "n")),
    cell(count(r.conservation_imbalance), r.conservation_imbalance ? "n bad" : "n"),
  ]), "no route has started");
  conservation(accounts);
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

async function read(path) {
  const key = sessionStorage.getItem(KEY);
  const answer = await fetch(`api/v1/monitor/${path}`, { headers: key ? { "X-API-Key": key } : {}, signal: AbortSignal.timeout(STALE_MS) });
  at("login").hidden = answer.status !== 401;
  return answer.ok ? answer.json() : null;
}

// Again and again, however it ends: whoever does not answer now may answer later.
function every(pause, act, failed) {
  const once = async () => {
    try {
      await act();
    } catch {
      failed();
    }
    setTimeout(once, pause);
  };
  once();
}

async function poll() {
  const answer = await read("status");
  if (!answer) return;
  show(answer);
  seen = Date.now();
  if (began) return;
  began = true;
  every(FLEET_MS, pollFleet, () => {});
  every(HISTORY_MS, pollHistory, () => {});
}

function silent() {
  if (Date.now() - seen <= STALE_MS) return;
  notice("No answer from the program: what is shown is old.");
  at("level").textContent = "no answer";
  at("level").className = "pill bad";
}

async function pollFleet() {
  const answer = await read("fleet");
  others = answer && answer.fleet;
  fleet.show(others, latest && latest.instance_id);
}

async function pollHistory() {
  const last = samples.length ? samples[samples.length - 1].at : 0;
  const answer = await read(`history?since=${last}`);
  if (!answer || !latest) return;
  interval = answer.interval_ms;
  const fresh = answer.samples;
  // A process that began anew, or a clock that went back, has another past.
  if (last > latest.taken_at) samples = [];
  samples = [...samples, ...fresh].filter((sample) => sample.at > latest.taken_at - HOUR_MS);
  charts.show(samples, interval, latest.sessions, latest.taken_at);
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("key").value);
});
letters.start();
every(POLL_MS, poll, silent);
