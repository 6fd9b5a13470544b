"""The job on Huey over SQLite: the work of one of its workers, without the consumer's threads."""

from __future__ import annotations

import logging
from typing import Any

from huey import SqliteHuey

from benchmarks import case
from benchmarks.table.shared import URL, payloads

logging.disable()


def plain(options: case.Options) -> dict[str, Any]:
    huey = SqliteHuey(filename=URL.removeprefix("sqlite:///") + ".huey", results=False, fsync=False)
    done = 0

    @huey.task()
    def work(payload: str) -> None:
        nonlocal done
        done += 1

    for text in payloads(options.events):
        work(text)

    def job() -> dict[str, Any]:
        while (task := huey.dequeue()) is not None:
            huey.execute(task)
        assert done == options.events
        return {"finished": done}

    return case.timed(job, options.events)


if __name__ == "__main__":
    case.main({"plain": plain})
