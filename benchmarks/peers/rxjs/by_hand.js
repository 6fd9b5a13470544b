import { LIMIT, now } from "./steps.js";

const HALF = 512;

/** A queue for each client, a rotation of the clients that are ready, and 64 workers. */
export async function byHand(events, handler, steps) {
  const queues = new Map();
  const ready = [];
  const parked = [];
  let waiting = 0;
  let room = () => {};
  let ended = false;

  async function work() {
    for (;;) {
      while (!ready.length) {
        if (ended) return;
        await new Promise((wake) => parked.push(wake));
      }
      const queue = ready.shift();
      const { created, event } = queue[0];
      if (--waiting <= HALF) room();
      const started = now();
      const result = handler(event);
      if (result instanceof Promise) await result;
      steps.record(created, started, now());
      queue.shift();
      if (queue.length) ready.push(queue);
      else queues.delete(event.client_id);
    }
  }
  const wake = (count) => parked.splice(0, count).forEach((one) => one());

  const workers = Array.from({ length: LIMIT }, work);
  for (let next = 0; next < events.length; next += HALF) {
    const created = now();
    for (const event of events.slice(next, next + HALF)) {
      if (!steps.isNew(event.uuid, created)) continue;
      waiting++;
      const queue = queues.get(event.client_id);
      if (queue) queue.push({ created, event });
      else {
        const first = [{ created, event }];
        queues.set(event.client_id, first);
        ready.push(first);
      }
    }
    wake(ready.length);
    if (waiting > HALF) await new Promise((resolve) => (room = resolve));
  }
  ended = true;
  wake(LIMIT);
  await Promise.all(workers);
}
