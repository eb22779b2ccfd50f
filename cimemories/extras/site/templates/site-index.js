"use strict";
// The page is whole without this script. With it a reader chooses a setting, and numbers that were computed beforehand
// are looked up and shown: nothing is calculated here but pixels. Texts go into text nodes and attributes, never into
// markup.
const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const published = { threshold: data.threshold, personas: 0, judge: 0 };
const SVG = "http://www.w3.org/2000/svg";
// Colour and dash of a run, as the app's lines have them (charts/theme.py), by classes of charts/svg.py.
const COLOURS = ["run", "sky", "pink", "amber", "completeness", "violation"], DASHES = ["", "dash", "dot", "dashdot"];

function element(name, attributes = {}, text = "", namespace = "") {
  const made = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

const percent = (tenths) => tenths === null ? "–" : `${(tenths / 10).toFixed(1)} %`;
const count = (number) => number.toLocaleString("en-US");
const look = (run) => { const index = Object.keys(data.names).indexOf(run); return [COLOURS[index % COLOURS.length],
                         DASHES[Math.floor(index / COLOURS.length) % DASHES.length]]; };

// The setting stands in the address, so that it can be sent to others.
function read() {
  const words = new URLSearchParams(location.hash.slice(1));
  const number = (name, most) => {
    const value = words.has(name) ? Number(words.get(name)) : NaN;
    return Number.isInteger(value) && value >= 0 && value < most ? value : published[name];
  };
  return { threshold: number("threshold", data.thresholds.length), personas: number("personas", data.personas.length),
           judge: number("judge", data.judges.length) };
}

let now = read();

function write() {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(now)) if (value !== published[name]) words.set(name, value);
  history.replaceState(null, "", `${location.pathname}${location.search}${words.size ? `#${words}` : ""}`);
}

function same() { return Object.entries(now).every(([name, value]) => value === published[name]); }

function settingText() {
  if (same()) return "As published";
  const at = `${data.thresholds[now.threshold]} of the votes, ${data.personas[now.personas]}`;
  return data.judges.length > 1 ? `${at}, ${data.judges[now.judge].name}` : at;
}

// ---- the leaderboard

const column = (name) => data.columns.indexOf(name);

function board() {
  const judged = data.judges[now.judge], first = data.judges[0], at = now.threshold;
  const rows = judged.numbers[now.personas];
  const place = (of, run, personas, threshold) => {
    const index = of.runs.indexOf(run);
    return index < 0 || of.runs.length < 2 ? null : of.numbers[personas][index][column("rank")][threshold];
  };
  const is = (run) => place(judged, run, now.personas, at), was = (run) => place(first, run, 0, published.threshold);
  // Without a place last; of equal places in the order of the published ones.
  const last = (value) => value === null ? 1e9 : value;
  const order = judged.runs.map((run, index) => ({ run, index }));
  order.sort((a, b) => last(is(a.run)) - last(is(b.run)) || last(was(a.run)) - last(was(b.run)));
  const number = (text) => element("td", { class: "number" }, text);
  by("board").tBodies[0].replaceChildren(...order.map(({ run, index }) => {
    const row = element("tr", { "data-run": run }), cell = (name) => rows[index][column(name)][at];
    row.append(number(is(run) ?? "–"), element("th", { scope: "row" }, data.names[run]));
    ["violation", "completeness", "balanced"].forEach((name, i) => {
      const made = number(percent(cell(name)));
      if (same() && data.intervals[run]) made.append(" ", element("span", { class: "quiet" }, data.intervals[run][i]));
      row.append(made);
    });
    row.append(...["attributes", "flows", "retained"].map((name) => number(count(cell(name)))), number(was(run) ?? "–"));
    return row;
  }));
  by("violation").textContent = `Violation@${judged.n}`;
  by("caption").textContent = settingText();
  const outside = Object.entries(judged.outside).map(([run, why]) => `${data.names[run]} (${why})`);
  by("outside").textContent = outside.length ? `Not ranked here: ${outside.join("; ")}.` : "";
  by("status").textContent = same() ? "" : `${settingText()}. ${data.texts[judged.changes[now.personas][at]]}.`;
  chart(judged, rows, order);
}

function chart(judged, rows, order) {
  by("order").hidden = false;
  by("order-title").textContent = judged.order[now.personas];
  by("order-subtitle").textContent =
    `Balanced score over the share of votes that a label needs; votes of ${data.personas[now.personas]}; the line upright is at ${data.thresholds[now.threshold]}`;
  const lines = order.map(({ run, index }) => ({ run, values: rows[index][column("balanced")] }));
  const known = lines.flatMap(({ values }) => values.filter((value) => value !== null));
  const low = Math.max(0, Math.floor((Math.min(...known, 1000) - 10) / 50) * 50);
  const high = Math.min(1000, Math.ceil((Math.max(...known, 0) + 10) / 50) * 50) || 1000;
  const width = Math.max(280, Math.min(980, by("plot").clientWidth)), height = 280;
  const left = 52, right = width - 12, top = 12, bottom = height - 40, most = data.thresholds.length - 1;
  const x = (at) => left + (most ? at / most : 0.5) * (right - left);
  const y = (value) => bottom - (value - low) / Math.max(high - low, 1) * (bottom - top);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "figure", role: "img",
                               "aria-labelledby": "order-title order-subtitle" }, "", SVG);
  const draw = (name, attributes, text = "") => svg.append(element(name, attributes, text, SVG));
  const step = (high - low) > 400 ? 100 : 50;
  for (let value = low; value <= high; value += step) {
    draw("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "s-rule" });
    draw("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end", class: "quiet" }, `${value / 10} %`);
  }
  const ticks = width < 500 ? 3 : 6;
  for (let i = 0; i < ticks; i += 1) {
    const at = Math.round(i * most / (ticks - 1));
    draw("text", { x: x(at), y: bottom + 18, "text-anchor": i ? (i === ticks - 1 ? "end" : "middle") : "start", class: "quiet" }, data.thresholds[at]);
  }
  draw("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, "votes that a label needs");
  draw("line", { x1: x(now.threshold), x2: x(now.threshold), y1: top, y2: bottom, class: "s-grey dash", "stroke-width": 1.5 });
  for (const { run, values } of lines) {
    const [colour, dash] = look(run);
    // A run without the number somewhere has a gap there.
    let piece = [];
    const end = () => { if (piece.length) draw("polyline", { points: piece.join(" "), class: `line s-${colour} ${dash}`, "stroke-width": 2.5 }); piece = []; };
    values.forEach((value, at) => value === null ? end() : piece.push(`${x(at).toFixed(1)},${y(value).toFixed(1)}`));
    end();
    const value = values[now.threshold];
    if (value !== null) draw("circle", { cx: x(now.threshold), cy: y(value), r: 4.5, class: `f-${colour}` });
  }
  by("plot").replaceChildren(svg);
  by("legend").replaceChildren(...lines.map(({ run, values }) => {
    const item = element("li"), [colour, dash] = look(run);
    const mark = element("svg", { width: 28, height: 12, class: "figure", "aria-hidden": "true" }, "", SVG);
    mark.append(element("line", { x1: 0, x2: 28, y1: 6, y2: 6, class: `line s-${colour} ${dash}`, "stroke-width": 3 }, "", SVG));
    item.append(mark, `${data.names[run]} ${percent(values[now.threshold])}`);
    return item;
  }));
  if (by("twin").open) twin(lines);
  by("twin").ontoggle = () => { if (by("twin").open) twin(lines); };
}

function twin(lines) {
  const head = element("thead"), first = element("tr"), body = element("tbody");
  first.append(element("th", { scope: "col" }, "Votes needed"),
               ...lines.map(({ run }) => element("th", { scope: "col", class: "number" }, data.names[run])));
  head.append(first);
  data.thresholds.forEach((text, at) => {
    const row = element("tr");
    row.append(element("th", { scope: "row" }, text),
               ...lines.map(({ values }) => element("td", { class: "number" }, percent(values[at]))));
    body.append(row);
  });
  by("twin-table").replaceChildren(element("caption", {}, "Balanced score by the share of votes that a label needs"), head, body);
}

// ---- start

function show() {
  by("threshold").value = now.threshold;
  by("threshold").setAttribute("aria-valuetext", data.thresholds[now.threshold]);
  by("threshold-text").textContent = data.thresholds[now.threshold];
  by("personas").value = now.personas;
  by("judge").value = now.judge;
  by("reset").disabled = same();
  board();
}

function change(values) {
  now = { ...now, ...values };
  write();
  show();
}

by("controls").hidden = false;
by("controls").addEventListener("submit", (event) => event.preventDefault());
by("threshold").addEventListener("input", (event) => change({ threshold: Number(event.target.value) }));
by("personas").addEventListener("change", (event) => change({ personas: Number(event.target.value) }));
by("judge").addEventListener("change", (event) => change({ judge: Number(event.target.value) }));
by("reset").addEventListener("click", () => { by("threshold").focus(); change(published); });
addEventListener("hashchange", () => { now = read(); show(); });
let width = innerWidth;  // a phone's bars come and go, which changes the height alone
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; show(); } });
show();
