// The live page of a pipeline: reads lines of JSON from `stream` and shows them.
// The first line of a connection is the whole document, each later one a merge patch (RFC 7396).
"use strict";

const byId = (id) => document.getElementById(id);
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const headers = token ? { Authorization: `Bearer ${token}` } : {};
const SVG = "http://www.w3.org/2000/svg";
const KEPT = 900;

let fixed = null;
let now = {};
let samples = [];
let boxes = new Map();
let arrows = null;
// When the last line came; a line comes each second.
let heard = null;
const SILENT = 5000;

// Elements. Text is only ever set as text.

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

// A name may be broken after each underscore.
function broken(node, name) {
  for (const word of name.split(/(?<=_)(?=[^_])/)) node.append(word, document.createElement("wbr"));
  return node;
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function rows(table, cells) {
  const body = byId(table).tBodies[0];
  while (body.rows.length > cells.length) body.deleteRow(-1);
  cells.forEach((row, at) => {
    const line = body.rows[at] ?? body.insertRow();
    row.forEach((cell, column) => {
      const place = line.cells[column] ?? line.insertCell();
      if (cell instanceof Node) place.replaceChildren(cell);
      else put(place, cell);
    });
  });
}

// Numbers.

const count = (n) => (n ?? 0).toLocaleString("en");

function rate(n) {
  return n >= 99.5 || n === 0 ? Math.round(n).toLocaleString("en") : n.toPrecision(2);
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0";
  if (seconds < 1e-3) return `${Number((seconds * 1e6).toPrecision(3))} µs`;
  if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

function patched(old, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const made = old !== null && typeof old === "object" && !Array.isArray(old) ? { ...old } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete made[name];
    else made[name] = patched(made[name], value);
  }
  return made;
}

// A sample is a list, in the order in which the recorder writes it.
const sample = ([at, arrived, finished, dropped, failed, waiting, inFlight, calls, sent, sentTo, latency, heat]) => ({
  at, arrived, finished, dropped, failed, waiting, inFlight, calls, sent, sentTo, latency, heat,
});

// The pipeline.

function build() {
  boxes = new Map();
  const list = byId("stages");
  list.replaceChildren();
  const sinks = element("li", "sinks");
  sinks.style.gridRow = fixed.tracks.length + 1;
  byId("main").classList.toggle("wide", fixed.lanes > 1);
  list.classList.toggle("lanes", fixed.lanes > 1);
  list.style.setProperty("--lanes", fixed.lanes);
  list.style.setProperty("--gap", `${GAP + TRACK * Math.max(...fixed.tracks)}px`);
  for (const stage of fixed.stages) {
    const box = element(stage.kind === "sink" ? "div" : "li", "stage");
    box.dataset.kind = stage.kind;
    const fill = box.appendChild(element("i", "fill"));
    const head = element("div", "head");
    const level = element("span", "level");
    head.append(element("span", "number", stage.stage), broken(element("span", "name"), stage.name), level);
    box.append(head);
    if (stage.detail) box.append(element("div", "detail", stage.detail));
    const parts = { stage, box, level, fill };
    const line = box.appendChild(element("div", "numbers"));
    parts.left = line.appendChild(element("span"));
    parts.right = line.appendChild(element("span"));
    parts.why = box.appendChild(element("div", "why"));
    if (stage.reads) box.append(element("div", "detail reads", stage.reads));
    parts.inputs = box.appendChild(element("div", "facts"));
    for (const route of stage.routes) box.append(element("div", "facts", `failed events go to ${route}`));
    if (stage.kind === "sink") {
      sinks.append(box);
    } else {
      box.style.gridRow = stage.row + 1;
      box.style.gridColumn = stage.lane + 1;
      list.append(box);
      const arrow = element("li", "arrow");
      parts.rate = arrow.appendChild(element("b"));
      parts.to = arrow.appendChild(element("span"));
      parts.arrow = arrow;
      list.append(arrow);
    }
    boxes.set(stage.stage, parts);
  }
  list.append(sinks);
  arrows = shape("svg", { class: "arrows", "aria-hidden": "true" });
  list.append(arrows);
}

// The arrows between the boxes of several streams, each of which has a lane.

const GAP = 38;
const TRACK = 12;
// Below a row, to the first track.
const LEAD = 24;

function sentOver(above, below) {
  const last = samples[samples.length - 1];
  // A stage that hands its events over inside a group is counted where they leave the group.
  return last?.sentTo[above]?.[below] ?? last?.sent[above] ?? last?.sent[above + 1];
}

function drawArrows() {
  const list = byId("stages");
  if (fixed.lanes < 2 || getComputedStyle(list).display !== "grid") return;
  arrows.replaceChildren();
  arrows.style.width = arrows.style.height = "0";
  arrows.style.width = `${list.scrollWidth}px`;
  arrows.style.height = `${list.scrollHeight}px`;
  const frame = list.getBoundingClientRect();
  const placed = (node) => {
    const { left, top, width, bottom } = node.getBoundingClientRect();
    return { x: left - frame.left + list.scrollLeft + width / 2, width, top: top - frame.top, bottom: bottom - frame.top };
  };
  const places = new Map();
  const lows = fixed.tracks.map(() => 0);
  const middles = [];
  for (const [number, { box, stage }] of boxes) {
    if (stage.kind === "sink") continue;
    const place = placed(box);
    places.set(number, place);
    lows[stage.row] = Math.max(lows[stage.row], place.bottom);
    middles[stage.lane] = place.x;
  }
  const { width } = places.get(1);
  // Lanes in which no stage stands.
  for (let lane = 0; lane < fixed.lanes; lane += 1) middles[lane] ??= middles[0] + lane * (width + 28);
  const line = (points, events, text) => {
    const [x, y] = points[points.length - 1];
    arrows.append(shape("path", { class: events ? "" : "still", d: `M${points.map((one) => one.join(" ")).join("L")}` }));
    arrows.append(shape("path", { class: "head", d: `M${x - 5} ${y - 8}H${x + 5}L${x} ${y}Z` }));
    if (events === undefined) return;
    const said = arrows.appendChild(shape("text", { x: text[0] + 9, y: text[1] }));
    said.textContent = `${rate(perSecond(events))}/s`;
  };
  for (const [above, below, lane, leaves, comes, bends] of fixed.arrows) {
    const [from, to] = [places.get(above), places.get(below)];
    const x = from.x + (width * leaves) / 100;
    const toX = to.x + (width * comes) / 100;
    const ways = bends.length === 2 ? [[x, middles[lane]], [middles[lane], toX]] : [[x, toX]];
    const points = [[x, from.bottom]];
    bends.forEach(([row, track], at) => {
      const y = lows[row] + LEAD + TRACK * track;
      points.push([ways[at][0], y], [ways[at][1], y]);
    });
    points.push([toX, to.top]);
    let text = [x, from.bottom + 17];
    if (leaves) text = bends.length === 1 ? [toX, to.top - 10] : [points[2][0], points[2][1] + 17];
    line(points, sentOver(above, below), text);
  }
  const end = fixed.stages.filter((stage) => stage.kind !== "sink").pop();
  const last = places.get(end.stage);
  line([[last.x, last.bottom], [last.x, placed(list.querySelector(".sinks")).top]], sentOver(end.stage), [last.x, last.bottom + 17]);
}

// As many calls as the limit allows are normal work; only what waits can be too much.
function levelOf(share, isLimit) {
  if (isLimit) return share >= 0.9 ? "at its limit" : "calm";
  return share >= 0.9 ? "full" : share >= 0.5 ? "busy" : "calm";
}

const REASONS = { probing: "tries a few calls more or fewer, and keeps what does better" };

function reasonOf(reason) {
  const meant = Object.keys(REASONS).find((word) => reason.startsWith(word));
  return meant ? `${reason} (${REASONS[meant]})` : reason;
}

function showStages() {
  const last = samples[samples.length - 1];
  for (const [number, parts] of boxes) {
    const numbers = now.stages?.[number] ?? {};
    let used;
    let bound;
    let text = "";
    let isLimit = numbers.limit !== undefined;
    if (isLimit) {
      used = numbers.in_flight;
      bound = numbers.limit;
      text = `${count(used)} of ${count(bound)} calls`;
    } else {
      used = numbers.waiting ?? numbers.read_ahead;
      bound = numbers.bound ?? parts.stage.holds;
      if (used !== undefined && bound) text = `${count(used)} of ${count(bound)} wait`;
      else if (numbers.keys !== undefined) text = `${count(numbers.keys)} keys`;
    }
    const { undelivered } = numbers;
    const { holds } = parts.stage;
    if (undelivered && holds && undelivered / holds > (bound && used !== undefined ? used / bound : 0)) {
      // The stage below holds it up, however few its own calls are.
      used = undelivered;
      bound = holds;
      isLimit = false;
    }
    const share = bound && used !== undefined ? Math.min(1, used / bound) : null;
    if (share !== null) {
      const level = levelOf(share, isLimit);
      parts.box.dataset.level = level;
      parts.box.title = `${level}: ${count(used)} of ${count(bound)}`;
      put(parts.level, `${level} · ${Math.round(100 * share)} %`);
      parts.fill.style.width = `${(100 * share).toFixed(1)}%`;
    }
    put(parts.left, text);
    put(parts.right, factsOf(parts.stage, numbers));
    put(parts.inputs, (numbers.inputs ?? []).map(inputText).filter(Boolean).join(" · "));
    if (numbers.limit !== undefined) {
      put(parts.why, numbers.limit_reason ? `limit ${count(numbers.limit)}: ${reasonOf(numbers.limit_reason)}` : "");
      spark(parts, number);
    }
    if (parts.rate) {
      const each = sentOver(number);
      const { readers } = parts.stage;
      parts.arrow.classList.toggle("unknown", each === undefined);
      const shared = readers.length > 1 && last?.sentTo[number];
      const rates = shared ? readers.map((one) => `${rate(perSecond(shared[one] ?? 0))}/s to ${one}`) : [];
      put(parts.rate, each === undefined ? "" : shared ? rates.join(", ") : `${rate(perSecond(each))}/s`);
      put(parts.to, readers.length && !shared ? `to ${readers.join(" and ")}` : "");
      parts.arrow.classList.toggle("still", !each);
    }
  }
}

// Of a stage of another stream that a stage reads, which was not known before.
function inputText(numbers) {
  const shown = numbers.in === undefined ? [] : [factsOf({ kind: "source" }, numbers)];
  if (numbers.limit !== undefined) shown.push(`${count(numbers.in_flight)} of ${count(numbers.limit)} calls`);
  shown.push(...heldFacts(numbers));
  return shown.length ? `${numbers.name} ${shown.join(", ")}` : "";
}

// What is in a stage besides what its fill shows.
function heldFacts(numbers) {
  const facts = [];
  if (numbers.parallel !== undefined) facts.push(`${count(numbers.calls)} of ${count(numbers.parallel)} calls`);
  if (numbers.limit === undefined && numbers.in_flight) facts.push(`${count(numbers.in_flight)} in flight`);
  if (numbers.limit !== undefined && numbers.waiting) facts.push(numbers.waiting === 1 ? "1 waits" : `${count(numbers.waiting)} wait`);
  if (numbers.on_disk) facts.push(`${count(numbers.on_disk)} on disk`);
  const { undelivered } = numbers;
  if (undelivered) facts.push(undelivered === 1 ? "1 result waits for the next stage" : `${count(undelivered)} results wait for the next stage`);
  return facts;
}

// Of a stage with states, whose commits are those of its store.
function stateFacts(numbers) {
  if (numbers.commits === undefined) return [];
  const facts = [numbers.keys === 1 ? "1 key" : `${count(numbers.keys)} keys`, `${count(numbers.held)} held`];
  if (numbers.commits === 1) facts.push(`1 commit of ${duration(numbers.commit_p50)}`);
  if (numbers.commits > 1) facts.push(`${count(numbers.commits)} commits of ${duration(numbers.commit_p50)}, p99 ${duration(numbers.commit_p99)}`);
  const { grown } = numbers;
  if (grown?.keys) facts.push(`${grown.keys === 1 ? "1 key" : `${count(grown.keys)} keys`} more than at the start, some ${bytes(grown.bytes)}`);
  const awaited = numbers.waits_for;
  if (awaited) facts.push(`commits wait for an event${awaited.key === undefined ? "" : ` of ${awaited.key}`}, ${duration(awaited.age)} old`);
  return facts;
}

function behindTheClock(seconds) {
  return seconds < 0 ? `${duration(-seconds)} ahead of the clock` : `${duration(seconds)} behind the clock`;
}

// Of a stage that gives events their times, and of one with windows or rows.
function timeFacts(numbers) {
  const facts = [];
  const all = numbers.watermarks ?? [];
  // An idle one holds nothing back, unless all are.
  const active = all.filter((one) => !one.idle);
  const known = (active.length ? active : all).filter((one) => one.watermark !== null);
  const [last] = known.sort((a, b) => b.lag - a.lag);
  if (last) facts.push(`watermark${last.partition ? ` of ${last.partition}` : ""} ${behindTheClock(last.lag)}`);
  const idle = all.length - active.length;
  if (idle) facts.push(all.length === 1 ? "idle" : `${count(idle)} of ${count(all.length)} partitions idle`);
  const open = numbers.open_windows;
  if (open !== undefined) facts.push(open === 1 ? "1 open window" : `${count(open)} open windows`);
  const { rows, events, unpaired, missing } = numbers;
  if (rows !== undefined) facts.push(rows === 1 ? "1 row" : `${count(rows)} rows`);
  if (events) facts.push(events === 1 ? "1 event waits for a row" : `${count(events)} events wait for rows`);
  if (unpaired) facts.push(`${count(unpaired)} without a partner`);
  if (missing) facts.push(`${count(missing)} without a row`);
  const late = (numbers.late ?? 0) + all.reduce((sum, one) => sum + one.late, 0);
  if (late) facts.push(`${count(late)} late`);
  return facts;
}

// Of a partition whose states come from elsewhere, before its first event.
function restoringFact({ partition, done, total, per_second: rate, left }) {
  const speed = rate ? `, ${count(Math.round(rate))}/s` : "";
  const rest = left === null ? "" : `, ${duration(left)} left`;
  return `restores partition ${partition}: ${count(done)} of ${count(total)} records${speed}${rest}`;
}

// Of the rows that nobody holds; only the lowest priorities are counted by themselves.
function prioritiesFact({ priorities, unread, delayed }) {
  if (!priorities?.length) return "";
  const others = priorities.reduce((rest, [, rows]) => rest - rows, unread + delayed);
  const parts = priorities.map(([priority, rows]) => `${count(rows)} of ${priority}`);
  if (others > 0) parts.push(`${count(others)} of others`);
  return `priorities: ${parts.join(", ")}`;
}

function jobFact({ name, next, missed }) {
  const left = next - Date.now() / 1000;
  return `${name} ${left > 0 ? `in ${duration(left)}` : "is due"}${missed ? `, ${count(missed)} missed` : ""}`;
}

function factsOf(stage, numbers) {
  const facts = [];
  if (stage.kind === "source") {
    facts.push(`${count(numbers.in)} read`);
    if (numbers.bytes_total) facts.push(`${bytes(Math.max(0, numbers.bytes_total - numbers.bytes_read))} left`);
    for (const one of numbers.restoring ?? []) facts.push(restoringFact(one));
    if (numbers.standby_lag) facts.push(`${count(numbers.standby_lag)} records of standby copies behind`);
    if (numbers.unread !== undefined) facts.push(`${count(numbers.unread)} pending`);
    if (numbers.delayed) facts.push(`${count(numbers.delayed)} not due yet`);
    facts.push(prioritiesFact(numbers));
    if (numbers.held) facts.push(`${count(numbers.held)} held`);
    if (numbers.buffered) facts.push(`${count(numbers.buffered)} buffered`);
    if (numbers.paused) facts.push("paused");
    if (numbers.snoozed) facts.push(`${count(numbers.snoozed)} snoozed`);
    for (const job of numbers.periodic ?? []) facts.push(jobFact(job));
    if (numbers.cancelled) facts.push(`${count(numbers.cancelled)} cancelled`);
    if (numbers.dead) facts.push(`${count(numbers.dead)} dead`);
    if (numbers.redelivered) facts.push(`${count(numbers.redelivered)} again`);
    if (numbers.reconnects) facts.push(`${count(numbers.reconnects)} reconnects`);
  }
  facts.push(...heldFacts(numbers), ...stateFacts(numbers), ...timeFacts(numbers));
  if (numbers.groups) facts.push(numbers.groups === 1 ? "1 key" : `${count(numbers.groups)} keys`);
  if (numbers.skipped) facts.push(`${count(numbers.skipped)} skipped`);
  if (numbers.routed) facts.push(numbers.routed === 1 ? "1 dead letter" : `${count(numbers.routed)} dead letters`);
  if (numbers.reverted) facts.push(`${count(numbers.reverted)} reverted`);
  if (numbers.retries) facts.push(numbers.retries === 1 ? "1 retry" : `${count(numbers.retries)} retries`);
  if (numbers.retrying) facts.push(`${count(numbers.retrying)} to be tried again`);
  if (numbers.stuck) facts.push(`${count(numbers.stuck)} stuck`);
  return facts.filter(Boolean).join(" · ");
}

function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (n >= 999.5 && at < units.length - 1) {
    n /= 1000;
    at += 1;
  }
  return `${at ? n.toPrecision(3) : n} ${units[at]}`;
}

// At the speed so far.
function timeLeft() {
  const { progress, seconds } = now;
  return progress && progress < 1 ? duration((seconds * (1 - progress)) / progress) : null;
}

// In the seconds from the sample before, or from the start; a busy loop may stretch them.
function perSecond(events) {
  const [last, before] = samples.slice(-2).reverse();
  const seconds = (last?.at ?? 1) - (before?.at ?? 0);
  return seconds > 0 ? events / seconds : 0;
}

// The seconds that a chart over time spans at least.
const LEAST = 10;

function spark(parts, number) {
  const points = samples.filter((one) => one.calls[number]).slice(-300);
  if (!parts.spark) {
    parts.spark = shape("svg", { class: "spark", viewBox: "0 0 300 34", preserveAspectRatio: "none", role: "img" });
    parts.spark.append(shape("path", { class: "used" }), shape("path", { class: "limit" }));
    parts.box.insertBefore(parts.spark, parts.why);
    parts.scale = element("p", "axis");
    parts.scale.append(element("span"), element("span"));
    parts.box.insertBefore(parts.scale, parts.why);
  }
  const top = Math.max(1, ...points.map((one) => Math.max(one.calls[number][0], one.calls[number][1])));
  const step = 300 / Math.max(LEAST, points.length);
  const x = (at) => (300 - (points.length - 1 - at) * step).toFixed(1);
  const y = (value) => (32 - (30 * value) / top).toFixed(1);
  const used = points.map((one, at) => `L${x(at)} ${y(one.calls[number][0])}`).join("");
  const limit = points.map((one, at) => `${at ? "L" : "M"}${x(at)} ${y(one.calls[number][1])}`).join("");
  parts.spark.setAttribute("aria-label", `The limit in the last ${duration(points.length)}, at most ${top}`);
  put(parts.scale.children[0], `${duration(Math.max(LEAST, points.length))} ago, top: ${count(top)}`);
  put(parts.scale.children[1], "now");
  parts.spark.children[0].setAttribute("d", points.length ? `M${x(0)} 32${used}L300 32Z` : "");
  parts.spark.children[1].setAttribute("d", limit);
}

// The panels.

function showTotals() {
  const last = samples[samples.length - 1];
  const shown = [
    ["finished", last ? `${rate(perSecond(last.finished))}/s` : "–"],
    ["in all", count(now.finished)],
    ["waiting", count(now.waiting)],
    ["in flight", now.limit === null || now.limit === undefined ? count(now.in_flight) : `${count(now.in_flight)} / ${count(now.limit)}`],
    ["running for", duration(now.seconds)],
    ["done", now.progress === null || now.progress === undefined ? null
      : `${Math.floor(100 * now.progress)} %${timeLeft() ? `, ${timeLeft()} left` : ""}`],
  ];
  const list = byId("totals");
  if (!list.children.length) {
    for (const [name] of shown) {
      const pair = element("div");
      pair.append(element("dt", "", name), element("dd"));
      list.append(pair);
    }
  }
  shown.forEach(([, text], at) => {
    list.children[at].hidden = text === null;
    put(list.children[at].lastChild, text ?? "");
  });
}

function showThroughput() {
  // Before the first sample is the start, unless older ones are forgotten.
  const first = samples.length < KEPT ? 0 : 1;
  const speeds = samples.slice(first).map((one, at) => {
    const seconds = Math.max(1e-3, one.at - (samples[at + first - 1]?.at ?? 0));
    return [one.arrived / seconds, one.finished / seconds];
  });
  // Each is the speed from the one before on.
  if (speeds.length) speeds.unshift(speeds[0]);
  const span = Math.max(LEAST, speeds.length - 1);
  const top = Math.max(1, ...speeds.flat());
  const step = 600 / span;
  const x = (at) => (600 - (speeds.length - 1 - at) * step).toFixed(1);
  const y = (value) => (126 - (120 * value) / top).toFixed(1);
  const curve = (which) => speeds.map((pair, at) => `${at ? "L" : "M"}${x(at)} ${y(pair[which])}`).join("");
  const picture = byId("throughput");
  if (!picture.children.length) {
    for (const line of [6, 66, 126]) picture.append(shape("path", { class: "grid", d: `M0 ${line}H600` }));
    picture.append(shape("path", { class: "area" }), shape("path", { class: "curve arrived" }), shape("path", { class: "curve finished" }));
  }
  const [, , , area, arrived, finished] = picture.children;
  area.setAttribute("d", speeds.length ? `M${x(0)} 126${curve(1).replace(/^M/, "L")}L600 126Z` : "");
  arrived.setAttribute("d", curve(0));
  finished.setAttribute("d", curve(1));
  byId("throughput-scale").replaceChildren(...[top, top / 2, 0].map((n) => element("span", "", `${rate(n)}/s`)));
  put(byId("throughput-from"), `${duration(span)} ago`);
  put(byId("throughput-top"), speeds.length ? `highest ${rate(top)}/s` : "");
  put(byId("span"), `the last ${duration(span)}`);
}

// Of the whole latencies of the last minute: the upper ends of the rows of the picture.
function lastMinute() {
  const counts = new Map();
  const since = (samples[samples.length - 1]?.at ?? 0) - 60;
  for (const one of samples) {
    if (one.at <= since) continue;
    for (const [row, n] of Object.entries(one.heat)) counts.set(Number(row), (counts.get(Number(row)) ?? 0) + n);
  }
  const found = [...counts].sort((a, b) => a[0] - b[0]);
  const all = found.reduce((sum, [, n]) => sum + n, 0);
  const at = (share) => {
    let left = share * all;
    for (const [row, n] of found) {
      left -= n;
      if (left <= 1e-9) return fixed.latencies[row + 1] === undefined ? `> ${duration(fixed.latencies[row])}` : `≤ ${duration(fixed.latencies[row + 1])}`;
    }
    return "–";
  };
  return all ? [["total, last minute", ...[0.5, 0.99, 0.999, 1].map(at)]] : [];
}

function partsOf(parts, where = "") {
  return ["waiting", "service", "total"].filter((part) => parts[part]).map((part) => [
    where + part, ...["median", "p99", "p999", "max"].map((name) => duration(parts[part].count ? parts[part][name] : null)),
  ]);
}

function showLatency() {
  const parts = now.latency ?? {};
  const since = partsOf(parts);
  const ofStages = Object.values(now.stages ?? {}).filter((one) => one.latency).flatMap((one) => partsOf(one.latency, `stage ${one.of_stage}: `));
  rows("latency", [...since, ...(since.length ? lastMinute() : []), ...ofStages]);
  put(byId("latency-since"), parts.total ? `Of ${count(parts.total.count)} events since the start, ${duration(now.seconds)} ago; the last minute in the steps of the picture` : "");
}

function showHeat() {
  const canvas = byId("heat");
  const used = samples.flatMap((one) => Object.keys(one.heat).map(Number));
  const lowest = used.length ? Math.max(0, Math.min(...used) - 1) : 6;
  const highest = used.length ? Math.min(fixed.latencies.length - 1, Math.max(...used) + 1) : 15;
  const columns = Math.max(LEAST, Math.min(samples.length, 300));
  // Several seconds a column, where there are more than fit.
  const each = Math.max(1, Math.ceil(samples.length / columns));
  const width = Math.ceil(Math.max(samples.length, LEAST) / each);
  const height = highest - lowest + 1;
  canvas.width = width;
  canvas.height = height;
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--heat").split(",").map(Number);
  const image = canvas.getContext("2d").createImageData(width, height);
  const cells = new Map();
  samples.forEach((one, at) => {
    const column = width - 1 - Math.floor((samples.length - 1 - at) / each);
    for (const [row, n] of Object.entries(one.heat)) {
      const place = (height - 1 - (row - lowest)) * width + column;
      cells.set(place, (cells.get(place) ?? 0) + n);
    }
  });
  const most = Math.log1p(Math.max(1, ...cells.values()));
  for (const [place, n] of cells) {
    image.data.set([...ink, Math.round(30 + (225 * Math.log1p(n)) / most)], 4 * place);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  const scale = [highest, Math.round((highest + lowest) / 2), lowest].map((row) => duration(fixed.latencies[row]));
  byId("heat-scale").replaceChildren(...scale.map((text) => element("span", "", text)));
  put(byId("heat-from"), `${duration(Math.max(LEAST, samples.length))} ago`);
  const last = samples[samples.length - 1]?.latency;
  canvas.setAttribute("aria-label", last ? `Latency; in the last second the median was ${duration(last[0])}` : "Latency of the last minutes");
}

// Rounded down: what is missed by a little must not look as if it were kept.
const part = (good, all) => (all ? `${Math.floor((100000 * good) / all) / 1000} %` : "–");

function showObjectives() {
  const found = Object.values(now.stages ?? {}).filter((stage) => stage.objective !== undefined);
  byId("objectives-panel").hidden = !found.length;
  rows("objectives", found.map((one) => {
    // What is null has gone from the document.
    const verdict = { true: "kept", false: "missed" }[one.kept] ?? "no events";
    const state = element("span", one.kept === false || one.burning ? "bad" : "", one.burning ? `${verdict}, burns ${one.burning}` : verdict);
    const all = one.good + one.bad, of = all === 1 ? one.of.slice(0, -1) : one.of;
    return [`${one.stage} ${one.objective}`, state, `${part(one.good, all)} of ${count(all)} ${of}`,
      `${+(100 * one.share).toFixed(6)} %`,
      ...["5m", "30m", "1h", "6h"].map((name) => {
        const { burn_rate: burnt, kept } = one.windows[name];
        return burnt === undefined || burnt === null ? "–" : element("span", kept ? "" : "bad", burnt.toFixed(burnt < 10 ? 2 : 0));
      })];
  }));
}

function showSlow() {
  const found = Object.values(now.stages ?? {}).filter((stage) => stage.by_key);
  byId("slow-panel").hidden = !found.length;
  byId("slow-hidden").hidden = fixed.values;
  rows("slow", found.flatMap((stage) => {
    const where = stage.of_stage ? `stage ${stage.of_stage}: ` : "";
    const line = (name, one) => {
      const key = element("span", "key-name", where + name);
      key.title = name;
      return [key, count(one.count), duration(one.waiting.p99), duration(one.service.p99), ...["median", "p99", "max"].map((at) => duration(one.total[at]))];
    };
    const keys = stage.by_key.map((one, at) => line(one.key ?? `key ${at + 1}`, one));
    return stage.other_keys.count ? [...keys, line("all other keys", stage.other_keys)] : keys;
  }));
}

function showKeys() {
  const found = Object.values(now.stages ?? {}).filter((stage) => stage.hottest_keys);
  byId("keys-panel").hidden = !found.length;
  byId("keys-hidden").hidden = fixed.values;
  byId("keys-none").hidden = found.some((stage) => stage.hottest_keys.length);
  rows("keys", found.flatMap((stage) => stage.hottest_keys.map((key, at) => {
    const all = stage.waiting + (stage.on_disk ?? 0);
    const share = all ? key.waiting / all : 0;
    const cell = element("span");
    const bar = element("span", "share");
    bar.appendChild(element("i")).style.width = `${(100 * Math.min(1, share)).toFixed(0)}%`;
    cell.append(bar, element("span", "percent", `${(100 * share).toFixed(0)} %`));
    const name = element("span", "key-name", key.key ?? `key ${at + 1}`);
    name.title = name.textContent;
    return [name, count(key.waiting), cell, duration(key.age)];
  })));
}

function showAccount() {
  const of = (n) => (now.in ? `${((100 * n) / now.in).toFixed(n && n / now.in < 0.01 ? 2 : 0)} %` : "");
  const line = (name, n) => [name, count(n), of(n)];
  const shown = [line("in", now.in), line("finished", now.finished)];
  for (const [cause, n] of Object.entries(now.dropped ?? {})) shown.push(line(`dropped: ${cause}`, n));
  if (now.failed) shown.push(line("failed", now.failed));
  if (now.returned) shown.push(line("returned", now.returned));
  shown.push(line("waiting", now.waiting), line("in flight", now.in_flight));
  if (now.bad_lines) shown.push(["bad lines (not in)", count(now.bad_lines), ""]);
  rows("account", shown);
}

function showErrors() {
  const kinds = Object.entries(now.errors ?? {}).sort((a, b) => b[1] - a[1]);
  const line = (kind, events, one) => [kind, events, one ? one.text || one.where : ""];
  const shown = kinds.map(([kind, n]) => line(kind, count(n), now.examples?.[kind]));
  // They end as the event that they repeat, whose error is counted once.
  const repeated = Object.values(now.stages ?? {}).reduce((sum, one) => sum + (one.skipped_duplicates ?? 0), 0);
  if (repeated) shown.push(line("duplicates of failed events", count(repeated)));
  if (now.ended_by) shown.unshift(line(now.ended_by.error, "ended the run", now.ended_by));
  byId("errors-panel").hidden = !shown.length;
  rows("errors", shown);
}

function showLetters() {
  const routed = Object.values(now.stages ?? {}).filter((stage) => stage.routed);
  const last = now.letter;
  byId("letters-panel").hidden = !routed.length && !last && !now.fleet?.letters;
  const lines = routed.map((stage) => [
    `${stage.stage} ${stage.name}`, count(stage.routed), fixed.stages.find((one) => one.stage === stage.stage).routes.join(", "),
  ]);
  if (now.fleet?.letters !== undefined) lines.push(["all workers", count(now.fleet.letters), "kept by the servers"]);
  rows("letters", lines);
  byId("letter").hidden = !last;
  if (!last) return;
  put(byId("letter-name"), `The last${now.fleet ? " of this worker" : ""}, ${duration(Math.max(0, now.seconds - last.at))} before this: ${last.error}, in ${last.stage}, ${last.attempts === 1 ? "at the first attempt" : `after ${count(last.attempts)} attempts`}`);
  put(byId("letter-text"), fixed.values ? `${last.text}\n\n${last.value}` : "Its value is shown with --show-values, in a program show_values=True");
}

function showWorkers() {
  const stage = Object.values(now.stages ?? {}).find((one) => one.by_worker && one.limit !== undefined);
  byId("workers-panel").hidden = !stage;
  rows("workers", Object.entries(stage?.by_worker ?? {}).map(([name, numbers]) => [
    name, count(numbers.in_flight), count(numbers.waiting),
  ]));
  const silent = stage?.silent_workers ?? [];
  byId("silent").hidden = !silent.length;
  put(byId("silent"), silent.map((one) => `Worker ${one.worker}${one.pid ? ` (pid ${one.pid})` : ""} has said nothing for ${duration(one.seconds)}. It has ${count(one.events)} events${one.first ? `, the first that it was sent ${one.first}` : ""}`).join("\n"));
}

// Only a worker has a fleet.
function showWhose(fleet) {
  const { workers = {}, here } = fleet ?? {};
  const known = Object.keys(workers).length;
  byId("here").hidden = known < 2;
  put(byId("here"), `The numbers of ${workers[here]?.name ?? "this worker"}, one of ${count(known)}: the others are under All workers`);
}

function showFleet() {
  const fleet = now.fleet;
  byId("fleet-panel").hidden = !fleet;
  showWhose(fleet);
  if (!fleet) return;
  // Until the servers have answered for the first time nothing else is known.
  const { workers = {}, error } = fleet;
  const partitions = Object.entries(fleet.partitions ?? {});
  if (fleet.workers) {
    const unit = fleet.unfinished === 1 ? fleet.unit : `${fleet.unit}s`;
    const known = `${count(fleet.unfinished)} ${unit} unfinished, ${count(fleet.stored)} kept by the servers`;
    put(byId("fleet-all"), error ? `${known}, before they did not answer: ${error}` : known);
  } else {
    put(byId("fleet-all"), `The servers have not answered: ${error}`);
  }
  rows("fleet", Object.entries(workers).map(([id, worker]) => {
    const own = partitions.filter(([, one]) => one.owner === id);
    return [worker.name + (id === fleet.here ? " (this one)" : ""), count(own.length),
      ...[own.reduce((sum, [, one]) => sum + one.lag, 0), worker.in_flight, worker.waiting, worker.finished, worker.failed].map((n) => (n === undefined ? "–" : count(n)))];
  }));
  const most = Math.max(1, ...partitions.map(([, one]) => one.lag));
  byId("partitions").replaceChildren(...partitions.map(([number, one]) => {
    const cell = element("li", one.owner ? "" : "free", number);
    const owner = workers[one.owner]?.name ?? (one.owner ? "a worker that is not known yet" : "no worker");
    cell.title = `partition ${number}: ${count(one.lag)} unfinished, ${owner}`;
    const fill = cell.appendChild(element("i"));
    fill.style.height = `${(100 * one.lag) / most}%`;
    return cell;
  }));
}

function show() {
  setState(now.state === "closed" && now.outcome ? "closed" : now.state, now.outcome);
  showTotals();
  showStages();
  drawArrows();
  showThroughput();
  showLatency();
  showHeat();
  showObjectives();
  showSlow();
  showKeys();
  showAccount();
  showErrors();
  showLetters();
  showWorkers();
  showFleet();
}

// The connection.

function setState(state, outcome) {
  const node = byId("state");
  node.dataset.state = state;
  put(node, outcome && state === "closed" ? outcome : state);
  for (const button of document.querySelectorAll("button[data-do]")) {
    button.disabled = !{ pause: ["running"], resume: ["paused"], drain: ["running", "paused"] }[button.dataset.do].includes(state);
  }
}

function say(text) {
  byId("message").hidden = !text;
  put(byId("message"), text);
}

function read(line) {
  const message = JSON.parse(line);
  heard = performance.now();
  if (message.fixed) {
    fixed = message.fixed;
    now = message.now;
    samples = fixed.samples.map(sample);
    put(byId("title"), fixed.title);
    put(byId("library"), fixed.library);
    document.title = `${fixed.title} – penstock`;
    build();
  } else {
    now = patched(now, message.change);
    samples.push(sample(message.sample));
    if (samples.length > KEPT) samples.shift();
  }
  show();
}

async function connect() {
  const response = await fetch("stream", { headers });
  // A proxy says that nobody is behind it.
  if (response.status >= 500) return true;
  if (!response.ok) {
    setState("refused");
    say(response.status === 401
      ? "This page needs the token that penstock has printed: open the address with #token=… at its end."
      : `The server refuses: ${await response.text()}`);
    return false;
  }
  say("");
  askWhatIsAllowed();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return true;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach(read);
  }
}

async function follow() {
  for (;;) {
    try {
      if (!(await connect())) return;
    } catch (error) {
      if (!(error instanceof TypeError || error instanceof DOMException)) console.error(error);
    }
    heard = null;
    // How a run has ended is shown until the next one begins, on the same address.
    if (now.state !== "closed") setState("gone");
    await new Promise((done) => setTimeout(done, 1000));
  }
}

// Each run may allow something else.
function askWhatIsAllowed() {
  fetch("may", { headers }).then((response) => response.json()).then((may) => {
    byId("buttons").hidden = !may.control;
  }).catch(() => {});
}

async function control(wanted) {
  const response = await fetch("control", {
    method: "POST",
    headers: { ...headers, "Content-Type": "application/json" },
    body: JSON.stringify({ do: wanted }),
  });
  if (response.ok) setState((await response.json()).state);
  else say(response.status === 401 ? "To control the pipeline, open the address with its token." : await response.text());
}

async function begin() {
  for (const button of document.querySelectorAll("button[data-do]")) {
    button.addEventListener("click", () => {
      const { do: wanted } = button.dataset;
      if (wanted !== "drain" || confirm("Drain? The pipeline reads nothing more, finishes what is in it, and ends.")) control(wanted);
    });
  }
  setInterval(() => {
    if (heard !== null && performance.now() - heard > SILENT && now.state !== "closed") setState("silent");
  }, 1000);
  addEventListener("hashchange", () => location.reload());
  addEventListener("resize", () => fixed && drawArrows());
  await follow();
}

begin();
