// What each pipe is made of: the clock, the plain handler, the window of duplicates, and the times.

export const LIMIT = 64;
export const now = () => performance.now();
export const project = (event) => ({ uuid: event.uuid, client_id: event.client_id });

const WINDOW = 10_000;

/** Counts of whole microseconds, to three digits, as an HDR histogram has them. */
class Histogram {
  counts = new Uint32Array(24 << 10);
  count = 0;

  record(milliseconds) {
    const time = Math.trunc(milliseconds * 1000);
    const shift = Math.max(0, 21 - Math.clz32(time));
    this.counts[(shift << 10) + (time >>> shift)]++;
    this.count++;
  }

  percentile(share) {
    let left = Math.ceil(this.count * share);
    const index = this.counts.findIndex((count) => (left -= count) <= 0);
    const shift = Math.max(0, (index >> 10) - 1);
    return (index - (shift << 10)) << shift;
  }
}

export class Steps {
  duplicates = 0;
  waiting = new Histogram();
  service = new Histogram();
  total = new Histogram();
  #seen = new Map();
  #sweep = 0;

  isNew(uuid, at) {
    if (at >= this.#sweep) this.#forget(at);
    const first = this.#seen.get(uuid);
    if (first !== undefined) {
      if (at - first < WINDOW) {
        this.duplicates++;
        return false;
      }
      this.#seen.delete(uuid);
    }
    this.#seen.set(uuid, at);
    return true;
  }

  #forget(at) {
    this.#sweep = at + WINDOW / 100;
    for (const [uuid, first] of this.#seen) {
      if (at - first < WINDOW) break;
      this.#seen.delete(uuid);
    }
  }

  record(created, started, ended) {
    this.waiting.record(started - created);
    this.service.record(ended - started);
    this.total.record(ended - created);
  }
}
