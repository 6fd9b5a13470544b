"""The rows of an ordinary table in the order in which they come: the interface, for each order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from orjson import JSONDecodeError, loads

from penstock.streams.base.errors import CannotOpen, ColumnMissing
from penstock.streams.delivery.marks import Marks
from penstock.streams.delivery.text import Unusable, body_in
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue.reconnect import Reconnecting
from penstock.streams.sql_queue.schema import Required, quoted
from penstock.streams.sql_queue.store import Store
from penstock.streams.sql_queue.url import place_of

__all__ = ["Found", "GrowingOptions", "GrowingRows"]

Found = tuple[Any, dict[str, Any]]
"""The token of a row and its columns."""


@dataclass(frozen=True, slots=True)
class GrowingOptions:
    """The options of a reader; `read_table` documents each."""

    columns: Sequence[str]
    position: str | Marks | None
    batch: int
    follow: bool
    poll: float
    patience: float


class GrowingRows(ABC):
    """Finds the rows that have come since the last look, each once."""

    about: str
    """What a position of this kind is about."""
    front: Any = None
    """The last of the rows that were read in their order; None before the first."""

    has_settled = False
    """Whether fewer rows may come behind the front than at the last look at this."""

    def __init__(
        self, run: Run, info: StageInfo, store: Store, insist: Reconnecting, options: GrowingOptions
    ) -> None:
        self.name = place_of(store.url, store.layout.table)
        self._run = run
        self._info = info
        self._store = store
        self._insist = insist
        self._options = options
        self._by = [_in_statement(name) for name in options.columns]
        self._columns = ""
        # When rows behind the front are looked for again, in the loop's time.
        self._look_at = 0.0

    async def open(self) -> None:
        """Connect. Raises CannotOpen, TableMissing and ColumnMissing."""
        await self._insist(partial(self._store.open, Required([], there=True)))
        there = self._store.columns
        for column in self._options.columns:
            if column not in there:
                raise ColumnMissing(
                    f"{self._info}: the table lacks {column!r}; it has: "
                    f"{', '.join(map(repr, there))}"
                )
        self._columns = ", ".join(map(_in_statement, there))

    @abstractmethod
    async def next_rows(self, count: int) -> list[Found]:
        """Some rows that have come, at most `count`; none if there are none now."""

    @abstractmethod
    def state(self, unfinished: Iterable[Any]) -> dict[str, Any]:
        """What the next run needs to go on, after this `front`; with the tokens of the rows that
        are not `unfinished` only here."""

    @abstractmethod
    def go_on(self, state: Any) -> None:
        """Go on where an earlier run was. Raises LookupError, TypeError or ValueError if it is not
        a `state`."""

    @abstractmethod
    def statistics(self) -> dict[str, Any]:
        """The numbers of `GrowingReader.statistics` that are about the order."""

    def go_on_from(self, text: str, kept: str, again: str) -> None:
        """Go on from a position, kept there; `again` is what to do to begin anew. Raises
        CannotOpen for what was not written for this table."""
        advice = f"To read {self.name} from its start, {again}."
        body = body_in(text, (self.about,))
        if isinstance(body, Unusable):
            raise CannotOpen(f"Cannot go on from {kept}: {body}. {advice}")
        try:
            saved: Any = loads(body)
            written_for = str(saved["table"])
            if written_for == self.name:
                self.go_on(saved)
        except (JSONDecodeError, LookupError, TypeError, ValueError) as error:
            raise CannotOpen(f"Cannot go on from {kept}: it is not a position. {advice}") from error
        if written_for != self.name:
            raise CannotOpen(
                f"Cannot go on from {kept}: it is the position in {written_for}, not in "
                f"{self.name}. {advice}"
            )

    async def _select(
        self, keys: str, condition: str, count: int | None = None, **values: Any
    ) -> list[tuple[Any, ...]]:
        """Rows in their order: the `keys`, and then the row's columns, if these are to be read."""
        limit = "" if count is None else " LIMIT :count"
        text = (
            f"SELECT {keys} FROM {{table}} AS t WHERE {condition} "
            f"ORDER BY {', '.join(self._by)}{limit}"
        )
        if count is not None:
            values["count"] = count
        return await self._insist(partial(self._store.read, text, **values))

    def _first(self, found: list[Found], count: int) -> list[Found]:
        """The first `count` rows of one more. Raises CannotOpen where two have the same token: a
        read may end between them, and the next one begins behind both."""
        for (token, _), (following, _) in pairwise(found):
            if token == following:
                names = " and ".join(map(repr, self._options.columns))
                raise CannotOpen(
                    f"{self._info}: several rows have {token!r} in {names}, of which some would be "
                    "missed: from_id= needs a column whose values are unique, or a pair (time, id) "
                    "with such an id"
                )
        return found[:count]

    def _row(self, values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self._store.columns, values, strict=True))


def _in_statement(name: str) -> str:
    return f"t.{quoted(name)}".replace("{", "{{").replace("}", "}}")
