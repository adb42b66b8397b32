// Charts of the last hour, drawn as SVG. Colours come from the style sheet, so that they fit light and dark.

import { at, count, make, span } from "./dom.js";

const HOUR = 3600 * 1000;
const SHORTEST = 5 * 60 * 1000;
const WIDTH = 720;
const HEIGHT = 120;
const GAP_MS = 30 * 1000;

function draw(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// A process that has just started is shown over minutes: over an hour nobody would see anything of it.
let shown = HOUR;
const x = (time, now) => ((time - (now - shown)) / shown) * WIDTH;

// A line over the hour for each series. Where samples are missing, the line is too.
function lines(svg, series, now, show) {
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  const top = Math.max(1, ...series.flatMap((one) => one.points.map(([, value]) => value ?? 0)));
  const made = [draw("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1, class: "axis" })];
  series.forEach((one, index) => {
    let path = "";
    let before = null;
    for (const [time, value] of one.points) {
      if (value === null || value === undefined) {
        before = null;
        continue;
      }
      const y = HEIGHT - 2 - (value / top) * (HEIGHT - 8);
      path += `${before !== null && time - before < GAP_MS ? "L" : "M"}${x(time, now).toFixed(1)} ${y.toFixed(1)}`;
      before = time;
    }
    if (path) made.push(draw("path", { d: path, class: `series series-${index % 6}` }));
  });
  svg.replaceChildren(...made);
  const legend = at(svg.id.replace("chart", "key"));
  legend.replaceChildren(...series.slice(0, 6).flatMap((one, index) => {
    const last = one.points.length ? one.points[one.points.length - 1][1] : null;
    return [make("span", `dot series-${index % 6}`), document.createTextNode(`${one.name} ${show(last)}  `)];
  }), document.createTextNode(`· top ${show(top)}`));
}

// The level of service of one session as a strip over the hour.
function strip(name, spans, now) {
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", role: "img", class: "strip", "aria-label": `Service level of ${name}` });
  for (const { from, to, level } of spans) {
    svg.append(draw("rect", { x: x(from, now).toFixed(1), y: 0, width: Math.max(0.8, x(to, now) - x(from, now)).toFixed(1), height: 10, class: `level-${level}` }));
  }
  const row = make("div", "strip-row");
  row.append(make("span", "", name), svg);
  return row;
}

function spansOf(samples, index, interval) {
  const spans = [];
  for (const sample of samples) {
    const session = sample.sessions[index];
    if (!session) continue;
    const level = session.owner ? session.level : "s";
    const last = spans[spans.length - 1];
    if (last && last.level === level && sample.at - last.to < GAP_MS) last.to = sample.at + interval;
    else spans.push({ from: sample.at, to: sample.at + interval, level });
  }
  return spans;
}

// How many a second, between two samples that follow each other in one life of the process.
function rate(samples, of) {
  return samples.slice(1).map((sample, index) => {
    const before = samples[index];
    const seconds = (sample.at - before.at) / 1000;
    const more = of(sample) - of(before);
    return [sample.at, more >= 0 && seconds < GAP_MS / 1000 ? more / seconds : null];
  });
}

const total = (list, key) => list.reduce((all, one) => all + one[key], 0);

export function show(samples, interval, sessions, now) {
  shown = Math.min(HOUR, Math.max(SHORTEST, samples.length ? now - samples[0].at : 0));
  at("service").replaceChildren(...sessions.map((session, index) => strip(session.id, spansOf(samples, index, interval), now)));
  const perSecond = (value) => (value === null ? "–" : count(Math.round(value)));
  lines(at("chart-rates"), [
    { name: "in", points: rate(samples, (s) => total(s.routes, "received")) },
    { name: "out", points: rate(samples, (s) => total(s.routes, "delivered")) },
  ], now, perSecond);
  lines(at("chart-depth"), [{ name: "messages", points: samples.map((s) => [s.at, total(s.sessions, "entries")]) }], now, count);
  lines(at("chart-age"), [{ name: "oldest", points: samples.map((s) => [s.at, Math.max(0, ...s.sessions.map((one) => one.oldest_ms))]) }], now, span);
  const leased = sessions.map((session, index) => [session, index]).filter(([session]) => session.lease);
  lines(at("chart-margin"), leased.map(([session, index]) => ({
    name: session.id,
    points: samples.map((s) => [s.at, s.sessions[index] ? s.sessions[index].margin_ms : null]),
  })), now, span);
}
