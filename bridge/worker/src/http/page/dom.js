// Small helpers. Everything is written as text, never as markup: ids and faults may hold anything.

export const at = (id) => document.getElementById(id);
export const number = new Intl.NumberFormat();
export const count = (value) => (value === null || value === undefined ? "–" : number.format(value));
export const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);

export function make(tag, style, text) {
  const element = document.createElement(tag);
  if (style) element.className = style;
  if (text !== undefined) element.textContent = text;
  return element;
}

export const cell = (text, style) => make("td", style, text);

export function button(text, press) {
  const element = make("button", "", text);
  element.type = "button";
  element.addEventListener("click", press);
  return element;
}

export function holding(element, style) {
  const td = make("td", style);
  td.append(element);
  return td;
}

export function rows(body, list, empty) {
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

export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = ms / 1000;
  if (s < 120) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return `${(s / 3600).toFixed(1)} h`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  return value < 1048576 ? `${Math.round(value / 1024)} KiB` : `${(value / 1048576).toFixed(1)} MiB`;
}
