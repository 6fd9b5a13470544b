"""States that are read in a thread, as over a network: nothing is overtaken, and nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import itemgetter
from threading import Event as Gate
from typing import Any

import pytest

from penstock import Context, Store, collect, from_iterable, run, stateful
from penstock.streams.base.errors import CannotOpen, notes_of
from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.protocol.event import RETURNED
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.state.backend import Columns, KeptStage, Row, Unit
from penstock.streams.state.changes import Root, committed
from penstock.streams.state.codec import decoder
from penstock.streams.state.memory import Memory
from penstock.streams.state.states import States
from penstock.streams.state.timers import Timers
from penstock.streams.testing import ManualPublisher, Probe, run_virtual


class Remote(Memory):
    """A backend behind a network: a read waits until the gate is open."""

    reads_in_thread = True

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self.gate.set()
        self.asked: list[list[bytes]] = []

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        self.asked.append(list(keys))
        assert self.gate.wait(10)
        return super().read(stage, keys)


def numbered(n: int, text: str) -> tuple[int, list[str]]:
    return n + 1, [f"{text}:{n + 1}"]


def by_letter(backend: Remote, **options: Any) -> Any:
    store = Store.of(backend, "remote", every=0.0, cache=options.pop("cache", 100))
    return stateful(numbered, itemgetter(0), start=0, store=store, **options)


def test_events_wait_for_those_before_them_whose_states_are_read() -> None:
    backend = Remote()

    async def story() -> list[Any]:
        source, probe = ManualPublisher[str](), Probe[Any](request=9)
        connect(source.pipe(by_letter(backend)), probe, Run())
        source.send("a1")
        await asyncio.sleep(1)
        backend.gate.clear()
        source.send("b1", "a2", "c1", "b2", "d1")
        for _ in range(9):
            await asyncio.sleep(0)
        assert probe.values == ["a1:1"]
        backend.gate.set()
        await asyncio.sleep(1)
        return probe.values[1:]

    assert run_virtual(story()) == ["b1:1", "a2:2", "c1:1", "b2:2", "d1:1"]
    # What has waited for one read is read in the next; keys in memory are not.
    assert list(map(sorted, backend.asked)) == [[b'"a"'], [b'"b"'], [b'"c"', b'"d"']]


def test_the_input_may_end_while_states_are_read() -> None:
    found: list[str] = []
    text = "abcabdda"
    run_virtual(from_iterable(text).pipe(by_letter(Remote(), cache=1)).to(collect(found)).run())
    assert found == [f"{one}:{text[: at + 1].count(one)}" for at, one in enumerate(text)]


def test_events_whose_states_cannot_be_converted_are_skipped_in_their_places() -> None:
    backend, found = Remote(), list[str]()

    def half(n: int) -> int:
        if n % 2:
            raise ValueError(n)
        return n // 2

    def go(text: str, **options: Any) -> None:
        found.clear()
        stage = by_letter(backend, cache=1, **options)
        run_virtual(from_iterable(text).pipe(stage).to(collect(found)).run())

    go("aabcc")
    go("abcabcd", version=2, migrate={1: half}, on_error="skip")
    assert found == ["a:2", "c:2", "a:3", "c:3", "d:1"]
    go("ab", version=2, migrate={1: int})
    assert found == ["a:4", "b:2"]


def test_events_that_wait_for_their_states_are_returned_by_a_cancel() -> None:
    backend = Remote()

    async def story() -> list[Any]:
        source, probe, run = ManualPublisher[str](), Probe[Any](request=9), Run()
        connect(source.pipe(by_letter(backend)), probe, run)
        backend.gate.clear()
        source.send("a1")
        source.send("b1")
        probe.cancel()
        backend.gate.set()
        await run.close()
        assert probe.values == []
        return source.ledger.ended(RETURNED)

    assert run_virtual(story()) == ["a1", "b1"]


def test_a_read_that_fails_ends_the_run_with_an_error_that_names_the_stage() -> None:
    class Lost(Remote):
        def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
            raise CannotOpen("The store is away.")

    with pytest.raises(CannotOpen, match="The store is away") as error:
        run(from_iterable(["a1"]).pipe(by_letter(Lost())).to(collect([])))
    assert notes_of(error.value) == ["in stage 2 'stateful'"]


def test_a_store_that_does_not_answer_is_said_to(caplog: pytest.LogCaptureFixture) -> None:
    class Away(Memory):
        in_thread = reads_in_thread = True

        def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
            take_long()
            return super().read(stage, keys)

        def commit(self, unit: Unit) -> None:
            take_long()
            super().commit(unit)

    loop: Any = None

    def take_long() -> None:
        gate = Gate()
        loop.call_soon_threadsafe(loop.advance, 6)
        loop.call_soon_threadsafe(loop.call_later, 0, gate.set)
        assert gate.wait(10)

    async def story() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        store = Store.of(Away(), "far away")
        stage = stateful(numbered, itemgetter(0), start=0, store=store)
        await from_iterable(["a1"]).pipe(stage).to(collect([])).run()

    run_virtual(story())
    for what in ("read", "commit"):
        assert f"Store('far away') has not answered a {what} for 5 s" in caplog.text


def test_timers_fire_for_keys_whose_states_are_not_in_memory() -> None:
    def set_alarm(n: int, text: str, ctx: Context) -> tuple[int, list[str]]:
        ctx.timer("alarm", after=40)
        return n + 1, []

    def alarm(n: int, timer: str, ctx: Context) -> tuple[int, list[str]]:
        return n, [f"{ctx.key}:{n}"]

    backend = Remote()
    store = Store.of(backend, "remote", every=0.0, cache=1)
    keys = [f"key {number}" for number in range(150)]

    async def story() -> list[str]:
        source, probe, run = ManualPublisher[str](), Probe[Any](request=999), Run()
        stage = stateful(set_alarm, str, start=0, on_timer=alarm, store=store)
        connect(source.pipe(stage), probe, run)
        await asyncio.sleep(1)
        source.send(*keys)
        await asyncio.sleep(100)
        await run.close()
        return list(probe.values)

    assert sorted(run_virtual(story())) == sorted(f"{key}:1" for key in keys)


def test_a_timer_that_is_committed_while_others_are_read_is_not_missed() -> None:
    backend, stage = Memory(), KeptStage("one", "key", 1)
    backend.declare([stage])
    states = States(
        *(StageInfo("stateful"), backend, stage, decoder(None), 0, None, {}, 100, lambda: 0.0)
    )
    timers = Timers(states)
    timers.now = 0.0
    missing = states.missing({"a"})
    states.add(missing, states.read(missing))
    root = Root()
    change = states.change(states.cells["a"], root, 1, {"alarm": 5.0})
    read, add = timers.reading()
    found = read()
    rows: list[Columns] = []
    states.write([change], rows, [])
    backend.commit(Unit(rows={"one": rows}))
    committed([root])
    add(found)
    timers.now = 6.0
    assert timers.is_due
    assert timers.first() == "a"


def test_timers_that_come_with_a_partition_while_others_are_read_are_not_missed() -> None:
    backend, stage = Memory(), KeptStage("one", "key", 1)
    backend.declare([stage])
    states = States(
        *(StageInfo("stateful"), backend, stage, decoder(None), 0, None, {}, 100, lambda: 0.0)
    )
    timers = Timers(states)
    timers.now = 0.0
    read, add = timers.reading()
    found = read()
    backend.commit(Unit(rows={"one": [Row(b'"a"', b"1", 1, b'{"alarm": 5.0}', 5.0)]}))
    timers.restart()
    add(found)
    assert timers.next() is not None
    assert timers.is_behind
    read, add = timers.reading()
    add(read())
    timers.now = 6.0
    assert timers.is_due
    assert timers.first() == "a"


def test_a_number_too_large_for_json_that_migrate_has_made_is_not_written() -> None:
    backend, stage = Memory(), KeptStage("one", "key", 2)
    backend.declare([stage])
    backend.commit(Unit(rows={"one": [Row(b'"a"', b"1", 1, b"", None)]}))
    states = States(
        *(StageInfo("stateful"), backend, stage, decoder(None), 0, None),
        *({1: lambda n: 1 << 70}, 100, lambda: 0.0),
    )
    missing = states.missing({"a"})
    states.add(missing, states.read(missing))
    change = states.keep(states.cells["a"], Root(), {"alarm": 5.0})
    with pytest.raises(TypeError, match="Integer exceeds 64-bit range"):
        states.write([change], [], [])
