// Runs the script of the live page in Node, on elements that keep only what is put into them, with
// scripted answers of the server. Prints what the page showed after each line that it had read.
"use strict";

const { readFileSync } = require("node:fs");
const vm = require("node:vm");

const { script, connections, shown } = JSON.parse(readFileSync(0, "utf8"));

class Element {
  constructor(tag) {
    this.tagName = tag;
    this.children = [];
    this.own = "";
    this.hidden = false;
    this.dataset = {};
    this.style = { setProperty() {} };
    this.attributes = {};
    this.classList = { toggle() {} };
    if (tag === "table") this.tBodies = [this.appendChild(new Element("tbody"))];
  }
  get textContent() { return this.own + this.children.map((one) => one.textContent).join(""); }
  set textContent(text) { this.replaceChildren(); this.own = String(text); }
  get lastChild() { return this.children[this.children.length - 1]; }
  get rows() { return this.children; }
  get cells() { return this.children; }
  append(...nodes) { for (const one of nodes) this.appendChild(one instanceof Element ? one : new Text(one)); }
  appendChild(node) { this.children.push(node); return node; }
  insertBefore(node, other) { this.children.splice(this.children.indexOf(other), 0, node); }
  replaceChildren(...nodes) { this.own = ""; this.children = []; this.append(...nodes); }
  insertRow() { return this.appendChild(new Element("tr")); }
  insertCell() { return this.appendChild(new Element("td")); }
  deleteRow() { this.children.pop(); }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener() {}
  getContext() { return { createImageData: (w, h) => ({ data: new Uint8ClampedArray(4 * w * h) }), putImageData() {} }; }
}

class Text extends Element {
  constructor(text) { super("#text"); this.own = String(text); }
}

const byId = new Map();
const TABLES = ["latency", "objectives", "slow", "keys", "account", "errors", "letters", "fleet", "workers"];
const found = (id) => {
  if (!byId.has(id)) byId.set(id, new Element(TABLES.includes(id) ? "table" : "div"));
  return byId.get(id);
};

const snapshots = [];
let allows = false;
// A table as a list of its rows, anything else as text; null while it, or its panel, is hidden.
const look = (id) => {
  const node = found(id);
  if (node.hidden || found(`${id}-panel`).hidden) return null;
  if (node.tBodies) return node.tBodies[0].rows.map((row) => row.cells.map((cell) => cell.textContent));
  return node.textContent;
};
const boxes = () => found("stages").children
  .flatMap((one) => (one.className === "sinks" ? one.children : [one]))
  .filter((one) => one.className === "stage")
  .map((one) => one.children.map((part) => part.textContent).filter(Boolean));
const snapshot = () => snapshots.push({
  ...Object.fromEntries(shown.map((id) => [id, look(id)])), boxes: boxes(),
});

const settle = () => new Promise((done) => setImmediate(done));

function finish() {
  process.stdout.write(JSON.stringify(snapshots), () => process.exit(0));
}

function answered({ status = 200, lines = [], text = "" }) {
  let at = 0;
  const read = async () => {
    // The page has shown the line before.
    if (at) { await settle(); snapshot(); }
    if (at >= lines.length) return { done: true };
    at += 1;
    return { done: false, value: `${JSON.stringify(lines[at - 1])}\n` };
  };
  const body = { pipeThrough: () => ({ getReader: () => ({ read }) }) };
  return { status, ok: status < 400, body, text: async () => text };
}

async function fetched(path) {
  if (path !== "stream") return { ok: true, json: async () => ({ control: allows }) };
  const next = connections.shift();
  if (next === undefined) {
    snapshot();
    finish();
    return new Promise(() => {});
  }
  if (next.failed) throw new TypeError("fetch failed");
  allows = next.control ?? false;
  return answered(next);
}

Object.assign(globalThis, {
  Node: Element,
  document: {
    getElementById: found,
    createElement: (tag) => new Element(tag),
    createElementNS: (_, tag) => new Element(tag),
    querySelectorAll: () => [],
    documentElement: new Element("html"),
  },
  location: { hash: "", reload() {} },
  getComputedStyle: () => ({ display: "block", getPropertyValue: () => "1, 2, 3" }),
  addEventListener() {},
  setInterval() {},
  // Waiting takes no time; what is shown meanwhile is kept.
  setTimeout: (done) => { snapshot(); setImmediate(done); },
  fetch: fetched,
});

// Where the page gives up, nothing is left to do.
process.on("beforeExit", () => { snapshot(); finish(); });
process.on("unhandledRejection", (error) => { process.stderr.write(`${error.stack}\n`); process.exit(1); });

vm.runInThisContext(readFileSync(script, "utf8"), { filename: script });
