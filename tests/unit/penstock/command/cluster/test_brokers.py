"""The sub-commands with `--on` need nothing of a broker but a module in their folder and a line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from penstock import Pipeline, for_each, from_iterable
from penstock.command.cluster import broker
from penstock.command.cluster.broker import (
    Beside,
    Letters,
    Look,
    Publishing,
    Stored,
    head,
)
from penstock.command.pipelines.options import Options
from penstock.streams.delivery.view import View
from penstock.streams.io.letter import Letter
from penstock.streams.pipelines.pipeline import Engine
from penstock.streams.pipelines.running import Report, Running

Penstock = Callable[..., Any]


def view_of(name: str, events: list[Any]) -> View:
    return View(name=name, stored=len(events), letters=0, lag={}, owners={}, workers={})


class Member:
    name, id, restarts = "here", "1", 0
    running: Running | None = None

    def __init__(self, pipeline: Pipeline, engine: Engine, beside: Beside) -> None:
        self._start = partial(pipeline.start, engine=engine)
        self._beside = beside

    async def run(self) -> Report:
        self.running = self._start()
        async with await self._beside(self.running):
            return await self.running.wait()

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None: ...

    def cancel(self) -> None: ...


class Shelf:
    """A broker whose events are in a list of this process."""

    events: list[Any]
    again: list[int]

    refused: ClassVar[dict[str, str]] = {"batch": "a shelf takes one at a time"}
    moves_states: ClassVar[bool] = False

    def __init__(self, options: argparse.Namespace) -> None:
        self._name = options.on.partition("://")[2]

    def prepare(self, pipeline: Pipeline) -> str:
        return f"shelf '{self._name}'"

    @asynccontextmanager
    async def member(
        self, pipeline: Pipeline, attempts: int, options: Options, beside: Beside
    ) -> AsyncGenerator[tuple[Member, Callable[[], Awaitable[View]]]]:
        async def view() -> View:
            return view_of(self._name, self.events)

        engine = Engine(from_iterable(list(self.events)), "stop")
        yield Member(pipeline, engine, beside), view

    @asynccontextmanager
    async def publishing(self, pipeline: Pipeline) -> AsyncGenerator[Publishing]:
        flow = pipeline.flowable.chain()[0].to(for_each(self.events.append))
        yield flow, lambda report: f"{len(self.events)} on the shelf"

    @asynccontextmanager
    async def looking(self) -> AsyncGenerator[Look]:
        async def texts() -> list[str]:
            return ["\n".join([*head(view_of(self._name, self.events)), ""])]

        yield texts

    @asynccontextmanager
    async def letters(self) -> AsyncGenerator[Letters]:
        async def send(number: int) -> None:
            self.again.append(number)

        async def stored() -> AsyncIterator[Stored]:
            for number in (1, 2):
                letter = Letter(number, number, "ValueError", "no", "stage 2", 1, "k", "", None)
                yield letter, partial(send, number)

        yield Letters(stored())


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Shelf]:
    module: Any = ModuleType("shelf")
    module.Shelf = Shelf
    monkeypatch.setitem(sys.modules, "penstock.command.cluster.shelf", module)
    monkeypatch.setitem(broker.BROKERS, "shelf", "shelf.Shelf")
    monkeypatch.setattr(Shelf, "events", [], raising=False)
    monkeypatch.setattr(Shelf, "again", [], raising=False)
    (tmp_path / "pipe.py").write_text(
        "from penstock import adaptive_flat_map, read_jsonl, write_jsonl\n"
        "def double(n):\n"
        "    return {'twice': 2 * n['n']}\n"
        "pipeline = read_jsonl().pipe(adaptive_flat_map(double)).to(write_jsonl())\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    return Shelf


def test_nothing_is_stored_for_a_pipeline_that_cannot_be_run_there(
    penstock: Penstock, shelf: type[Shelf], tmp_path: Path
) -> None:
    (tmp_path / "events.jsonl").write_text('{"n": 1}\n', encoding="utf-8")
    (tmp_path / "pipe.py").write_text(
        "from penstock import Store, read_jsonl, stateful, write_jsonl\n"
        "def count(n, event):\n"
        "    return n + 1, [n]\n"
        "counts = stateful(count, 'n', start=0, store=Store('n.state'))\n"
        "pipeline = read_jsonl().pipe(counts).to(write_jsonl())\n",
        encoding="utf-8",
    )
    fed = penstock("publish", "pipe.py", "--on", "shelf://top", "--input", "events.jsonl")
    ran = penstock("run", "pipe.py", "--on", "shelf://top")
    assert (fed.status, ran.status) == (2, 2)
    assert fed.err == ran.err
    assert "has a store that one process uses" in fed.err
    assert shelf.events == []


def test_a_pipeline_is_fed_run_and_seen_on_a_broker_that_nobody_else_knows(
    penstock: Penstock, shelf: type[Shelf], tmp_path: Path
) -> None:
    (tmp_path / "events.jsonl").write_text('{"n": 1}\n{"n": 2}\n', encoding="utf-8")
    on = ("--on", "shelf://top")
    fed = penstock("publish", "pipe.py", *on, "--input", "events.jsonl")
    assert fed.status == 0, fed.err
    assert "  stored: 2 on the shelf" in fed.err
    assert shelf.events == [{"n": 1}, {"n": 2}]
    assert penstock("status", *on).out.startswith("top: 0 events unfinished, 2 kept, 0 dead")
    ran = penstock("run", "pipe.py", *on, "--output", "done.jsonl")
    assert ran.status == 0, ran.err
    assert "worker here of shelf 'top'; in a stage without on_error, an event that" in ran.err
    done = (tmp_path / "done.jsonl").read_text(encoding="utf-8")
    assert done == '{"twice":2}\n{"twice":4}\n'


def test_its_dead_letters_are_listed_chosen_and_sent_again(
    penstock: Penstock, shelf: type[Shelf]
) -> None:
    listed = penstock("dead-letters", "list", "--on", "shelf://top")
    assert [json.loads(line)["sequence"] for line in listed.out.splitlines()] == [1, 2]
    again = penstock("dead-letters", "replay", "--id", "2", "--on", "shelf://top")
    assert "1 event published again" in again.err
    assert shelf.again == [2]


@pytest.mark.usefixtures("shelf")
def test_an_option_that_it_does_not_know_is_refused_with_its_reason(penstock: Penstock) -> None:
    ran = penstock("publish", "pipe.py", "--on", "shelf://top", "--batch", "8")
    assert ran.status == 2
    assert "--batch does not go with --on shelf://: a shelf takes one at a time" in ran.err
