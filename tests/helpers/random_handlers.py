"""Handlers with random behaviour, which report at once when they are called wrongly.

The fate of a value is drawn from the value and the name of the walk alone, so a model without time
gives its expected results (`of`), however the calls were interleaved.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

__all__ = ["BatchHandler", "Gauge", "Handler", "InTurn", "Notes", "Outcome", "Trouble", "Value"]

Value = tuple[int, ...]
"""The number that the source gave, and one more for each step that made a new value of it."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a value: `results`, and `extra` ones of attempts that have failed.

    No event depends on the latter.
    """

    results: list[Value]
    extra: Sequence[Value] = ()
    fails: bool = False


class Trouble(Exception):
    """The error that handlers and sinks raise here."""


class Notes:
    """The notes of the parts of one walk: features that were met, and faults."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.met: set[str] = set()
        self.wrong: list[str] = []
        # Whether calls may be cancelled by the pipeline, which ends before its time.
        self.aborts = False
        # Called as often as anything begins or ends.
        self.look: Callable[[], None] = lambda: None

    def draw(self, *what: object) -> float:
        """A number in [0, 1) that depends on the walk and on `what` alone."""
        return random.Random(f"{self.name} {what}").random()

    def blame(self, what: str) -> None:
        """Record a fault; a handler that raised it would only have failed."""
        self.wrong.append(what)


class Gauge:
    """Counts open calls, of one stage or of all that share a limit; `most` may be at once."""

    def __init__(self, notes: Notes, most: int | None) -> None:
        self.notes, self.most = notes, most
        # The present value of a limit that moves.
        self.now: Callable[[], int] | None = None
        self.open = 0

    def begin(self, who: str) -> None:
        self.open += 1
        # A call that is cancelled before it has begun does not report its end.
        if self.most is not None and self.open > self.most and not self.notes.aborts:
            self.notes.blame(f"{who}: {self.open} calls at once, {self.most} may be")
        if self.now is not None and self.open > self.now():
            self.notes.blame(f"{who}: {self.open} calls at once, the limit is {self.now()}")

    def end(self) -> None:
        self.open -= 1


class InTurn:
    """Checks that a key's events are in order and one at a time, retries included."""

    def __init__(self, notes: Notes, key: Callable[[Value], Any]) -> None:
        self.notes, self.key = notes, key
        self._places: dict[Value, int] = {}
        self._busy: dict[Any, Any] = {}
        self._last: dict[Any, tuple[int, Value]] = {}
        self._parents: defaultdict[int, set[Value]] = defaultdict(set)

    def arrives(self, value: Value) -> Value:
        """The next event of its group."""
        self._places.setdefault(value, len(self._places))
        return value

    def _place(self, value: Value) -> tuple[int, Value]:
        """The place of the event, then that among the children that share its turn."""
        parent = value
        while parent not in self._places:
            if not parent:
                self.notes.blame(f"{value} has come from nowhere")
                return -1, value
            parent = parent[:-1]
        return self._places[parent], value

    def begins(self, value: Value, call: Any, *, is_first: bool) -> None:
        """`call` works on the event, alone or with others of its group."""
        key = self.key(value)
        busy = self._busy.setdefault(key, call)
        if busy != call:
            self.notes.blame(f"{value} began while {busy} had the turn of {key}")
        place = self._place(value)
        if is_first:
            if self._last.get(key, (-1, ())) >= place:
                self.notes.blame(f"{value} began after {self._last[key][1]}")
            self._last[key] = place
            parent = self._parents[place[0]]
            parent.add(value)
            if len(parent) > 1:
                self.notes.met.add("children that share a turn")

    def ends(self, value: Value) -> None:
        """The event gives up its turn, or its share of it."""
        self._busy.pop(self.key(value), None)

    def comes_out(self) -> Callable[[Value], None]:
        """Check that results of each key come in the order of its events."""
        last: dict[Any, tuple[int, Value]] = {}

        def check(result: Value) -> None:
            key, place = self.key(result), self._place(result[:-1])
            if last.get(key, (-1, ())) > place:
                self.notes.blame(f"the result {result} came after one of {last[key][1]}")
            last[key] = place

        return check


class Handler:
    """A handler of `adaptive_flat_map`, of any kind, and its record."""

    KINDS = ("plain", "later", "mixed", *("async",) * 5, "several", "several", "rows")
    ASYNC = ("async", "several")

    def __init__(
        self,
        notes: Notes,
        number: int,
        kind: str,
        gauge: Gauge,
        turns: list[InTurn],
        *,
        times: int,
        stops: bool,
        ordered: bool = False,
        timeout: float | None,
        fates: list[str],
        trouble: float,
        waits: list[str],
    ) -> None:
        self.notes, self.number, self.kind, self.gauge, self.turns = (
            notes,
            number,
            kind,
            gauge,
            turns,
        )
        self.times, self.stops, self.ordered, self.timeout = times, stops, ordered, timeout
        self.fates, self.trouble, self.waits = fates, trouble, waits
        # Results that may wait beside those of the calls that are open.
        self.window = 0
        self.tried: Counter[Value] = Counter()
        self.first: dict[Value, int] = {}
        """The place of each event in the order of the starts."""
        self.cut: set[tuple[Value, int]] = set()
        """Attempts that were cancelled."""
        self.made: set[Value] = set()
        kinds: dict[str, Any] = {
            "plain": self.plain,
            "later": lambda value: self._rest(value, self._begin(value)),
            "mixed": self.mixed,
            "async": self.later,
            "several": self.several,
            "rows": lambda value: self._several(value, self._begin(value)),
        }
        self.function = kinds[kind]

    @property
    def iterates(self) -> bool:
        """Whether a call has any number of results."""
        return self.kind in ("several", "rows")

    def fate(self, value: Value) -> str:
        draw = self.notes.draw(self.number, "fate", value)
        if draw >= self.trouble:
            return "fine"
        return self.fates[int(draw / self.trouble * len(self.fates))]

    def fails(self, value: Value, attempt: int) -> bool:
        """Whether this attempt fails; where that is decided at the last moment, whether it did."""
        fate = self.fate(value)
        if fate.endswith("once"):
            return attempt == 1
        if fate == "at the last moment":
            return (value, attempt) in self.cut
        return fate in ("fails", "hangs", "hangs on", "hangs and returns", "is cancelled")

    def _results(self, value: Value, attempt: int) -> list[Value]:
        count = 1
        if self.iterates:
            count = int(self.notes.draw(self.number, "count", value) * 5)
            count = 12 if self.notes.draw(self.number, "many", value) < 0.1 else count
        return [(*value, 100 * attempt + n) for n in range(count)]

    def of(self, value: Value) -> Outcome:
        """The expected results of a value, and whether it succeeds in the end."""
        extra: list[Value] = []
        for attempt in range(1, self.times + 1):
            results = self._results(value, attempt)
            if not self.fails(value, attempt):
                return Outcome(results, extra)
            if self.iterates:
                extra += results
        return Outcome([], extra, fails=True)

    # The kinds.

    def plain(self, value: Value) -> Value:
        attempt = self._begin(value)
        try:
            return self._outcome(value, attempt)
        finally:
            self._end(value, attempt)

    def mixed(self, value: Value) -> Any:
        if self.notes.draw(self.number, "mixed", value) < 0.5:
            return self._rest(value, self._begin(value))
        return self.plain(value)

    async def later(self, value: Value) -> Value:
        return await self._rest(value, self._begin(value))

    async def _rest(self, value: Value, attempt: int) -> Value:
        began = asyncio.get_running_loop().time()
        try:
            await self._wait(value, attempt, 1)
            return self._outcome(value, attempt)
        except asyncio.CancelledError:
            self._was_cut(value, attempt, began)
            raise
        finally:
            self._end(value, attempt)

    async def several(self, value: Value) -> AsyncIterator[Value]:
        async with aclosing(self._several(value, self._begin(value))) as results:
            async for result in results:
                yield result

    async def _several(self, value: Value, attempt: int) -> AsyncGenerator[Value]:
        began = asyncio.get_running_loop().time()
        results = self._results(value, attempt)
        try:
            for n, result in enumerate(results):
                if self.fate(value) == "fine":
                    await self._wait(value, attempt, len(results) + 1)
                self.made.add(result)
                if n:
                    self.notes.met.add("iterator")
                yield result
            await self._wait(value, attempt, len(results) + 1)
            self._outcome(value, attempt)
        except asyncio.CancelledError:
            self._was_cut(value, attempt, began)
            raise
        finally:
            self._end(value, attempt)

    # What they have in common.

    def _begin(self, value: Value) -> int:
        attempt = self.tried[value] = self.tried[value] + 1
        if attempt > 1:
            self.notes.met.add("retry")
        if attempt > self.times:
            self.notes.blame(f"stage {self.number}: attempt {attempt} at {value}")
        self.first.setdefault(value, len(self.first))
        if not self._is_beyond_limit(attempt):
            self.gauge.begin(f"stage {self.number}")
        for turn in self.turns:
            turn.begins(value, value, is_first=attempt == 1)
        self.notes.look()
        return attempt

    def _is_beyond_limit(self, attempt: int) -> bool:
        """Whether a call may begin when as many as the limit are open.

        The next attempt of the head of the order does while all others wait for its results.
        """
        return self.ordered and attempt > 1

    def _end(self, value: Value, attempt: int) -> None:
        if not self._is_beyond_limit(attempt):
            self.gauge.end()
        fails = self.fails(value, attempt)
        if attempt == self.times or not fails:
            if fails and self.stops:
                self.notes.aborts = True
            for turn in self.turns:
                turn.ends(value)
        self.notes.look()

    async def _wait(self, value: Value, attempt: int, parts: int) -> None:
        loop = asyncio.get_running_loop()
        fate = self.fate(value)
        self._check_task()
        if fate == "leaves":
            # Only the handler itself cancels its task.
            self.notes.aborts = True
            self.notes.met.add("cancel from inside")
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)
        if fate == "hangs" or (fate == "hangs once" and attempt == 1):
            await asyncio.sleep(100)
        elif fate == "hangs on":
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(0.2)
        elif fate == "hangs and returns":
            began = loop.time()
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                self._was_cut(value, attempt, began)
        elif fate == "at the last moment":
            assert self.timeout is not None
            await asyncio.sleep(self.timeout)
        else:
            how = self.waits[int(self.notes.draw(self.number, "wait", value) * len(self.waits))]
            if how == "loop iterations":
                for _ in range(1 + int(3 * self.notes.draw(self.number, "turns", value))):
                    await asyncio.sleep(0)
            elif how == "a future":
                future = loop.create_future()
                loop.call_soon(lambda: future.done() or future.set_result(None))
                await future
            elif how == "time":
                draw = self.notes.draw(self.number, "time", value, attempt)
                await asyncio.sleep((0.05, 0.1, 0.1, 0.3, 0.5)[int(5 * draw)] / parts)

    def _outcome(self, value: Value, attempt: int) -> Value:
        fate = self.fate(value)
        if fate == "is cancelled" or (fate == "is cancelled once" and attempt == 1):
            self.notes.met.add("cancel from inside")
            raise asyncio.CancelledError
        if fate == "hangs and returns":
            # Too late for anybody to receive it.
            return (*value, -1)
        if fate != "at the last moment" and self.fails(value, attempt):
            raise Trouble(value)
        (result, *_) = self._results(value, attempt) or [value]
        self.made.add(result)
        return result

    def _check_task(self) -> None:
        task = asyncio.current_task()
        if task is not None and task.cancelling() and not self.notes.aborts:
            self.notes.blame(f"stage {self.number}: a call began in a task that is being cancelled")

    def _was_cut(self, value: Value, attempt: int, began: float) -> None:
        fate = self.fate(value)
        if fate.startswith("is cancelled") or fate == "leaves":
            return
        self.cut.add((value, attempt))
        if not self.notes.aborts:
            seconds = asyncio.get_running_loop().time() - began
            if self.timeout is None or seconds < self.timeout - 1e-9:
                self.notes.blame(f"stage {self.number}: {value} was cancelled after {seconds} s")
            else:
                self.notes.met.add("timeout")


class BatchHandler(Handler):
    """A handler of `batch`. Its calls are repeated with halves, so attempts show little."""

    KINDS = ("plain", "later", "async", "async")
    ASYNC = ("async",)

    def __init__(self, notes: Notes, number: int, kind: str, *arguments: Any, **options: Any):
        self.most = options.pop("most")
        super().__init__(notes, number, kind, *arguments, **options)
        self._alone: Counter[Value] = Counter()
        kinds: dict[str, Any] = {
            "plain": self.all_at_once,
            "later": lambda values: self._rest_of_all(values, self._begin_all(values)),
            "async": self.all_later,
        }
        self.function = kinds[kind]

    def _results(self, value: Value, attempt: int) -> list[Value]:
        return [(*value, 0)]

    def fails(self, value: Value, attempt: int) -> bool:
        return self.fate(value) in ("fails", "fails in its place", "hangs")

    def all_at_once(self, values: list[Value]) -> list[Any]:
        call = self._begin_all(values)
        try:
            return self._outcomes(values)
        finally:
            self._end_all(values, call)

    async def all_later(self, values: list[Value]) -> list[Any]:
        return await self._rest_of_all(values, self._begin_all(values))

    async def _rest_of_all(self, values: list[Value], call: object) -> list[Any]:
        try:
            if any(self._hangs(value) for value in values):
                await asyncio.sleep(100)
            elif self.notes.draw(self.number, "wait", values[0]) < 0.7:
                await asyncio.sleep(0.1)
            return self._outcomes(values)
        except asyncio.CancelledError:
            if self.timeout is not None and not self.notes.aborts:
                self.notes.met.add("timeout")
            raise
        finally:
            self._end_all(values, call)

    def _begin_all(self, values: list[Value]) -> object:
        self.notes.look()
        self.notes.met.add("batch")
        if not 0 < len(values) <= self.most:
            self.notes.blame(f"stage {self.number}: a batch of {len(values)}")
        self.gauge.begin(f"stage {self.number}")
        call = tuple(values)
        for value in values:
            if len(values) == 1:
                self._alone[value] += 1
                if self._alone[value] > 1:
                    self.notes.met.add("retry")
                if self._alone[value] > self.times:
                    self.notes.blame(f"stage {self.number}: one more attempt at {value}")
            for turn in self.turns:
                turn.begins(value, call, is_first=value not in self.first)
            self.first.setdefault(value, len(self.first))
        return call

    def _end_all(self, values: list[Value], call: object) -> None:
        self.gauge.end()
        for value in values:
            if self.stops and self.fails(value, self.times):
                self.notes.aborts = True
            for turn in self.turns:
                turn.ends(value)
        self.notes.look()

    def _hangs(self, value: Value) -> bool:
        fate = self.fate(value)
        return fate == "hangs" or (fate == "hangs once" and not self._again(value))

    def _again(self, value: Value) -> bool:
        """Whether a call with this value alone has failed before."""
        return self._alone[value] > 1

    def _outcomes(self, values: list[Value]) -> list[Any]:
        for value in values:
            fate = self.fate(value)
            if fate == "fails" or (fate == "fails once" and not self._again(value)):
                raise Trouble(value)
        outcomes: list[Any] = []
        for value in values:
            if self.fate(value) == "fails in its place":
                outcomes.append(Trouble(value))
            else:
                outcomes.append((*value, 0))
                self.made.add((*value, 0))
        return outcomes
