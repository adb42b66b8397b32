// Dead letters through the admin interface, which listens at another port of the same host. The key stays in this variable and nowhere else.

import { at, button, cell, count, holding, rows } from "./dom.js";

let key = "";
let base = "";
let planned = null;

export function offer(adminPort) {
  base = adminPort ? `${location.protocol}//${location.hostname}:${adminPort}/api/v1/admin` : "";
  at("no-admin").hidden = base !== "";
  at("admin-login").hidden = base === "" || key !== "";
}

function tell(text) {
  at("admin-notice").textContent = text;
  at("admin-notice").hidden = text === "";
}

function forget() {
  key = "";
  planned = null;
  at("letters").hidden = true;
  at("plan").hidden = true;
  at("admin-login").hidden = false;
  for (const id of ["categories", "list"]) at(id).replaceChildren();
}

async function ask(path, body) {
  const answer = await fetch(base + path, {
    method: body ? "POST" : "GET",
    headers: { "X-API-Key": key, ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(35000),
  });
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  if (answer.status === 401) forget();
  const wait = answer.headers.get("retry-after");
  throw new Error(`${told.error ? told.error.message : answer.status}${wait ? ` (again in ${wait} s)` : ""}`);
}

// Does it, and tells what went wrong instead of throwing.
async function carefully(act) {
  try {
    tell("");
    await act();
  } catch (error) {
    tell(error instanceof TypeError ? `The admin interface at ${base} cannot be reached from this browser.` : error.message);
  }
}

async function look() {
  const page = await ask("/dlq?state=dead&limit=50&count=true");
  at("admin-login").hidden = true;
  at("letters").hidden = false;
  const { by_category, complete } = page.dead;
  rows(at("categories"), Object.entries(by_category).map(([category, dead]) => [
    cell(category), cell(complete ? count(dead) : `${count(dead)} and more`, "n"),
    holding(button("Redrive…", () => carefully(() => plan({ category }, `category ${category}`)))),
  ]), "no dead letters");
  rows(at("list"), page.letters.map((letter) => [
    cell(letter.failed_at.replace("T", " ").replace(/\..*/, "")), cell(letter.route_id), cell(letter.category), cell(letter.error_code),
    cell(count(letter.redrive_count), "n"), cell(letter.topic, "long"), cell(letter.last_error, "wrap"),
    holding(button("Redrive…", () => carefully(() => plan({ ids: [letter.id] }, `letter ${letter.id}`)))),
  ]), "no dead letters");
}

const outcome = (told) => {
  const done = told.dry_run ? `${count(told.would_redrive)} would be put back, ${count(told.would_park)} set aside` : `${count(told.redriven)} put back, ${count(told.parked)} set aside`;
  const why = told.errors.slice(0, 3).map((error) => `\n${error.id}: ${error.message}`).join("");
  return `${count(told.matched)} meant: ${done}, ${count(told.skipped)} left, ${count(told.failed)} failed${told.complete ? "" : "; there may be more"}.${why}`;
};

// First what would be done; only then it can be done.
async function plan(filter, what) {
  const told = await ask("/dlq/redrive", { filter, dry_run: true });
  planned = { filter, what };
  at("plan").hidden = false;
  at("plan-text").textContent = `Dry run for ${what}. ${outcome(told)}`;
  at("redrive").hidden = told.would_redrive + told.would_park === 0;
  at("redrive").textContent = `Redrive ${count(told.would_redrive)}`;
}

async function redrive() {
  const { filter, what } = planned;
  at("redrive").hidden = true;
  const told = await ask("/dlq/redrive", { filter, dry_run: false });
  at("plan-text").textContent = `Redrive of ${what}. ${outcome(told)}`;
  await look();
}

export function start() {
  at("admin-login").addEventListener("submit", (event) => {
    event.preventDefault();
    key = at("admin-key").value;
    at("admin-key").value = "";
    carefully(look);
  });
  at("look").addEventListener("click", () => carefully(look));
  at("forget").addEventListener("click", forget);
  at("redrive").addEventListener("click", () => carefully(redrive));
  at("plan-close").addEventListener("click", () => {
    planned = null;
    at("plan").hidden = true;
  });
}
