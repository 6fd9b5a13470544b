// The kata on RxJS. What it cannot do: it has no back-pressure, so that all events wait inside
// `concatMap`, and no turns. Clients share 64 groups, as `mergeMap` would lose events of groups over
// its maximum.

import { concatMap, filter, from, groupBy, lastValueFrom, map, mergeMap } from "rxjs";
import { LIMIT, now, project } from "./steps.js";

export async function onRxjs(events, handler, steps) {
  const handle = ({ created, event }) => {
    const started = now();
    const record = (result) => (steps.record(created, started, now()), result);
    const result = handler(event);
    return result instanceof Promise ? result.then(record) : record(result);
  };
  const each = handler === project ? map(handle) : concatMap(handle);
  const results = from(events).pipe(
    map((event) => ({ created: now(), event })),
    filter(({ created, event }) => steps.isNew(event.uuid, created)),
    groupBy(({ event }) => event.client_id % LIMIT),
    mergeMap((group) => group.pipe(each)),
  );
  await lastValueFrom(results);
}
