"""Parses the messages of workers to masters; raises ValueError for anything else."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from orjson import loads

__all__ = ["KINDS", "Hello", "Report", "hello_in", "report_in"]


class Hello(NamedTuple):
    """A worker's greeting: how many jobs it can hold in all."""

    worker: str
    capacity: int


class Report(NamedTuple):
    """The outcomes of jobs, each by its number and how often it went out before: results, final
    errors, jobs that were not done, jobs that are asked about, and jobs that begin alone."""

    hello: Hello
    done: list[tuple[int, int, Any]]
    failed: list[tuple[int, int, str, str, int]]
    returned: list[tuple[int, int]]
    asked: list[tuple[int, int]]
    alone: list[tuple[int, int]]


KINDS: dict[str, tuple[type, ...]] = {
    "done": (int, int, object),
    "failed": (int, int, str, str, int),
    "returned": (int, int),
    "asked": (int, int),
    "alone": (int, int),
}


def hello_in(data: bytes) -> Hello:
    """The greeting in a message."""
    return _hello(_fields(data))


def report_in(data: bytes) -> Report:
    """The report in a message."""
    fields = _fields(data)
    for kind, types in KINDS.items():
        items: Any = fields.get(kind)
        if items.__class__ is not list or not all(_fits(item, types) for item in items):
            raise ValueError(f"its {kind!r} lists no jobs")
    return Report(_hello(fields), *(fields[kind] for kind in KINDS))


def _fields(data: bytes) -> dict[str, Any]:
    fields: Any = loads(data)
    if fields.__class__ is not dict:
        raise ValueError("it is not a JSON object")
    return cast(dict[str, Any], fields)


def _hello(fields: dict[str, Any]) -> Hello:
    worker: Any = fields.get("worker")
    capacity: Any = fields.get("capacity")
    if worker.__class__ is not str or capacity.__class__ is not int or capacity < 0:
        raise ValueError("it names no worker, or no number of jobs that one can hold")
    return Hello(worker, capacity)


def _fits(item: Any, types: tuple[type, ...]) -> bool:
    return (
        item.__class__ is list
        and len(item) == len(types)
        and all(isinstance(part, kind) for part, kind in zip(item, types, strict=True))
    )
