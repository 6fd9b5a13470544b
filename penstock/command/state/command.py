"""`penstock state ACTION STORE`: look at the states in a store, and change them.

What only reads does so beside the run that uses the store; what writes is such a run itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from os import scandir
from os.path import getsize, isdir
from time import time
from typing import TYPE_CHECKING, Any, TypeAlias

from orjson import OPT_APPEND_NEWLINE, Fragment, JSONDecodeError, dumps, loads

from penstock.command.output import counted, mention, put, put_one
from penstock.command.state.text import Mark, Stage, TimeLine, as_text
from penstock.streams.base.database_url import is_postgresql, redacted
from penstock.streams.base.errors import BuildError, CannotOpen, WrongType
from penstock.streams.io.kept_position import position_in
from penstock.streams.state.backend import KeptStage, OfMany, Row, Unit
from penstock.streams.state.changes import END, is_over
from penstock.streams.state.codec import key_in, key_of, timers_in
from penstock.streams.state.store import backend_at

if TYPE_CHECKING:
    from penstock.streams.state.jetstream.backend import JetStream
    from penstock.streams.state.kafka.backend import Kafka
    from penstock.streams.state.postgresql.backend import PostgreSQL
    from penstock.streams.state.rocks import Rocks
    from penstock.streams.state.sqlite import SQLite

__all__ = ["call"]

_NOT_FOUND = 1
_WRITING = ("set", "drop")
# Lines that are put out at once.
_LINES = 1_000

Backend: TypeAlias = "SQLite | PostgreSQL | Rocks | JetStream | Kafka"


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run an action; returns the exit status: 1 if the key that it is about is not there."""
    try:
        with _opened(options.store, options.action, options.kafka_config) as store:
            return _ACTIONS[options.action](store, options)
    except KeyboardInterrupt:
        return 0


@contextmanager
def _opened(path: str, action: str, kafka_config: str | None) -> Generator[Backend]:
    """The store in a file or on servers. Raises BuildError, of which CannotOpen is one."""
    config: dict[str, Any] | None = None
    if kafka_config is not None:
        if not path.lower().startswith("kafka://"):
            raise BuildError("--kafka-config goes with a store at kafka://BROKERS/TOPIC")
        from penstock.command.kafka_config import settings_in

        config = settings_in(kafka_config)
    store = backend_at(path, config=config)
    try:
        if action in _WRITING and path.lower().startswith("kafka://"):
            # It is refused, and before all of it is read.
            _open(store, path, action)
        # Opened to read first: to open for writing creates a store where there is none.
        store.open_to_read()
        if action in _WRITING:
            store.close()
            if action == "drop" and is_postgresql(path):
                from penstock.streams.state.postgresql.backend import FORMATS, PostgreSQL

                # Of a shared one it deletes the states of all partitions.
                assert isinstance(store, PostgreSQL)
                store.formats = FORMATS
            _open(store, path, action)
        yield store
    finally:
        store.close()


def _open(store: Backend, path: str, action: str) -> None:
    """Open a store for writing. Raises CannotOpen."""
    try:
        store.open()
    except OfMany:
        other = "and not changed. To begin anew, give the pipeline a store of another name"
        if is_postgresql(path):
            other = "and drop deletes those of a stage when no process runs"
        raise CannotOpen(
            f"state {action}: the states in {redacted(path)} are those of many processes, "
            "and each changes those of its partitions. They can be read here (show, peek, export, "
            f"backup), {other}. To change the state of a key, send the pipeline an event with this "
            "key that does."
        ) from None


# Reading.


def _show(store: Backend, options: argparse.Namespace) -> int:
    stages = [_stage(store, one) for one in store.stages()]
    marks: list[Mark] = []
    lines: list[TimeLine] = []
    for partition, content in store.marks():
        if partition.startswith("event_time "):
            lines += _time_lines(partition, content)
        else:
            marks.append(_mark(partition, content))
    if options.json:
        shown = {"stages": stages, "marks": marks, "event_times": lines}
        return put(dumps(shown, option=OPT_APPEND_NEWLINE).decode())
    return put(as_text(redacted(options.store), stages, marks, lines))


def _stage(store: Backend, stage: KeptStage) -> Stage:
    keys, size = store.size(stage.name)
    next_ = store.due(stage.name, 0.0, float("inf"), 1)
    due = _time(next_[0][0]) if next_ else None
    return Stage(stage.name, stage.by, stage.version, keys, size, due)


def _time_lines(name: str, content: bytes) -> Iterator[TimeLine]:
    for partition, kept in loads(content).items():
        greatest: float | None = kept["greatest"]
        # States that move have a mark for each partition, which its name says.
        shown = f"{name.removesuffix(f' {partition}')} of {partition}" if partition else name
        yield TimeLine(shown, None if greatest is None else _time(greatest))


def _mark(partition: str, content: bytes) -> Mark:
    if partition.startswith("kafka "):
        from penstock.streams.kafka.offsets.stored import Done, done_in

        done = done_in(content)
        if not isinstance(done, Done):
            return Mark(partition, None, None, [], None)
        ranges = [(first, end - 1) for first, end in done.finished]
        return Mark(partition, done.floor, None, ranges, done.floor if ranges else None)
    saved = position_in(content)
    if not isinstance(saved, dict):
        return Mark(partition, None, None, [], None)
    # Their ends are kept as in `range`.
    finished = [(first, end - 1) for first, end in saved["finished"]]
    line = saved["line"]
    return Mark(partition, line, saved["offset"], finished, line + 1 if finished else None)


def _peek(store: Backend, options: argparse.Namespace) -> int:
    stage = _named(store, options)
    if options.key is None:
        return _put_all(_line(row, stage) for row in islice(_scan(store, stage), options.count))
    row = _row(store, stage, options.key)
    if row is None:
        return _no_state(stage, options.key)
    return put(_line(row, stage))


def _export(store: Backend, options: argparse.Namespace) -> int:
    stages = store.stages() if options.stage is None else [_named(store, options)]
    return _put_all(
        _line(row, stage, {"stage": stage.name}) for stage in stages for row in _scan(store, stage)
    )


def _scan(store: Backend, stage: KeptStage) -> Iterator[Row]:
    """The rows of a stage, except those that are over."""
    now = time()
    return (row for row in store.scan(stage.name) if not is_over(timers_in(row.timers), now))


def _put_all(lines: Iterator[str]) -> int:
    while some := "".join(islice(lines, _LINES)):
        status = put_one(some, of_many=True, line=True)
        if status is not None:
            return status
    return 0


def _line(row: Row, stage: KeptStage, fields: dict[str, Any] | None = None) -> str:
    timers = timers_in(row.timers)
    ends = timers.pop(END, None)
    fields = {**(fields or {}), "key": Fragment(row.key), "state": Fragment(row.state)}
    if row.version != stage.version:
        fields["version"] = row.version
    if timers:
        fields["timers"] = {name: _time(due) for name, due in timers.items()}
    if ends is not None:
        fields["ends"] = _time(ends)
    return dumps(fields, option=OPT_APPEND_NEWLINE).decode()


def _time(seconds: float) -> datetime | float:
    try:
        return datetime.fromtimestamp(round(seconds, 3), UTC)
    except (OverflowError, ValueError, OSError):
        # Later than any date of Python.
        return seconds


def _backup(store: Backend, options: argparse.Namespace) -> int:
    store.backup(options.path)
    mention(f"{options.path} has a copy of the store, {counted(_size_of(options.path), 'byte')}")
    return 0


def _size_of(path: str) -> int:
    """The bytes of a file, or of the files of a folder."""
    if not isdir(path):
        return getsize(path)
    with scandir(path) as files:
        return sum(file.stat().st_size for file in files)


# Writing.


def _set(store: Backend, options: argparse.Namespace) -> int:
    stage, text = _named(store, options), options.state
    try:
        is_gone = loads(text) is None
    except JSONDecodeError as error:
        raise BuildError(
            f"--state {text!r} is not JSON ({error}): a text is in double quotes, as in "
            "--state '\"open\"'"
        ) from error
    row = _row(store, stage, options.key)
    if is_gone:
        if row is None:
            return _no_state(stage, options.key)
        store.commit(Unit(gone={stage.name: [row.key]}))
        mention(f"{row.key.decode()} of {stage.name!r} is deleted: its state was {_state(row)}")
        return 0
    if row is not None:
        what = f"has the state {text} now, in place of {_state(row)}"
    elif options.create:
        what = f"is new, with the state {text}"
        row = Row(_keys(options.key)[0], b"", stage.version, b"", None)
    else:
        raise BuildError(
            f"{options.key} has no state in {stage.name!r}: if it is to be a new key, give --create"
        )
    # A row keeps its version: its state has the form that `peek` has shown.
    store.commit(Unit(rows={stage.name: [row._replace(state=text.encode())]}))
    mention(f"{row.key.decode()} of {stage.name!r} {what}")
    return 0


def _state(row: Row) -> str:
    return row.state.decode()


def _drop(store: Backend, options: argparse.Namespace) -> int:
    stage = _named(store, options)
    keys, _ = store.size(stage.name)
    store.forget(stage.name)
    mention(f"{stage.name!r} deleted, with {counted(keys, 'key')}")
    return 0


# What is meant.


def _named(store: Backend, options: argparse.Namespace) -> KeptStage:
    """The stage that is meant. Raises BuildError if there is none, or it is not known which."""
    stages = store.stages()
    for stage in stages:
        if stage.name == options.stage or (options.stage is None and len(stages) == 1):
            return stage
    has = f"{redacted(options.store)} has"
    if not stages:
        raise BuildError(f"{has} no states of any stage")
    names = ", ".join(repr(stage.name) for stage in stages)
    if options.stage is None:
        raise BuildError(f"{has} the stages {names}: say which, by --stage NAME")
    raise BuildError(f"{has} no stage {options.stage!r}: it has {names}")


def _row(store: Backend, stage: KeptStage, text: str) -> Row | None:
    """The row of the key that is written like this; None if there is none, or it is over."""
    now = time()
    rows = {
        row.key: row
        for row in store.read(stage.name, _keys(text))
        if not is_over(timers_in(row.timers), now)
    }
    return next((rows[key] for key in _keys(text) if key in rows), None)


def _keys(text: str) -> list[bytes]:
    """The keys that may be written like this, as they are kept: what it is as JSON, and the text
    itself. Raises BuildError if there are none."""
    keys: list[bytes] = []
    for key in _meant(text):
        with suppress(WrongType):
            keys.append(key_of(key))
    if not keys:
        raise BuildError(f"--key {text!r}: a key is a text, a number or a list of these")
    return keys


def _meant(text: str) -> Iterator[object]:
    with suppress(JSONDecodeError, UnicodeEncodeError):
        yield key_in(text.encode())
    yield text


def _no_state(stage: KeptStage, key: str) -> int:
    mention(f"{key} has no state in {stage.name!r}", "error")
    return _NOT_FOUND


_ACTIONS = {
    "show": _show,
    "peek": _peek,
    "export": _export,
    "set": _set,
    "drop": _drop,
    "backup": _backup,
}
