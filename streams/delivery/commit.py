"""What belongs together is written as one: ends of events, and the parts that were made of them.

    added ──> unit ──> being written ──> settled
      ^                     │
      └──── tried again ────┘  nothing of it was written

An event of a source is a *root*: a row, a record. What is made of roots and has to be there if and
only if they are finished, such as a result, is a *part* of them. A *unit* is written in one
step by the one writer that holds all of it: the transaction of a table with the rows and results,
or the file of a position. The writer knows its own roots. How a part is written only its *kind*
knows, so a further kind changes neither the unit nor the writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from penstock.streams.base.errors import cancelled_outside

__all__ = ["Commit", "Kind", "Part", "Parts", "by_kind"]

R = TypeVar("R")


class Kind(Protocol):
    """A kind of parts, each of which has a value."""

    def write(self, transaction: Any, values: list[Any], /) -> Any:
        """Write the values in a transaction that is under way, in order; it is not committed here.

        What the transaction is depends on the writer, and so does whether the answer is awaited.
        What this raises undoes the transaction.
        """
        ...


Parts = Mapping[Kind, list[Any]]
"""The values of each kind that are to be written in one unit."""


class Part(Generic[R]):
    """A value of a kind that was made of the `roots`, and is written in one unit with them.

    `done` is called once: with None when the value is written, or `is_void` because its roots are;
    with the error if it was refused, and then returns whether its roots end for good. `room` is
    called once, then or earlier: the maker may have one more.
    """

    __slots__ = ("_done", "_room", "is_void", "kind", "roots", "settled", "value")

    def __init__(
        self,
        kind: Kind,
        value: Any,
        roots: list[R],
        done: Callable[[Part[R], Exception | None], bool],
        room: Callable[[], None] | None = None,
    ) -> None:
        self.kind = kind
        self.value = value
        self.roots = roots
        self.settled = self.is_void = False
        self._done = done
        self._room = room

    def release(self) -> None:
        """The part waits for others, which must not wait for its room."""
        room, self._room = self._room, None
        if room is not None:
            room()

    def settle(self, error: Exception | None = None, *, is_void: bool = False) -> bool:
        """The part is written or void, or was refused. Returns whether its roots end for good."""
        if self.settled:
            return False
        self.settled, self.is_void = True, is_void
        is_final = self._done(self, error)
        # As in `release`, without a call for each part.
        room, self._room = self._room, None
        if room is not None:
            room()
        return is_final


def by_kind(parts: Iterable[Part[Any]]) -> dict[Kind, list[Any]]:
    """The values of parts that are not settled, each once, in the order in which they came."""
    found: dict[Kind, list[Any]] = {}
    for part in dict.fromkeys(parts):
        if not part.settled:
            values = found.get(part.kind)
            if values is None:
                values = found[part.kind] = []
            values.append(part.value)
    return found


class Commit:
    """Writes units one after another: what is added while one is written is in the next.

    `write` takes what was added and writes it, either at once or in a coroutine that it returns. It
    is called in the loop iteration after something was added, so what is added in one iteration is
    one unit. A unit that is being written is not interrupted. `soon` calls a function in the next
    loop iteration; `failed` gets the error of a unit, which it loses unless `write` has kept it.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[], Coroutine[Any, Any, None] | None],
        soon: Callable[[Callable[[], None]], object],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._name = name
        self._write = write
        self._soon = soon
        self._failed = failed
        # Whether something was added that no unit has taken, and whether `flush` gets the errors.
        self._is_due = self._is_flushed = False
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something is to be written, or is being written."""
        return self._is_due or self._writing is not None

    def due(self) -> None:
        """Something was added, or is left over."""
        if not self._is_due:
            self._is_due = True
            if self._writing is None:
                self._soon(self.begin)

    def begin(self) -> None:
        """Write what was added now, unless a unit is being written."""
        # By the time it is called the last unit may have been written.
        if self._is_due and self._writing is None:
            self._is_due = False
            work = self._write()
            if work is not None:
                self._writing = asyncio.Task(work, name=f"penstock {self._name}")
                self._writing.add_done_callback(self._ended)

    def _ended(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
        error = (
            cancelled_outside(f"the task '{self._name}'", asyncio.CancelledError())
            if writing.cancelled()
            else writing.exception()
        )
        if error is None:
            if self._is_due:
                self._soon(self.begin)
        elif not self._is_flushed:
            self._failed(error)

    async def ended(self) -> None:
        """Wait until the unit that is being written is, or has failed; not for the next."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def flush(
        self, ended: Callable[[asyncio.Task[None]], Awaitable[None]] = lambda writing: writing
    ) -> None:
        """Write all that was added, the last unit too; `ended` waits for one.

        Raises what `write` and `ended` raise.
        """
        self._is_flushed = True
        try:
            while self.is_busy:
                self.begin()
                writing = self._writing
                if writing is not None:
                    if writing.done():
                        # Its end is not noted yet, and waiting for it would not let that happen.
                        await asyncio.sleep(0)
                    await ended(writing)
        finally:
            self._is_flushed = False
