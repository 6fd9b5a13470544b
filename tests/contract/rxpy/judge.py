"""Compares the records of RxPY's tests with and without demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DIFFER", "OTHER", "REFUSED", "SAME", "Judged", "judge", "table"]

Records = Mapping[str, Mapping[str, Any]]

SAME = "same"
DIFFER = "records differ"
REFUSED = "refused"
OTHER = "other"
KINDS = (SAME, DIFFER, REFUSED, OTHER)


@dataclass(frozen=True, slots=True)
class Judged:
    """A test, and what became of it through a stream with demand.

    `kind` is "same" if it passes, and its observers received the same at the same times from
    sources with the same subscriptions; "records differ" if it passes only; "refused" if it fails
    because a pipeline with its operator is not built, or has a timer and no loop; "other" if it
    fails. `why` is the error.
    """

    test: str
    kind: str
    why: str = ""

    @property
    def file(self) -> str:
        return self.test.split("::")[0].rsplit("/", 1)[-1]


def judge(stock: Records, through: Records) -> list[Judged]:
    """All tests that pass on the stock operators and have a pipe that went through a stream."""
    return [
        _one(test, record, through.get(test, _MISSING))
        for test, record in stock.items()
        if record["outcome"] == "passed" and through.get(test, _MISSING)["piped"]
    ]


_MISSING: Mapping[str, Any] = {"outcome": "missing", "error": "it did not run", "piped": 0}


def _one(test: str, stock: Mapping[str, Any], ours: Mapping[str, Any]) -> Judged:
    if ours["outcome"] == "passed":
        is_same = all(ours[what] == stock[what] for what in ("messages", "subscriptions"))
        return Judged(test, SAME if is_same else DIFFER)
    if ours["refused"]:
        return Judged(test, REFUSED, ours["refused"][0])
    if ours["kind"] == "NoLoop":
        return Judged(test, REFUSED, ours["error"].splitlines()[0])
    return Judged(test, OTHER, ours["error"].splitlines()[0])


def table(tests: Iterable[Judged]) -> list[str]:
    """Lines of a table: how many tests of each file are of each kind."""
    files: dict[str, Counter[str]] = {}
    for one in tests:
        files.setdefault(one.file, Counter())[one.kind] += 1
    total = sum(files.values(), Counter[str]())
    rows = [("file", KINDS), *((file, _numbers(files[file])) for file in sorted(files))]
    width = max(len(file) for file, _ in rows)
    return [_row(file, numbers, width) for file, numbers in [*rows, ("all", _numbers(total))]]


def _numbers(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(str(counts[kind] or "") for kind in KINDS)


def _row(file: str, numbers: tuple[str, ...], width: int) -> str:
    return f"{file:{width}}" + "".join(f"{number:>16}" for number in numbers)
