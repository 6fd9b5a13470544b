"""The job on litequeue, which has no worker: a loop that gets, works and marks as done."""

from __future__ import annotations

import json
from typing import Any

from litequeue import LiteQueue

from benchmarks import case
from benchmarks.table.shared import URL, payloads


def plain(options: case.Options) -> dict[str, Any]:
    queue = LiteQueue(URL.removeprefix("sqlite:///") + ".litequeue")
    with queue.transaction():
        for text in payloads(options.events):
            queue.put(text)

    def job() -> dict[str, Any]:
        done = 0
        # It also returns None for a row that cannot be locked.
        while (message := queue.pop()) is not None:
            json.loads(message.data)
            queue.done(message.message_id)
            done += 1
        assert done == options.events
        return {"finished": done}

    return case.timed(job, options.events)


if __name__ == "__main__":
    case.main({"plain": plain})
