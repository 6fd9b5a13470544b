// The kata in JavaScript, by hand and on RxJS:
//
//     node --expose-gc kata.js (by_hand | rxjs) (plain | yielding) FILE LATER
//
// FILE is of `python -m benchmarks.workload`; it is read anew before each of the 1 + LATER runs.

import { readFileSync } from "node:fs";
import { byHand } from "./by_hand.js";
import { onRxjs } from "./on_rxjs.js";
import { now, project, Steps } from "./steps.js";

const pipes = { by_hand: byHand, rxjs: onRxjs };
const handlers = {
  plain: project,
  yielding: async (event) => {
    await new Promise(setImmediate);
    return project(event);
  },
};

async function run(pipe, handler, file) {
  const events = readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));
  const steps = new Steps();
  globalThis.gc();
  const wall = now();
  const before = process.cpuUsage();
  await pipe(events, handler, steps);
  const cpu = process.cpuUsage(before);
  return {
    cpu_seconds: (cpu.user + cpu.system) / 1e6,
    wall_seconds: (now() - wall) / 1000,
    events: events.length,
    finished: steps.total.count,
    duplicates: steps.duplicates,
    waiting: { p50: steps.waiting.percentile(0.5), p99: steps.waiting.percentile(0.99) },
    service: { p50: steps.service.percentile(0.5), p99: steps.service.percentile(0.99) },
  };
}

const [, , pipe, handler, file, later] = process.argv;
const runs = [];
for (let round = 0; round <= Number(later); round++) {
  runs.push(await run(pipes[pipe], handlers[handler], file));
}
const [first, ...rest] = runs;
console.log(JSON.stringify({ ...first, later: rest.map((one) => one.cpu_seconds) }));
